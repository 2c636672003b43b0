//! Callers come and go: the binding's second half, by the thread that will serve.

use super::{token, Worker};
use crate::device::{End, PEER};
use crate::rendezvous::Socket;
use crate::server::caller::{Caller, CallerState};
use crate::service::Service;
use crate::window::Window;
use crate::wire::{Hello, Welcome};
use crate::xdr::Copies;
use shunt_am::{Dispatch, Message, Replier};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// A client that has said what it wants, for the thread that will serve it.
pub(in crate::server) struct Guest {
    pub(super) socket: Socket,
    pub(super) hello: Hello,
    pub(super) window: Option<OwnedFd>,
}

impl<S: Service> Worker<'_, S> {
    /// A caller is gone: its end and its window go, too.
    pub(super) fn part(&self, caller: Box<Caller>) {
        self.shared[self.number].callers.fetch_sub(1, Ordering::Relaxed);
        self.forget(&caller.state.socket);
        self.shared[self.number].pulse.part(&caller.state.socket);
        if !caller.state.direct {
            self.shared[self.number].mirrored.fetch_sub(caller.state.window.size() as u64, Ordering::Relaxed);
        }
        drop(caller);
    }

    /// Bytes of windows that lie in this process's memory.
    fn mirrored(&self) -> u64 {
        self.shared.iter().map(|one| one.mirrored.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn take_guests(&mut self) {
        let mut count = [0u8; 8];
        // SAFETY: room for eight bytes.
        unsafe { libc::read(self.shared[self.number].bell.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        while let Ok(guest) = self.inlet.try_recv() {
            self.take_in(guest);
        }
    }

    pub(super) fn take_in(&mut self, mut guest: Guest) {
        let refused = match self.choose(&guest.hello) {
            Err(welcome) => welcome,
            Ok(interface) => match self.bind(&mut guest, interface) {
                Ok((end, window, welcome)) => return self.serve_from_now(guest, interface, end, window, welcome),
                Err(welcome) => welcome,
            },
        };
        let _ = guest.socket.send(&refused.emit(), None);
        self.shared[self.number].callers.fetch_sub(1, Ordering::Relaxed);
    }

    fn serve_from_now(&mut self, mut guest: Guest, interface: usize, mut end: End, window: Window, welcome: Welcome) {
        self.serial += 1;
        let serial = self.serial;
        let said = guest.socket.send(&welcome.emit(), None);
        let watched = said.and_then(|()| {
            self.watch(guest.socket.as_raw_fd(), token::SOCKET | serial, libc::EPOLLIN | libc::EPOLLRDHUP)?;
            self.watch(end.endpoint_descriptor(), token::END | serial, libc::EPOLLONESHOT)
        });
        if watched.is_err() {
            self.shared[self.number].callers.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let direct = end.is_direct();
        let scratch = vec![0; end.engine().medium_maximum()];
        let process = guest.socket.process();
        let window_bytes = window.size() as u64;
        let (socket, copies) = (guest.socket, Copies::default());
        let state =
            CallerState { interface, process, window, direct, straight: false, scratch, copies, over: false, socket, heard: 0 };
        if !direct {
            self.shared[self.number].pulse.greet(&state.socket);
            self.shared[self.number].mirrored.fetch_add(window_bytes, Ordering::Relaxed);
        }
        self.active.push(Box::new(Caller { end, serial, state, busy: 0, wake_at: u64::MAX }));
    }

    /// The highest version that both have.
    pub(super) fn choose(&self, hello: &Hello) -> Result<usize, Welcome> {
        let there = || self.interfaces.iter().enumerate().filter(|(_, one)| one.program == hello.program);
        let wanted = hello.lowest..=hello.highest;
        let best = there().filter(|(_, one)| wanted.contains(&one.version)).max_by_key(|(_, one)| one.version);
        match best {
            Some((number, _)) => Ok(number),
            None if there().next().is_none() => Err(Welcome::Program),
            None => Err(Welcome::Versions {
                lowest: there().map(|(_, one)| one.version).min().unwrap_or(0),
                highest: there().map(|(_, one)| one.version).max().unwrap_or(0),
            }),
        }
    }

    fn bind(&mut self, guest: &mut Guest, interface: usize) -> Result<(End, Window, Welcome), Welcome> {
        let hello = &guest.hello;
        if hello.window > self.options.window {
            return Err(Welcome::Denied);
        }
        let end = guest.socket.over().and_then(|over| End::new(self.address, over));
        let mut end = end.map_err(|_| Welcome::NoEnd)?;
        let denied = |_: io::Error| Welcome::Denied;
        let window = match (end.is_direct(), guest.window.take()) {
            (true, Some(descriptor)) => Window::adopt(descriptor, hello.window).map_err(denied)?,
            (true, None) => return Err(Welcome::Denied),
            // Bytes that others bring fill it.
            (false, _) if self.mirrored().saturating_add(hello.window) > self.options.memory => return Err(Welcome::Full),
            (false, _) => Window::mirror(hello.window).map_err(denied)?,
        };
        let card = end.card().map_err(denied)?;
        end.adopt(&hello.card, &mut Nobody).map_err(denied)?;
        debug_assert!(end.engine().is_up(PEER));
        let welcome = Welcome::Bound { version: self.interfaces[interface].version, card };
        Ok((end, window, welcome))
    }
}

/// While a connection is adopted nothing arrives.
struct Nobody;

impl Dispatch for Nobody {
    fn request(&mut self, _: Message<'_>, replier: Replier<'_>) {
        replier.refuse();
    }
    fn reply(&mut self, _: Message<'_>) {}
}
