//! Active messages for C: the functions of `include/shunt_am.h`, which says what they do.
//!
//! This crate owns the border: raw pointers become slices and references here, once, and nothing below it knows of them.
//! The caller's side of each `unsafe` is what the header says: pointers are valid for the lengths beside them, a port is
//! used by one thread at a time and not after `shunt_am_close`.

use shunt_am::port::{config_for, Port, Trouble};
use shunt_am::{Dispatch, Get, Message, Refused, Replier, Store};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::{Address, Endpoint, Tag, Tags};
use std::ffi::{c_int, c_void};
use std::time::Duration;

const TIMED_OUT: c_int = -1;
const LOST: c_int = -2;
const REFUSED: c_int = -3;

/// `shunt_am_card`: an address in six words, a tag, and nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Card {
    words: [u64; 8],
}

/// `shunt_am_message`.
#[repr(C)]
pub struct CMessage {
    peer: u32,
    word_count: u32,
    words: *const u64,
    data: *const c_void,
    length: usize,
    bulk_offset: u64,
    bulk_length: u64,
}

/// `shunt_am_replier`: what is left of the right to reply.
pub struct CReplier<'a>(Option<Replier<'a>>);

type OnRequest = unsafe extern "C" fn(*mut c_void, *const CMessage, *mut CReplier<'_>);
type OnReply = unsafe extern "C" fn(*mut c_void, *const CMessage);

/// The handlers, and the memory shown.
struct Program {
    requests: [Option<(OnRequest, *mut c_void)>; 256],
    replies: [Option<(OnReply, *mut c_void)>; 256],
    returned: Option<(OnReply, *mut c_void)>,
    segment: Vec<u8>,
}

fn told(message: &Message<'_>) -> CMessage {
    let (bulk_offset, bulk_length) = message.bulk.unwrap_or_default();
    CMessage {
        peer: message.peer,
        word_count: message.words.len() as u32,
        words: message.words.as_ptr(),
        data: message.data.as_ptr().cast(),
        length: message.data.len(),
        bulk_offset,
        bulk_length,
    }
}

impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let Some((handler, context)) = self.requests[usize::from(message.handler)] else { return replier.refuse() };
        let mut replier = CReplier(Some(replier));
        // SAFETY: the program gave the function with this context; both arguments live until it returns.
        unsafe { handler(context, &told(&message), &mut replier) };
    }

    fn reply(&mut self, message: Message<'_>) {
        if let Some((handler, context)) = self.replies[usize::from(message.handler)] {
            // SAFETY: as above.
            unsafe { handler(context, &told(&message)) };
        }
    }

    fn returned(&mut self, message: Message<'_>) {
        if let Some((handler, context)) = self.returned {
            // SAFETY: as above.
            unsafe { handler(context, &told(&message)) };
        }
    }

    fn segment(&mut self, _peer: u32) -> &mut [u8] {
        &mut self.segment
    }
}

/// `shunt_am`. The port borrows its engine's memory, so that is freed after it.
pub struct Handle {
    port: Option<Port<'static, Box<dyn Endpoint>>>,
    program: Program,
    memory: *mut [u64],
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.port = None;
        // SAFETY: made by Box::into_raw in `open`; its only borrower is gone.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

fn open(endpoint: Box<dyn Endpoint>, peers: u32, segment: usize) -> *mut Handle {
    let config = config_for(&endpoint, peers);
    if config.validate().is_err() {
        return std::ptr::null_mut();
    }
    let memory = Box::into_raw(shunt_am::port::memory(&config).into_boxed_slice());
    // SAFETY: just made; freed by the handle after the port.
    let port = Port::new(endpoint, unsafe { &mut *memory }, &config).ok();
    let program = Program { requests: [None; 256], replies: [None; 256], returned: None, segment: vec![0; segment] };
    let handle = Handle { port, program, memory };
    if handle.port.is_none() {
        return std::ptr::null_mut();
    }
    Box::into_raw(Box::new(handle))
}

impl Handle {
    fn parts(&mut self) -> (&mut Port<'static, Box<dyn Endpoint>>, &mut Program) {
        (self.port.as_mut().expect("an open port"), &mut self.program)
    }
}

fn result(result: Result<(), Trouble>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Trouble::TimedOut) => TIMED_OUT,
        Err(Trouble::Lost) => LOST,
        Err(Trouble::Refused(_)) => REFUSED,
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
pub extern "C" fn shunt_am_open_memory(peers: u32, segment_bytes: usize) -> *mut Handle {
    match Shm::new(Default::default()) {
        Ok(shm) => open(Box::new(shm), peers, segment_bytes),
        Err(_) => std::ptr::null_mut(),
    }
}

/// See the header.
#[no_mangle]
pub extern "C" fn shunt_am_open_udp(address: u32, port: u16, peers: u32, segment_bytes: usize) -> *mut Handle {
    match Udp::bind(&ipv4(address.to_ne_bytes(), port), Options::default()) {
        Ok(udp) => open(Box::new(udp), peers, segment_bytes),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// See the header: `port` is NULL or came from `shunt_am_open_*`, and is used no more.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_close(port: *mut Handle) {
    if !port.is_null() {
        // SAFETY: made by Box::into_raw in `open`.
        drop(unsafe { Box::from_raw(port) });
    }
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_new_card(port: *mut Handle, card: *mut Card) -> c_int {
    // SAFETY: both are the caller's, valid and not shared.
    let (port, card) = unsafe { (&mut *port, &mut *card) };
    let endpoint = port.parts().0.endpoint();
    let Ok(tag) = endpoint.new_tag() else { return REFUSED };
    card.words = [0; 8];
    card.words[..6].copy_from_slice(&endpoint.address().to_words());
    card.words[6] = tag.0;
    0
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_add_peer(port: *mut Handle, mine: *const Card, theirs: *const Card) -> c_int {
    // SAFETY: all three are the caller's and valid.
    let (port, mine, theirs) = unsafe { (&mut *port, *mine, *theirs) };
    let mut words = [0; 6];
    words.copy_from_slice(&theirs.words[..6]);
    let tags = Tags { receive: Tag(mine.words[6]), send: Tag(theirs.words[6]) };
    port.parts().0.open(&Address::from_words(words), tags).map_or(REFUSED, |peer| peer as c_int)
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_request(port: *mut Handle, number: u8, handler: Option<OnRequest>, context: *mut c_void) {
    // SAFETY: the caller's port.
    unsafe { &mut *port }.program.requests[usize::from(number)] = handler.map(|handler| (handler, context));
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_reply(port: *mut Handle, number: u8, handler: Option<OnReply>, context: *mut c_void) {
    // SAFETY: the caller's port.
    unsafe { &mut *port }.program.replies[usize::from(number)] = handler.map(|handler| (handler, context));
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_return(port: *mut Handle, handler: Option<OnReply>, context: *mut c_void) {
    // SAFETY: the caller's port.
    unsafe { &mut *port }.program.returned = handler.map(|handler| (handler, context));
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_segment(port: *mut Handle) -> *mut c_void {
    // SAFETY: the caller's port.
    unsafe { &mut *port }.program.segment.as_mut_ptr().cast()
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_connect(port: *mut Handle, peer: u32) -> c_int {
    // SAFETY: the caller's port.
    let (port, program) = unsafe { &mut *port }.parts();
    result(port.connect(peer, program))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_begin_connect(port: *mut Handle, peer: u32) -> c_int {
    // SAFETY: the caller's port.
    let (port, _) = unsafe { &mut *port }.parts();
    port.now();
    port.with(|engine, now, link| engine.connect(now, peer, link)).map_or(REFUSED, |()| 0)
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_accept(port: *mut Handle, peer: u32, milliseconds: u32) -> c_int {
    // SAFETY: the caller's port.
    let (port, program) = unsafe { &mut *port }.parts();
    result(port.accept(peer, program, Duration::from_millis(milliseconds.into())))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_request(
    port: *mut Handle,
    peer: u32,
    handler: u8,
    words: *const u64,
    count: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's port, and memory of the lengths that it says.
    let ((port, program), words, data) = unsafe { ((*port).parts(), slice(words, count as usize), slice(data, length)) };
    result(port.request(peer, handler, words, data, program))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_store(
    port: *mut Handle,
    peer: u32,
    offset: u64,
    data: *const u8,
    length: usize,
    handler: u8,
    words: *const u64,
    count: u32,
) -> c_int {
    // SAFETY: as in shunt_am_request.
    let ((port, program), words, data) = unsafe { ((*port).parts(), slice(words, count as usize), slice(data, length)) };
    result(port.store(peer, &Store { offset, handler, words }, data, program))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_get(
    port: *mut Handle,
    peer: u32,
    from: u64,
    to: u64,
    length: u64,
    handler: u8,
    words: *const u64,
    count: u32,
) -> c_int {
    // SAFETY: as in shunt_am_request.
    let ((port, program), words) = unsafe { ((*port).parts(), slice(words, count as usize)) };
    result(port.get(peer, &Get { from, to, length, handler, words }, program))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_reply(
    replier: *mut CReplier<'_>,
    handler: u8,
    words: *const u64,
    count: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the replier lives while its handler runs; memory of the lengths that the caller says.
    let (replier, words, data) = unsafe { (&mut *replier, slice(words, count as usize), slice(data, length)) };
    match replier.0.take().map(|replier| replier.reply(handler, words, data)) {
        Some(Ok(())) => 0,
        Some(Err(Refused::NotConnected)) => LOST,
        _ => REFUSED,
    }
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_medium_maximum(port: *mut Handle) -> usize {
    // SAFETY: the caller's port.
    unsafe { &mut *port }.parts().0.engine().medium_maximum()
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_poll(port: *mut Handle) -> c_int {
    // SAFETY: the caller's port.
    let (port, program) = unsafe { &mut *port }.parts();
    port.poll(program) as c_int
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_wait(port: *mut Handle, milliseconds: u32) -> c_int {
    // SAFETY: the caller's port.
    let (port, program) = unsafe { &mut *port }.parts();
    c_int::from(port.wait(program, Duration::from_millis(milliseconds.into())))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_drain(port: *mut Handle, peer: u32) -> c_int {
    // SAFETY: the caller's port.
    let (port, program) = unsafe { &mut *port }.parts();
    result(port.drain(peer, program))
}
