//! Descriptors that this process takes out of another one (pidfd_getfd(2)).
//!
//! The kernel has asked whether it may; the same right gives it what else a connection needs. The other process may be stopped,
//! or be killed meanwhile, so nothing is asked of it, and nothing waits for it:
//!
//! - A *stream* is taken up if its owners know that they share it, which they do after any fork. One that a single process has had
//!   to itself is used by it without the locks among processes, and it cannot be told: EPERM.
//! - A *listener* is the kernel's alone from then on, for both; clients that wait in the rendezvous are carried to the kernel's queue.

use super::message::{Appended, Received};
use super::{named, unix_name};
use crate::convert_to_kernel;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_segment::channel::state;
use shunt_segment::link::IN_PROC as LINK;
use shunt_segment::name::{self, Hello};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, sockaddr_un, EPERM, ESRCH, SOL_SOCKET};
use shunt_sys::{calls, Errno, Result};
use shunt_table::global::SETUP;
use shunt_table::private::Pending;
use shunt_table::process::{split_fd_tables, status_page};
use shunt_table::procfs::Path;
use shunt_table::table::Kind;
use shunt_table::{private, procfs, table};

/// pidfd_getfd(2).
///
/// # Errors
/// Those of the call; EPERM and ESRCH as above.
pub fn take(process: i32, number: i32, flags: u32) -> Result<i32> {
    let fd = calls::pidfd_getfd(process, number, flags)?;
    table::take(fd);
    match serve(process, fd) {
        Ok(()) => {
            split_fd_tables::withdraw(fd);
            Ok(fd)
        }
        Err(error) => {
            shunt_table::upcalls::operations::closing(fd);
            let _ = calls::close(fd);
            Err(error)
        }
    }
}

fn serve(process: i32, fd: i32) -> Result<()> {
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    if let Some((hello, side)) = named(fd, &mut room) {
        return take_stream(process, fd, &hello, side);
    }
    let option = |name| calls::getsockopt_int(fd, SOL_SOCKET, name);
    match option(libc::SO_DOMAIN) {
        Ok(libc::AF_INET | libc::AF_INET6) if option(libc::SO_ACCEPTCONN) == Ok(1) => take_listener(process, fd),
        _ => Ok(()),
    }
}

/// The object of a stream that this process has, too.
fn own(fd: i32, hello: &Hello, side: usize) -> Option<&'static Socket> {
    let _setup = SETUP.lock()?;
    // The two ends of a connection to itself are in two mappings of one link.
    let named = |base| link::is_named(base, hello.nonce, hello.sequence);
    let same = |s: &&Socket| s.channel() == hello.channel as usize && s.side() == side && named(s.link());
    let found = table::numbers().filter(|other| *other != fd).find_map(|other| shunt_stream::socket::stream(other).filter(same));
    found.filter(|socket| socket.retain())
}

fn take_stream(process: i32, fd: i32, hello: &Hello, side: usize) -> Result<()> {
    if let Some(socket) = own(fd, hello, side) {
        shunt_table::table::enter(fd, Kind::Stream, socket);
        status_page::note(fd, kind::STREAM, Reason::Accelerated, Some(socket.channel()));
        return Ok(());
    }
    let mut appended = Appended::new();
    let wanted = (hello.nonce, hello.sequence);
    // From here on the link stays, whatever other threads close.
    let entered = || {
        let _setup = SETUP.lock()?;
        let (index, link) = link::by_name(wanted.0, wanted.1)?;
        link::enter(index);
        Some((index, link))
    };
    let mut known = entered();
    if known.is_none() {
        search(process, LINK.as_bytes(), |copy| {
            link::name_of(copy.0) == Ok(wanted) && is_link(&copy) && appended.take(copy.take())
        })?;
    }
    known = known.or_else(entered);
    let (index, link) = known.ok_or(Errno(ESRCH))?;
    let channel = hello.channel as usize;
    let told = link::page(link.base, channel).sides[side].receive.state.load(Ordering::Acquire) & state::SHARED != 0;
    let served = told && appended.serve(fd, Received::Peeked);
    if let Some(_setup) = SETUP.lock() {
        link::let_go(index);
    }
    if served {
        Ok(())
    } else {
        Err(Errno(EPERM))
    }
}

/// The object of a listener that this process has, too.
fn own_listener(inode: u64) -> Option<&'static Socket> {
    let _setup = SETUP.lock()?;
    let listens = |other: i32| match table::get(other).kind() {
        Kind::Listener => {
            table::get(other).object::<Socket>().filter(|socket| socket.listening.inode.load(Ordering::Relaxed) == inode)
        }
        _ => None,
    };
    table::numbers().find_map(listens).filter(|socket| socket.retain())
}

fn take_listener(process: i32, fd: i32) -> Result<()> {
    let status = calls::status_of(fd)?;
    if let Some(listener) = own_listener(status.st_ino) {
        shunt_table::table::enter(fd, Kind::Listener, listener);
        status_page::note(fd, kind::LISTENER, Reason::Listening, None);
        return Ok(());
    }
    let wanted = name::listener(status.st_ino);
    let mut rendezvous = None;
    search(process, b"socket:[", |copy| {
        let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
        let found = calls::getsockopt_int(copy.0, SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
            && unix_name(copy.0, false, &mut room).is_ok_and(|name| name == wanted.as_slice());
        if found {
            rendezvous = Some(copy);
        }
        found
    })?;
    let Some(rendezvous) = rendezvous else { return Ok(()) }; // it is the kernel's already
    let _links = end_offers(process)?;
    let rendezvous = private::keep(rendezvous.take())?;
    table::take(rendezvous);
    super::take_up_listener(rendezvous);
    match (table::get(fd).kind(), table::get(fd).object::<Socket>()) {
        (Kind::Listener, Some(listener)) => convert_to_kernel::leave_listener(fd, listener),
        _ => Err(Errno(EPERM)),
    }
}

/// Clients of the process offer it nothing in memory any more; what they have offered is for it to accept. Gives its links, which
/// clients that wait in the rendezvous may have told of by name alone.
fn end_offers(process: i32) -> Result<Appended> {
    let mut links = Appended::new();
    search(process, LINK.as_bytes(), |copy| {
        if is_link(&copy) {
            links.take(copy.take());
        }
        false
    })?;
    if let (Some(server), Some(_setup)) = (number_of(process), SETUP.lock()) {
        links.links().for_each(|index| link::end_offers_to(index, server));
    }
    Ok(links)
}

/// Whether a copy is of a segment that [`Appended::take`] takes over.
fn is_link(copy: &Pending) -> bool {
    SETUP.lock().is_some_and(|_setup| link::is_segment(copy.0))
}

/// Gives `each` copies of the process's descriptors whose names in /proc begin with `prefix`, until it has found what it wants.
fn search(process: i32, prefix: &[u8], mut each: impl FnMut(Pending) -> bool) -> Result<()> {
    let number = number_of(process).ok_or(Errno(ESRCH))?;
    procfs::numbers(&Path::new(format_args!("/proc/{number}/fd\0")), |fd| {
        let mut room = [0u8; 64];
        let wanted = procfs::target(&Path::new(format_args!("/proc/{number}/fd/{fd}\0")), &mut room).starts_with(prefix);
        wanted
            && calls::pidfd_getfd(process, fd as i32, 0).is_ok_and(|copy| {
                table::take(copy);
                each(Pending(copy))
            })
    })
    .map_err(|_| Errno(ESRCH))
}

/// The number of the process that a descriptor of pidfd_open(2) is of. `None`: it has ended.
fn number_of(process: i32) -> Option<u32> {
    let path = Path::new(format_args!("/proc/self/fdinfo/{process}\0"));
    let mut text = [0u8; 512];
    let text = procfs::text(&path, &mut text).ok()?;
    let line = core::str::from_utf8(text).ok()?.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}
