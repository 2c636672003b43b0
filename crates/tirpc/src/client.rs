//! A client's handle: the call of `clnt_vc.c` over records of ours, and what goes with it. The handle itself, its descriptor and its
//! authentication stay libtirpc's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use libc::{c_int, c_uint, c_void, timeval};

use crate::accelerated::Signals;
use crate::layout::{
    Accepted, Bool, Client, ClientOps, Message, OpaqueAuth, Rejected, ReplyBody, RpcErr, XdrProc, FALSE, TRUE, XDR_DECODE,
    XDR_ENCODE, XDR_FREE,
};
use crate::real::is_connected_stream;
use crate::reason::Reason;
use crate::reply::{Reply, Verdict};
use crate::socket::Failure;
use crate::stream::{apply, xdr, Owned, Stream};
use crate::told::{self, role};

/// `enum clnt_stat`, as far as it is said here.
pub(crate) mod status {
    pub const SUCCESS: i32 = 0;
    pub const CANT_ENCODE_ARGS: i32 = 1;
    pub const CANT_DECODE_RES: i32 = 2;
    pub const CANT_SEND: i32 = 3;
    pub const CANT_RECV: i32 = 4;
    pub const TIMED_OUT: i32 = 5;
    pub const AUTH_ERROR: i32 = 7;
}

/// The last of the flavours that do nothing but write words.
pub(crate) const AUTH_SHORT: c_int = 2;
/// AUTH_INVALIDRESP.
pub(crate) const INVALID_RESPONSE: u32 = 6;

/// `clnt_control`'s requests (clnt.h).
pub(crate) mod control {
    pub const SET_TIMEOUT: u32 = 1;
    pub const GET_TIMEOUT: u32 = 2;
    pub const GET_RETRY_TIMEOUT: u32 = 5;
    pub const GET_SVC_ADDR: u32 = 7;
    pub const GET_XID: u32 = 10;
    pub const SET_XID: u32 = 11;
    pub const GET_VERS: u32 = 12;
    pub const GET_PROG: u32 = 14;
    pub const SET_VERS: u32 = 13;
    pub const SET_PROG: u32 = 15;
    pub const SET_ASYNC: u32 = 19;
    pub const SET_CONNECT: u32 = 20;
}

/// Whose turn it is on a descriptor, which several handles may have.
pub(crate) type Turn = Arc<Mutex<()>>;
static TURNS: Mutex<Vec<(c_int, Weak<Mutex<()>>)>> = Mutex::new(vec![]);

pub(crate) fn turn_of(fd: c_int) -> Turn {
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|(_, turn)| turn.strong_count() > 0);
    if let Some(turn) = turns.iter().find(|(known, _)| *known == fd).and_then(|(_, turn)| turn.upgrade()) {
        return turn;
    }
    let turn = Turn::default();
    turns.push((fd, Arc::downgrade(&turn)));
    turn
}

/// Takes a turn; signals are blocked before this thread sleeps for it.
pub(crate) fn take<'t>(turn: &'t Mutex<()>, signals: &mut Signals) -> MutexGuard<'t, ()> {
    match turn.try_lock() {
        Ok(guard) => guard,
        // The guard is in the error: to lock once more would be to wait for oneself.
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            signals.before_sleep();
            turn.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// A turn on a handle's descriptor. Signals wait for its end.
struct Taken {
    handle: *mut Handle,
    guard: Option<MutexGuard<'static, ()>>,
}

impl Taken {
    /// # Safety
    /// The handle of `client` is ours and outlives the turn.
    unsafe fn new(client: *mut Client) -> Taken {
        let mut signals = Signals::wait();
        // SAFETY: promised by the caller; the turn is the handle's, and only it is looked at before it is taken.
        unsafe {
            let handle = of(client);
            let turn: &Turn = &(*handle).turn;
            let turn: &'static Mutex<()> = &*Arc::as_ptr(turn);
            let guard = take(turn, &mut signals);
            let stream: &Owned = &(*handle).stream;
            (*stream.pointer()).socket.signals = Some(signals);
            Taken { handle, guard: Some(guard) }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the handle is there as long as the turn.
        let signals = unsafe {
            let stream: &Owned = &(*self.handle).stream;
            (*stream.pointer()).socket.signals.take()
        };
        self.guard = None;
        drop(signals);
    }
}

/// A handle; its functions point to it.
#[repr(C)]
struct Handle {
    ops: ClientOps,
    real: *const ClientOps,
    stream: Owned,
    turn: Turn,
    /// As libtirpc counts: downwards, in the bytes of the wire.
    xid: u32,
    program: u32,
    version: u32,
    wait: timeval,
    wait_is_set: bool,
    error: RpcErr,
}

/// Makes a handle ours, if its descriptor is a stream socket.
///
/// # Safety
/// A handle that clnt_vc_create(3) has just made.
pub unsafe fn adopt(client: *mut Client, fd: c_int) {
    // SAFETY: the caller's handle.
    unsafe {
        let mut xid = 0u32;
        if !is_connected_stream(fd) {
            return told::note(Reason::NotStream, fd);
        }
        if ((*(*client).ops).control)(client, control::GET_XID, (&raw mut xid).cast()) == 0 {
            return told::note(Reason::Untold, fd);
        }
        let mut handle = Box::new(Handle {
            ops: ClientOps { call, geterr, freeres, destroy, control: control_handle, ..*(*client).ops },
            real: (*client).ops,
            stream: Stream::over(fd, 0, false),
            turn: turn_of(fd),
            xid: xid.to_be(),
            program: 0,
            version: 0,
            wait: timeval { tv_sec: 0, tv_usec: 0 },
            wait_is_set: false,
            error: RpcErr::default(),
        });
        read_back(&mut handle, client);
        (*client).ops = Box::into_raw(handle).cast();
        told::collapsed(fd, role::CLIENT);
    }
}

/// The program and the version, as libtirpc has them.
unsafe fn read_back(handle: &mut Handle, client: *mut Client) {
    // SAFETY: libtirpc's own function on its handle; a word for each.
    unsafe {
        ((*handle.real).control)(client, control::GET_PROG, (&raw mut handle.program).cast());
        ((*handle.real).control)(client, control::GET_VERS, (&raw mut handle.version).cast());
    }
}

/// # Safety
/// A handle of [`adopt`].
unsafe fn of(client: *mut Client) -> *mut Handle {
    // SAFETY: promised by the caller.
    unsafe { (*client).ops.cast_mut().cast() }
}

/// Whether a time is one that libtirpc takes.
pub(crate) fn is_time(time: &timeval) -> bool {
    (0..=100_000_000).contains(&time.tv_sec) && (0..=1_000_000).contains(&time.tv_usec)
}

impl Handle {
    /// Why the stream ended, as libtirpc says it; `otherwise` where it has not.
    fn lost(&mut self, otherwise: c_int) -> c_int {
        let (status, errno) = match self.stream.socket.failure.take() {
            None => (otherwise, None),
            Some(Failure::Time) => (status::TIMED_OUT, None),
            Some(Failure::Receive(errno)) => (status::CANT_RECV, Some(errno)),
            Some(Failure::Send(errno)) => (status::CANT_SEND, Some(errno)),
        };
        self.error.status = status;
        if let Some(errno) = errno {
            self.error.words[0] = errno as u32;
        }
        status
    }
}

unsafe extern "C-unwind" fn call(
    client: *mut Client,
    procedure: u32,
    xdr_arguments: XdrProc,
    arguments: *mut c_void,
    xdr_results: XdrProc,
    results: *mut c_void,
    timeout: timeval,
) -> c_int {
    // SAFETY: a handle of ours; the caller's functions and places; one thread has the turn.
    unsafe {
        let mut taken = Taken::new(client);
        let handle = &mut *of(client);
        if !handle.wait_is_set && is_time(&timeout) {
            handle.wait = timeout;
        }
        let milliseconds = handle.wait.tv_sec.saturating_mul(1000).saturating_add(handle.wait.tv_usec / 1000);
        handle.stream.socket.patience = milliseconds as c_int;
        let at_once = timeout.tv_sec == 0 && timeout.tv_usec == 0;
        let ship = !(at_once && xdr_results.is_none());
        let stream = handle.stream.pointer();
        let mut refreshes = 2;
        loop {
            handle.error.status = status::SUCCESS;
            handle.stream.socket.failure = None;
            handle.xid = handle.xid.wrapping_sub(1);
            let xid = u32::from_be(handle.xid);
            let xdrs = xdr(stream, XDR_ENCODE);
            let auth = (*client).auth;
            if !(0..=AUTH_SHORT).contains(&(*auth).cred.flavor) {
                // What others do to marshal is theirs, and may take long.
                handle.stream.socket.signals.as_mut().map(Signals::before_sleep);
                handle.stream.output.keep_whole();
            }
            let head = [xid, 0, 2, handle.program, handle.version, procedure];
            let mut bytes = [0; 24];
            for (at, word) in head.into_iter().enumerate() {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
            }
            let encoded = (*stream).output.bytes(&bytes, &mut (*stream).socket).is_ok()
                && ((*(*auth).ops).marshal)(auth, xdrs) != 0
                && ((*(*auth).ops).wrap)(auth, xdrs, xdr_arguments, arguments) != 0;
            if !encoded {
                let status = handle.lost(status::CANT_ENCODE_ARGS);
                let _ = (*stream).output.end_record(true, &mut (*stream).socket);
                return status;
            }
            if (*stream).output.end_record(ship, &mut (*stream).socket).is_err() {
                return handle.lost(status::CANT_SEND);
            }
            if !ship {
                return status::SUCCESS;
            }
            if at_once {
                handle.error.status = status::TIMED_OUT;
                return status::TIMED_OUT;
            }
            let reply = loop {
                let stream = &mut *handle.stream;
                if stream.input.next_record(&mut stream.socket).is_err() {
                    return handle.lost(status::CANT_RECV);
                }
                match Reply::read(&mut stream.input, &mut stream.socket) {
                    Ok(reply) if reply.xid == xid => break reply,
                    Ok(_) => {}
                    Err(_) if stream.socket.failure.is_none() => {}
                    Err(_) => return handle.lost(status::CANT_RECV),
                }
            };
            let mut message = message(&reply);
            if let Verdict::Success = reply.verdict {
                let xdrs = xdr(stream, XDR_DECODE);
                if ((*(*auth).ops).validate)(auth, &raw mut message.body.accepted.verf) == 0 {
                    handle.error = RpcErr { status: status::AUTH_ERROR, words: [INVALID_RESPONSE, 0] };
                } else if ((*(*auth).ops).unwrap)(auth, xdrs, xdr_results, results) == 0 {
                    return handle.lost(status::CANT_DECODE_RES);
                }
                return handle.error.status;
            }
            let (status, words) = reply.verdict.error();
            handle.error.status = status;
            if let Some(words) = words {
                handle.error.words = words;
            }
            if refreshes == 0 {
                return status;
            }
            refreshes -= 1;
            // Credentials are renewed by calls on this very handle.
            drop(taken);
            let renewed = ((*(*auth).ops).refresh)(auth, (&raw mut message).cast()) != 0;
            taken = Taken::new(client);
            if !renewed {
                return status;
            }
        }
    }
}

/// The reply as authentication takes it. Its verifier is the reply's.
pub(crate) fn message(reply: &Reply) -> Message {
    let verf = OpaqueAuth {
        flavor: reply.flavor as c_int,
        base: if reply.verifier.is_empty() { core::ptr::null_mut() } else { reply.verifier.as_ptr().cast_mut().cast() },
        length: reply.verifier.len() as c_uint,
    };
    let (accepted, stat, words) = reply.verdict.parts();
    let body = if accepted {
        ReplyBody { accepted: Accepted { verf, stat, place: core::ptr::null_mut(), proc: None } }
    } else {
        ReplyBody { rejected: Rejected { stat, words } }
    };
    Message { xid: reply.xid, direction: 1, stat: (!accepted).into(), body, rest: 0 }
}

unsafe extern "C-unwind" fn geterr(client: *mut Client, to: *mut RpcErr) {
    // SAFETY: a handle of ours; the caller's place.
    unsafe { *to = (*of(client)).error };
}

unsafe extern "C-unwind" fn freeres(client: *mut Client, function: XdrProc, place: *mut c_void) -> Bool {
    // SAFETY: a handle of ours; the caller's function.
    unsafe {
        let _taken = Taken::new(client);
        apply(function, xdr((*of(client)).stream.pointer(), XDR_FREE), place)
    }
}

unsafe extern "C-unwind" fn control_handle(client: *mut Client, request: c_uint, info: *mut c_void) -> Bool {
    // SAFETY: a handle of ours; `info` is what the request asks for.
    unsafe {
        let _taken = Taken::new(client);
        let handle = &mut *of(client);
        let ours = [control::SET_TIMEOUT, control::GET_TIMEOUT, control::GET_XID, control::SET_XID];
        if ours.contains(&request) && info.is_null() {
            return FALSE;
        }
        match request {
            control::SET_TIMEOUT if !is_time(&*info.cast::<timeval>()) => return FALSE,
            control::SET_TIMEOUT => {
                handle.wait = info.cast::<timeval>().read();
                handle.wait_is_set = true;
            }
            control::GET_TIMEOUT => info.cast::<timeval>().write(handle.wait),
            control::GET_XID => info.cast::<u32>().write(u32::from_be(handle.xid)),
            control::SET_XID => handle.xid = info.cast::<u32>().read().wrapping_add(1).to_be(),
            _ => {
                let answer = ((*handle.real).control)(client, request, info);
                if matches!(request, control::SET_VERS | control::SET_PROG) {
                    read_back(handle, client);
                }
                return answer;
            }
        }
        TRUE
    }
}

unsafe extern "C-unwind" fn destroy(client: *mut Client) {
    // SAFETY: a handle of ours, which is used no more.
    unsafe {
        drop(Taken::new(client));
        let mut signals = Signals::wait();
        signals.before_sleep();
        let handle = Box::from_raw(of(client));
        told::ended(handle.stream.socket.fd);
        (*client).ops = handle.real;
        ((*handle.real).destroy)(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A function of the program's unwound through a call.
    #[test]
    fn a_turn_that_was_left_by_a_panic_is_taken() {
        let turn = Turn::default();
        let left = turn.clone();
        let _ = std::thread::spawn(move || {
            let _guard = left.lock();
            panic!("as it was asked to");
        })
        .join();
        assert!(turn.is_poisoned());
        let (tell, hear) = channel();
        std::thread::spawn(move || {
            let mut signals = Signals::wait();
            drop(take(&turn, &mut signals));
            tell.send(())
        });
        assert_eq!(hear.recv_timeout(Duration::from_secs(30)), Ok(()), "it waits for itself");
    }
}
