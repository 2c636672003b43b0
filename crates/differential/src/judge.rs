//! The verdict on one scenario in one role and arrangement.

use crate::arrangement::{Arrangement, Role};
use crate::catalogue::Scenario;
use crate::compare::difference;
use crate::deviations::Deviations;
use crate::told::settled;
use crate::trial::{Outcome, Trial};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

/// What the comparison found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Equal, over an accelerated connection.
    Equal,
    /// Equal, and carried by the kernel's TCP because only one end is under shunt, or no connection is made.
    EqualThroughKernel,
    /// Equal but for these accepted deviations.
    Deviates(Vec<String>),
    /// Different: the difference, and what the processes said on standard error.
    Differs(String),
    /// Equal, but the connection should have been accelerated and was not, so the comparison proves nothing.
    NotAccelerated,
}

impl Verdict {
    /// Whether the trial counts as passed.
    pub fn passes(&self) -> bool {
        !matches!(self, Verdict::Differs(_) | Verdict::NotAccelerated)
    }
}

/// How often a trial is made again because the kernel carried what shared memory should.
const ATTEMPTS: u32 = 8;

/// How often the kernel's run is made until one ends in time, on a crowded machine.
const KERNEL_RUNS: u32 = 3;

/// Families whose sockets use shared memory only while their receiver is awake.
const WHILE_AWAKE: [&str; 2] = ["datagrams", "unix"];

/// Runs scenarios and remembers what the kernel said.
pub struct Judge<'a> {
    shunt: &'a Path,
    deviations: &'a Deviations,
    references: Mutex<HashMap<(String, Role, Reference), Vec<String>>>,
}

/// Which kernel run a column is compared with: the processes and the binary must be the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reference {
    Processes,
    Thread,
    Fortified,
    Hosts,
}

impl<'a> Judge<'a> {
    /// A judge for this `shunt` command and these deviations.
    pub fn new(shunt: &'a Path, deviations: &'a Deviations) -> Judge<'a> {
        Judge { shunt, deviations, references: Mutex::new(HashMap::new()) }
    }

    /// Runs the scenario on the kernel (unless it is known what it gives) and in `arrangement`, and compares.
    ///
    /// # Errors
    /// When a trial could not be run at all.
    pub fn judge(&self, scenario: &Scenario, role: Role, arrangement: Arrangement) -> std::io::Result<Verdict> {
        let kernel = match self.reference(&scenario.name, role, arrangement)? {
            Ok(kernel) => kernel,
            Err(why) => return Ok(Verdict::Differs(format!("on the kernel: {why}; so there is nothing to compare with\n"))),
        };
        let (expected, deviations) = self.deviations.apply(&scenario.name, role, arrangement, &kernel);
        let mut trial = Trial::under_shunt(scenario, role, arrangement, self.shunt);
        if let Some(deadline) = self.deviations.deadline(&scenario.name, role, arrangement) {
            trial.deadline = deadline;
        }
        let mut outcome = trial.run()?;
        // A host may be asked for a stream and answer, on a crowded machine, later than the connection waits for: that one
        // rightly is the kernel's, and says nothing.
        for _ in 0..if proves_by_carrier(scenario, arrangement) { ATTEMPTS } else { 0 } {
            if !outcome.fell_back {
                break;
            }
            outcome = trial.run()?;
        }
        if arrangement.takes().is_some() {
            // What was given back may be as it is with the kernel, too.
            let as_kernel = settled(&kernel, &outcome.lines);
            if as_kernel == kernel {
                outcome.lines = as_kernel;
                return Ok(verdict(scenario, arrangement, &kernel, &[], &outcome));
            }
            outcome.lines = settled(&expected, &outcome.lines);
        }
        let mut found = verdict(scenario, arrangement, &expected, &deviations, &outcome);
        // What was sent to a receiver that slept went through the kernel; on a crowded machine that may be all of it.
        for _ in 0..if WHILE_AWAKE.contains(&scenario.family.as_str()) { ATTEMPTS } else { 0 } {
            if found != Verdict::NotAccelerated {
                break;
            }
            found = verdict(scenario, arrangement, &expected, &deviations, &trial.run()?);
        }
        Ok(found)
    }

    /// As [`Judge::judge`], between hosts: what differs is tried again, because a round trip more or less decides what a program
    /// finds that does not wait.
    ///
    /// # Errors
    /// As there.
    pub fn judge_across(&self, scenario: &Scenario, role: Role, arrangement: Arrangement) -> std::io::Result<Verdict> {
        let mut verdict = self.judge(scenario, role, arrangement)?;
        for _ in 0..2 {
            if verdict.passes() {
                break;
            }
            verdict = self.judge(scenario, role, arrangement)?;
        }
        Ok(verdict)
    }

    /// What the kernel gives. A run that was late, or waited in vain, says nothing, and is made again; an error: all were so.
    fn reference(&self, scenario: &str, role: Role, arrangement: Arrangement) -> std::io::Result<Result<Vec<String>, String>> {
        let kind = match arrangement {
            Arrangement::OneProcess => Reference::Thread,
            Arrangement::Fortified => Reference::Fortified,
            _ if arrangement.has_two_hosts() => Reference::Hosts,
            _ => Reference::Processes,
        };
        let key = (scenario.to_owned(), role, kind);
        if let Some(known) = self.references.lock().expect("no trial panics with the lock").get(&key) {
            return Ok(Ok(known.clone()));
        }
        let mut why = String::new();
        for _ in 0..KERNEL_RUNS {
            let outcome = Trial::on_kernel(scenario, role, arrangement).run()?;
            why = match (outcome.late, outcome.in_vain()) {
                (true, _) => "it did not end in time".into(),
                (false, Some(line)) => line.into(),
                (false, None) => {
                    self.references.lock().expect("no trial panics with the lock").insert(key, outcome.lines.clone());
                    return Ok(Ok(outcome.lines));
                }
            };
        }
        Ok(Err(why))
    }
}

/// Whether each connection to the other host has to be accelerated, or the comparison proves nothing.
fn proves_by_carrier(scenario: &Scenario, arrangement: Arrangement) -> bool {
    // Of what is taken much rightly is the kernel's: what was given back, or has ended before it was accepted.
    arrangement.has_two_hosts() && arrangement.takes().is_none() && arrangement.accelerates() && scenario.expects_acceleration()
}

fn verdict(
    scenario: &Scenario,
    arrangement: Arrangement,
    expected: &[String],
    deviations: &[&str],
    outcome: &Outcome,
) -> Verdict {
    if let Some(mut text) = difference(expected, &outcome.lines) {
        if !outcome.errors.is_empty() {
            text.push_str(&format!("standard error:\n{}", outcome.errors));
        }
        return Verdict::Differs(text);
    }
    // Between hosts a fall-back that came too early would pass for success.
    if proves_by_carrier(scenario, arrangement) && outcome.fell_back {
        return Verdict::NotAccelerated;
    }
    if arrangement == Arrangement::HostsNone && outcome.accelerated {
        return Verdict::Differs("a stream to another host is accelerated although the option forbids it\n".into());
    }
    if !deviations.is_empty() {
        return Verdict::Deviates(deviations.iter().map(|&name| name.to_owned()).collect());
    }
    if outcome.accelerated {
        return Verdict::Equal;
    }
    if arrangement.accelerates() && scenario.expects_acceleration() {
        return Verdict::NotAccelerated;
    }
    Verdict::EqualThroughKernel
}
