//! Calls for C: the functions of `include/shunt_rpc.h`, which says what they do.
//!
//! This crate owns the border: raw pointers become slices and references here, once. The caller's side of each `unsafe` is what the
//! header says: pointers are valid for the lengths beside them, a client is used by one thread at a time and not after it is closed, and
//! what belongs to a client is ended before it.
//!
//! ```text
//! static void append(void *state, shunt_rpc_request *request, const append_1_arguments *arguments, append_1_result *result) {
//!     if (count == 100) {
//!         shunt_rpc_answer_fault(request, 28, "the log is full");
//!         return;
//!     }
//!     result->value.records = ++count;
//! }
//! ```
//!
//! The service and a caller of it, over what `shunt-rpcgen` makes of `examples/log.x`, are `examples/log.c`.
#![allow(clippy::missing_safety_doc)] // the contract above is each function's

mod callers;
mod servers;

use shunt_rpc::{Error, Kind, Ran};
use std::cell::RefCell;
use std::ffi::{c_int, CString};

/// A kind of error as the header has it.
fn number(kind: Kind) -> c_int {
    match kind {
        Kind::Unreachable => -1,
        Kind::Denied => -2,
        Kind::Version => -3,
        Kind::Protocol => -4,
        Kind::TimedOut => -6,
        Kind::Lost => -7,
        Kind::Busy => -8,
        Kind::Cancelled => -9,
        Kind::TooLong => -10,
        Kind::NoProcedure => -11,
        Kind::BadArguments => -12,
        Kind::BadResults => -13,
        Kind::Application => -14,
        Kind::Panicked => -15,
        Kind::Forked => -16,
        _ => -5,
    }
}

/// What is known of the last failure.
#[derive(Default)]
struct Last {
    text: CString,
    ran: c_int,
    fault: i32,
}

impl Last {
    fn note(&mut self, error: &Error) -> c_int {
        self.text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
        self.ran = match error.ran() {
            Ran::No => 0,
            Ran::Maybe => 1,
            Ran::Yes => 2,
        };
        self.fault = error.fault().map_or(0, |fault| fault.code);
        number(error.kind())
    }
}

thread_local! {
    /// Of binding.
    static LAST: RefCell<Last> = RefCell::default();
}

/// # Safety
/// `length` bytes lie at `start`.
unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(start, length) }
}
