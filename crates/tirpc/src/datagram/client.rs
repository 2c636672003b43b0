//! A client's handle of datagrams: the call of `clnt_dg.c`.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use libc::{c_char, c_int, c_uint, c_void, timeval};

use super::socket::{Failure, Peer, Waits};
use crate::accelerated::Signals;
use crate::client::{control, is_time, message, status, take, turn_of, Turn, AUTH_SHORT, INVALID_RESPONSE};
use crate::layout::{Bool, Client, ClientOps, Netbuf, OpaqueAuth, RpcErr, Xdr, XdrProc, XDR_DECODE, XDR_ENCODE};
use crate::real::{find, is_datagrams, XdrMemory};
use crate::reason::Reason;
use crate::record::{Ended, Input, Source, LAST};
use crate::reply::{Reply, Verdict};
use crate::told::{self, role};

/// Bytes of a call that is sent from here, and of an answer: as long as a datagram may be.
const CALL: usize = 8192;
const ANSWER: usize = 1 << 16;
/// Bytes of the head of a call, before its credentials, and of the usual answer's.
const HEAD: usize = 24;
/// REPLY, MSG_ACCEPTED, AUTH_NONE and nothing of it, SUCCESS: behind the number of the call.
const USUAL: [u8; HEAD - 4] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A handle; its functions point to it.
#[repr(C)]
struct Handle {
    ops: ClientOps,
    real: *const ClientOps,
    memory: XdrMemory,
    turn: Turn,
    peer: Peer,
    call: Box<[u8]>,
    answer: Box<[u8]>,
    /// The last call's number.
    xid: u32,
    program: u32,
    version: u32,
    /// CLSET_TIMEOUT's, which stands before what a call says.
    all: Option<timeval>,
    each: timeval,
    error: RpcErr,
}

/// A turn on a handle's descriptor. Signals wait for its end.
struct Taken {
    _guard: MutexGuard<'static, ()>,
    signals: Signals,
}

impl Taken {
    /// # Safety
    /// The handle of `client` is ours and outlives the turn.
    unsafe fn new(client: *mut Client) -> Taken {
        let mut signals = Signals::wait();
        // SAFETY: promised by the caller.
        let turn: &'static Mutex<()> = unsafe {
            let turn: &Turn = &(*of(client)).turn;
            &*std::sync::Arc::as_ptr(turn)
        };
        let guard = take(turn, &mut signals);
        Taken { _guard: guard, signals }
    }
}

/// # Safety
/// A handle of [`adopt`].
unsafe fn of(client: *mut Client) -> *mut Handle {
    // SAFETY: promised by the caller.
    unsafe { (*client).ops.cast_mut().cast() }
}

/// Makes a handle ours, if its descriptor is a datagram socket.
///
/// # Safety
/// A handle that clnt_dg_create(3) has just made, with this size of its calls.
pub unsafe fn adopt(client: *mut Client, fd: c_int, send_size: c_uint) {
    let memory = find(c"xdrmem_create");
    if memory.is_null() {
        return told::note(Reason::Missing, fd);
    }
    if !is_datagrams(fd) {
        return told::note(Reason::NotDatagrams, fd);
    }
    let size = match send_size as usize {
        0 => CALL,
        size => size.next_multiple_of(4).min(CALL),
    };
    // SAFETY: the caller's handle; the function has this prototype.
    unsafe {
        let zero = timeval { tv_sec: 0, tv_usec: 0 };
        let mut handle = Box::new(Handle {
            ops: ClientOps { call, geterr, control: control_handle, destroy, ..*(*client).ops },
            real: (*client).ops,
            memory: core::mem::transmute::<*mut c_void, XdrMemory>(memory),
            turn: turn_of(fd),
            peer: Peer { fd, address: core::ptr::null(), size: 0 },
            call: vec![0; size.max(HEAD)].into(),
            answer: vec![0; ANSWER].into(),
            xid: 0,
            program: 0,
            version: 0,
            all: None,
            each: zero,
            error: RpcErr::default(),
        });
        if !handle.read_back(client) {
            return told::note(Reason::Untold, fd);
        }
        (*client).ops = Box::into_raw(handle).cast();
        told::collapsed(fd, role::CLIENT);
    }
}

/// The handle is libtirpc's again.
///
/// # Safety
/// A handle of [`adopt`], whose turn the caller has.
unsafe fn give_back(client: *mut Client) {
    // SAFETY: promised by the caller.
    unsafe {
        let handle = Box::from_raw(of(client));
        handle.tell_number(client);
        told::ended(handle.peer.fd);
        (*client).ops = handle.real;
    }
}

fn duration(time: timeval) -> Duration {
    Duration::from_micros((time.tv_sec.max(0) as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec.max(0) as u64))
}

impl Handle {
    /// What libtirpc has. False: it does not tell.
    unsafe fn read_back(&mut self, client: *mut Client) -> bool {
        let mut address = Netbuf { maxlen: 0, len: 0, buf: core::ptr::null_mut() };
        // SAFETY: libtirpc's own function on its handle; a place of the right size for each.
        let told = unsafe {
            let get = |what: u32, to: *mut c_void| ((*self.real).control)(client, what, to) != 0;
            get(control::GET_XID, (&raw mut self.xid).cast())
                && get(control::GET_PROG, (&raw mut self.program).cast())
                && get(control::GET_VERS, (&raw mut self.version).cast())
                && get(control::GET_RETRY_TIMEOUT, (&raw mut self.each).cast())
                && get(control::GET_SVC_ADDR, (&raw mut address).cast())
        };
        (self.peer.address, self.peer.size) = (address.buf, address.len);
        told
    }

    /// Tells libtirpc which number was the last one.
    unsafe fn tell_number(&self, client: *mut Client) {
        // What is told is the next one's.
        let mut next = self.xid.wrapping_add(1);
        // SAFETY: libtirpc's own function on its handle, and a word.
        unsafe { ((*self.real).control)(client, control::SET_XID, (&raw mut next).cast()) };
    }

    /// An XDR over memory.
    ///
    /// # Safety
    /// The memory outlives it.
    unsafe fn xdr(&self, at: *mut u8, length: usize, op: c_int) -> Xdr {
        let mut xdr = MaybeUninit::uninit();
        // SAFETY: the function writes all of it that the other functions read.
        unsafe {
            core::ptr::write_bytes(xdr.as_mut_ptr(), 0, 1);
            (self.memory)(xdr.as_mut_ptr(), at.cast::<c_char>(), length as c_uint, op);
            xdr.assume_init()
        }
    }

    /// Writes the call; its length, where it fits.
    unsafe fn encode(&mut self, client: *mut Client, procedure: u32, function: XdrProc, place: *mut c_void) -> Option<usize> {
        let head = [self.xid, 0, 2, self.program, self.version, procedure];
        for (at, word) in head.into_iter().enumerate() {
            self.call[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
        }
        let rest = &mut self.call[HEAD..];
        let (at, length) = (rest.as_mut_ptr(), rest.len());
        // SAFETY: the buffer is this handle's; authentication's and the caller's own functions.
        unsafe {
            let mut xdr = self.xdr(at, length, XDR_ENCODE);
            let auth = (*client).auth;
            let done =
                ((*(*auth).ops).marshal)(auth, &mut xdr) != 0 && ((*(*auth).ops).wrap)(auth, &mut xdr, function, place) != 0;
            done.then(|| HEAD + ((*xdr.ops).get_position)(&mut xdr) as usize)
        }
    }

    fn fail(&mut self, failure: Failure) -> c_int {
        let (status, errno) = match failure {
            Failure::Time => (status::TIMED_OUT, None),
            Failure::Receive(errno) => (status::CANT_RECV, Some(errno)),
            Failure::Send(errno) => (status::CANT_SEND, Some(errno)),
        };
        self.error.status = status;
        if let Some(errno) = errno {
            self.error.words[0] = errno as u32;
        }
        status
    }
}

/// An answer's bytes as a record.
struct Whole<'a>(&'a [u8]);

impl Source for Whole<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Ended> {
        let count = into.len().min(self.0.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        if count == 0 {
            Err(Ended)
        } else {
            Ok(count)
        }
    }
}

/// The head of an answer, and where its results begin.
fn head(answer: &[u8]) -> Option<(Reply, usize)> {
    let mark = (LAST | answer.len() as u32).to_be_bytes();
    let record = [&mark[..], answer].concat();
    let (mut input, mut source) = (Input::new(64), Whole(&record));
    input.next_record(&mut source).ok()?;
    let reply = Reply::read(&mut input, &mut source).ok()?;
    let results = HEAD + reply.verifier.len().next_multiple_of(4);
    Some((reply, results))
}

/// The call by libtirpc's own function.
unsafe fn by_libtirpc(client: *mut Client, call: impl FnOnce(*const ClientOps) -> c_int) -> c_int {
    // SAFETY: a handle of ours, whose turn this thread has.
    unsafe {
        let handle = of(client);
        (*handle).tell_number(client);
        let status = call((*handle).real);
        let real = (*handle).real;
        ((*real).control)(client, control::GET_XID, (&raw mut (*handle).xid).cast());
        ((*real).geterr)(client, &raw mut (*handle).error);
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
        let waits = Waits { all: duration(handle.all.unwrap_or(timeout)), each: duration(handle.each) };
        let real =
            |ops: *const ClientOps| ((*ops).call)(client, procedure, xdr_arguments, arguments, xdr_results, results, timeout);
        let plain = (0..=AUTH_SHORT).contains(&(*(*client).auth).cred.flavor);
        let known = xdr_arguments.is_some() && waits.all.as_millis() > 0 && waits.each.as_millis() > 0;
        if !plain || !known {
            taken.signals.before_sleep();
            told::note(if plain { Reason::NoWaitCall } else { Reason::SignedCall }, handle.peer.fd);
            return by_libtirpc(client, real);
        }
        let mut refreshes = 2;
        loop {
            handle.error.status = status::SUCCESS;
            handle.xid = handle.xid.wrapping_add(1);
            let Some(length) = handle.encode(client, procedure, xdr_arguments, arguments) else {
                handle.xid = handle.xid.wrapping_sub(1);
                taken.signals.before_sleep();
                told::note(Reason::LongCall, handle.peer.fd);
                return by_libtirpc(client, real);
            };
            let Handle { peer, call, answer, .. } = &mut *handle;
            let came = match peer.exchange(&call[..length], answer, waits, &mut taken.signals) {
                Ok(came) => came,
                Err(failure) => return handle.fail(failure),
            };
            let auth = (*client).auth;
            let usual = handle.answer[..came].get(4..HEAD) == Some(&USUAL);
            let (reply, at) = match usual {
                true => (None, HEAD),
                false => match head(&handle.answer[..came]) {
                    Some((reply, at)) => (Some(reply), at),
                    None => {
                        handle.error.status = status::CANT_DECODE_RES;
                        return status::CANT_DECODE_RES;
                    }
                },
            };
            let verdict = reply.as_ref().map_or(Verdict::Success, |reply| reply.verdict);
            if let Verdict::Success = verdict {
                let mut verifier = match &reply {
                    Some(reply) if !reply.verifier.is_empty() => message(reply).body.accepted.verf,
                    _ => OpaqueAuth { flavor: 0, base: core::ptr::null_mut(), length: 0 },
                };
                if ((*(*auth).ops).validate)(auth, &mut verifier) == 0 {
                    handle.error = RpcErr { status: status::AUTH_ERROR, words: [INVALID_RESPONSE, 0] };
                    return status::AUTH_ERROR;
                }
                let rest = &mut handle.answer[at..came];
                let (at, length) = (rest.as_mut_ptr(), rest.len());
                let mut xdr = handle.xdr(at, length, XDR_DECODE);
                if ((*(*auth).ops).unwrap)(auth, &mut xdr, xdr_results, results) == 0 {
                    handle.error.status = status::CANT_DECODE_RES;
                }
                return handle.error.status;
            }
            let (status, words) = verdict.error();
            handle.error.status = status;
            if let Some(words) = words {
                handle.error.words = words;
            }
            let (Some(reply), 1..) = (&reply, refreshes) else { return status };
            refreshes -= 1;
            let mut message = message(reply);
            taken.signals.before_sleep();
            if ((*(*auth).ops).refresh)(auth, (&raw mut message).cast()) == 0 {
                return status;
            }
        }
    }
}

unsafe extern "C-unwind" fn geterr(client: *mut Client, to: *mut RpcErr) {
    // SAFETY: a handle of ours; the caller's place.
    unsafe { *to = (*of(client)).error };
}

unsafe extern "C-unwind" fn control_handle(client: *mut Client, request: c_uint, info: *mut c_void) -> Bool {
    // SAFETY: a handle of ours; `info` is what the request asks for.
    unsafe {
        let mut taken = Taken::new(client);
        taken.signals.before_sleep();
        let handle = of(client);
        let real = (*handle).real;
        if matches!(request, control::SET_ASYNC | control::SET_CONNECT) {
            // Calls that do not wait, and sockets that are connected, are libtirpc's.
            let (turn, fd) = ((*handle).turn.clone(), (*handle).peer.fd);
            give_back(client);
            let asynchronous = request == control::SET_ASYNC;
            told::note(if asynchronous { Reason::Asynchronous } else { Reason::Connected }, fd);
            let answer = ((*real).control)(client, request, info);
            drop(taken);
            drop(turn);
            return answer;
        }
        (*handle).tell_number(client);
        let answer = ((*real).control)(client, request, info);
        if request == control::SET_TIMEOUT && answer != 0 && !info.is_null() && is_time(&*info.cast()) {
            (*handle).all = Some(info.cast::<timeval>().read());
        }
        (*handle).read_back(client);
        answer
    }
}

unsafe extern "C-unwind" fn destroy(client: *mut Client) {
    // SAFETY: a handle of ours, which is used no more.
    unsafe {
        drop(Taken::new(client));
        let mut signals = Signals::wait();
        signals.before_sleep();
        give_back(client);
        ((*(*client).ops).destroy)(client);
    }
}
