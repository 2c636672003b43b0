//! What went wrong, as a number.

use shunt_buffers::port::{Awaited, Error};
use shunt_buffers::region::Limit;
use std::ffi::{c_char, c_int, CStr};
use std::fmt::Write;

pub const GONE: c_int = -1;
pub const VIOLATION: c_int = -2;
pub const TOO_LONG: c_int = -3;
pub const REFUSED: c_int = -4;
const NO_ROOM: c_int = -5;
const NOT_ARRIVED: c_int = -6;
const NO_MESSAGE: c_int = -7;
const LIMIT: c_int = -100;
const SYSTEM: c_int = -1000;

pub fn code(error: Error) -> c_int {
    match error {
        Error::Gone => GONE,
        Error::Violation(_) => VIOLATION,
        Error::Length(_) => TOO_LONG,
        Error::Waited(Awaited::Room) => NO_ROOM,
        Error::Waited(Awaited::Arrival) => NOT_ARRIVED,
        Error::Waited(Awaited::Message) => NO_MESSAGE,
        Error::Limit(limit) => LIMIT - limit as c_int,
        Error::System(errno) => SYSTEM - errno.0,
    }
}

pub fn failed(result: Result<(), Error>) -> c_int {
    result.map_or_else(code, |()| 0)
}

/// The limit that a result stands for.
pub fn limit(result: c_int) -> Option<Limit> {
    Limit::ALL.get(usize::try_from(LIMIT.checked_sub(result)?).ok()?).copied()
}

/// Sentences and words that end as C has them, each made once: there are few.
fn kept(text: &str) -> *const c_char {
    static KEPT: std::sync::Mutex<Vec<&'static CStr>> = std::sync::Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = kept.iter().find(|known| known.to_bytes() == text.as_bytes()) {
        return known.as_ptr();
    }
    let fresh = std::ffi::CString::new(text).unwrap_or_default();
    let fresh: &'static CStr = Box::leak(fresh.into_boxed_c_str());
    kept.push(fresh);
    fresh.as_ptr()
}

/// See the header.
#[no_mangle]
pub extern "C" fn shunt_result_text(result: c_int) -> *const c_char {
    let mut text = String::new();
    match (result, limit(result)) {
        (_, Some(limit)) => text.push_str(limit.text()),
        (0.., _) => text.push_str("Done."),
        (GONE, _) => text.push_str("The peer has ended, or closed its port."),
        (VIOLATION, _) => text.push_str("The peer sent what no honest peer sends."),
        (TOO_LONG, _) => text.push_str("The message is longer than the buffer."),
        (REFUSED, _) => text.push_str("No such semantics for this call, or a length beyond the region."),
        (NO_ROOM, _) => text.push_str("The peer made no room in time. The message was not sent: its buffer is as it was."),
        (NOT_ARRIVED, _) => text.push_str("What was sent is not all in the peer's process in time. The rest is still under way."),
        (NO_MESSAGE, _) => text.push_str("No message, or not all of it, came in time. It can be received when it is here."),
        (..=SYSTEM, _) => drop(write!(text, "{}.", std::io::Error::from_raw_os_error(SYSTEM.saturating_sub(result)))),
        _ => text.push_str("No such result."),
    }
    kept(&text)
}

/// See the header.
#[no_mangle]
pub extern "C" fn shunt_result_word(result: c_int) -> *const c_char {
    let word = match (result, limit(result)) {
        (_, Some(limit)) => limit.word(),
        (0.., _) => "done",
        (GONE, _) => "gone",
        (VIOLATION, _) => "violation",
        (TOO_LONG, _) => "too-long",
        (REFUSED, _) => "refused",
        (NO_ROOM, _) => "no-room",
        (NOT_ARRIVED, _) => "not-arrived",
        (NO_MESSAGE, _) => "no-message",
        (..=SYSTEM, _) => "system",
        _ => "unknown",
    };
    kept(word)
}
