//! Segments of our own: made, sealed, mapped and introduced.

use crate::bell::for_offers;
use crate::drop::{awaited, drop_link, drop_oldest_idle, sweep};
use crate::list::{header, links, Link};
use crate::{retired, window};
use core::sync::atomic::Ordering;
use shunt_segment::area::{BASE_SIZE, LINK_SIZE};
use shunt_segment::link::{self, Party};
use shunt_segment::CHANNELS;
use shunt_sys::libc::{self, AF_UNIX, F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, clock, mapping, Errno, Result};
use shunt_table::{global, private};

/// A file that grew is a link that was closed ([`super::dedicated`]).
pub(super) const SEALS: i32 = F_SEAL_SHRINK | F_SEAL_SEAL;

/// Maps a segment; when the address space is short, idle links go first.
pub(super) fn map_segment(fd: i32) -> Result<*mut u8> {
    // The kernel may have no memory for a moment.
    let mut again = true;
    loop {
        match links().try_map(fd) {
            Err(Errno(libc::ENOMEM)) => {
                let idle = links().all().iter().position(|l| !l.base.is_null() && l.live == 0 && !l.lasting && !awaited(l));
                let Some(index) = idle else {
                    if core::mem::take(&mut again) {
                        continue;
                    }
                    return Err(Errno(libc::ENOMEM));
                };
                drop_link(index);
                window::release_blanks();
                let links = links();
                while links.blank_count > 0 {
                    links.blank_count -= 1; // a blank range counts as well
                    let _ = calls::munmap(links.blanks[links.blank_count], BASE_SIZE);
                }
            }
            other => return other,
        }
    }
}

/// A process that accepts, and whose address space is limited, holds a range of it back for the link of a client that is new: where that
/// finds none, the client is reset. Whether there is one, and memory for the links themselves. Under the set-up lock.
pub fn holds_range() -> bool {
    let links = links();
    if links.furnish().is_err() {
        return false;
    }
    if calls::soft_limit(libc::RLIMIT_AS) == libc::RLIM_INFINITY || links.blank_count > 0 {
        return true;
    }
    let Ok(range) = mapping::range(BASE_SIZE) else { return false };
    links.blanks[0] = range;
    links.blank_count = 1;
    true
}

/// This process is one of the two, under `user`.
pub(super) fn introduce(party: &Party, user: u32) {
    party.pid.store(calls::getpid(), Ordering::Relaxed);
    party.uid.store(user, Ordering::Relaxed);
    let mut name = [0u64; 2];
    let _ = shunt_sys::check(
        // SAFETY: PR_GET_NAME writes 16 bytes.
        unsafe { shunt_sys::syscall!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) },
    );
    party.program[0].store(name[0], Ordering::Relaxed);
    party.program[1].store(name[1], Ordering::Relaxed);
    party.barrier.store(global::barriers().into(), Ordering::Release);
}

/// A link's name. It is drawn for each, so that a process that sees one, which the names of its connections show, cannot guess the next one's.
fn drawn() -> u64 {
    let mut nonce = 0u64;
    match calls::getrandom((&raw mut nonce).cast(), 8, libc::GRND_NONBLOCK) {
        Ok(8) => nonce,
        _ => clock::ticks() ^ (calls::getpid() as u64) << 32,
    }
}

/// A segment of ours, mapped and introduced: its private descriptor, its first byte and its nonce.
fn make_segment() -> Result<(i32, *mut u8, u64)> {
    if calls::soft_limit(libc::RLIMIT_FSIZE) < LINK_SIZE as u64 {
        return Err(Errno(libc::EFBIG)); // ftruncate would raise SIGXFSZ
    }
    let fd = calls::memfd_create(link::NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
    let fd = private::keep(fd)?;
    let made = calls::ftruncate(fd, LINK_SIZE as i64)
        .and_then(|()| calls::fcntl(fd, F_ADD_SEALS, SEALS as usize))
        .and_then(|_| map_segment(fd));
    let base = match made {
        Ok(base) => base,
        Err(error) => {
            private::close(fd);
            return Err(error);
        }
    };
    let links = links();
    links.sequence += 1;
    let header = header(base);
    header.version.store(shunt_segment::VERSION, Ordering::Relaxed);
    header.channels.store(CHANNELS as u32, Ordering::Relaxed);
    let nonce = drawn();
    header.nonce.store(nonce, Ordering::Relaxed);
    header.sequence.store(links.sequence, Ordering::Relaxed);
    introduce(&header.client, calls::geteuid());
    header.magic.store(link::MAGIC, Ordering::Release);
    Ok((fd, base, nonce))
}

/// A link for streams to other hosts: this program has one side of its channels, and its station the other. The process that has the
/// station gives the channels out. `lent`: [`link::STATIONS`], or [`link::PLAIN_PEERS`].
pub fn make_lasting(lent: u32) -> Result<usize> {
    let (fd, base, nonce) = make_segment()?;
    introduce(&header(base).server, calls::geteuid());
    header(base).lent.store(lent, Ordering::Release);
    let links = links();
    links.add(Link { other: (0, u32::MAX), lasting: true, ..Link::new(base, fd, (nonce, links.sequence)) })
}

pub(super) fn make(listener: u32) -> Result<usize> {
    sweep(None);
    drop_oldest_idle();
    retired::note_all(listener);
    let (fd, base, nonce) = make_segment()?;
    let links = links();
    let bell = make_bell(listener);
    header(base).bid.intended.store((bell[0] >= 0) as u32, Ordering::Relaxed);
    let link = Link {
        ours: true,
        listener,
        bell: bell[0],
        bell_for_server: bell[1],
        user: header(base).client.uid.load(Ordering::Relaxed),
        ..Link::new(base, fd, (nonce, links.sequence))
    };
    links.add(link)
}

/// A link of ours to process `peer` in another network namespace: connections are not made in memory through it.
pub(super) fn make_for_peer(peer: u64) -> Result<usize> {
    sweep(None);
    drop_oldest_idle();
    let (fd, base, nonce) = make_segment()?;
    let links = links();
    header(base).near.store(1, Ordering::Relaxed);
    let link = Link {
        ours: true,
        listener: peer as u32, // its list
        peer,
        user: header(base).client.uid.load(Ordering::Relaxed),
        ..Link::new(base, fd, (nonce, links.sequence))
    };
    links.add(link)
}

/// The two ends of a bell, for the first link to a listener: connections are made in memory through that one.
fn make_bell(listener: u32) -> [i32; 2] {
    let mut pair = [-1; 2];
    if for_offers(listener).is_some()
        || calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.as_mut_ptr()).is_err()
    {
        return [-1; 2];
    }
    pair.map(|fd| private::keep(fd).unwrap_or(-1))
}

/// Bytes of address space that links take now.
pub fn address_space() -> u64 {
    let mapped = links().all().iter().filter(|l| !l.base.is_null()).count();
    ((mapped + links().blank_count) * BASE_SIZE) as u64 + window::address_space()
}
