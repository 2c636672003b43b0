//! Inboxes in which something waits while another program gets the socket: by exec, by spawn, by a message.
//!
//! The kernel hands the socket on by itself. What lies in its inbox came before whatever the kernel's queue holds, and only
//! memory has it, so the memfd goes along. Its gate is pinned from then on: the next program reads what is left there, and
//! then plain sockets.

use super::{all, enter, flag, inbox_table, options, pin, Datagram};
use crate::local::requeue;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::{InboxHeader, MAGIC};
use shunt_sys::{calls, libc, Result};
use shunt_table::private;
use shunt_table::process::identity;
use shunt_table::table::Kind;

/// Another program gets the socket: from now on the kernel carries what comes.
pub fn before_handing(fd: i32, socket: &'static Datagram) {
    if socket.is_local() {
        options::plain(socket, pin::ELSEWHERE);
        requeue::put_back(fd, socket);
    }
    socket.pin(pin::ELSEWHERE);
}

/// The descriptor of the inbox, if something waits in it that another program would not find.
pub fn needed(socket: &Datagram) -> Option<i32> {
    let memfd = socket.private[0].load(Ordering::Acquire);
    (memfd >= 0 && socket.has_waiting()).then_some(memfd)
}

/// Whose inbox lies behind `memfd`: the socket's inode. `None`: it is none, or another user's.
pub fn owner(memfd: i32) -> Option<u64> {
    inbox_table::check(memfd).ok()?;
    let status = calls::status_of(memfd).ok()?;
    let mut words = [0u64; 3];
    calls::pread(memfd, words.as_mut_ptr().cast(), core::mem::size_of_val(&words), 0).ok()?;
    let [magic, shape, inode] = words;
    let ours =
        magic == MAGIC && shape as u32 == shunt_segment::VERSION && identity::is_same_user(status.st_uid, calls::geteuid());
    ours.then_some(inode)
}

/// The first words of the header, as [`owner`] reads them.
const _: () = assert!(core::mem::offset_of!(InboxHeader, version) == 8 && core::mem::offset_of!(InboxHeader, inode) == 16);

/// Takes up the inbox behind `memfd` for the sockets among `numbers` whose it is. Takes the descriptor over.
pub fn take_up(memfd: i32, numbers: impl Iterator<Item = i32>) {
    let Some(inode) = owner(memfd) else {
        let _ = calls::close(memfd);
        return;
    };
    let mut memfd = Some(memfd);
    for fd in numbers.filter(|fd| is_socket(*fd, inode)) {
        let known = known(inode);
        if let Some(socket) = known {
            socket.references.fetch_add(1, Ordering::AcqRel);
            shunt_table::table::enter(fd, Kind::Datagram, socket);
        } else if let Some(memfd) = memfd.take() {
            let _ = adopt(fd, memfd);
        }
    }
    if let Some(memfd) = memfd {
        let _ = calls::close(memfd);
    }
}

fn is_socket(fd: i32, inode: u64) -> bool {
    calls::status_of(fd).is_ok_and(|status| status.st_ino == inode && status.st_mode & libc::S_IFMT == libc::S_IFSOCK)
}

/// The object of the socket, if this process has it under another number.
fn known(inode: u64) -> Option<&'static Datagram> {
    let mut found = None;
    all(|_, socket| {
        if socket.inbox().is_some_and(|inbox| inbox.header().inode.load(Ordering::Relaxed) == inode) {
            found = Some(socket);
        }
    });
    found
}

fn adopt(fd: i32, memfd: i32) -> Result<()> {
    let memfd = private::keep(memfd)?;
    let family = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let nonblocking = calls::fcntl(fd, libc::F_GETFL, 0)? & libc::O_NONBLOCK != 0;
    let entered = if family == libc::AF_UNIX { crate::local::inherited(fd, nonblocking) } else { enter(fd, family, nonblocking) };
    let mapped = entered.ok_or(shunt_sys::Errno(libc::EPROTO)).and_then(|socket| {
        socket.flags.fetch_or(flag::SHARED | flag::SEND_PLAIN, Ordering::Relaxed);
        inbox_table::map_for(socket, memfd)
    });
    let Ok(inbox) = mapped else {
        private::close(memfd);
        return mapped.map(|_| ());
    };
    inbox.header().owners.fetch_add(1, Ordering::SeqCst);
    if let Some(socket) = entered {
        socket.pin(pin::ELSEWHERE);
    }
    Ok(())
}
