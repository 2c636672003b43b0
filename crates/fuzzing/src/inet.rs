//! TCP segments of a hostile peer, or of anybody who forges its address, against the engine of established connections.

#[path = "../../inet/tests/attack/mod.rs"]
mod attack;

use crate::input::Input;
use attack::{attack, compare, Operation};
use shunt_inet::Recovery;
use shunt_path::Law;

/// A distance: mostly a small one.
fn distance(input: &mut Input) -> Option<i32> {
    let shape = input.byte()?;
    Some(match shape % 4 {
        0 => i32::from(input.byte()?) - 16,
        1 | 2 => i32::from(input.half()? as i16) / 4,
        _ => input.word()? as i32,
    })
}

fn segment(input: &mut Input) -> Option<Operation> {
    let shape = input.byte()?;
    let mut blocks = Vec::new();
    let (from, length, acknowledged, window) = (distance(input)?, input.half()? % 3000, distance(input)?, input.half()?);
    let clock = if shape & 8 == 0 { Some(distance(input)?) } else { None };
    for _ in 0..shape & 3 {
        blocks.push((distance(input)?, distance(input)?));
    }
    let flags = if shape & 0x70 == 0 { input.byte()? } else { 0 };
    Some(Operation::Segment { from, length, acknowledged, window, clock, blocks, flags })
}

fn operation(input: &mut Input) -> Option<Operation> {
    match input.byte()? % 10 {
        0 => Some(Operation::Offer(input.length(100_000)? as u32)),
        1 => Some(Operation::Read(input.half()? % 5000)),
        2 | 3 => Some(Operation::Wait(input.word()? as u32 % 2_000_000_000)),
        _ => segment(input),
    }
}

/// The first byte says whether the engine mends losses itself, and when it is given back.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(first) = input.byte() else { return };
    let recovery = [Recovery::GiveBack, Recovery::Own(Law::Cubic), Recovery::Own(Law::NewReno)][usize::from(first % 3)];
    let mut operations = Vec::new();
    while operations.len() < 200 {
        let Some(operation) = operation(&mut input) else { break };
        operations.push(operation);
    }
    compare(operations.clone(), usize::from(first / 3));
    attack(operations, recovery);
}
