//! Strangers' suites by hand:
//!
//! ```text
//! shunt-conformance [--quick] [SUITE | SUITE/PART]...   run, compare, keep the results
//! shunt-conformance --list                              what there is
//! shunt-conformance --needs                             what has to be installed, for scripts/prepare
//! shunt-conformance --document                          docs/reference/CONFORMANCE.md and PROGRAMS.md, from the results kept
//! shunt-conformance packetdrill --source PATH [...]     scripts of packetdrill's, with hand-overs between their events
//! ```

use shunt_conformance::compare::{Compared, Difference, Outcome};
use shunt_conformance::schedule::{self, Pair};
use shunt_conformance::suite::{Part, Suite};
use shunt_conformance::{document, packetdrill, pattern, record};
use shunt_sys::{calls, libc, Errno};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
        ["packetdrill", arguments @ ..] => packetdrill::run(arguments),
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
    inherit_nothing()?;
    let chosen: Vec<(&Suite, &Part)> = suites
        .iter()
        .flat_map(|suite| suite.part.iter().map(move |part| (suite, part)))
        .filter(|(suite, part)| wanted(suite, part, words))
        .collect();
    if chosen.is_empty() {
        return Err(format!("no suite or part is called {}", words.join(" ")));
    }
    for suite in suites.iter().filter(|suite| chosen.iter().any(|(other, _)| other.name == suite.name)) {
        suite.make_ready()?;
    }
    let mut count = Count::default();
    let mut again = Vec::new();
    schedule::both_sides(&chosen, |index, Pair { kernel, shunt, time }| {
        let (suite, part) = chosen[index];
        match kernel.and_then(|kernel| Compared::first(suite, part, kernel, shunt?)) {
            Ok(compared) if !compared.is_equal() => {
                println!("test {}/{}: not equal at once ({} s)", suite.name, part.name, time.as_secs());
                again.push((suite, part, compared));
            }
            compared => count.add(suite, part, compared.and_then(|compared| compared.settle(suite, part)), time),
        }
    });
    for (suite, part, compared) in again {
        let began = Instant::now();
        let outcome = compared.settle(suite, part);
        count.add(suite, part, outcome, began.elapsed());
    }
    let Count { equal, different, cases } = count;
    let verdict = if different == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {equal} passed; {different} failed; 0 ignored; {cases} cases of strangers' suites");
    Ok(different == 0)
}

/// What this process was given beside the standard descriptors stays here. There are tests that look for descriptors
/// which a server lets its children have, and cannot tell ours from the server's once the server is gone.
fn inherit_nothing() -> Result<(), String> {
    let done = calls::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    done.map_err(|Errno(number)| format!("close_range: {}", std::io::Error::from_raw_os_error(number)))
}

/// Parts, and the cases in them.
#[derive(Default)]
struct Count {
    equal: usize,
    different: usize,
    cases: usize,
}

impl Count {
    fn add(&mut self, suite: &Suite, part: &Part, outcome: Result<Outcome, String>, time: Duration) {
        let name = format!("{}/{}", suite.name, part.name);
        let outcome = match outcome.and_then(|outcome| record::keep(suite, part, &outcome).map(|()| outcome)) {
            Ok(outcome) => outcome,
            Err(message) => {
                println!("test {name} ... FAILED ({message})");
                self.different += 1;
                return;
            }
        };
        let verdict = if outcome.passes() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({} cases, {} s)", outcome.cases(), time.as_secs());
        outcome.different.iter().for_each(|difference| tell("different", difference));
        outcome.unsteady.iter().for_each(|difference| tell("unsteady", difference));
        self.cases += outcome.cases();
        *(if outcome.passes() { &mut self.equal } else { &mut self.different }) += 1;
    }
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
