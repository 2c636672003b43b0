//! `docs/CONFORMANCE.md` and `docs/PROGRAMS.md`, from the suites' descriptions and what the last runs left.

use crate::compare::{Difference, Outcome};
use crate::paths;
use crate::suite::{Exception, Part, Suite};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// How many differing cases of a part are listed.
const LISTED: usize = 12;

/// Keeps a part's outcome for the document.
///
/// # Errors
/// A sentence, when it cannot be written.
pub fn keep(suite: &Suite, part: &Part, outcome: &Outcome) -> Result<(), String> {
    let file = file(suite, part);
    let text = toml::to_string(outcome).map_err(|error| error.to_string())?;
    fs::create_dir_all(paths::results())
        .and_then(|()| fs::write(&file, text))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// The outcome of a part's last run, if there was one.
pub fn kept(suite: &Suite, part: &Part) -> Option<Outcome> {
    toml::from_str(&fs::read_to_string(file(suite, part)).ok()?).ok()
}

fn file(suite: &Suite, part: &Part) -> PathBuf {
    paths::results().join(format!("{}.{}.toml", suite.name, part.name))
}

/// Writes the documents.
///
/// # Errors
/// A sentence, when one cannot be written.
pub fn write(suites: &[Suite]) -> Result<(), String> {
    let (programs, strangers): (Vec<&Suite>, Vec<&Suite>) =
        suites.iter().partition(|suite| suite.part.iter().any(|part| !part.about.is_empty()));
    let mut text = String::from(include_str!("preface.md"));
    strangers.into_iter().try_for_each(|suite| describe(&mut text, suite)).expect("a string takes all");
    put("CONFORMANCE.md", &text)?;
    let mut text = String::from(include_str!("preface_programs.md"));
    programs.into_iter().try_for_each(|suite| describe_programs(&mut text, suite)).expect("a string takes all");
    put("PROGRAMS.md", &text)
}

fn put(name: &str, text: &str) -> Result<(), String> {
    let path = paths::workspace().join("docs").join(name);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn describe_programs(text: &mut String, suite: &Suite) -> std::fmt::Result {
    writeln!(text, "| program | what was done | cases | verdicts | connections | reasons |")?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    let outcomes: Vec<(&Part, Option<Outcome>)> = suite.part.iter().map(|part| (part, kept(suite, part))).collect();
    for (part, outcome) in &outcomes {
        let versions: Vec<String> = part.programs.iter().map(|name| format!("{name} {}", version(name))).collect();
        let (name, about) = (versions.join(", "), &part.about);
        match outcome {
            None => writeln!(text, "| {name} | {about} | | not run | | |")?,
            Some(outcome) => {
                let ([by_kernel, by_shunt], cases) = (outcome.opened, outcome.cases());
                let (summary, reasons) = (summary(outcome), reasons_given(outcome));
                writeln!(text, "| {name} | {about} | {cases} | {summary} | {by_kernel} / {by_shunt} | {reasons} |")?;
            }
        }
    }
    for (part, outcome) in &outcomes {
        let Some(outcome) = outcome else { continue };
        list(text, &format!("Different in {}", part.name), &outcome.different)?;
        list(text, &format!("Unsteady in {}", part.name), &outcome.unsteady)?;
    }
    reasons(text, "Different, and why", &suite.different)
}

/// Why connections were not accelerated, the most frequent reasons first, after how many were.
fn reasons_given(outcome: &Outcome) -> String {
    let mut given: Vec<(&String, &u64)> =
        outcome.reasons.iter().filter(|(reason, _)| !matches!(&***reason, "listening" | "private")).collect();
    given.sort_by_key(|(reason, count)| (*reason != "accelerated", std::cmp::Reverse(**count)));
    given.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
}

/// The version of an installed package, without what Debian adds to it.
fn version(package: &str) -> String {
    let told = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let upstream = told.split_once(':').map_or(&*told, |(_, rest)| rest);
    upstream.split(['-', '+']).next().unwrap_or_default().to_owned()
}

fn describe(text: &mut String, suite: &Suite) -> std::fmt::Result {
    writeln!(text, "\n## {}\n", suite.title)?;
    if !suite.sources.is_empty() || !suite.packages.is_empty() {
        let names: Vec<String> = (suite.sources.iter().map(|name| format!("source package {name}")))
            .chain(suite.packages.iter().map(|name| format!("package {name}")))
            .collect();
        writeln!(text, "From Debian: {}.\n", names.join(", "))?;
    }
    writeln!(text, "| part | cases | kernel | shunt | verdicts | connections |")?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    let outcomes: Vec<(&Part, Option<Outcome>)> = suite.part.iter().map(|part| (part, kept(suite, part))).collect();
    for (part, outcome) in &outcomes {
        let name = format!("{}{}", part.name, if part.quick { " (quick)" } else { "" });
        match outcome {
            None => writeln!(text, "| {name} | | | | not run | |")?,
            Some(outcome) => {
                let (kernel, shunt) = (counts(outcome.kernel), counts(outcome.shunt));
                let [by_kernel, by_shunt] = outcome.opened;
                let (cases, summary) = (outcome.cases(), summary(outcome));
                writeln!(text, "| {name} | {cases} | {kernel} | {shunt} | {summary} | {by_kernel} / {by_shunt} |")?;
            }
        }
    }
    for (part, outcome) in &outcomes {
        let Some(outcome) = outcome else { continue };
        list(text, &format!("Different in {}", part.name), &outcome.different)?;
        list(text, &format!("Unsteady in {}", part.name), &outcome.unsteady)?;
    }
    reasons(text, "Not compared", &suite.excluded)?;
    reasons(text, "Different, and why", &suite.different)
}

fn counts([passed, failed, skipped]: [usize; 3]) -> String {
    let mut words = vec![format!("{passed} passed")];
    words.extend((failed > 0).then(|| format!("{failed} failed")));
    words.extend((skipped > 0).then(|| format!("{skipped} skipped")));
    words.join(", ")
}

fn summary(outcome: &Outcome) -> String {
    if outcome.different.is_empty() {
        return "equal".into();
    }
    let (expected, open): (Vec<&Difference>, Vec<&Difference>) =
        outcome.different.iter().partition(|difference| difference.expected);
    let mut words = Vec::new();
    words.extend((!open.is_empty()).then(|| format!("**{} differ**", open.len())));
    words.extend((!expected.is_empty()).then(|| format!("{} differ for the reason below", expected.len())));
    words.join(", ")
}

fn list(text: &mut String, title: &str, differences: &[Difference]) -> std::fmt::Result {
    if differences.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}:\n")?;
    // A run that ended early leaves all later cases without a verdict: the first few tell it.
    for difference in differences.iter().take(LISTED) {
        let (kernel, shunt) = (difference.kernel.join("; "), difference.shunt.join("; "));
        writeln!(text, "- `{}`: kernel {kernel}. Shunt {shunt}.", difference.case)?;
    }
    match differences.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(text, "- and {more} more."),
    }
}

fn reasons(text: &mut String, title: &str, exceptions: &[Exception]) -> std::fmt::Result {
    if exceptions.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}:\n")?;
    exceptions.iter().try_for_each(|exception| writeln!(text, "- `{}`: {}", exception.case, exception.reason))
}
