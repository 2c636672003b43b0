//! Which system calls an object's own machine code could make, past the C library (x86-64).
//!
//! The library that is preloaded asks this of each object that the loader has mapped, and the example `survey` of files. What is
//! looked for are the two bytes of `syscall`; most of those lie inside other instructions, or in constants:
//!
//! ```text
//! find       the two bytes, as fast as memory is read
//! functions  which function they lie in: the sorted table that unwinders use (.eh_frame_hdr)
//! decode     where that function's instructions begin: their lengths, and what they do to registers and to the flow
//! values     which call it is, if each way to it loads the same constant
//! number     whether that call could meet a socket
//! survey     all of it
//! elf        objects in files
//! ```
//!
//! What cannot be decided counts as a call. The memory that is read is trusted not to be hostile, but may be odd: packed,
//! stripped, truncated. Each read may fail, and everything read may be anything.
//!
//! ```
//! use core::ops::ControlFlow;
//! use shunt_instructions::{survey::{survey, Room}, Object};
//! // mov eax, 0; syscall; ret
//! let code = [0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3];
//! let object = Object { memory: &code[..], text: &[0..8], unwind: 0..0 };
//! let mut found = Vec::new();
//! survey(&object, &mut Room::new(), &mut |site| {
//!     found.push(site.address);
//!     ControlFlow::Continue(())
//! });
//! assert_eq!(found, [5]);
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod decode;
pub mod elf;
pub mod find;
pub mod functions;
pub mod number;
pub mod survey;
mod values;

use core::ops::Range;

/// An object's memory.
pub trait Memory {
    /// Fills `into` with what lies from `address` on. False: some of it cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// Bytes that lie at address 0.
impl Memory for [u8] {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        match start.checked_add(into.len()).and_then(|end| self.get(start..end)) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

/// One object: a program or a library.
#[derive(Debug)]
pub struct Object<'a, M: Memory + ?Sized> {
    /// Its memory.
    pub memory: &'a M,
    /// Where its executable segments lie.
    pub text: &'a [Range<u64>],
    /// Where its .eh_frame_hdr lies (PT_GNU_EH_FRAME). Empty: it has none.
    pub unwind: Range<u64>,
}
