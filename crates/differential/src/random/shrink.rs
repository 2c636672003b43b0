//! Shortening a sequence that shows a difference (delta debugging; Zeller and Hildebrandt, "Simplifying and Isolating
//! Failure-Inducing Input", IEEE TSE 2002): parts are left out as long as the same kind of operation differs in the same way.

use super::hunt::{perform, record, Difference, Outcome, Setting};
use super::sequence::Operation;
use std::io;

/// The shortest sequence found that still shows the difference.
///
/// # Errors
/// When a stage cannot be made.
pub fn shrink(operations: &[Operation], difference: &Difference, setting: Setting<'_>) -> io::Result<Vec<Operation>> {
    // What comes after the difference was never looked at.
    let mut shortest = operations[..=difference.place].to_vec();
    let mut pieces = 2;
    while shortest.len() > 1 {
        let size = shortest.len().div_ceil(pieces);
        let mut found = None;
        for start in (0..shortest.len()).step_by(size) {
            let mut candidate = shortest.clone();
            candidate.drain(start..(start + size).min(shortest.len()));
            if shows(&candidate, difference, setting)? {
                found = Some(candidate);
                break;
            }
        }
        match found {
            Some(candidate) => {
                shortest = candidate;
                pieces = pieces.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => pieces = (pieces * 2).min(shortest.len()),
        }
    }
    Ok(shortest)
}

/// Whether the kernel does the same twice, and shunt differs in the same kind of operation.
fn shows(operations: &[Operation], difference: &Difference, setting: Setting<'_>) -> io::Result<bool> {
    if operations.is_empty() {
        return Ok(false);
    }
    let steps = record(operations, setting)?;
    let Outcome::Differs(found) = perform(operations, &steps, setting)? else { return Ok(false) };
    if found.operation.verb() != difference.operation.verb() || kind(&found) != kind(difference) {
        return Ok(false);
    }
    Ok(matches!(perform(operations, &steps, setting.kernel())?, Outcome::Same(_)))
}

/// What a difference is about, without numbers, which change when parts are left out.
fn kind(difference: &Difference) -> [String; 2] {
    let words = |step: &super::stage::Step| {
        let woken = step.woken.iter().map(|(_, answer)| answer.as_str());
        let text: Vec<&str> = std::iter::once(step.reply.as_str()).chain(woken).collect();
        let letters = |word: &&str| !word.chars().all(|letter| letter.is_ascii_hexdigit());
        text.join(" ").split(' ').filter(letters).collect::<Vec<_>>().join(" ")
    };
    [words(&difference.expected), words(&difference.got)]
}
