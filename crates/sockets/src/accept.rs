//! accept: two queues, one answer. Shunt clients come through the rendezvous, everyone else through TCP.

use crate::global::{self, SETUP};
use crate::sockaddr::Encoded;
use crate::socket::{self, flag, Socket};
use crate::table::{self, Kind};
use crate::{link, ports, report, route, spin};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_segment::name::Hello;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, pollfd, sockaddr as c_sockaddr, sockaddr_un, socklen_t};
use shunt_sys::{calls, clock, thread, Errno, Result};

/// accept4(2) on a listener. `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC.
///
/// # Safety
/// `address` and `length` are null or valid as the manual page asks.
pub unsafe fn accept(fd: i32, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let blocking = !listener.has(flag::LISTENER_NONBLOCK);
    let timeout = listener.receive_timeout.load(Ordering::Relaxed);
    let began = thread::interruptions();
    let deadline = if timeout == 0 { u64::MAX } else { clock::monotonic_ns() + timeout };
    loop {
        // SAFETY: passed on.
        match unsafe { once(fd, listener, address, length, flags) } {
            Err(Errno(libc::EAGAIN)) if blocking => match wait(fd, listener, deadline, began) {
                Err(Errno(libc::EINTR)) if timeout == 0 && crate::signals::all_restart() => {}
                other => other?,
            },
            other => return other,
        }
    }
}

/// Tries both queues once, the kernel's first in every eighth call so that neither starves.
unsafe fn once(fd: i32, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    let turn = listener.accepts.fetch_add(1, Ordering::Relaxed);
    // SAFETY: passed on.
    unsafe {
        if turn % 8 == 7 {
            match from_kernel(fd, listener, address, length, flags) {
                Err(Errno(libc::EAGAIN)) => from_rendezvous(listener, address, length, flags),
                other => other,
            }
        } else {
            match from_rendezvous(listener, address, length, flags) {
                Err(Errno(libc::EAGAIN)) => from_kernel(fd, listener, address, length, flags),
                other => other,
            }
        }
    }
}

unsafe fn from_kernel(fd: i32, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    // A program without shunt that shares the listener may have made it blocking again.
    if listener.has(flag::LISTENER_SHARED) && calls::poll_one(fd, libc::POLLIN, 0)? == 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let accepted = calls::accept4(fd, address, length, flags)?;
    table::take(accepted);
    report::note(accepted, kind::TCP, Reason::AcceptedFromKernel, None);
    Ok(accepted as isize)
}

unsafe fn from_rendezvous(listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    loop {
        let mut peer = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
        let mut peer_length = core::mem::size_of::<sockaddr_un>() as socklen_t;
        let companion = calls::accept4(rendezvous, (&mut peer as *mut sockaddr_un).cast(), &mut peer_length, flags)?;
        // SAFETY: sun_path is plain bytes.
        let name = unsafe { core::slice::from_raw_parts(peer.sun_path.as_ptr().cast::<u8>(), 108) };
        let name = name.get(1..(peer_length as usize).saturating_sub(2).min(108)).unwrap_or(&[]);
        match welcome(companion, name, listener, flags) {
            Ok(client) => {
                let family = listener.family.load(Ordering::Relaxed);
                // SAFETY: passed on.
                unsafe { Encoded::new(family, &client).write(address, length) };
                return Ok(companion as isize);
            }
            Err(reason) => {
                report::count(reason);
                // Not an honest shunt client, or we are short of memory: it sees its connection end.
                let _ = calls::close(companion);
            }
        }
    }
}

/// Makes an accepted companion a stream.
fn welcome(companion: i32, name: &[u8], listener: &Socket, flags: i32) -> core::result::Result<Address, Reason> {
    let hello = Hello::decode(name).ok_or(Reason::VersionMismatch)?;
    if !table::fits(companion) {
        return Err(Reason::TableFull);
    }
    plausible(&hello, listener)?;
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = core::mem::size_of::<libc::ucred>() as socklen_t;
    calls::getsockopt(companion, libc::SOL_SOCKET, libc::SO_PEERCRED, (&mut peer as *mut libc::ucred).cast(), &mut length)
        .map_err(|_| Reason::Refused)?;
    let family = listener.family.load(Ordering::Relaxed);
    let accepted = socket::allocate(family).ok_or(Reason::NoMemory)?;
    let channel = hello.channel as usize;
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    let tied = (|| {
        let client = (peer.pid as u32, peer.uid);
        // The link's descriptor follows the connection at once; it is received even when the link is known already.
        let sent = if hello.link_follows == 1 { receive_link(companion, peer.uid)? } else { None };
        let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
        let (index, link) = match link::known(hello.nonce, hello.sequence, client) {
            Some(found) => {
                if let Some(fd) = sent {
                    let _ = calls::close(fd);
                }
                found
            }
            None => {
                let fd = sent.ok_or(Reason::BadSegment)?;
                let found = link::adopt(fd, hello.nonce, hello.sequence, client, rendezvous).map_err(|_| Reason::BadSegment)?;
                let sole = !listener.has(flag::LISTENER_SHARED);
                link::header(found.1.base).sole.store(sole as u32, Ordering::Release);
                found
            }
        };
        if !link::accept_channel(&link, channel, hello.generation) {
            return Err(Reason::BadSegment);
        }
        link::enter(index);
        Ok((index, link))
    })();
    let (index, link) = match tied {
        Ok(found) => found,
        Err(reason) => {
            socket::free(accepted);
            return Err(reason);
        }
    };
    let page = link::page(link.base, channel);
    let side = &page.sides[1];
    side.pid.store(thread::process(), Ordering::Relaxed);
    side.owners.store(1, Ordering::Relaxed);
    side.address_family.store(family as u32, Ordering::Relaxed);
    side.transmit.class_limit.store(crate::connect::class_limit(), Ordering::Relaxed);
    accepted.attach(link.base, channel, 1);
    if flags & libc::SOCK_NONBLOCK != 0 {
        accepted.set(flag::NONBLOCK);
    }
    accepted.link_index.store(index as u32, Ordering::Relaxed);
    let header = link::header(link.base);
    if header.client.barrier.load(Ordering::Acquire) == 0 || global::BARRIERS.load(Ordering::Relaxed) == 0 {
        accepted.set(flag::FENCE);
    }
    crate::options::inherit(listener, accepted);
    crate::options::connected(accepted, companion);
    table::set_socket(companion, Kind::Stream, accepted);
    report::note(companion, kind::STREAM, Reason::Accelerated, Some(channel));
    Ok(hello.client)
}

/// A client says where it comes from, and programs decide by that whom to trust: it can only come from this host, and
/// to the port that it connected to.
fn plausible(hello: &Hello, listener: &Socket) -> core::result::Result<(), Reason> {
    if hello.server.port as u32 != listener.port.load(Ordering::Relaxed) {
        return Err(Reason::BadSegment);
    }
    for address in [&hello.client, &hello.server] {
        if !address.is_loopback() {
            let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
            if !matches!(route::local_source(address), Ok(Some(_))) {
                return Err(Reason::NotLocal);
            }
        }
    }
    Ok(())
}

/// The descriptor that the client sends right after connecting. It may be a moment away, if the client was preempted
/// between the two; how long that may hold accept up depends on who it is ([`patience`]).
fn receive_link(companion: i32, uid: u32) -> core::result::Result<Option<i32>, Reason> {
    match ports::receive_descriptor(companion, libc::MSG_DONTWAIT) {
        Ok(fd) => return Ok(fd),
        Err(Errno(libc::EAGAIN)) => {}
        Err(_) => return Err(Reason::BadSegment),
    }
    let _ = calls::poll_one(companion, libc::POLLIN, patience(uid) as i64);
    ports::receive_descriptor(companion, libc::MSG_DONTWAIT).map_err(|_| {
        OFFENDED.store((uid as u64) << 32 | (clock::monotonic_ns() / 1_000_000_000) & 0xffff_ffff, Ordering::Relaxed);
        Reason::BadSegment
    })
}

/// The last user whose client never sent what it announced, and when (in seconds).
static OFFENDED: AtomicU64 = AtomicU64::new(0);

/// How long accept waits for a client of user `uid`, in ns. Our own user and root could stop this process anyway.
/// Another user gets a while once; who abused that gets nothing for a minute.
fn patience(uid: u32) -> u64 {
    if uid == calls::geteuid() || uid == 0 {
        return 1_000_000_000;
    }
    let (offender, when) = {
        let word = OFFENDED.load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32 as u64)
    };
    let recent = when != 0 && clock::monotonic_ns() / 1_000_000_000 < when + 60;
    if recent && offender == uid {
        0
    } else {
        200_000_000
    }
}

/// Sleeps until one of the queues has a connection.
fn wait(fd: i32, listener: &Socket, deadline: u64, began: u32) -> Result<()> {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    let mut set = [pollfd { fd: rendezvous, events: libc::POLLIN, revents: 0 }, pollfd { fd, events: libc::POLLIN, revents: 0 }];
    // Connections come in bursts: a few looks cost less than a sleep and a wake-up.
    let mut budget = spin::begin(0);
    while budget.more() {
        if calls::ppoll(set.as_mut_ptr(), 2, &mut spin::ZERO.clone(), core::ptr::null(), calls::KERNEL_SIGSET)? > 0 {
            budget.end();
            return Ok(());
        }
        calls::sched_yield();
    }
    if thread::interruptions() != began {
        return Err(Errno(libc::EINTR)); // a handler ran while we looked
    }
    let mut time;
    let mut pointer = core::ptr::null_mut();
    if deadline != u64::MAX {
        let left = deadline.saturating_sub(clock::monotonic_ns());
        time = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        pointer = &mut time;
    }
    let ready = calls::ppoll(set.as_mut_ptr(), 2, pointer, core::ptr::null(), calls::KERNEL_SIGSET);
    budget.end();
    match ready? {
        0 => Err(Errno(libc::EAGAIN)),
        _ => Ok(()),
    }
}

/// Whether a listener has a connection to accept, and in which kernel descriptors to look: for poll and epoll.
pub fn descriptors(fd: i32, listener: &Socket) -> [i32; 2] {
    [fd, listener.private_fd.load(Ordering::Acquire)]
}
