//! Which calls the program makes by instructions of its own, and how the kernel comes to tell of them (option `raw`).
//!
//! ```text
//! code         whether code that is loaded could make such calls
//! threads      the kernel tells of new threads' calls, too
//! filters      the program's own filters of calls
//! ```

use crate::signals;
use core::ops::Range;
use shunt_calls::libc;
use shunt_segment::reason::Reason;
use shunt_sys::dispatch;
use shunt_table::process::{kernel_only, status_page};
use shunt_table::{global, table};

pub mod code;
pub mod filters;
pub mod threads;

/// Has calls from outside of `range` told, in the calling thread and those that it makes. No such call may be made by another one
/// between these steps; with [`Raw::Auto`] one that is made is the kernel's. False: the kernel cannot.
pub fn begin(range: Option<Range<usize>>) -> bool {
    let begun = range.is_some_and(|range| dispatch::begin(range.start, range.len()).is_ok());
    if begun {
        signals::take(libc::SIGSYS);
        status_page::count(Reason::RawTrapped);
    } else {
        status_page::count(Reason::RawNotTrapped);
    }
    begun
}

/// The program is about to use what it has loaded, while it may have connections: what could make calls on them is looked for now, and
/// not before the next socket.
pub fn loaded() {
    if global::ready() && table::any_ours() {
        code::look();
        kernel_only::carry();
    }
}
