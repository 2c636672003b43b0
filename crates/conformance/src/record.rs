//! What the last run of each part said.
//!
//! A run leaves its outcome below `target`; the documents are written from `results/`, which belongs to the repository:
//! most machines run a few parts only, and the rows of all others have to stay.

use crate::compare::Outcome;
use crate::paths;
use crate::suite::{Part, Suite};
use serde::{de::DeserializeOwned, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Outcomes by the names of their parts.
pub type Record = BTreeMap<String, Outcome>;

/// Keeps the outcome of a part that ran just now, with the day and the versions of what it ran.
///
/// # Errors
/// A sentence, when it cannot be written.
pub fn keep(suite: &Suite, part: &Part, outcome: &Outcome) -> Result<(), String> {
    let installed = part.programs.iter().chain(&suite.packages).map(|name| (name, installed_version(name)));
    let unpacked = suite.sources.iter().map(|name| (name, source_version(name)));
    let known = installed.chain(unpacked).filter(|(_, version)| !version.is_empty());
    let versions = known.map(|(name, version)| format!("{name} {version}")).collect();
    let day = told(Command::new("date").args(["-u", "+%F"])).trim().to_owned();
    let text = toml::to_string(&Outcome { versions, day, ..outcome.clone() }).map_err(|error| error.to_string())?;
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
    take(&file, &mut record, suite.part.iter().map(|part| (part.name.as_str(), fresh(suite, part))))?;
    Ok(record)
}

/// Takes outcomes that are there by their names into a record, which is kept in a file of the repository.
///
/// # Errors
/// A sentence that names the file which cannot be read or written.
pub fn take<'a, T: Serialize + DeserializeOwned>(
    file: &Path,
    record: &mut BTreeMap<String, T>,
    each: impl IntoIterator<Item = (&'a str, PathBuf)>,
) -> Result<(), String> {
    let mut taken = Vec::new();
    for (name, fresh) in each {
        if let Some(outcome) = parse(&fresh)? {
            record.insert(name.to_owned(), outcome);
            taken.push(fresh);
        }
    }
    write(file, &toml::to_string(record).map_err(|error| error.to_string())?)?;
    taken.iter().try_for_each(|file| fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display())))
}

/// The version of an installed package.
fn installed_version(package: &str) -> String {
    upstream(&told(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package])))
}

/// The version of an unpacked source package: its changelog begins with `name (version) distribution`.
fn source_version(package: &str) -> String {
    let changelog = fs::read(paths::sources().join(package).join("debian/changelog")).unwrap_or_default();
    let changelog = String::from_utf8_lossy(&changelog);
    upstream(changelog.split(['(', ')']).nth(1).unwrap_or_default())
}

/// A version without what Debian adds to it.
fn upstream(version: &str) -> String {
    let rest = version.split_once(':').map_or(version, |(_, rest)| rest);
    rest.split(['-', '+']).next().unwrap_or_default().to_owned()
}

/// What a command says.
pub fn told(command: &mut Command) -> String {
    command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn fresh(suite: &Suite, part: &Part) -> PathBuf {
    paths::results().join(format!("{}.{}.toml", suite.name, part.name))
}

/// What a file holds, if there is one.
///
/// # Errors
/// A sentence that names it.
pub fn parse<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, String> {
    match fs::read_to_string(file) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

/// Writes a file.
///
/// # Errors
/// As above.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    let directory = file.parent().expect("a file of ours lies in a directory");
    fs::create_dir_all(directory).and_then(|()| fs::write(file, text)).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_upstream_s() {
        let told = ["5:7.0.15-1~deb12u7", "8.6.13+dfsg-2", "5.36.0", ""].map(super::upstream);
        assert_eq!(told, ["7.0.15", "8.6.13", "5.36.0", ""]);
    }
}
