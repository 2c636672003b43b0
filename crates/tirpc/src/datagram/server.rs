//! A server's transport of datagrams: it looks for the next call where it has answered one, before the server's loop polls all descriptors.

use libc::{c_int, c_void};

use crate::layout::{Bool, Message, Transport, TransportOps, XPRT_IDLE, XPRT_MOREREQS};
use crate::real::{is_datagrams, together};
use crate::reason::Reason;
use crate::server::is_ours;
use crate::socket::Socket;
use crate::told::{self, role};
use crate::turn::Turn;

/// A transport; its functions point to it.
#[repr(C)]
struct Datagrams {
    ops: TransportOps,
    real: *const TransportOps,
    socket: Socket,
    turn: Turn,
}

/// Makes a transport that is being registered ours, if it is one of datagrams of libtirpc's.
///
/// # Safety
/// A transport; `register` is libtirpc's own function.
pub unsafe fn adopt(transport: *mut Transport, register: *const c_void) {
    // SAFETY: the caller's transport.
    unsafe {
        let t = &mut *transport;
        if t.ops.is_null() || !is_datagrams(t.fd) || is_ours(t) {
            return;
        }
        if !together((*t.ops).recv as *const c_void, register) {
            return told::note(Reason::Foreign, t.fd);
        }
        let datagrams = Box::new(Datagrams {
            ops: TransportOps { recv, stat, destroy, ..*t.ops },
            real: t.ops,
            socket: Socket::new(t.fd, 0, false),
            turn: Turn::default(),
        });
        t.ops = Box::into_raw(datagrams).cast();
        told::collapsed(t.fd, role::SERVER);
    }
}

/// # Safety
/// A transport of [`adopt`].
unsafe fn of<'a>(transport: *mut Transport) -> &'a mut Datagrams {
    // SAFETY: promised by the caller.
    unsafe { &mut *(*transport).ops.cast_mut().cast() }
}

unsafe extern "C-unwind" fn recv(transport: *mut Transport, message: *mut Message) -> Bool {
    // SAFETY: a transport of ours; the caller's message.
    unsafe {
        let datagrams = of(transport);
        datagrams.turn.begin();
        let real = datagrams.real;
        ((*real).recv)(transport, message)
    }
}

unsafe extern "C-unwind" fn stat(transport: *mut Transport) -> c_int {
    // SAFETY: a transport of ours.
    let datagrams = unsafe { of(transport) };
    if datagrams.turn.goes_on(&datagrams.socket) {
        XPRT_MOREREQS
    } else {
        XPRT_IDLE
    }
}

unsafe extern "C-unwind" fn destroy(transport: *mut Transport) {
    // SAFETY: a transport of ours, whose functions are used no more.
    unsafe {
        let datagrams = Box::from_raw(core::ptr::from_mut(of(transport)));
        told::ended((*transport).fd);
        (*transport).ops = datagrams.real;
        ((*(*transport).ops).destroy)(transport);
    }
}
