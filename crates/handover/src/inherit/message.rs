//! Descriptors that come in a message (SCM_RIGHTS, unix(7)): the program's, and what a sender's shunt appended.

use super::{named, take_up_listener, take_up_stream, unix_name, Came};
use shunt_inbox::datagram::adopt;
use shunt_link as link;
use shunt_segment::name;
use shunt_sys::calls;
use shunt_sys::libc::{self, sockaddr_un};
use shunt_table::global::SETUP;
use shunt_table::{private, table};

/// Links that one message pins at most; the kernel passes 253 descriptors (SCM_MAX_FD).
const LINKS: usize = 256;
/// Listeners that one message brings at most.
const LISTENERS: usize = 128;
/// Inboxes that one message brings at most.
const INBOXES: usize = 128;

/// What was appended to a message. Its links stay until it is dropped, whatever other threads close: the streams that need
/// them are taken up one after another.
pub struct Appended {
    links: [u16; LINKS],
    count: usize,
    /// Of listeners whose own descriptors have not been looked at yet; -1: none.
    rendezvous: [i32; LISTENERS],
    /// Likewise of datagram sockets.
    inboxes: [i32; INBOXES],
}

/// How a message was received.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is gone from the queue.
    Taken,
    /// It stays there (MSG_PEEK).
    Peeked,
}

impl Appended {
    /// Nothing.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Appended {
        Appended { links: [0; LINKS], count: 0, rendezvous: [-1; LISTENERS], inboxes: [-1; INBOXES] }
    }

    /// A descriptor came: true if it is one that a sender's shunt appended, and now is ours.
    pub fn take(&mut self, fd: i32) -> bool {
        if SETUP.lock().is_some_and(|_setup| link::is_segment(fd)) {
            self.take_link(fd);
            return true;
        }
        if adopt::owner(fd).is_some() {
            put(fd, &mut self.inboxes);
            return true;
        }
        let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
        // An accepted companion has its listener's name, too.
        let rendezvous = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
            && unix_name(fd, false, &mut room).is_ok_and(|name| name.starts_with(b"shunt1-listen-"));
        if rendezvous {
            put(fd, &mut self.rendezvous);
        }
        rendezvous
    }

    /// Links that were taken up, or known before.
    pub(super) fn links(&self) -> impl Iterator<Item = usize> + '_ {
        self.links[..self.count].iter().map(|index| *index as usize)
    }

    /// The rendezvous of the listener at `fd`, if it came.
    fn rendezvous_of(&mut self, fd: i32) -> Option<i32> {
        let status = calls::status_of(fd).ok()?;
        let wanted = name::listener(status.st_ino);
        let place = self.rendezvous.iter_mut().filter(|place| **place >= 0).find(|place| {
            let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
            unix_name(**place, false, &mut room).is_ok_and(|name| name == wanted.as_slice())
        })?;
        Some(core::mem::replace(place, -1))
    }

    /// The inbox of the socket at `fd`, if it came.
    fn inbox_of(&mut self, fd: i32) -> Option<i32> {
        let status = calls::status_of(fd).ok()?;
        let place = self.inboxes.iter_mut().find(|place| **place >= 0 && adopt::owner(**place) == Some(status.st_ino))?;
        Some(core::mem::replace(place, -1))
    }

    fn take_link(&mut self, fd: i32) {
        let Ok(fd) = private::keep(fd) else { return };
        let Some(_setup) = SETUP.lock() else { return private::close(fd) };
        match link::take_up(fd) {
            Ok((index, ours)) => {
                if !ours {
                    private::close(fd);
                }
                if let Some(place) = self.links.get_mut(self.count) {
                    *place = index as u16;
                    self.count += 1;
                    link::enter(index);
                }
            }
            Err(_) => private::close(fd),
        }
    }

    /// A descriptor of the program's came: if it is a companion or a listener, it becomes what it was. False: it is a stream
    /// whose link did not come along, because this process has no number for that; it cannot be used.
    pub fn serve(&mut self, fd: i32, received: Received) -> bool {
        let came = if received == Received::Peeked { Came::Peeked } else { Came::Received };
        if take_up_stream(fd, came).is_none() {
            if let Some(inbox) = self.inbox_of(fd) {
                table::take(inbox);
                adopt::take_up(inbox, core::iter::once(fd));
            } else {
                let Some(rendezvous) = self.rendezvous_of(fd) else { return !is_companion(fd) };
                table::take(rendezvous);
                take_up_listener(rendezvous);
            }
        }
        if shunt_table::process::split_fd_tables::are_split() {
            if let Some(socket) = shunt_stream::socket::stream(fd) {
                let _ = crate::convert_to_kernel::carry(fd, socket);
            }
            shunt_table::process::split_fd_tables::withdraw(fd);
        }
        crate::uring::received(fd);
        true
    }
}

/// Keeps `fd` in a free place, as far as there is one.
fn put(fd: i32, places: &mut [i32]) {
    let fd = private::keep(fd).unwrap_or(-1);
    match places.iter_mut().find(|place| **place < 0) {
        Some(place) => *place = fd,
        None => private::close(fd),
    }
}

/// Whether a descriptor is an end of a connection of shunt's.
fn is_companion(fd: i32) -> bool {
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    named(fd, &mut room).is_some()
}

impl Drop for Appended {
    fn drop(&mut self) {
        self.rendezvous.iter().chain(&self.inboxes).for_each(|fd| private::close(*fd));
        if let Some(_setup) = SETUP.lock() {
            self.links[..self.count].iter().for_each(|index| link::let_go(*index as usize));
        }
    }
}

/// A link's index fits.
const _: () = assert!(link::MOST <= u16::MAX as usize + 1);
