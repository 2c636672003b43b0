//! The program's handlers, and the memory that it shows.

use crate::{entered, Handle};
use shunt_am::port::{Regions, Shows};
use shunt_am::{within, Access, Data, Dispatch, Event, Message, Reason, Replier};
use std::ffi::{c_int, c_void};

/// `shunt_am_message`.
#[repr(C)]
pub struct CMessage {
    peer: u32,
    channel: u16,
    handler: u8,
    word_count: u8,
    words: *const u64,
    data: *const c_void,
    length: usize,
    bulk_offset: u64,
    bulk_length: u64,
}

/// `shunt_am_replier`: what is left of the right to reply.
pub struct CReplier<'a>(pub(crate) Option<Replier<'a>>);

type OnRequest = unsafe extern "C" fn(*mut c_void, *const CMessage, *mut CReplier<'_>);
type OnReply = unsafe extern "C" fn(*mut c_void, *const CMessage);
type OnStream = unsafe extern "C" fn(*mut c_void, u32, u16, *const c_void, usize);
type OnAcknowledged = unsafe extern "C" fn(*mut c_void, u32, u16, u64);
type OnEvent = unsafe extern "C" fn(*mut c_void, u32, c_int);

/// A function of the program's, and what it is given each time.
type Handler<F> = Option<(F, *mut c_void)>;

/// The handlers, and the memory shown.
pub(crate) struct Program {
    requests: [Handler<OnRequest>; 256],
    replies: [Handler<OnReply>; 256],
    returned: Handler<OnReply>,
    stream: Handler<OnStream>,
    acknowledged: Handler<OnAcknowledged>,
    event: Handler<OnEvent>,
    segment: Vec<u8>,
    regions: Regions,
    /// Bytes of a stream that came in pieces.
    whole: Vec<u8>,
}

impl Program {
    pub(crate) fn new(segment: usize) -> Self {
        Self {
            requests: [None; 256],
            replies: [None; 256],
            returned: None,
            stream: None,
            acknowledged: None,
            event: None,
            segment: vec![0; segment],
            regions: Regions::default(),
            whole: Vec::new(),
        }
    }

    pub(crate) fn memory(&mut self) -> *mut u8 {
        self.segment.as_mut_ptr()
    }
}

fn told(message: &Message<'_>) -> CMessage {
    let (bulk_offset, bulk_length) = message.bulk.unwrap_or_default();
    CMessage {
        peer: message.peer,
        channel: message.channel,
        handler: message.handler,
        word_count: message.words.len() as u8,
        words: message.words.as_ptr(),
        data: message.data.as_ptr().cast(),
        length: message.data.len(),
        bulk_offset,
        bulk_length,
    }
}

/// `SHUNT_AM_UP` and what follows it in the header.
fn number(event: Event) -> c_int {
    match event {
        Event::Up => 0,
        Event::Lost(Reason::Silent) => 1,
        Event::Lost(Reason::Unreachable) => 2,
        Event::Lost(Reason::Restarted) => 3,
        Event::Lost(Reason::Reset) => 4,
        Event::Lost(Reason::Closed) => 5,
        Event::Lost(Reason::Stuck) => 6,
    }
}

// SAFETY of all calls below: the program gave the function with this context; what it is given lives until it returns.
impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let Some((handler, context)) = self.requests[usize::from(message.handler)] else { return replier.refuse() };
        let mut replier = CReplier(Some(replier));
        // SAFETY: see above.
        unsafe { handler(context, &told(&message), &mut replier) };
    }

    fn reply(&mut self, message: Message<'_>) {
        if self.regions.heed(&message, true) {
            return;
        }
        if let Some((handler, context)) = self.replies[usize::from(message.handler)] {
            // SAFETY: see above.
            unsafe { handler(context, &told(&message)) };
        }
    }

    fn returned(&mut self, message: Message<'_>) {
        if self.regions.heed(&message, false) {
            return;
        }
        if let Some((handler, context)) = self.returned {
            // SAFETY: see above.
            unsafe { handler(context, &told(&message)) };
        }
    }

    fn stream(&mut self, peer: u32, channel: u16, data: Data<'_>) {
        let Some((handler, context)) = self.stream else { return };
        let bytes = match data.as_slice() {
            Some(bytes) => bytes,
            None => {
                self.whole.resize(data.len(), 0);
                data.copy_to(0, &mut self.whole);
                &self.whole
            }
        };
        // SAFETY: see above.
        unsafe { handler(context, peer, channel, bytes.as_ptr().cast(), bytes.len()) };
    }

    fn acknowledged(&mut self, peer: u32, channel: u16, upto: u64) {
        if let Some((handler, context)) = self.acknowledged {
            // SAFETY: see above.
            unsafe { handler(context, peer, channel, upto) };
        }
    }

    fn segment(&mut self, _peer: u32) -> &mut [u8] {
        &mut self.segment
    }

    fn place(&mut self, peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        match Regions::has(at) {
            true => self.regions.place(peer, access, at, length),
            false => within(&mut self.segment, at, length),
        }
    }

    fn event(&mut self, peer: u32, event: Event) {
        if matches!(event, Event::Lost(_)) {
            self.regions.lapse(peer);
        }
        if let Some((handler, context)) = self.event {
            // SAFETY: see above.
            unsafe { handler(context, peer, number(event)) };
        }
    }
}

impl Shows for Program {
    fn regions(&mut self) -> &mut Regions {
        &mut self.regions
    }
}

fn with<F>(handler: Option<F>, context: *mut c_void) -> Handler<F> {
    handler.map(|handler| (handler, context))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_request(port: *mut Handle, number: u8, handler: Option<OnRequest>, context: *mut c_void) {
    entered!(port, nothing).program.requests[usize::from(number)] = with(handler, context);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_reply(port: *mut Handle, number: u8, handler: Option<OnReply>, context: *mut c_void) {
    entered!(port, nothing).program.replies[usize::from(number)] = with(handler, context);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_return(port: *mut Handle, handler: Option<OnReply>, context: *mut c_void) {
    entered!(port, nothing).program.returned = with(handler, context);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_stream(port: *mut Handle, handler: Option<OnStream>, context: *mut c_void) {
    entered!(port, nothing).program.stream = with(handler, context);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_acknowledged(port: *mut Handle, handler: Option<OnAcknowledged>, context: *mut c_void) {
    entered!(port, nothing).program.acknowledged = with(handler, context);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_event(port: *mut Handle, handler: Option<OnEvent>, context: *mut c_void) {
    entered!(port, nothing).program.event = with(handler, context);
}
