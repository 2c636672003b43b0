//! The laboratory by hand:
//!
//! ```text
//! shunt-differential list [NAME...]
//! shunt-differential rows                       what has to be exact, and how many scenarios show it
//! shunt-differential show NAME [ARRANGEMENT]    the kernel's transcript, or shunt's in an arrangement such as `both`
//! shunt-differential stability [RUNS] [NAME...]  does the kernel give the same every time?
//! shunt-differential compare [NAME...]          kernel against shunt, differences printed
//! shunt-differential compare --across [ARRANGEMENT...] [NAME...]   the same with near and far on hosts of their own
//! shunt-differential compare --trapped [NAME...]   under `--raw trap`, what makes no calls of its own
//! shunt-differential random COUNT [SEED]        sequences drawn from seeds, from SEED on; a difference is shortened
//! shunt-differential random --across [ARRANGEMENT...] COUNT [SEED]   the same with the sides on hosts of their own
//! shunt-differential seeds NAME COUNT [SEED]    scenarios that draw their calls from seeds, as `soak` runs them
//! shunt-differential replay FILE [ARRANGEMENT]  a sequence from a file, on the kernel or in an arrangement
//! shunt-differential soak MINUTES [SEED]        sequences and scenarios drawn from seeds
//! shunt-differential matrix                     all of it, into target/semantics-matrix.md
//! shunt-differential matrix --across [ARRANGEMENT...] [FILE.c...]  between hosts, into docs/reference/SEMANTICS-HOSTS.md: everything, or these files anew
//! ```

mod commands;

use commands::jobs::chosen;
use commands::{compare, matrices, seeds};
use shunt_differential::random::hunt;
use shunt_differential::rows::Rows;
use shunt_differential::trial::Trial;
use shunt_differential::{catalogue, namespace, programs, Arrangement};
use std::process::ExitCode;

const USAGE: &str = "usage: shunt-differential list [NAME...] | rows | show NAME [ARRANGEMENT]
       shunt-differential compare [--across | --trapped] [NAME...] | stability [RUNS] [NAME...]
       shunt-differential random [--across] COUNT [SEED] | seeds NAME COUNT [SEED] | replay FILE [ARRANGEMENT] | soak MINUTES [SEED]
       shunt-differential matrix [--across]";

fn main() -> ExitCode {
    if let Err(message) = namespace::become_able() {
        eprintln!("shunt-differential: {message}");
        return ExitCode::from(2);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["list", rest @ ..] => list(rest),
        ["rows"] => rows(),
        ["show", name, rest @ ..] => show(name, rest.first().copied()),
        ["stability", rest @ ..] => compare::stability(rest),
        ["compare", "--across", rest @ ..] => compare::compare_across(rest),
        ["compare", "--trapped", rest @ ..] => compare::compare_trapped(rest),
        ["compare", rest @ ..] => compare::compare(rest),
        ["soak", minutes, rest @ ..] => seeds::soak(minutes, rest.first().copied()),
        ["random", "--across", rest @ ..] => seeds::random_across(rest),
        ["random", count, rest @ ..] => seeds::random(count, rest.first().copied(), &hunt::ARRANGEMENTS),
        ["seeds", name, count, rest @ ..] => seeds::seeds(name, count, rest.first().copied()),
        ["replay", file, rest @ ..] => seeds::replay(file, rest.first().copied()),
        ["matrix", "--across", rest @ ..] => matrices::write_matrix_across(rest),
        ["matrix"] => matrices::write_matrix(),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("shunt-differential: {message}");
            ExitCode::from(2)
        }
    }
}

/// A reader that reads no further (`list | head`) ends this program, as it ends others; Rust's start-up would have it panic.
fn end_with_the_reader() {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn list(names: &[&str]) -> Result<bool, String> {
    end_with_the_reader();
    for scenario in chosen(names)? {
        println!("{:<16} {:<12} {:<36} {}", scenario.file, scenario.family, scenario.name, scenario.summary);
    }
    Ok(true)
}

/// The rows with their items, and how many scenarios show each.
fn rows() -> Result<bool, String> {
    end_with_the_reader();
    let (rows, scenarios) = (Rows::load()?, catalogue::all());
    for row in &rows.list {
        println!("{:>4} {} ({})", row.scenarios(&scenarios).len(), row.name, row.families.join(", "));
        for (what, shown) in row.items(&scenarios) {
            println!("       {:>4} {what}", shown.len());
        }
    }
    println!("{:>4} scenarios", scenarios.len());
    let complaints = rows.complaints(&scenarios);
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(complaints.is_empty())
}

fn show(name: &str, arrangement: Option<&str>) -> Result<bool, String> {
    let named = |wanted: &str| {
        let found = Arrangement::named(wanted);
        found.ok_or_else(|| format!("there is no arrangement {wanted}; one of them is `both`"))
    };
    let under_shunt =
        arrangement.map(named).transpose()?.map(|arrangement| programs::shunt().map(|shunt| (arrangement, shunt))).transpose()?;
    for scenario in chosen(&[name])? {
        for role in scenario.roles() {
            println!("# {} {}", scenario.name, role.name());
            let trial = match &under_shunt {
                None => Trial::on_kernel(&scenario.name, role, Arrangement::Both),
                Some((arrangement, shunt)) => Trial::under_shunt(&scenario, role, *arrangement, shunt),
            };
            println!("{}", trial.run().map_err(|error| error.to_string())?.lines.join("\n"));
        }
    }
    Ok(true)
}
