//! What a register holds where an instruction begins: constants, followed through one function.
//!
//! Each pass goes through the function in the order of its addresses, with what is known at the places that branches lead to. It
//! ends when a pass learns nothing new. Jumps from a part of the function that was moved elsewhere are not seen.

use crate::decode::{decode, Effect, Flow};
use crate::survey::Window;
use crate::Memory;
use core::ops::Range;

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Constant(u32),
    /// What a call may have left, and so nothing that is used.
    Rest,
    Unknown,
}

/// All of them. `None`: no path leads here.
type State = Option<[Value; 16]>;

const UNKNOWN: [Value; 16] = [Value::Unknown; 16];

/// Of both ways to come to a place.
fn join(one: State, other: State) -> State {
    match (one, other) {
        (None, state) | (state, None) => state,
        (Some(mut one), Some(other)) => {
            for (value, other) in one.iter_mut().zip(other) {
                *value = match (*value, other) {
                    (Value::Rest, known) | (known, Value::Rest) => known,
                    (one, other) if one == other => one,
                    _ => Value::Unknown,
                };
            }
            Some(one)
        }
    }
}

/// Registers that a function may write, and does not answer in: rcx, rsi, rdi, r8 to r11.
const WRITTEN: [usize; 7] = [1, 6, 7, 8, 9, 10, 11];
/// Those in which it answers: rax, rdx.
const ANSWERED: [usize; 2] = [0, 2];
/// Those that the kernel does not leave: rax, rcx, r11.
const TAKEN: [usize; 3] = [0, 1, 11];

fn after(state: [Value; 16], effect: Effect) -> [Value; 16] {
    let mut next = state;
    let register = |number: u8| usize::from(number & 15);
    match effect {
        Effect::None => {}
        Effect::Constant(to, value) => next[register(to)] = Value::Constant(value),
        Effect::Copy(to, from) => next[register(to)] = state[register(from)],
        Effect::One(to) => next[register(to)] = Value::Unknown,
        Effect::Call => {
            WRITTEN.into_iter().for_each(|written| next[written] = Value::Rest);
            ANSWERED.into_iter().for_each(|answered| next[answered] = Value::Unknown);
        }
        Effect::SystemCall => TAKEN.into_iter().for_each(|taken| next[taken] = Value::Unknown),
        Effect::Any => next = UNKNOWN,
    }
    next
}

/// Places that branches lead to: more than so many, and nothing is known.
const PLACES: usize = 128;
/// Each pass but the last makes at least one register less known; a function that needs more is left.
const PASSES: usize = 24;

/// What is known at the places that branches lead to.
pub(crate) struct Places {
    list: [(u64, State); PLACES],
    count: usize,
    changed: bool,
}

impl Places {
    pub(crate) const fn new() -> Places {
        Places { list: [(0, None); PLACES], count: 0, changed: false }
    }

    /// Comes to a place, with what is known then. `None`: there is no room.
    fn come(&mut self, address: u64, state: State) -> Option<()> {
        let place = match self.list[..self.count].iter().position(|(there, _)| *there == address) {
            Some(place) => place,
            None => {
                *self.list.get_mut(self.count)? = (address, None);
                self.count += 1;
                self.changed = true;
                self.count - 1
            }
        };
        let there = &mut self.list[place].1;
        let joined = join(*there, state);
        self.changed |= joined != *there;
        *there = joined;
        Some(())
    }
}

/// What eax holds at `address`, where an instruction of `function` begins. `None`: not one constant, or not decided.
pub(crate) fn eax<M: Memory + ?Sized>(
    window: &mut Window<'_, M>,
    function: &Range<u64>,
    address: u64,
    places: &mut Places,
) -> Option<u32> {
    places.count = 0;
    pass(window, function, address, places, None)?;
    for _ in 0..PASSES {
        places.changed = false;
        let here = pass(window, function, address, places, Some(UNKNOWN))?;
        if !places.changed {
            return match here?[0] {
                Value::Constant(number) => Some(number),
                Value::Rest | Value::Unknown => None,
            };
        }
    }
    None
}

/// One pass, with what the function begins with: what is known at `address`. `None`: the function cannot be followed.
fn pass<M: Memory + ?Sized>(
    window: &mut Window<'_, M>,
    function: &Range<u64>,
    address: u64,
    places: &mut Places,
    begin: State,
) -> Option<State> {
    let (mut here, mut state, mut at) = (None, begin, function.start);
    while at < function.end {
        if let Some(place) = places.list[..places.count].iter().position(|(there, _)| *there == at) {
            places.come(at, state)?;
            state = places.list[place].1;
        } else if state.is_none() && !is_padding(window.at(at)) {
            // No jump leads here, so it is an exception that leads here.
            state = begin;
        }
        if at == address {
            here = state;
        }
        let instruction = decode(window.at(at))?;
        at += instruction.length as u64;
        state = state.map(|state| after(state, instruction.effect));
        match instruction.flow {
            Flow::Branch(distance) | Flow::Jump(distance) => {
                let target = at.wrapping_add(distance as u64);
                if function.contains(&target) {
                    places.come(target, state)?;
                }
            }
            Flow::Computed => return None,
            Flow::Next | Flow::End => {}
        }
        if matches!(instruction.flow, Flow::Jump(_) | Flow::End) {
            state = None;
        }
    }
    Some(here)
}

/// What compilers put between functions and before loops.
fn is_padding(bytes: &[u8]) -> bool {
    let rest = bytes.iter().position(|byte| ![0x66, 0x2e].contains(byte)).map_or(&[][..], |start| &bytes[start..]);
    matches!(rest, [0x90 | 0xcc, ..] | [0x0f, 0x1f, ..])
}
