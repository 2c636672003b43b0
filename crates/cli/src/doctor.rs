//! `shunt doctor`: what this machine lets shunt do, and what follows.
//!
//! Each check does what the preload library will do, as the user who asks, instead of reading versions and settings
//! that merely hint at it. The last one makes a real connection between two programs under shunt.
mod hosts;
mod kernel;
mod limits;
pub mod probe;
mod regions;
mod trial;

use std::fmt::Display;

use serde::Serialize;

use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::run::library;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Shunt works, and something about it does not.
    Limited,
    /// Connections cannot be accelerated.
    Missing,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What follows from it.
    follows: String,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, found: impl Display, follows: impl Display) -> Check {
        Check { name, verdict, found: found.to_string(), follows: follows.to_string() }
    }

    fn ok(name: &'static str, found: impl Display, follows: impl Display) -> Check {
        Check::new(name, Verdict::Ok, found, follows)
    }

    fn limited(name: &'static str, found: impl Display, follows: impl Display) -> Check {
        Check::new(name, Verdict::Limited, found, follows)
    }

    fn missing(name: &'static str, found: impl Display, follows: impl Display) -> Check {
        Check::new(name, Verdict::Missing, found, follows)
    }

    /// Whether it says that no program can load the library.
    fn bars_programs(&self) -> bool {
        self.name == trial::LIBRARY && self.verdict == Verdict::Missing
    }
}

#[derive(Serialize)]
struct Report {
    /// Fields are added under one number, never changed.
    schema: &'static str,
    verdict: Verdict,
    checks: Vec<Check>,
}

/// Prints the report. The status is 0 if connections can be accelerated, else 1.
pub fn doctor(json: bool) -> Result<u8, Failure> {
    let library = library::find(std::env::var_os(library::VARIABLE).as_deref(), library::VARIABLE);
    let mut checks = vec![
        kernel::version(),
        kernel::processors(),
        kernel::memory_files(),
        kernel::abstract_names(),
        kernel::port_owners(),
        kernel::proc_file_system(),
        kernel::memory_barrier(),
        kernel::system_call_filter(),
        kernel::express_data_path(),
    ];
    checks.extend(limits::all());
    checks.extend(regions::all());
    checks.extend(hosts::all());
    checks.extend(trial::library_and_connection(library));

    let worst = |wanted| checks.iter().any(|check| check.verdict == wanted);
    let verdict = match (worst(Verdict::Missing), worst(Verdict::Limited)) {
        (true, _) => Verdict::Missing,
        (false, true) => Verdict::Limited,
        (false, false) => Verdict::Ok,
    };
    let report = Report { schema: "shunt.doctor/1", verdict, checks };
    if json {
        print_json(&report)?;
    } else {
        print(&text(&report))?;
    }
    Ok(u8::from(report.verdict == Verdict::Missing))
}

fn text(report: &Report) -> String {
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in &report.checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        text.push_str(&format!("{verdict}  {:width$}  {}: {}\n", check.name, check.found, check.follows));
    }
    text.push_str(match report.verdict {
        Verdict::Ok => "\nConnections between programs under shunt are accelerated on this machine.\n",
        Verdict::Limited => {
            "\nConnections between programs under shunt are accelerated on this machine, within the limits above.\n"
        }
        Verdict::Missing if report.checks.iter().any(Check::bars_programs) => {
            "\nNo program can be run under shunt here: see what is missing.\n"
        }
        Verdict::Missing => {
            "\nPrograms run under shunt here, and their connections go through the kernel: see what is missing.\n"
        }
    });
    text
}
