//! What the last run of each part said.
//!
//! A run leaves its outcome below `target`; the documents are written from `results/`, which belongs to the repository:
//! most machines run a few parts only, and the rows of all others have to stay.

use crate::compare::Outcome;
use crate::paths;
use crate::suite::{Part, Suite};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Outcomes by the names of their parts.
pub type Record = BTreeMap<String, Outcome>;

/// Keeps the outcome of a part that ran just now, with the versions of the programs that it ran.
///
/// # Errors
/// A sentence, when it cannot be written.
pub fn keep(suite: &Suite, part: &Part, outcome: &Outcome) -> Result<(), String> {
    let versions = part.programs.iter().map(|name| format!("{name} {}", version(name))).collect();
    let text = toml::to_string(&Outcome { versions, ..outcome.clone() }).map_err(|error| error.to_string())?;
    write(&fresh(suite, part), &text)
}

/// A suite's record, brought up to date with what has run since it was written.
///
/// # Errors
/// A sentence that names the file which cannot be read or written.
pub fn take_over(suite: &Suite) -> Result<Record, String> {
    let file = paths::records().join(format!("{}.toml", suite.name));
    let mut record: Record = parse(&file)?.unwrap_or_default();
    record.retain(|name, _| suite.part.iter().any(|part| part.name == *name));
    let mut taken = Vec::new();
    for part in &suite.part {
        let fresh = fresh(suite, part);
        if let Some(outcome) = parse(&fresh)? {
            record.insert(part.name.clone(), outcome);
            taken.push(fresh);
        }
    }
    write(&file, &toml::to_string(&record).map_err(|error| error.to_string())?)?;
    taken.iter().try_for_each(|file| fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display())))?;
    Ok(record)
}

/// The version of an installed package, without what Debian adds to it.
fn version(package: &str) -> String {
    let told = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let upstream = told.split_once(':').map_or(&*told, |(_, rest)| rest);
    upstream.split(['-', '+']).next().unwrap_or_default().to_owned()
}

fn fresh(suite: &Suite, part: &Part) -> PathBuf {
    paths::results().join(format!("{}.{}.toml", suite.name, part.name))
}

fn parse<T: serde::de::DeserializeOwned>(file: &Path) -> Result<Option<T>, String> {
    match fs::read_to_string(file) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    let directory = file.parent().expect("a file of ours lies in a directory");
    fs::create_dir_all(directory).and_then(|()| fs::write(file, text)).map_err(|error| format!("{}: {error}", file.display()))
}
