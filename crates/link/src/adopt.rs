//! Segments of others, checked before anything in them is believed.

use crate::drop::sweep;
use crate::list::{header, links, Link};
use crate::make::{introduce, map_segment, SEALS};
use core::sync::atomic::Ordering;
use shunt_segment::area::LINK_SIZE;
use shunt_segment::{link, CHANNELS};
use shunt_sys::{calls, libc, memory_file, Errno, Result};
use shunt_table::private;
use shunt_table::process::user;

/// The link that a client named, if this process has it and it really is that client's.
pub fn known(nonce: u64, sequence: u32, client: (u32, u32)) -> Option<(usize, Link)> {
    let found = links()
        .all()
        .iter()
        .enumerate()
        .find(|(_, l)| !l.base.is_null() && !l.ours && l.nonce == nonce && l.sequence == sequence && l.other == client);
    found.map(|(index, link)| (index, *link))
}

/// A descriptor of the segment that `client` named and did not send, which this process has from another one that knew the link, or
/// as its maker; -1: none. Whose it is its header tells, which strangers do not write.
pub fn named(nonce: u64, sequence: u32, client: (u32, u32)) -> i32 {
    let is_of_client = |link: &Link| {
        let party = &header(link.base).client;
        (party.pid.load(Ordering::Relaxed), party.uid.load(Ordering::Relaxed)) == client
    };
    by_name(nonce, sequence)
        .filter(|(_, link)| is_of_client(link))
        .and_then(|(_, link)| calls::fcntl(link.fd, libc::F_DUPFD_CLOEXEC, 0).ok())
        .unwrap_or(-1)
}

/// Whether `fd` is a segment that cannot fault us: of ordinary pages, sealed against shrinking, of the right size, writable.
fn check_segment(fd: i32) -> Result<()> {
    let (size, seals) = memory_file::sealed(fd, SEALS)?;
    match size >= LINK_SIZE && seals & memory_file::WRITE_SEALS == 0 {
        true => Ok(()),
        false => Err(Errno(libc::EPROTO)),
    }
}

/// Takes up the segment that an earlier image of this process left open as `fd`, or that came in a message. Its client is
/// not known for sure, so it serves the connections that came with it and no others.
///
/// Gives the link's index, and whether `fd` is its descriptor from now on; else the segment is mapped already, and `fd` is
/// the caller's to close, as after an error.
pub fn take_up(fd: i32) -> Result<(usize, bool)> {
    check_segment(fd)?;
    if let Ok(name) = name_of(fd) {
        if let Some((index, link)) = by_name(name.0, name.1) {
            return if is_segment_of(&link, fd) { Ok((index, false)) } else { Err(Errno(libc::EPROTO)) };
        }
    }
    // Twice, as in `map_segment`: no caller could be told that a connection is lost for want of memory for its link.
    links().furnish().or_else(|_| links().furnish())?;
    let base = map_segment(fd)?;
    let head = header(base);
    if head.magic.load(Ordering::Acquire) != link::MAGIC || head.version.load(Ordering::Relaxed) != shunt_segment::VERSION {
        links().unmap(base);
        return Err(Errno(libc::EPROTO));
    }
    let link = Link {
        inherited: true,
        other: (0, u32::MAX),
        ..Link::new(base, fd, (head.nonce.load(Ordering::Relaxed), head.sequence.load(Ordering::Relaxed)))
    };
    match links().add(link) {
        Ok(index) => {
            shunt_table::table::set_private(fd);
            let _ = calls::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize);
            Ok((index, true))
        }
        Err(error) => {
            links().unmap(base);
            Err(error)
        }
    }
}

/// Whether `fd` is the memory of `link`: the name says what its maker wrote there, and any process can write another link's.
pub fn is_segment_of(link: &Link, fd: i32) -> bool {
    let inode = |fd: i32| calls::status_of(fd).map(|status| (status.st_dev, status.st_ino));
    inode(fd).is_ok_and(|inode_of| inode(link.fd) == Ok(inode_of))
}

/// Whether `fd` is a link's memfd.
pub fn is_segment(fd: i32) -> bool {
    check_segment(fd).is_ok() && name_of(fd).is_ok()
}

/// Reads a link's name from its file, which need not be mapped.
pub fn name_of(fd: i32) -> Result<(u64, u32)> {
    let mut words = [0u64; 4];
    calls::pread(fd, words.as_mut_ptr().cast(), 32, 0)?;
    if words[0] != link::MAGIC {
        return Err(Errno(libc::EPROTO));
    }
    Ok((words[2], words[3] as u32))
}

/// A link by its name.
pub fn by_name(nonce: u64, sequence: u32) -> Option<(usize, Link)> {
    let found = links().all().iter().enumerate().find(|(_, l)| !l.base.is_null() && l.nonce == nonce && l.sequence == sequence);
    found.map(|(index, link)| (index, *link))
}

/// Whether `base` is a mapping of the link of that name. There are two where both ends of its connections are this process's.
pub fn is_named(base: *mut u8, nonce: u64, sequence: u32) -> bool {
    !base.is_null() && links().all().iter().any(|l| l.base == base && l.nonce == nonce && l.sequence == sequence)
}

/// Whether the name is another segment's: connections are found by it, so a second memory of that name would be a stranger's.
fn is_taken(fd: i32, nonce: u64, sequence: u32) -> bool {
    by_name(nonce, sequence).is_some_and(|(_, link)| !is_segment_of(&link, fd))
}

/// Takes a client's segment in: checks seals, size and header before anything is believed. Closes `fd` on error.
pub fn adopt(fd: i32, nonce: u64, sequence: u32, client: (u32, u32), rendezvous: i32) -> Result<(usize, Link)> {
    sweep(None);
    let unique = || if is_taken(fd, nonce, sequence) { Err(Errno(libc::EPROTO)) } else { Ok(()) };
    if let Err(error) = check_segment(fd).and_then(|()| check_server(fd)).and_then(|()| unique()) {
        let _ = calls::close(fd);
        return Err(error);
    }
    let fd = private::keep(fd)?;
    let base = match map_segment(fd) {
        Ok(base) => base,
        Err(error) => {
            private::close(fd);
            return Err(error);
        }
    };
    let head = header(base);
    let honest = head.magic.load(Ordering::Acquire) == link::MAGIC
        && head.version.load(Ordering::Relaxed) == shunt_segment::VERSION
        && head.channels.load(Ordering::Relaxed) == CHANNELS as u32;
    if !honest {
        links().unmap(base);
        private::close(fd);
        return Err(Errno(libc::EPROTO));
    }
    introduce(&head.server, user::own());
    let link = Link { rendezvous, other: client, ..Link::new(base, fd, (nonce, sequence)) };
    match links().add(link) {
        Ok(index) => Ok((index, link)),
        Err(error) => {
            links().unmap(base);
            private::close(fd);
            Err(error)
        }
    }
}

/// Whether the last acceptor through a link, a process and its user, is another user's, whose connections this process must not see.
fn is_of_another(process: u32, user: u32) -> bool {
    process != 0 && process != calls::getpid() && user != user::own()
}

/// Whether no other user's process has accepted through the segment. It is not mapped to know that. Listeners have one user
/// ([`shunt_table::process::users`]), so only programs that one process became by several execs may come to this.
fn check_server(fd: i32) -> Result<()> {
    let mut words = [0u32; 2];
    const _: () = assert!(core::mem::offset_of!(link::Party, pid) == 0 && core::mem::offset_of!(link::Party, uid) == 4);
    calls::pread(fd, words.as_mut_ptr().cast(), 8, core::mem::offset_of!(link::LinkHeader, server) as i64)?;
    if is_of_another(words[0], words[1]) {
        return Err(Errno(libc::EPROTO));
    }
    Ok(())
}

/// Another user's process has accepted through a link of this one's after all: the client's next connections are not for both.
pub fn retire_if_shared(head: &link::LinkHeader) {
    if is_of_another(head.server.pid.load(Ordering::Relaxed), head.server.uid.load(Ordering::Relaxed)) {
        head.retired.store(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at;
    use crate::drop::drop_link;
    use crate::make::make;
    use shunt_table::global::SETUP;

    /// A second segment whose maker has written the name of `first` into it.
    fn namesake(first: usize) -> (usize, i32) {
        let second = make(0x7fff_0202).unwrap();
        let (from, to) = (header(at(first).base), header(at(second).base));
        to.nonce.store(from.nonce.load(Ordering::Relaxed), Ordering::Relaxed);
        to.sequence.store(from.sequence.load(Ordering::Relaxed), Ordering::Relaxed);
        (second, calls::fcntl(at(second).fd, libc::F_DUPFD_CLOEXEC, 0).unwrap())
    }

    #[test]
    fn a_name_is_one_memory_s() {
        let _setup = SETUP.lock().unwrap();
        shunt_table::process::user::is_now(calls::geteuid());
        let first = make(0x7fff_0201).unwrap();
        let Link { nonce, sequence, fd: own, .. } = *at(first);
        let (second, forged) = namesake(first);
        assert_eq!(name_of(forged), Ok((nonce, sequence)));
        assert_eq!(take_up(own), Ok((first, false)), "the memory that is mapped already");
        assert_eq!(take_up(forged), Err(Errno(libc::EPROTO)), "another memory of that name");
        assert!(adopt(forged, nonce, sequence, (1, 1), -1).is_err(), "nor from a client");
        assert_eq!(by_name(nonce, sequence).map(|(index, _)| index), Some(first));
        drop_link(second);
        drop_link(first);
    }

    #[test]
    fn the_next_link_has_no_name_that_follows_from_the_last_one() {
        let _setup = SETUP.lock().unwrap();
        shunt_table::process::user::is_now(calls::geteuid());
        let made = [0x7fff_0203, 0x7fff_0204].map(|listener| make(listener).unwrap());
        assert_ne!(at(made[0]).nonce, at(made[1]).nonce);
        made.into_iter().for_each(drop_link);
    }
}
