//! What is asked of a station's streams and listeners, without its lock.

use core::sync::atomic::{AtomicU64, Ordering::*};
use shunt_am::Nanoseconds;
use shunt_segment::address::Address;
use shunt_segment::name;
use shunt_sys::{libc, Errno, Result};

use super::Station;
use crate::memory::{flag, state, store2};
use crate::{sockaddr, FourTuple, Opening, Peer, Refusal, Stream, WORDS};

impl Station {
    /// The caller's words of a stream's entry, shared by all processes of the station; 0 when it is lent.
    ///
    /// # Panics
    /// For a number that no stream has.
    #[inline]
    pub fn words(&self, stream: Stream) -> &[AtomicU64; WORDS] {
        &self.shared().streams[stream as usize].words
    }

    /// The stream's 4-tuple, as it was opened or asked for; scopes are 0.
    pub fn four(&self, stream: Stream) -> FourTuple {
        self.shared().entry(stream).map_or(FourTuple::default(), |entry| entry.four())
    }

    /// The token of a stream that is lent.
    pub fn token(&self, stream: Stream) -> crate::Token {
        self.shared().entry(stream).map_or([0; 2], crate::memory::Entry::token)
    }

    /// The streams that are bound and not released, also those whose path was lost: for a process that takes over from a killed
    /// one.
    pub fn bound(&self) -> impl Iterator<Item = Stream> + '_ {
        let shared = self.shared();
        let bound =
            |stream: &Stream| shared.entry(*stream).is_some_and(|entry| matches!(entry.state(), state::LIVE | state::LOST));
        shared.used.iter().filter(bound)
    }

    /// Streams that are lent, in whatever state.
    pub fn lent(&self) -> usize {
        self.shared().used.iter().count()
    }

    /// How far a stream's opening is.
    pub fn opening(&self, stream: Stream) -> Opening {
        let Some(entry) = self.shared().entry(stream) else { return Opening::Refused(Refusal::Lost) };
        match entry.state() {
            state::REFUSED => Opening::Refused(entry.refusal()),
            state::FREE | state::LOST | state::CLOSING => Opening::Refused(Refusal::Lost),
            state::OPENING => Opening::Pending,
            _ if entry.has(flag::WANT_CANCEL | flag::CANCELLING) => Opening::Pending,
            _ => Opening::Opened,
        }
    }

    /// What is remembered of the server: `Some(Ok)`: its station; `Some(Err)`: it has none; `None`: ask, by an
    /// [`crate::Inquiry`].
    pub fn known(&self, four: &FourTuple, now: Nanoseconds) -> Option<core::result::Result<Peer, Refusal>> {
        self.shared().contact(&four.server, now)
    }

    /// The query socket of the listener with this inode: to be polled for POLLIN by the keeper, which has been told of the listener
    /// ([`Station::listen`]), and answered by [`crate::Driver::hear`]; the caller closes it.
    ///
    /// # Errors
    /// EADDRINUSE: a station has it already, this one or another.
    pub fn query(inode: u64) -> Result<i32> {
        let query = sockaddr::unix(Some(&name::station(inode)))?;
        let fd = query.0;
        core::mem::forget(query);
        Ok(fd)
    }

    /// Tells the station of a listener of its own, with the inode of its TCP socket and the address it is bound to. By the keeper
    /// alone, as [`Station::unlisten`].
    ///
    /// # Errors
    /// ENOSPC: it has [`crate::LISTENERS`].
    pub fn listen(&self, inode: u64, address: &Address) -> Result<()> {
        let listeners = &self.shared().listeners;
        let free = listeners.iter().find(|listener| listener.inode.load(Relaxed) == 0).ok_or(Errno(libc::ENOSPC))?;
        store2(&free.ip, address.words());
        free.port.store(address.port.into(), Relaxed);
        free.inode.store(inode, Release);
        Ok(())
    }

    /// The listener is closed.
    pub fn unlisten(&self, inode: u64) {
        for listener in &self.shared().listeners {
            if inode != 0 && listener.inode.load(Relaxed) == inode {
                listener.inode.store(0, Relaxed);
            }
        }
    }

    /// The listeners, by inode.
    pub fn listeners(&self) -> impl Iterator<Item = u64> + '_ {
        self.shared().listeners.iter().map(|listener| listener.inode.load(Acquire)).filter(|inode| *inode != 0)
    }

    /// The stream's number is never lent again: a process that is not to see what goes there has its rings.
    pub fn retire(&self, stream: Stream) {
        self.shared().retired.insert_unlocked(stream);
    }
}
