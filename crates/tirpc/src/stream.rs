//! An XDR of libtirpc's whose functions put words into a record and take them from one.

use libc::{c_char, c_int, c_long, c_uint, c_void};

use crate::layout::{Bool, Xdr, XdrOps, FALSE, XDR_DECODE, XDR_ENCODE};
use crate::record::{Input, Output};
use crate::socket::Socket;

/// Bytes of the buffer of what goes: as many as libtirpc has for TCP.
const OUTPUT: usize = 64 << 10;
/// Bytes of the buffer of what comes. What is longer goes from the socket to where it is decoded to.
const INPUT: usize = 8 << 10;

/// Both directions of a connection behind one XDR, whose private word points here.
pub struct Stream {
    /// What XDR functions are given.
    pub xdr: Xdr,
    /// What comes.
    pub input: Input,
    /// What goes.
    pub output: Output,
    /// Where from and where to.
    pub socket: Socket,
}

impl Stream {
    /// Over a socket.
    pub fn over(fd: c_int, patience: c_int, eager: bool) -> Owned {
        let null = core::ptr::null_mut;
        let stream = Box::into_raw(Box::new(Stream {
            xdr: Xdr {
                op: XDR_ENCODE,
                ops: &OPS,
                public: core::ptr::null_mut(),
                private: null(),
                base: core::ptr::null_mut(),
                handy: 0,
            },
            input: Input::new(INPUT),
            output: Output::new(OUTPUT),
            socket: Socket::new(fd, patience, eager),
        }));
        // SAFETY: just made.
        unsafe { (*stream).xdr.private = stream.cast() };
        Owned(stream)
    }
}

/// A stream, which stays where it is, as its XDR points to it. There is one pointer, from which all others are made: the functions of the XDR come by
/// it while callers have theirs.
pub struct Owned(*mut Stream);

impl Owned {
    /// The stream.
    pub fn pointer(&self) -> *mut Stream {
        self.0
    }
}

impl core::ops::Deref for Owned {
    type Target = Stream;
    fn deref(&self) -> &Stream {
        // SAFETY: a box's; no function of the XDR runs while its owner looks at the stream itself.
        unsafe { &*self.0 }
    }
}

impl core::ops::DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Stream {
        // SAFETY: as above.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: a box's, and this is its only owner.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

static OPS: XdrOps = XdrOps {
    get_long,
    put_long,
    get_bytes,
    put_bytes,
    get_position,
    set_position,
    inline,
    destroy: Some(destroy),
    control: None,
};

/// # Safety
/// An XDR of [`Stream::over`] in a call of the thread that has the stream.
unsafe fn stream<'a>(xdr: *mut Xdr) -> &'a mut Stream {
    // SAFETY: promised by the caller; the XDR itself is not touched through the reference meanwhile.
    unsafe { &mut *(*xdr).private.cast::<Stream>() }
}

unsafe extern "C-unwind" fn get_long(xdr: *mut Xdr, to: *mut c_long) -> Bool {
    // SAFETY: an XDR of ours; the caller's word.
    let (stream, to) = unsafe { (stream(xdr), &mut *to) };
    let word = stream.input.word(&mut stream.socket);
    if let Ok(word) = word {
        *to = c_long::from(word);
    }
    word.is_ok().into()
}

unsafe extern "C-unwind" fn put_long(xdr: *mut Xdr, from: *const c_long) -> Bool {
    // SAFETY: an XDR of ours; the caller's word.
    let (stream, word) = unsafe { (stream(xdr), *from as u32) };
    stream.output.word(word, &mut stream.socket).is_ok().into()
}

unsafe extern "C-unwind" fn get_bytes(xdr: *mut Xdr, to: *mut c_char, length: c_uint) -> Bool {
    if length == 0 {
        return 1;
    }
    // SAFETY: an XDR of ours; the caller's memory has room for so many bytes.
    let (stream, to) = unsafe { (stream(xdr), core::slice::from_raw_parts_mut(to.cast::<u8>(), length as usize)) };
    stream.input.bytes(to, &mut stream.socket).is_ok().into()
}

unsafe extern "C-unwind" fn put_bytes(xdr: *mut Xdr, from: *const c_char, length: c_uint) -> Bool {
    if length == 0 {
        return 1;
    }
    // SAFETY: an XDR of ours; the caller's memory holds so many bytes.
    let (stream, from) = unsafe { (stream(xdr), core::slice::from_raw_parts(from.cast::<u8>(), length as usize)) };
    stream.output.bytes(from, &mut stream.socket).is_ok().into()
}

/// Where a decoder's positions begin: they rise as the rest of the fragment falls.
const TOP: u32 = 1 << 31;

unsafe extern "C-unwind" fn get_position(xdr: *mut Xdr) -> c_uint {
    // SAFETY: an XDR of ours.
    let stream = unsafe { stream(xdr) };
    match stream.xdr.op {
        XDR_ENCODE => stream.output.position() as c_uint,
        XDR_DECODE => TOP - stream.input.left() as u32,
        _ => c_uint::MAX,
    }
}

unsafe extern "C-unwind" fn set_position(xdr: *mut Xdr, position: c_uint) -> Bool {
    // SAFETY: an XDR of ours.
    let stream = unsafe { stream(xdr) };
    match stream.xdr.op {
        XDR_ENCODE => stream.output.set_position(position as usize).into(),
        XDR_DECODE => {
            let now = i64::from(TOP) - stream.input.left() as i64;
            stream.input.seek((i64::from(position) - now) as isize).into()
        }
        _ => FALSE,
    }
}

unsafe extern "C-unwind" fn inline(xdr: *mut Xdr, length: c_uint) -> *mut i32 {
    // SAFETY: an XDR of ours.
    let stream = unsafe { stream(xdr) };
    let found = match stream.xdr.op {
        XDR_ENCODE => stream.output.room(length as usize),
        XDR_DECODE => stream.input.here(length as usize, &mut stream.socket).ok().flatten(),
        _ => None,
    };
    found.map_or(core::ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast())
}

unsafe extern "C-unwind" fn destroy(_: *mut Xdr) {}

/// The XDR of a stream, for functions that are given nothing else of it.
pub fn xdr(stream: *mut Stream, op: c_int) -> *mut Xdr {
    // SAFETY: callers have the stream.
    unsafe {
        (*stream).xdr.op = op;
        &raw mut (*stream).xdr
    }
}

/// Calls an XDR function. One that is missing succeeds in nothing.
///
/// # Safety
/// As the function asks.
pub unsafe fn apply(function: crate::layout::XdrProc, xdr: *mut Xdr, place: *mut c_void) -> Bool {
    // SAFETY: promised by the caller.
    function.map_or(FALSE, |function| unsafe { function(xdr, place) })
}
