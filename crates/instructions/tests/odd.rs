//! Odd objects: packed, truncated, overwritten. Any answer is right, if only there is one.

// An object with one text is meant.
#![allow(clippy::single_range_in_vec_init)]

use proptest::prelude::*;
use shunt_instructions::elf::File;
use shunt_instructions::survey::{survey, Room, Site};
use shunt_instructions::{Memory, Object};
use std::ops::{ControlFlow, Range};

fn sites<M: Memory + ?Sized>(object: &Object<'_, M>) -> Vec<Site> {
    let mut found = Vec::new();
    survey(object, &mut Box::new(Room::new()), &mut |site| {
        found.push(site);
        ControlFlow::Continue(())
    });
    found
}

fn program() -> &'static [u8] {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BYTES.get_or_init(|| {
        std::fs::read("/lib64/ld-linux-x86-64.so.2").or_else(|_| std::fs::read("/proc/self/exe")).expect("a program")
    })
}

fn look_at(bytes: &[u8]) {
    if let Some(file) = File::new(bytes) {
        let mut texts = [const { 0..0 }; 8];
        sites(&file.object(&mut texts));
    }
}

/// Memory of which parts cannot be read.
struct Holes<'a>(&'a [u8], Range<u64>);

impl Memory for Holes<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let end = address.saturating_add(into.len() as u64);
        !(address < self.1.end && self.1.start < end) && self.0.read(address, into)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn overwritten(places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60), in_headers in any::<bool>()) {
        let mut bytes = program().to_vec();
        let reach = if in_headers { 1024.min(bytes.len()) } else { bytes.len() };
        for (place, byte) in places {
            let at = place.index(reach);
            // It stays an object, as far as that is asked.
            if at >= 20 {
                bytes[at] = byte;
            }
        }
        look_at(&bytes);
    }

    #[test]
    fn truncated(length in any::<prop::sample::Index>()) {
        look_at(&program()[..length.index(program().len())]);
    }

    #[test]
    fn any_text(text in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x0f), Just(0x05), Just(0xe9), Just(0xb8)], 0..3000),
                unwind in 0u64..3000, hole in 0u64..3000) {
        let whole = 0..text.len() as u64;
        let object = Object { memory: &Holes(&text, hole..hole + 10), text: core::slice::from_ref(&whole), unwind: unwind.min(whole.end)..whole.end };
        for site in sites(&object) {
            let at = site.address as usize;
            prop_assert_eq!(&text[at..at + 2], &[0x0f, 0x05]);
        }
    }

    /// A table of functions that says anything.
    #[test]
    fn any_table(table in proptest::collection::vec(any::<u8>(), 8..400), text in proptest::collection::vec(any::<u8>(), 100..600)) {
        let mut memory = text.clone();
        let unwind = memory.len() as u64;
        memory.extend([1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, (table.len() / 8) as u8, 0, 0, 0]);
        memory.extend(&table);
        let object = Object { memory: &memory[..], text: &[0..text.len() as u64], unwind: unwind..memory.len() as u64 };
        sites(&object);
    }

    #[test]
    fn text_anywhere(start in any::<u64>(), length in 0u64..100_000) {
        let memory = [0x0fu8, 0x05];
        sites(&Object { memory: &memory[..], text: &[start..start.saturating_add(length)], unwind: start..u64::MAX });
    }
}
