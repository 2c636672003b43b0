//! `docs/reference/CONFORMANCE.md` and `docs/reference/PROGRAMS.md`, from the suites' descriptions and what the last runs left.

use crate::compare::{Difference, Opened, Outcome};
use crate::record::{self, Record};
use crate::suite::{Exception, Part, Suite};
use crate::{packetdrill, paths, pattern};
use std::fmt::Write;
use std::fs;

/// How many differing cases of a part are listed.
const LISTED: usize = 12;

/// Writes the documents.
///
/// # Errors
/// A sentence, when one cannot be written.
pub fn write(suites: &[Suite]) -> Result<(), String> {
    let recorded: Vec<(&Suite, Record)> =
        suites.iter().map(|suite| Ok((suite, record::take_over(suite)?))).collect::<Result<_, String>>()?;
    let (programs, strangers): (Vec<_>, Vec<_>) =
        recorded.iter().partition(|(suite, _)| suite.part.iter().any(|part| !part.about.is_empty()));
    let mut text = String::from(include_str!("preface.md"));
    strangers.into_iter().try_for_each(|(suite, record)| describe(&mut text, suite, record)).expect("a string takes all");
    text.push_str(&packetdrill::outcome::section()?);
    put("CONFORMANCE.md", &text)?;
    let mut text = String::from(include_str!("preface_programs.md"));
    programs.into_iter().try_for_each(|(suite, record)| describe_programs(&mut text, suite, record)).expect("a string takes all");
    put("PROGRAMS.md", &text)
}

fn put(name: &str, text: &str) -> Result<(), String> {
    let path = paths::workspace().join("docs/reference").join(name);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn describe_programs(text: &mut String, suite: &Suite, record: &Record) -> std::fmt::Result {
    writeln!(text, "\n## {}\n", suite.title)?;
    writeln!(text, "| program | what was done | cases | verdicts | connections | reasons |")?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    let outcomes: Vec<(&Part, Option<&Outcome>)> = suite.part.iter().map(|part| (part, record.get(&part.name))).collect();
    for (part, outcome) in &outcomes {
        let about = &part.about;
        match outcome {
            None => writeln!(text, "| {} | {about} | | not run | | |", part.programs.join(", "))?,
            Some(outcome) => {
                let name = if outcome.versions.is_empty() { part.name.clone() } else { outcome.versions.join(", ") };
                let (cases, opened) = (outcome.cases(), connections(outcome.opened));
                let (summary, reasons) = (summary(outcome), reasons_given(outcome));
                writeln!(text, "| {name} | {about} | {cases} | {summary} | {opened} | {reasons} |")?;
            }
        }
    }
    for (part, outcome) in &outcomes {
        let Some(outcome) = outcome else { continue };
        list(text, &format!("Different in {}", part.name), &outcome.different)?;
        list(text, &format!("Unsteady in {}", part.name), &outcome.unsteady)?;
    }
    by_kernel(text, suite, &outcomes)?;
    reasons(text, "Different, and why", &suite.different)
}

/// Why connections were not accelerated, the most frequent reasons first, after how many were.
fn reasons_given(outcome: &Outcome) -> String {
    let mut given: Vec<(&String, &u64)> =
        outcome.reasons.iter().filter(|(reason, _)| !matches!(&***reason, "listening" | "private")).collect();
    given.sort_by_key(|(reason, count)| (*reason != "accelerated", std::cmp::Reverse(**count)));
    given.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
}

fn describe(text: &mut String, suite: &Suite, record: &Record) -> std::fmt::Result {
    writeln!(text, "\n## {}\n", suite.title)?;
    if !suite.sources.is_empty() || !suite.packages.is_empty() {
        let names: Vec<String> = (suite.sources.iter().map(|name| format!("source package {name}")))
            .chain(suite.packages.iter().map(|name| format!("package {name}")))
            .collect();
        let latest = record.values().max_by_key(|outcome| &outcome.day);
        let versions = latest.map(|outcome| outcome.versions.join(", ")).filter(|versions| !versions.is_empty());
        let versions = versions.map_or(String::new(), |versions| format!(" ({versions} in the last run)"));
        writeln!(text, "From Debian: {}{versions}.\n", names.join(", "))?;
    }
    writeln!(text, "| part | cases | kernel | shunt | verdicts | connections | run |")?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    let outcomes: Vec<(&Part, Option<&Outcome>)> = suite.part.iter().map(|part| (part, record.get(&part.name))).collect();
    for (part, outcome) in &outcomes {
        let name = format!("{}{}", part.name, if part.quick { " (quick)" } else { "" });
        match outcome {
            None => writeln!(text, "| {name} | | | | not run | | |")?,
            Some(outcome) => {
                let (kernel, shunt) = (counts(outcome.kernel), counts(outcome.shunt));
                let (cases, summary, opened) = (outcome.cases(), summary(outcome), connections(outcome.opened));
                let day = &outcome.day;
                writeln!(text, "| {name} | {cases} | {kernel} | {shunt} | {summary} | {opened} | {day} |")?;
            }
        }
    }
    for (part, outcome) in &outcomes {
        let Some(outcome) = outcome else { continue };
        list(text, &format!("Different in {}", part.name), &outcome.different)?;
        list(text, &format!("Unsteady in {}", part.name), &outcome.unsteady)?;
    }
    by_kernel(text, suite, &outcomes)?;
    reasons(text, "Not compared", &suite.excluded)?;
    reasons(text, "Different, and why", &suite.different)
}

/// What the kernel opened; what was not accelerated, though shunt ran, stands out.
fn connections(opened: Opened) -> String {
    if opened.by_kernel() {
        format!("**{opened}**")
    } else {
        opened.to_string()
    }
}

/// Why parts of which much went through the kernel did.
fn by_kernel(text: &mut String, suite: &Suite, outcomes: &[(&Part, Option<&Outcome>)]) -> std::fmt::Result {
    let parts: Vec<&Part> = (outcomes.iter())
        .filter(|(_, outcome)| outcome.is_some_and(|outcome| outcome.opened.by_kernel()))
        .map(|(part, _)| *part)
        .collect();
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nThrough the kernel, and why:\n")?;
    for part in parts {
        let known = suite.by_kernel.iter().find(|exception| pattern::matches(&exception.case, &part.name));
        writeln!(text, "- {}: {}", part.name, known.map_or("Nobody has looked.", |exception| &exception.reason))?;
    }
    Ok(())
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
