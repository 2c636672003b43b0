//! A binding: the end at a server, the calls over it, and the news of its death.

mod begin;
mod place;
mod results;
#[cfg(test)]
mod tests;
mod wait;

use super::introduction::{introduce, refusal};
use super::Options;
use crate::address::Address;
use crate::calls::Calls;
use crate::clock::nanos;
use crate::device::{End, PEER};
use crate::error::{Error, Kind, Ran, Side};
use crate::forks;
use crate::rendezvous::{Process, Socket};
use crate::window::Window;
use crate::wire::{handler, Card, Head, Name, Piece, Purpose, Welcome, SHORT};
use crate::xdr::Copies;
use shunt_am::Get;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Looks for what a server sent before its end: more than its ring has frames.
const LAST_LOOKS: u32 = 1 << 16;

/// A window of so many times a message's data has room for that of all calls, and for what else lies there.
const ROOMY: usize = 64;

/// The end at a server, and the calls over it.
pub(super) struct Binding {
    pub(super) end: End,
    pub(super) calls: Calls,
    pub(super) epoll: OwnedFd,
    peer: String,
    pub(super) process: Option<Process>,
    pub(super) version: u32,
    spin: u64,
    pub(super) deadline: Option<u64>,
    room: usize,
    /// Bytes that go as a message's data.
    medium: usize,
    /// Bytes that do although the window has room.
    near: usize,
    scratch: Vec<u8>,
    copies: Copies,
    pub(super) dead: Option<String>,
    forks: u32,
    seen: u64,
}

impl Binding {
    pub(super) fn bind(
        address: &Address,
        options: &Options,
        program: u32,
        versions: &RangeInclusive<u32>,
    ) -> Result<Self, Error> {
        let forks = forks::watch();
        let (socket, end, welcome) = introduce(address, options, Purpose::Call, program, versions)?;
        let (Welcome::Bound { version, card }, Some((end, window))) = (welcome, end) else {
            return Err(refusal(address, program, versions, welcome));
        };
        let process = socket.process();
        let peer = match process {
            Some(process) => format!("{address} (process {})", process.pid),
            None => address.to_string(),
        };
        let fail = |error: io::Error| Error::new(Kind::System, Side::Caller, Ran::No, &peer, error);
        if !versions.contains(&version) {
            return Err(Error::new(Kind::Protocol, Side::Server, Ran::No, &peer, "a version that was not asked for"));
        }
        Self::assemble(socket, end, window, &card, options, (peer.clone(), process, version, forks)).map_err(fail)
    }

    fn assemble(
        socket: Socket,
        mut end: End,
        window: Window,
        card: &Card,
        options: &Options,
        (peer, process, version, forks): (String, Option<Process>, u32, u32),
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let direct = end.is_direct();
        let mut calls = Calls::new(window, direct);
        end.adopt(card, &mut calls)?;
        // SAFETY: a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and of no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        for descriptor in [socket.as_raw_fd(), end.endpoint_descriptor()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: descriptors of ours, and an event.
            if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut event) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        calls.socket = Some(socket);
        let medium = end.engine().medium_maximum();
        let spin = nanos(options.spin);
        let deadline = options.deadline.map(nanos);
        let shares = direct && calls.window.size() >= ROOMY * medium;
        let near = if shares { SHORT.min(medium) } else { medium };
        let (room, scratch, copies) = (options.room, vec![0; medium], Copies::default());
        let (dead, seen) = (None, 0);
        Ok(Self {
            end,
            calls,
            epoll,
            peer,
            process,
            version,
            spin,
            deadline,
            room,
            medium,
            near,
            scratch,
            copies,
            dead,
            forks,
            seen,
        })
    }

    #[cold]
    pub(super) fn fail(&self, kind: Kind, side: Side, ran: Ran, detail: impl fmt::Display) -> Error {
        Error::new(kind, side, ran, &self.peer, detail)
    }

    #[cold]
    fn gone(&self, ran: Ran) -> Error {
        self.fail(Kind::Lost, Side::Between, ran, self.dead.as_deref().unwrap_or("its connection ended"))
    }

    /// Polls; gives the number of frames.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> usize {
        let taken = self.end.poll(&mut self.calls);
        if !self.calls.fetches.is_empty() {
            self.fetch();
        }
        taken
    }

    /// Asks for what calls wait for, where memory is not shared.
    #[inline(never)]
    fn fetch(&mut self) {
        for slot in std::mem::take(&mut self.calls.fetches) {
            let place = &mut self.calls.slots[usize::from(slot)];
            let name = Name { slot, generation: place.generation };
            let mut wanted: Vec<Piece> = place.large.into_iter().collect();
            let held = place.held[..usize::from(place.count)].iter().filter(|held| held.back);
            wanted.extend(held.map(|held| self.calls.pieces.get(held.number)));
            place.fetching = wanted.len() as u8;
            for piece in wanted {
                let at = u64::from(piece.offset);
                let words = [Head { name, code: 0, flags: 0 }.word()];
                let get = Get { from: at, to: at, length: u64::from(piece.length), handler: handler::FETCHED, words: &words };
                if self.end.get(PEER, &get, &mut self.calls).is_err() {
                    self.die("it does not give its results".into());
                    return;
                }
            }
        }
    }

    /// The server is gone, or as good as that. What it answered before is taken; all else ends.
    #[cold]
    fn die(&mut self, why: String) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(why);
        if self.calls.direct {
            // Bounded: it may live, and send for ever.
            for _ in 0..LAST_LOOKS {
                if self.end.poll(&mut self.calls) == 0 {
                    break;
                }
            }
        }
        self.calls.end();
    }

    /// Whether this process is a child of the one that bound: the end, and the calls over it, are its parent's.
    #[inline(always)]
    pub(super) fn is_parents(&self) -> bool {
        self.forks != forks::number()
    }

    /// What a call of the parent's is to its child.
    #[cold]
    pub(super) fn forked(&self) -> Error {
        self.fail(Kind::Forked, Side::Caller, Ran::No, "bind anew in the child")
    }

    /// Whether the server lives, as far as can be seen.
    pub(super) fn look_after(&mut self) {
        if self.dead.is_some() {
            return;
        }
        if self.calls.hear() {
            self.die("its process ended, or closed the connection".into());
        } else if let Some(reason) = self.calls.lost {
            self.die(format!("its end was lost: {reason:?}"));
        }
    }
}
