//! One seed from its drawing to its verdict.

use super::draw::Draw;
use super::sequence::Operation;
use super::shrink;
use super::stage::{Stage, Step};
use crate::arrangement::Arrangement;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The arrangements that sequences run in: each side is under shunt, or one of them.
pub const ARRANGEMENTS: [Arrangement; 3] = [Arrangement::Both, Arrangement::ClientOnly, Arrangement::ServerOnly];

/// Those of sequences whose sides are on hosts of their own.
pub const ACROSS: [Arrangement; 2] = [Arrangement::HostsUdp, Arrangement::HostsXdp];

/// What came of performing a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every step as expected; whether any connection was accelerated.
    Same(bool),
    /// The first step that was not.
    Differs(Difference),
}

/// A step that was not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its place in the sequence.
    pub place: usize,
    /// The operation.
    pub operation: Operation,
    /// What the kernel did.
    pub expected: Step,
    /// What shunt did.
    pub got: Step,
}

/// What became of a seed.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Equal in all arrangements; how many operations, and in how many arrangements connections were accelerated.
    Equal(usize, usize),
    /// The kernel did not do the same twice: nothing can be compared with it.
    Unstable(Difference),
    /// A difference that did not come again: a race, or a machine too busy.
    Passing(Arrangement, Vec<Operation>, Difference),
    /// A difference, shortened.
    Differs(Arrangement, Vec<Operation>, Difference),
}

/// Which processes run under shunt, and where.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The command for each of the two processes, if it runs under shunt.
    pub shunts: [Option<&'a Path>; 2],
    /// The arrangement, if they are on hosts of their own.
    pub hosts: Option<Arrangement>,
    /// How long what was said may be under way to the other host.
    pub under_way: Duration,
}

/// A frame needs microseconds, and the process that is to take it a processor.
const UNDER_WAY: Duration = Duration::from_millis(25);
/// On a crowded machine.
const UNDER_WAY_LONG: Duration = Duration::from_millis(100);

impl<'a> Setting<'a> {
    /// The sides of `arrangement` on the kernel.
    pub fn on_kernel(arrangement: Arrangement) -> Setting<'a> {
        Setting { shunts: [None; 2], hosts: arrangement.has_two_hosts().then_some(arrangement), under_way: UNDER_WAY }
    }

    /// Those under shunt that are in `arrangement`.
    pub fn under_shunt(arrangement: Arrangement, shunt: &'a Path) -> Setting<'a> {
        let shunts = match arrangement {
            Arrangement::ClientOnly => [Some(shunt), None],
            Arrangement::ServerOnly => [None, Some(shunt)],
            _ => [Some(shunt), Some(shunt)],
        };
        Setting { shunts, ..Setting::on_kernel(arrangement) }
    }

    /// The same without shunt.
    pub fn kernel(self) -> Setting<'a> {
        Setting { shunts: [None; 2], ..self }
    }

    fn patient(self) -> Setting<'a> {
        Setting { under_way: UNDER_WAY_LONG, ..self }
    }
}

/// Does `work` in a thread of its own, because a network namespace belongs to a thread.
fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join().expect("a stage does not panic"))
}

/// Draws the sequence of a seed while the kernel performs it.
///
/// # Errors
/// When the stage cannot be made.
pub fn draw(seed: u64, setting: Setting<'_>) -> io::Result<(Vec<Operation>, Vec<Step>)> {
    apart(|| {
        let mut stage = Stage::open(setting.kernel())?;
        let mut draw = Draw::new(seed, setting.hosts.is_some());
        let (mut operations, mut steps) = (Vec::new(), Vec::new());
        while let Some(operation) = draw.next() {
            let step = stage.perform(&operation, None);
            draw.model.learn(&operation, &step);
            operations.push(operation);
            steps.push(step);
        }
        Ok((operations, steps))
    })
}

/// Performs a sequence on the kernel without knowing what it does.
///
/// # Errors
/// When the stage cannot be made.
pub fn record(operations: &[Operation], setting: Setting<'_>) -> io::Result<Vec<Step>> {
    apart(|| {
        let mut stage = Stage::open(setting.kernel())?;
        Ok(operations.iter().map(|operation| stage.perform(operation, None)).collect())
    })
}

/// Performs a sequence until a step is not as expected.
///
/// # Errors
/// When the stage cannot be made.
pub fn perform(operations: &[Operation], expected: &[Step], setting: Setting<'_>) -> io::Result<Outcome> {
    apart(|| {
        let mut stage = Stage::open(setting)?;
        for (place, (operation, expected)) in operations.iter().zip(expected).enumerate() {
            let got = stage.perform(operation, Some(expected));
            if got != *expected {
                let operation = operation.clone();
                return Ok(Outcome::Differs(Difference { place, operation, expected: expected.clone(), got }));
            }
        }
        Ok(Outcome::Same(stage.accelerated()))
    })
}

/// The verdict on a sequence and what the kernel did: in each arrangement, and once more on the kernel.
///
/// # Errors
/// When a stage cannot be made.
pub fn judge(operations: &[Operation], steps: &[Step], arrangements: &[Arrangement], shunt: &Path) -> io::Result<Verdict> {
    let mut accelerated = 0;
    for (place, &arrangement) in arrangements.iter().enumerate() {
        let setting = Setting::under_shunt(arrangement, shunt);
        if place == 0 {
            if let Outcome::Differs(difference) = perform(operations, steps, setting.kernel())? {
                return Ok(Verdict::Unstable(difference));
            }
        }
        let first = match perform(operations, steps, setting)? {
            Outcome::Same(carried) => {
                accelerated += usize::from(carried);
                continue;
            }
            Outcome::Differs(difference) => difference,
        };
        for _ in 0..3 {
            if let Outcome::Differs(difference) = perform(operations, steps, setting.patient().kernel())? {
                return Ok(Verdict::Unstable(difference));
            }
        }
        let mut again = None;
        for _ in 0..3 {
            if let Outcome::Differs(difference) = perform(operations, steps, setting.patient())? {
                again = Some(difference);
                break;
            }
        }
        return Ok(match again {
            None => Verdict::Passing(arrangement, operations.to_vec(), first),
            Some(difference) => Verdict::Differs(arrangement, operations.to_vec(), difference),
        });
    }
    Ok(Verdict::Equal(operations.len(), accelerated))
}

/// The verdict on a seed; a difference is shortened.
///
/// # Errors
/// When a stage cannot be made.
pub fn hunt(seed: u64, arrangements: &[Arrangement], shunt: &Path) -> io::Result<Verdict> {
    let (operations, steps) = draw(seed, Setting::on_kernel(arrangements[0]))?;
    match judge(&operations, &steps, arrangements, shunt)? {
        Verdict::Differs(arrangement, operations, difference) => {
            let setting = Setting::under_shunt(arrangement, shunt).patient();
            let operations = shrink::shrink(&operations, &difference, setting)?;
            let steps = record(&operations, setting)?;
            match perform(&operations, &steps, setting)? {
                Outcome::Differs(difference) => Ok(Verdict::Differs(arrangement, operations, difference)),
                Outcome::Same(_) => Ok(Verdict::Passing(arrangement, operations, difference)),
            }
        }
        verdict => Ok(verdict),
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(formatter, "  {}", self.operation)?;
        for (sign, step) in [('-', &self.expected), ('+', &self.got)] {
            writeln!(formatter, "{sign} {}", step.reply)?;
            for (actor, answer) in &step.woken {
                writeln!(formatter, "{sign} wakes {actor}: {answer}")?;
            }
        }
        Ok(())
    }
}

/// The sequence with what the kernel does, as a file for `sequences/`.
///
/// # Errors
/// When the stage cannot be made.
pub fn annotated(operations: &[Operation], arrangement: Arrangement) -> io::Result<String> {
    let steps = record(operations, Setting::on_kernel(arrangement))?;
    let mut text = String::new();
    for (operation, step) in operations.iter().zip(&steps) {
        text.push_str(&format!("{operation}\n#   {}\n", step.reply));
        for (actor, answer) in &step.woken {
            text.push_str(&format!("#   wakes {actor}: {answer}\n"));
        }
    }
    Ok(text)
}
