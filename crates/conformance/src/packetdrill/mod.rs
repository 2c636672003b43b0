//! packetdrill's scripts, on the kernel and with each connection taken from it and given back between the script's events.
//!
//! ```text
//! git clone https://github.com/google/packetdrill
//! cd packetdrill/gtests/net/packetdrill && ./configure && make        # needs bison and flex
//! cargo build --release -p shunt-drill -p shunt-cli
//! shunt-conformance packetdrill --source PATH/TO/packetdrill [--scripts DIRECTORY] [--plan calls:1] [--record NAME] [WORD]...
//! ```
//!
//! It is no part of this repository (GPL), nor of its tests. A script is an order of calls, of segments that the peer sends, and of those that it
//! must see, with their times. It runs by itself first; where the kernel of this machine passes it, it runs under each plan with
//! `crates/drill` beside it, and must pass again.
//!
//! A script may miss its times on a machine that is in use, so one that fails runs three times, and once passed is passed.
//! Differences with a reason stand in `packetdrill.toml`. `--record google` or `linux` keeps what a run of the whole collection came to.

pub mod outcome;
mod site;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{paths, pattern};
use outcome::{Counts, Outcome, COLLECTIONS};
use site::Site;

/// What is asked on the command line.
struct Wish {
    source: PathBuf,
    scripts: PathBuf,
    plans: Vec<Plan>,
    words: Vec<String>,
    /// Under this name the outcome is kept.
    record: Option<String>,
}

/// When connections are handed over (`crates/drill`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Taken behind each n-th call.
    calls: u64,
    /// Given back, and taken again, behind each n-th frame, too; 0: never.
    frames: u64,
}

/// Scripts that may differ, and why.
#[derive(Deserialize)]
struct Deviations {
    deviation: Vec<Deviation>,
}

#[derive(Deserialize)]
struct Deviation {
    scripts: Vec<String>,
    reason: String,
}

/// What a script said.
struct Verdict {
    /// The last thing that packetdrill complained of.
    complaint: Option<String>,
    /// Hand-overs, and why there were not more.
    counts: Vec<(String, u64)>,
}

const TRIES: usize = 3;

/// Runs what `arguments` ask for; whether all verdicts are the same, or differ for a reason that is known.
///
/// # Errors
/// A sentence: what is missing.
pub fn run(arguments: &[&str]) -> Result<bool, String> {
    let wish = Wish::read(arguments)?;
    let site = Site::prepare(&wish.source)?;
    let known = deviations()?;
    let mut scripts = Vec::new();
    collect(&wish.scripts, &mut scripts)?;
    scripts.retain(|script| wish.words.is_empty() || wish.words.iter().any(|word| script.to_string_lossy().contains(word)));
    let mut outcome = Outcome { scripts: scripts.len(), ..Outcome::default() };
    for script in &scripts {
        let name = script.strip_prefix(&wish.scripts).unwrap_or(script).to_string_lossy().into_owned();
        if let Some(complaint) = passes(&site, script, None)?.complaint {
            println!("test {name} ... not here ({complaint})");
            outcome.not_here += 1;
            continue;
        }
        for plan in &wish.plans {
            let verdict = passes(&site, script, Some(*plan))?;
            let taken = verdict.counts.iter().find(|(what, _)| what == "taken").map_or(0, |(_, count)| *count);
            outcome.hand_overs += taken;
            let counts = outcome.plans.entry(plan.to_string()).or_default();
            let told: Vec<String> = verdict.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
            let told = told.join(", ");
            let reason = known.iter().find(|one| one.scripts.iter().any(|script| pattern::matches(script, &name)));
            match (verdict.complaint, reason) {
                (None, _) if taken == 0 => {
                    println!("test {name} {plan} ... ok, never taken ({told})");
                    counts.untaken += 1;
                }
                (None, _) => {
                    println!("test {name} {plan} ... ok ({told})");
                    counts.same += 1;
                }
                (Some(complaint), Some(reason)) => {
                    println!("test {name} {plan} ... differs, as is known: {} ({told})\n    {complaint}", reason.reason);
                    counts.known += 1;
                }
                (Some(complaint), None) => {
                    println!("test {name} {plan} ... FAILED ({told})\n    {complaint}");
                    counts.different += 1;
                }
            }
        }
    }
    let Outcome { scripts, not_here, hand_overs, plans, .. } = &outcome;
    println!("\n{scripts} scripts, {not_here} of which this kernel does not pass here; {hand_overs} hand-overs.");
    for (plan, Counts { same, untaken, known, different }) in plans {
        println!(
            "{plan}: the same: {same}, and {untaken} without any connection that could be taken. Different for a reason that is known: {known}. \
             Different: {different}."
        );
    }
    wish.record.iter().try_for_each(|name| outcome.keep(name))?;
    Ok(outcome.plans.values().all(|counts| counts.different == 0))
}

/// Whether one of some attempts passes; the last one's verdict.
fn passes(site: &Site, script: &Path, plan: Option<Plan>) -> Result<Verdict, String> {
    let mut verdict = site.run(script, plan)?;
    for _ in 1..TRIES {
        if verdict.complaint.is_none() {
            break;
        }
        verdict = site.run(script, plan)?;
    }
    Ok(verdict)
}

fn deviations() -> Result<Vec<Deviation>, String> {
    let file = paths::own().join("packetdrill.toml");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    toml::from_str::<Deviations>(&text).map(|all| all.deviation).map_err(|error| format!("{}: {error}", file.display()))
}

/// Scripts below a directory, in order.
fn collect(directory: &Path, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "pkt") && !path.to_string_lossy().ends_with("v6.pkt") {
            into.push(path);
        }
    }
    Ok(())
}

impl std::fmt::Display for Plan {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.frames {
            0 => write!(to, "calls:{}", self.calls),
            frames => write!(to, "calls:{},frames:{frames}", self.calls),
        }
    }
}

impl Plan {
    fn parse(text: &str) -> Option<Plan> {
        let mut plan = Plan { calls: 1, frames: 0 };
        for part in text.split(',') {
            let (what, number) = part.split_once(':')?;
            match what {
                "calls" => plan.calls = number.parse().ok()?,
                "frames" => plan.frames = number.parse().ok()?,
                _ => return None,
            }
        }
        Some(plan)
    }
}

impl Wish {
    fn read(arguments: &[&str]) -> Result<Wish, String> {
        let (mut source, mut scripts, mut plans, mut words, mut record) = (None, None, Vec::new(), Vec::new(), None);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().map(|value| value.to_string()).ok_or(format!("{argument} takes a value"));
            match *argument {
                "--source" => source = Some(PathBuf::from(value()?)),
                "--scripts" => scripts = Some(PathBuf::from(value()?)),
                "--plan" => {
                    plans.push(Plan::parse(&value()?).ok_or("a plan is calls:N, frames:N, or both, as in calls:1,frames:2")?)
                }
                "--record" => record = Some(value()?),
                word if word.starts_with('-') => {
                    return Err(format!("{word}: --source, --scripts, --plan, --record, or words of a script's name"))
                }
                word => words.push(word.to_string()),
            }
        }
        let source = source.ok_or(
            "packetdrill needs --source, the path of a copy of https://github.com/google/packetdrill, built there: \
             cd gtests/net/packetdrill && ./configure && make",
        )?;
        let source = source.canonicalize().map_err(|error| format!("{}: {error}", source.display()))?;
        let scripts = scripts.unwrap_or_else(|| source.join("gtests/net/tcp"));
        let scripts = scripts.canonicalize().map_err(|error| format!("{}: {error}", scripts.display()))?;
        let is_known = |name: &String| words.is_empty() && COLLECTIONS.iter().any(|(known, _)| known == name);
        if !record.iter().all(is_known) {
            return Err("--record takes google or linux, whose scripts run without words that choose some".to_owned());
        }
        if plans.is_empty() {
            plans = [(1, 0), (2, 0), (3, 0), (1, 1), (1, 3)].map(|(calls, frames)| Plan { calls, frames }).to_vec();
        }
        Ok(Wish { source, scripts, plans, words, record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_and_reasons_are_read() {
        assert_eq!(Plan::parse("calls:2"), Some(Plan { calls: 2, frames: 0 }));
        assert_eq!(Plan::parse("frames:3").map(|plan| plan.to_string()), Some("calls:1,frames:3".to_string()));
        assert_eq!(Plan::parse("words:3"), None);
        assert!(deviations().expect("a list").iter().all(|one| !one.reason.is_empty() && !one.scripts.is_empty()));
    }
}
