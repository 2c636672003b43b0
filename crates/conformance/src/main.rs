//! Strangers' suites by hand:
//!
//! ```text
//! shunt-conformance [--quick] [SUITE | SUITE/PART]...   run, compare, keep the results
//! shunt-conformance --list                              what there is
//! shunt-conformance --needs                             what has to be installed, for scripts/prepare
//! shunt-conformance --document                          docs/CONFORMANCE.md from the results kept
//! ```

use shunt_conformance::compare::{self, Difference};
use shunt_conformance::suite::{Part, Suite};
use shunt_conformance::{document, pattern};
use std::process::ExitCode;

fn main() -> ExitCode {
    match act() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("shunt-conformance: {message}");
            ExitCode::from(2)
        }
    }
}

fn act() -> Result<bool, String> {
    let suites = Suite::all()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--list"] => {
            for suite in &suites {
                for part in &suite.part {
                    println!("{}/{}{}", suite.name, part.name, if part.quick { " (quick)" } else { "" });
                }
            }
            Ok(true)
        }
        ["--document"] => document::write(&suites).map(|()| true),
        ["--needs", names @ ..] => {
            for suite in suites.iter().filter(|suite| suite.part.iter().any(|part| wanted(suite, part, names))) {
                suite.needs.iter().for_each(|need| println!("{need}"));
            }
            Ok(true)
        }
        names => run(&suites, names),
    }
}

/// Whether the words of the command line choose a part: `--quick`, `SUITE`, `SUITE/PART`, with `*`; none choose all.
fn wanted(suite: &Suite, part: &Part, words: &[&str]) -> bool {
    let names: Vec<&&str> = words.iter().filter(|word| **word != "--quick").collect();
    let full = format!("{}/{}", suite.name, part.name);
    let named = names.is_empty() || names.iter().any(|name| **name == suite.name || pattern::matches(name, &full));
    named && (part.quick || !words.contains(&"--quick"))
}

fn run(suites: &[Suite], words: &[&str]) -> Result<bool, String> {
    let (mut equal, mut different, mut cases) = (0, Vec::new(), 0);
    for suite in suites {
        let parts: Vec<&Part> = suite.part.iter().filter(|part| wanted(suite, part, words)).collect();
        if parts.is_empty() {
            continue;
        }
        suite.make_ready()?;
        for part in parts {
            let began = std::time::Instant::now();
            let outcome = compare::part(suite, part)?;
            document::keep(suite, part, &outcome)?;
            let full = format!("{}/{}", suite.name, part.name);
            let verdict = if outcome.passes() { "ok" } else { "FAILED" };
            println!("test {full} ... {verdict} ({} cases, {} s)", outcome.cases(), began.elapsed().as_secs());
            outcome.different.iter().for_each(|difference| tell("different", difference));
            outcome.unsteady.iter().for_each(|difference| tell("unsteady", difference));
            cases += outcome.cases();
            if outcome.passes() {
                equal += 1;
            } else {
                different.push(full);
            }
        }
    }
    if equal + different.len() == 0 {
        return Err(format!("no suite or part is called {}", words.join(" ")));
    }
    let verdict = if different.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {equal} passed; {} failed; 0 ignored; {cases} cases of strangers' suites",
        different.len()
    );
    Ok(different.is_empty())
}

fn tell(what: &str, difference: &Difference) {
    let expected = if difference.expected { ", as expected" } else { "" };
    println!(
        "    {what}{expected}: {}\n        kernel: {}\n        shunt:  {}",
        difference.case,
        difference.kernel.join("; "),
        difference.shunt.join("; ")
    );
}
