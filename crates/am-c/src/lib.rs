//! Active messages for C: the functions of `include/shunt_am.h`, which says what they do.
//!
//! This crate owns the border: raw pointers become slices and references here, once, and nothing below it knows of them.
//! The caller's side of each `unsafe` is what the header says: pointers are valid for the lengths beside them, a port is
//! used by one thread at a time and not after `shunt_am_close`.
//!
//! ```text
//! static void add(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
//!     uint64_t sum = message->words[0] + message->words[1];
//!     shunt_am_reply(replier, 2, &sum, 1, NULL, 0);
//! }
//! shunt_am_set_request(there, 1, add, NULL);
//! shunt_am_request(here, peer, 1, (uint64_t[]){20, 22}, 2, NULL, 0);
//! ```
//!
//! The whole program, which tests compile and run, is `examples/messages.c`.
#![allow(clippy::missing_safety_doc)] // the contract above is each function's

mod connections;
mod messages;
mod program;
mod regions;

use program::Program;
use shunt_am::port::{config_for, join, Port, Trouble};
use shunt_am::Refused;
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, ipv6, Options, Udp};
use shunt_endpoint::{Address, Endpoint, Tag, Tags};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};

/// Results, as in the header.
const TIMED_OUT: c_int = -1;
const LOST: c_int = -2;
const REFUSED: c_int = -3;
const BUSY: c_int = -4;
const TOO_LONG: c_int = -5;
const IN_HANDLER: c_int = -6;
const STALE: c_int = -7;
const OUTSIDE: c_int = -8;
const NO_MEMORY: c_int = -9;

/// `shunt_am_card`: an address in six words, a tag, and nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Card {
    words: [u64; 8],
}

/// `shunt_am`. The port borrows its engine's memory, so that is freed after it.
pub struct Handle {
    /// A call is inside: what a handler calls meanwhile finds this, and nothing else is touched.
    inside: Cell<bool>,
    port: Option<Port<'static, Box<dyn Endpoint>>>,
    program: Program,
    /// What peers see, for as long as the port lives.
    segment: *mut u8,
    memory: *mut [u64],
}

/// A call's right to a port. GAM lets a request's handler reply and no handler do more; here nothing else could be done, because
/// the engine is in the middle of a message.
struct Inside<'h> {
    inside: &'h Cell<bool>,
    port: &'h mut Port<'static, Box<dyn Endpoint>>,
    program: &'h mut Program,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.inside.set(false);
    }
}

/// # Safety
/// `handle` is the caller's port. `None`: a handler of this port runs.
unsafe fn enter<'h>(handle: *mut Handle) -> Option<Inside<'h>> {
    // SAFETY: the caller's port; of this field there are shared references only.
    let inside = unsafe { &(*handle).inside };
    if inside.replace(true) {
        return None;
    }
    // SAFETY: two other fields, which no other call has while this one is inside.
    let (port, program) = unsafe { (&mut (*handle).port, &mut (*handle).program) };
    Some(Inside { inside, port: port.as_mut().expect("an open port"), program })
}

/// The results of a call that a handler may not make.
macro_rules! entered {
    ($handle:expr) => {
        entered!($handle, $crate::IN_HANDLER)
    };
    ($handle:expr, nothing) => {
        // SAFETY: the caller's port.
        match unsafe { $crate::enter($handle) } {
            Some(inside) => inside,
            None => return,
        }
    };
    ($handle:expr, $otherwise:expr) => {
        // SAFETY: the caller's port.
        match unsafe { $crate::enter($handle) } {
            Some(inside) => inside,
            None => return $otherwise,
        }
    };
}
use entered;

impl Drop for Handle {
    fn drop(&mut self) {
        self.port = None;
        // SAFETY: made by Box::into_raw in `open`; its only borrower is gone.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

fn open<E: Endpoint + 'static>(endpoint: Option<E>, peers: u32, segment: usize) -> *mut Handle {
    let Some(endpoint) = endpoint else { return std::ptr::null_mut() };
    let endpoint: Box<dyn Endpoint> = Box::new(endpoint);
    let config = config_for(&endpoint, peers);
    if config.validate().is_err() {
        return std::ptr::null_mut();
    }
    let memory = Box::into_raw(shunt_am::port::memory(&config).into_boxed_slice());
    // SAFETY: just made; freed by the handle after the port.
    let port = Port::new(endpoint, unsafe { &mut *memory }, &config).ok();
    let mut program = Program::new(segment);
    let handle = Handle { inside: Cell::new(false), port, segment: program.memory(), program, memory };
    if handle.port.is_none() {
        return std::ptr::null_mut();
    }
    Box::into_raw(Box::new(handle))
}

/// Why a call did nothing, as a number.
fn refusal(refused: Refused) -> c_int {
    match refused {
        Refused::NotConnected => LOST,
        Refused::NoCredit | Refused::NoRoom => BUSY,
        Refused::TooLong => TOO_LONG,
        Refused::Argument => REFUSED,
    }
}

fn result(result: Result<(), Trouble>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Trouble::TimedOut) => TIMED_OUT,
        Err(Trouble::Lost) => LOST,
        Err(Trouble::Refused(refused)) => refusal(refused),
        Err(Trouble::Channel(_)) => REFUSED,
        Err(Trouble::Region(limit)) => regions::number(limit),
    }
}

/// # Safety
/// `pointer` is valid for `length` values, or `length` is 0.
unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer, length) }
}

/// See the header.
#[no_mangle]
pub extern "C" fn shunt_am_text(result: c_int) -> *const c_char {
    let text = match result {
        TIMED_OUT => c"timed out",
        LOST => c"the connection is lost, or not up",
        REFUSED => c"no such peer or channel, or too many words",
        BUSY => c"no credit or room now",
        TOO_LONG => c"more data than a message takes",
        IN_HANDLER => c"a handler may reply, or refuse, and make no other call",
        STALE => c"the region was taken back, or is not for that",
        OUTSIDE => c"the bytes do not lie in the region",
        NO_MEMORY => c"no memory for a region, or too many are shown",
        _ => c"done",
    };
    text.as_ptr()
}

/// See the header.
#[no_mangle]
pub extern "C" fn shunt_am_open_memory(peers: u32, segment_bytes: usize) -> *mut Handle {
    open(Shm::new(Default::default()).ok(), peers, segment_bytes)
}

/// See the header.
#[no_mangle]
pub extern "C" fn shunt_am_open_udp(address: u32, port: u16, peers: u32, segment_bytes: usize) -> *mut Handle {
    open(Udp::bind(&ipv4(address.to_ne_bytes(), port), Options::default()).ok(), peers, segment_bytes)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_open_udp6(
    address: *const [u8; 16],
    scope: u32,
    port: u16,
    peers: u32,
    segment_bytes: usize,
) -> *mut Handle {
    // SAFETY: the caller's sixteen bytes.
    let address = unsafe { *address };
    open(Udp::bind(&ipv6(address, port, scope), Options::default()).ok(), peers, segment_bytes)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_open_interface(
    name: *const c_char,
    version_6: c_int,
    peers: u32,
    segment_bytes: usize,
) -> *mut Handle {
    // SAFETY: the caller's string.
    let name = unsafe { CStr::from_ptr(name) };
    let endpoint = name.to_str().ok().and_then(|name| Xdp::attach(name, Kind::Any, version_6 != 0, Sizes::default()).ok());
    open(endpoint, peers, segment_bytes)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_close(port: *mut Handle) {
    // SAFETY: the caller's port, if there is one.
    if !port.is_null() && unsafe { enter(port) }.is_some() {
        // SAFETY: made by Box::into_raw in `open`; no call is inside.
        drop(unsafe { Box::from_raw(port) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_new_card(port: *mut Handle, card: *mut Card) -> c_int {
    let inside = entered!(port);
    // SAFETY: the caller's, valid and not shared.
    let card = unsafe { &mut *card };
    let endpoint = inside.port.endpoint();
    let Ok(tag) = endpoint.new_tag() else { return REFUSED };
    card.words = [0; 8];
    card.words[..6].copy_from_slice(&endpoint.address().to_words());
    card.words[6] = tag.0;
    0
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_add_peer(port: *mut Handle, mine: *const Card, theirs: *const Card) -> c_int {
    let inside = entered!(port);
    // SAFETY: both are the caller's and valid.
    let (mine, theirs) = unsafe { (*mine, *theirs) };
    let mut words = [0; 6];
    words.copy_from_slice(&theirs.words[..6]);
    let tags = Tags { receive: Tag(mine.words[6]), send: Tag(theirs.words[6]) };
    inside.port.open(&Address::from_words(words), tags).map_or(REFUSED, |peer| peer as c_int)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_join(a: *mut Handle, b: *mut Handle, peer_of_a: *mut u32, peer_of_b: *mut u32) -> c_int {
    if a == b {
        return REFUSED;
    }
    let (a, b) = (entered!(a), entered!(b));
    match join((&mut *a.port, &mut *a.program), (&mut *b.port, &mut *b.program)) {
        Ok(peers) => {
            for (place, peer) in [(peer_of_a, peers.0), (peer_of_b, peers.1)] {
                if !place.is_null() {
                    // SAFETY: the caller's integer.
                    unsafe { *place = peer };
                }
            }
            0
        }
        Err(trouble) => result(Err(trouble)),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_segment(port: *mut Handle) -> *mut c_void {
    // SAFETY: the caller's port; handlers may ask, too.
    unsafe { (*port).segment }.cast()
}
