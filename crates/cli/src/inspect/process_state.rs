//! What a process tells about its descriptors.
use std::mem::offset_of;

use shunt_segment::process::{found, row, Found, ProcessHeader, ProcessState, Waits, FOUND, MAGIC, ROWS, SIZE};
use shunt_segment::reason::{Reason, COUNTERS};
use shunt_segment::VERSION;

use super::processes::{self, Descriptor, Target};
use super::words::Words;

/// The memfd's name, without the terminating zero.
pub const NAME: &str = "shunt-process";

/// A copy of a process's state.
pub struct State {
    words: Words,
    /// Whether the process wrote it itself. A child after fork keeps its parent's until it makes a network call: then
    /// rows and counters tell of the parent.
    pub own: bool,
}

/// What a process noted for one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// One of [`shunt_segment::process::kind`], or anything in a damaged state.
    pub kind: u8,
    /// Why the descriptor is what it is; None if the code is not known to this command.
    pub reason: Option<Reason>,
}

/// Waits of all threads of a process: see [`Waits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Ticks of looking.
    pub spun: u64,
    /// Waits that slept.
    pub sleeps: u64,
    /// Ticks asleep.
    pub slept: u64,
}

impl State {
    /// The state of process `pid`, found among its `descriptors`.
    ///
    /// After fork both the parent's state and the child's own may be there: the one that names the process wins.
    pub fn find(pid: u32, descriptors: &[Descriptor]) -> Option<State> {
        let own_number = processes::own_number(pid);
        let mut found: Option<State> = None;
        for descriptor in descriptors {
            if descriptor.target != Target::Memory(NAME.to_owned()) {
                continue;
            }
            let Some(mut state) = processes::open(pid, descriptor.number)
                .and_then(|file| Words::copy(&file, SIZE))
                .ok()
                .and_then(State::from_words)
            else {
                continue;
            };
            state.own = state.pid() == own_number;
            if found.is_none() || state.own {
                found = Some(state);
            }
        }
        found
    }

    fn from_words(words: Words) -> Option<State> {
        let header = offset_of!(ProcessState, header);
        let known = words.word64(header + offset_of!(ProcessHeader, magic)) == MAGIC
            && words.word32(header + offset_of!(ProcessHeader, version)) == VERSION;
        known.then_some(State { words, own: false })
    }

    /// The process that wrote it, as it knows itself.
    fn pid(&self) -> u32 {
        self.words.word32(offset_of!(ProcessState, header) + offset_of!(ProcessHeader, pid))
    }

    /// What the process noted for `descriptor`; None if nothing.
    pub fn row(&self, descriptor: u32) -> Option<Row> {
        let index = Some(descriptor as usize).filter(|index| *index < ROWS)?;
        match self.words.word32(offset_of!(ProcessState, rows) + index * 4) {
            0 => None,
            word => Some(Row { kind: row::kind(word), reason: Reason::from_code(row::reason(word)) }),
        }
    }

    /// Objects whose own instructions could make calls on connections: file name (the program's own is empty), a call's number where one is
    /// known, and [`shunt_segment::process::found`].
    pub fn found(&self) -> Vec<(String, Option<u32>, u32)> {
        let places = offset_of!(ProcessState, header) + offset_of!(ProcessHeader, found);
        let place = |i: usize| {
            let word = |at: usize| self.words.word64(places + i * size_of::<Found>() + at);
            let (fate, call) = (word(0) as u32, (word(0) >> 32) as u32);
            let name: Vec<u8> = (0..found::NAME / 8).flat_map(|i| word(offset_of!(Found, name) + i * 8).to_le_bytes()).collect();
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            (processes::printable(&name[..end]), call.checked_sub(1), fate)
        };
        (0..FOUND).map(place).filter(|(_, _, fate)| *fate != 0).collect()
    }

    /// What waits of its threads were made of so far.
    pub fn waits(&self) -> Waited {
        let waits = offset_of!(ProcessState, header) + offset_of!(ProcessHeader, waits);
        Waited {
            spun: self.words.word64(waits + offset_of!(Waits, spun)),
            sleeps: self.words.word64(waits + offset_of!(Waits, sleeps)),
            slept: self.words.word64(waits + offset_of!(Waits, slept)),
        }
    }

    /// How often each reason was given, for those that were.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.reasons().into_iter().map(|(reason, count)| (reason.word(), count)).collect()
    }

    /// The same.
    pub fn reasons(&self) -> Vec<(Reason, u64)> {
        let counters = offset_of!(ProcessState, header) + offset_of!(ProcessHeader, counters);
        Reason::ALL
            .iter()
            .filter(|reason| (**reason as usize) < COUNTERS)
            .map(|reason| (*reason, self.words.word64(counters + *reason as usize * 8)))
            .filter(|(_, count)| *count != 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_segment::process::kind;

    fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    #[test]
    fn rows_and_counters_are_read_as_they_were_written() {
        let mut bytes = vec![0; SIZE];
        assert!(State::from_words(Words::from_bytes(bytes.clone())).is_none());
        put(&mut bytes, offset_of!(ProcessHeader, magic), &MAGIC.to_ne_bytes());
        put(&mut bytes, offset_of!(ProcessHeader, version), &VERSION.to_ne_bytes());
        put(&mut bytes, offset_of!(ProcessHeader, pid), &5u32.to_ne_bytes());
        let counter = offset_of!(ProcessHeader, counters) + Reason::PeerPlain as usize * 8;
        put(&mut bytes, counter, &3u64.to_ne_bytes());
        let rows = offset_of!(ProcessState, rows);
        put(&mut bytes, rows + 9 * 4, &row::pack(Reason::Accelerated as u8, kind::STREAM, 12).to_ne_bytes());
        put(&mut bytes, rows + (ROWS - 1) * 4, &u32::MAX.to_ne_bytes());

        let state = State::from_words(Words::from_bytes(bytes)).unwrap();
        assert_eq!(state.pid(), 5);
        assert_eq!(state.counters(), [("peer-plain", 3)]);
        assert_eq!(state.row(9), Some(Row { kind: kind::STREAM, reason: Some(Reason::Accelerated) }));
        assert_eq!(state.row(ROWS as u32 - 1), Some(Row { kind: 255, reason: None }));
        assert_eq!((state.row(8), state.row(ROWS as u32), state.row(u32::MAX)), (None, None, None));
    }
}
