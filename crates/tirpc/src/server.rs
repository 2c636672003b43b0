//! A connection of a server: the functions of `svc_vc.c` that move calls and answers, over records of ours. Everything else of the transport
//! stays as libtirpc made it.

use libc::{c_int, c_void};

use crate::layout::{
    Bool, CallMessage, Message, Transport, TransportOps, XdrProc, FALSE, TRUE, XDR_DECODE, XDR_ENCODE, XDR_FREE, XPRT_DIED,
    XPRT_IDLE, XPRT_MOREREQS,
};
use crate::real::{find, is_connected_stream, together, XdrMessage};
use crate::reason::Reason;
use crate::stream::{apply, xdr, Owned, Stream};
use crate::told::{self, role};
use crate::turn::Turn;

/// The last of the flavours whose verifiers and arguments are plain bytes.
const AUTH_SHORT: c_int = 2;

/// How long a record may pause, in milliseconds (svc_vc.c).
const PATIENCE: c_int = 35_000;
/// rpc_msg.h: MSG_ACCEPTED, SUCCESS, CALL, REPLY.
const ACCEPTED: c_int = 0;
const SUCCESS: c_int = 0;
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// Bytes of the longest credentials, and of the longest verifier.
const MOST: usize = 400;

/// A connection; its transport's functions point to it.
#[repr(C)]
struct Connection {
    ops: TransportOps,
    real: *const TransportOps,
    stream: Owned,
    xid: u32,
    died: bool,
    begun: bool,
    turn: Turn,
    callmsg: XdrMessage,
    replymsg: XdrMessage,
}

/// Makes a transport that is being registered ours, if it is a connection of libtirpc's.
///
/// # Safety
/// A transport; `register` is libtirpc's own function.
pub unsafe fn adopt(transport: *mut Transport, register: *const c_void) {
    // SAFETY: the caller's transport; the functions have these prototypes.
    unsafe {
        let t = &mut *transport;
        // Listening transports, and one that is registered once more.
        if t.ops.is_null() || t.port != 0 || !is_connected_stream(t.fd) || is_ours(t) {
            return;
        }
        if t.p1.is_null() || t.p3.is_null() || !together((*t.ops).recv as *const c_void, register) {
            return told::note(Reason::Foreign, t.fd);
        }
        let (callmsg, replymsg) = (find(c"xdr_callmsg"), find(c"xdr_replymsg"));
        if callmsg.is_null() || replymsg.is_null() {
            return told::note(Reason::Missing, t.fd);
        }
        let connection = Box::new(Connection {
            ops: TransportOps { recv, stat, getargs, reply, freeargs, destroy },
            real: t.ops,
            stream: Stream::over(t.fd, PATIENCE, true),
            xid: 0,
            died: false,
            begun: false,
            turn: Turn::default(),
            callmsg: core::mem::transmute::<*mut c_void, XdrMessage>(callmsg),
            replymsg: core::mem::transmute::<*mut c_void, XdrMessage>(replymsg),
        });
        t.ops = Box::into_raw(connection).cast();
        told::collapsed(t.fd, role::SERVER);
    }
}

/// Whether a transport's functions are this library's.
pub(crate) fn is_ours(transport: &Transport) -> bool {
    // SAFETY: the operations of a transport that is there.
    let recv = unsafe { (*transport.ops).recv };
    together(recv as *const c_void, adopt as *const c_void)
}

/// # Safety
/// A transport of [`adopt`].
unsafe fn of(transport: *mut Transport) -> *mut Connection {
    // SAFETY: promised by the caller.
    unsafe { (*transport).ops.cast_mut().cast() }
}

/// The transport is libtirpc's again.
unsafe fn give_back(transport: *mut Transport) {
    // SAFETY: a transport of ours, whose connection is used no more.
    unsafe {
        let connection = Box::from_raw(of(transport));
        told::ended((*transport).fd);
        (*transport).ops = connection.real;
    }
}

unsafe extern "C-unwind" fn recv(transport: *mut Transport, message: *mut Message) -> Bool {
    // SAFETY: a transport of ours.
    unsafe {
        let connection = &mut *of(transport);
        if !connection.begun {
            connection.begun = true;
            // With a limit of records (SVCSET_CONNMAXREC) connections do not block, and other rules hold.
            if libc::fcntl((*transport).fd, libc::F_GETFL) & libc::O_NONBLOCK != 0 {
                give_back(transport);
                told::note(Reason::Limited, (*transport).fd);
                return ((*(*transport).ops).recv)(transport, message);
            }
        }
        connection.turn.begin();
        let stream = connection.stream.pointer();
        let xdrs = xdr(stream, XDR_DECODE);
        let found = (*stream).input.next_record(&mut (*stream).socket).is_ok()
            && (usual(&mut *stream, message.cast()) || (connection.callmsg)(xdrs, message) != 0);
        connection.died |= !found;
        if found {
            connection.xid = (*message).xid;
        }
        found.into()
    }
}

/// Reads the head of a call without a verifier, if it is here in one piece: else nothing is taken.
unsafe fn usual(stream: &mut Stream, message: *mut CallMessage) -> bool {
    const HEAD: usize = 32;
    let Stream { input, socket, .. } = stream;
    // Nothing is taken before all of it is seen: a fragment may end anywhere, and going back over its end is not possible.
    let Some(head) = input.begin(socket).ok().and_then(|()| input.ahead(HEAD)) else { return false };
    let mut words = [0; HEAD / 4];
    for (word, bytes) in words.iter_mut().zip(head.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let [xid, direction, rpcvers, program, version, procedure, flavor, length] = words;
    // SAFETY: the caller's message, whose credentials have room for the longest.
    let message = unsafe { &mut *message };
    if direction != CALL || rpcvers != 2 || length > MOST as u32 || message.cred.base.is_null() {
        return false;
    }
    let end = HEAD + (length as usize).next_multiple_of(4);
    let Some(whole) = input.ahead(end + 8).filter(|whole| whole[end + 4..] == [0; 4]) else { return false };
    // SAFETY: as above.
    unsafe { core::ptr::copy_nonoverlapping(whole[HEAD..].as_ptr(), message.cred.base.cast(), length as usize) };
    let verifier = i32::from_be_bytes([whole[end], whole[end + 1], whole[end + 2], whole[end + 3]]);
    (message.xid, message.direction, message.rpcvers) = (xid, direction as c_int, rpcvers);
    (message.program, message.version, message.procedure) = (program, version, procedure);
    (message.cred.flavor, message.cred.length) = (flavor as c_int, length);
    (message.verf.flavor, message.verf.length) = (verifier, 0);
    input.take(end + 8);
    true
}

unsafe extern "C-unwind" fn stat(transport: *mut Transport) -> c_int {
    // SAFETY: a transport of ours.
    let connection = unsafe { &mut *of(transport) };
    let stream = &mut *connection.stream;
    // As svc_vc.c: what was lost while reading or sending is the connection's end, and so is what is lost while going past the rest.
    if connection.died || stream.socket.failure.is_some() {
        return XPRT_DIED;
    }
    match stream.input.has_more(&mut stream.socket) {
        Ok(true) => XPRT_MOREREQS,
        Ok(false) if connection.turn.goes_on(&stream.socket) => XPRT_MOREREQS,
        Ok(false) => XPRT_IDLE,
        Err(_) => XPRT_DIED,
    }
}

unsafe extern "C-unwind" fn getargs(transport: *mut Transport, function: XdrProc, place: *mut c_void) -> Bool {
    // SAFETY: a transport of ours; the authentication's own functions.
    unsafe {
        let auth = &raw mut (*(*transport).p3).auth;
        let stream = (*of(transport)).stream.pointer();
        (((*(*auth).ops).unwrap)(auth, xdr(stream, (*stream).xdr.op), function, place) != 0).into()
    }
}

unsafe extern "C-unwind" fn freeargs(transport: *mut Transport, function: XdrProc, place: *mut c_void) -> Bool {
    // SAFETY: a transport of ours; the caller's function.
    unsafe { apply(function, xdr((*of(transport)).stream.pointer(), XDR_FREE), place) }
}

unsafe extern "C-unwind" fn reply(transport: *mut Transport, message: *mut Message) -> Bool {
    // SAFETY: a transport of ours; the caller's message; the authentication's own functions.
    unsafe {
        let connection = &mut *of(transport);
        let stream = connection.stream.pointer();
        let xdrs = xdr(stream, XDR_ENCODE);
        (*message).xid = connection.xid;
        let accepted = (*message).stat == ACCEPTED && (*message).body.accepted.stat == SUCCESS;
        let done = if accepted {
            let answer = (*message).body.accepted;
            let auth = &raw mut (*(*transport).p3).auth;
            if !(0..=AUTH_SHORT).contains(&answer.verf.flavor) {
                (*stream).output.keep_whole();
            }
            header(&mut *stream, connection.xid, &answer.verf)
                && ((*(*auth).ops).wrap)(auth, xdrs, answer.proc, answer.place) != 0
        } else {
            (connection.replymsg)(xdrs, message) != 0
        };
        // An answer that could not be encoded is sent as far as it is, as libtirpc does: its caller learns that it cannot be decoded.
        let _ = (*stream).output.end_record(true, &mut (*stream).socket);
        if done {
            TRUE
        } else {
            FALSE
        }
    }
}

/// The head of an answer that tells success.
unsafe fn header(stream: &mut Stream, xid: u32, verf: &crate::layout::OpaqueAuth) -> bool {
    if verf.length > MOST as u32 {
        return false;
    }
    let head = [xid, REPLY, ACCEPTED as u32, verf.flavor as u32, verf.length, SUCCESS as u32];
    let mut bytes = [0; 24];
    for (at, word) in head.into_iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
    }
    let Stream { output, socket, .. } = stream;
    if verf.length == 0 {
        return output.bytes(&bytes, socket).is_ok();
    }
    let mut verifier = [0; MOST];
    // SAFETY: the verifier's bytes.
    let given = unsafe { core::slice::from_raw_parts(verf.base.cast::<u8>(), verf.length as usize) };
    verifier[..given.len()].copy_from_slice(given);
    output.bytes(&bytes[..20], socket).is_ok()
        && output.bytes(&verifier[..given.len().next_multiple_of(4)], socket).is_ok()
        && output.bytes(&bytes[20..], socket).is_ok()
}

unsafe extern "C-unwind" fn destroy(transport: *mut Transport) {
    // SAFETY: a transport of ours.
    unsafe {
        give_back(transport);
        ((*(*transport).ops).destroy)(transport);
    }
}
