//! Suites, as the files in `suites/` describe them.

use crate::pattern;
use crate::verdicts::Format;
use crate::{fetch, paths};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

/// A suite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// As the command line names it.
    pub name: String,
    /// As the document names it.
    pub title: String,
    /// Debian source packages that it needs, unpacked in `$SOURCES`.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Debian packages that it needs, unpacked in `$PACKAGES`.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Commands or files that must be installed, as `scripts/prepare` takes them: `COMMAND:PACKAGE`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// What a shell does once in the suite's own directory, `$SUITE`, before the first run.
    #[serde(default)]
    pub prepare: String,
    /// What runs by itself.
    pub part: Vec<Part>,
    /// Cases that are not run, or not compared.
    #[serde(default)]
    pub excluded: Vec<Exception>,
    /// Cases whose verdicts differ, for a reason.
    #[serde(default)]
    pub different: Vec<Exception>,
    /// Parts of which more than a quarter goes through the kernel under shunt, too, and why.
    #[serde(default)]
    pub by_kernel: Vec<Exception>,
}

/// A part of a suite: one command, or one command for each file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// As the command line names it.
    pub name: String,
    /// Whether `make test` runs it.
    #[serde(default)]
    pub quick: bool,
    /// About how long a run takes on one side: the longest begin first.
    #[serde(default)]
    pub seconds: u64,
    /// How its output tells verdicts.
    pub verdicts: Format,
    /// What the shell runs, in a fresh directory, with `$SUITE`, `$SOURCES`, `$PACKAGES`, `$RUNNERS`, `$EXCLUDED`, and the file
    /// `$VERDICTS`.
    pub command: String,
    /// Files below the suite's directory (shell patterns, relative): the command runs once for each, as `$CASE`.
    #[serde(default)]
    pub each: Vec<String>,
    /// Seconds after which a run counts as hung.
    pub limit: u64,
    /// What is done there, for `docs/reference/PROGRAMS.md`: parts that say it are told there and not with the suites.
    #[serde(default)]
    pub about: String,
    /// Debian packages whose versions that document tells.
    #[serde(default)]
    pub programs: Vec<String>,
}

/// A case, or many, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// `PART/CASE`, with `*` for any characters.
    pub case: String,
    /// Why, as a sentence.
    pub reason: String,
}

impl Suite {
    /// All suites, in the order of their files' names.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn all() -> Result<Vec<Suite>, String> {
        let directory = paths::own().join("suites");
        let entries = std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        files
            .iter()
            .map(|file| {
                let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
            })
            .collect()
    }

    /// The directory in which it was prepared.
    pub fn directory(&self) -> PathBuf {
        paths::work().join("suites").join(&self.name)
    }

    /// Why a case of a part is left out, if it is.
    pub fn excluded(&self, part: &Part, case: &str) -> Option<&Exception> {
        find(&self.excluded, part, case)
    }

    /// Why a case of a part may differ, if it may.
    pub fn different(&self, part: &Part, case: &str) -> Option<&Exception> {
        find(&self.different, part, case)
    }

    /// Fetches and prepares it, unless that was done for this very description.
    ///
    /// # Errors
    /// A sentence, when something could not be fetched or a step failed.
    pub fn make_ready(&self) -> Result<(), String> {
        let directory = self.directory();
        let stamp = directory.join(".prepared");
        let state = format!("{:?} {:?} {}{}", self.sources, self.packages, self.prepare, self.prepared_with());
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == state) {
            return Ok(());
        }
        println!("{}: preparing", self.name);
        self.sources.iter().try_for_each(|name| fetch::source(name))?;
        self.packages.iter().try_for_each(|name| fetch::package(name))?;
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let log = directory.join("prepare.log");
        let output = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new("nice");
        command.args(["bash", "-euo", "pipefail", "-c", &self.prepare]).current_dir(&directory);
        self.environment(&mut command);
        let status = command.stdout(output).stderr(errors).status().map_err(|error| format!("bash: {error}"))?;
        if !status.success() {
            return Err(format!("{}: preparing failed ({status}); see {}", self.name, log.display()));
        }
        std::fs::write(&stamp, state).map_err(|error| format!("{}: {error}", stamp.display()))
    }

    /// The text of the runners that the preparation uses: it compiles them.
    fn prepared_with(&self) -> String {
        let named = self.prepare.split_whitespace().filter_map(|word| word.strip_prefix("$RUNNERS/"));
        named.filter_map(|name| std::fs::read_to_string(paths::own().join("runners").join(name)).ok()).collect()
    }

    /// Tells a command where things are.
    pub fn environment(&self, command: &mut Command) {
        command
            .env("SUITE", self.directory())
            .env("SOURCES", paths::sources())
            .env("PACKAGES", paths::packages())
            .env("RUNNERS", paths::own().join("runners"))
            .env_remove("LD_PRELOAD")
            .env_remove("MAKEFLAGS");
    }

    /// The cases of a part that runs once for each file: paths below the suite's directory.
    ///
    /// # Errors
    /// A sentence, when there are none: the package has changed.
    pub fn files(&self, part: &Part) -> Result<Vec<String>, String> {
        let listed = Command::new("bash")
            .args(["-c", "shopt -s nullglob; printf '%s\\n' $1", "bash", &part.each.join(" ")])
            .current_dir(self.directory())
            .output()
            .map_err(|error| format!("bash: {error}"))?;
        let files: Vec<String> =
            String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).filter(|l| !l.is_empty()).collect();
        let files: Vec<String> = files.into_iter().filter(|file| self.excluded(part, file).is_none()).collect();
        if files.is_empty() {
            return Err(format!("{}/{}: no file is called {}", self.name, part.name, part.each.join(" or ")));
        }
        Ok(files)
    }
}

fn find<'list>(list: &'list [Exception], part: &Part, case: &str) -> Option<&'list Exception> {
    let full = format!("{}/{case}", part.name);
    list.iter().find(|exception| pattern::matches(&exception.case, &full))
}

#[cfg(test)]
mod tests {
    use super::Suite;

    #[test]
    fn descriptions_are_whole() {
        let suites = Suite::all().expect("the files in suites/ say what a suite has to say");
        assert!(!suites.is_empty());
        for suite in &suites {
            for exception in suite.excluded.iter().chain(&suite.different).chain(&suite.by_kernel) {
                let part = exception.case.split('/').next().unwrap_or_default();
                assert!(
                    part.contains('*') || suite.part.iter().any(|known| known.name == part),
                    "{}: no part {part}",
                    suite.name
                );
                assert!(exception.reason.ends_with('.'), "{}: {} wants a sentence as its reason", suite.name, exception.case);
            }
            assert!(suite.needs.iter().all(|need| need.contains(':')), "{}: needs are COMMAND:PACKAGE", suite.name);
        }
    }
}
