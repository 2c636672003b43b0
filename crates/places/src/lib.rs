//! Places of streams to peers that have only a kernel: the lines of a process, which are few, and the channels of its links, which are many.
//!
//! A line has a channel for as long as its stream is taken, or on its way back. The program's near side of a stream whose connection it has as the kernel's
//! again keeps the channel for as long as the program keeps the connection, since calls of other threads may look at it still; the line is free at once.
//! It refuses to know what a line is.
#![cfg_attr(not(test), no_std)]
// A place's address is a link's: see `shunt_link`.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

mod table;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU8, Ordering};

use shunt_link as link;
use shunt_segment::area::{ring_offset, RING_SIZE};
use shunt_segment::channel::release;
use shunt_segment::CHANNELS;
use shunt_stream::socket::{numbers_of, Socket};
use shunt_sys::{calls, libc, Errno};
use shunt_table::global::SETUP;
use shunt_table::private;

/// Lines: streams that are taken, or on their way back.
pub const LINES: usize = 256;
/// Links, in whose channels these are, and others that stand.
const LINKS: usize = 128;

/// Where a stream is: where its link lies, the link's index, the channel.
pub type Place = (*mut u8, usize, usize);

/// Whether the near side has let go of the channel there.
fn is_let_go((base, _, channel): Place) -> bool {
    link::page(base, channel).sides[0].released.load(Ordering::Acquire) != release::NOT
}

/// All of them. Changed under the lock of those who drive; zeros have none.
pub struct Places {
    table: table::Table<LINES, { LINKS * CHANNELS }>,
    /// Where the links lie, their indices in the process's list, and which of these has that index, plus one.
    links: [AtomicPtr<u8>; LINKS],
    indices: [AtomicU32; LINKS],
    known: [AtomicU8; link::MOST],
    near: [AtomicPtr<Socket>; LINES],
}

impl Places {
    /// The channel of a near side, of a line or standing, among all.
    fn channel_of(&self, socket: &Socket) -> Option<usize> {
        let base = socket.link();
        let known = self.known.get(socket.connected.link_index.load(Ordering::Relaxed) as usize)?.load(Ordering::Relaxed);
        let which = usize::from(known).checked_sub(1)?;
        (!base.is_null() && self.links[which].load(Ordering::Relaxed) == base).then(|| which * CHANNELS + socket.channel())
    }

    /// Whether the stream has, or had, a line.
    pub fn has(&self, socket: &Socket) -> bool {
        self.channel_of(socket).is_some()
    }

    /// The line of a near side.
    pub fn line_of(&self, socket: &Socket) -> Option<usize> {
        self.table.line_of(self.channel_of(socket)?)
    }

    fn at(&self, channel: usize) -> Place {
        let which = channel / CHANNELS;
        let index = self.indices[which].load(Ordering::Relaxed) as usize;
        (self.links[which].load(Ordering::Acquire), index, channel % CHANNELS)
    }

    /// Where a line's channel is, whose link is there.
    pub fn place(&self, line: usize) -> Place {
        self.at(self.table.channel_of(line))
    }

    /// Tells tools which end of a connection with a plain peer the program is ([`shunt_segment::channel::taken`]).
    pub fn show(&self, line: usize, end: u32) {
        let (base, _, channel) = self.place(line);
        link::page(base, channel).head.taken.store(end, Ordering::Relaxed);
    }

    /// Makes the link of a line's channel, if there is none.
    ///
    /// # Errors
    /// EMFILE and the like; EINTR to a handler that interrupted the same.
    pub fn make_link(&self, line: usize) -> Result<(), Errno> {
        let _setup = SETUP.lock().ok_or(Errno(libc::EINTR))?;
        let which = self.table.channel_of(line) / CHANNELS;
        if self.links[which].load(Ordering::Acquire).is_null() {
            let index = link::make_lasting(shunt_segment::link::PLAIN_PEERS)?;
            self.indices[which].store(index as u32, Ordering::Relaxed);
            self.known[index].store(which as u8 + 1, Ordering::Relaxed);
            self.links[which].store(link::at(index).base, Ordering::Release);
        }
        Ok(())
    }

    /// The near side of a line, if it is this line's still.
    pub fn near(&self, line: usize) -> Option<&'static Socket> {
        // SAFETY: null, or a socket; these are never unmapped.
        let socket = unsafe { self.near[line].load(Ordering::Acquire).as_ref() }?;
        (self.line_of(socket) == Some(line)).then_some(socket)
    }

    /// A line gets its near side.
    pub fn set_near(&self, line: usize, socket: &'static Socket) {
        self.near[line].store(core::ptr::from_ref(socket).cast_mut(), Ordering::Release);
    }

    /// A channel for a line, whose link is to be made; false: there is none.
    pub fn take(&self, line: usize) -> bool {
        // Each that stands has three descriptors, of those that the program may have.
        let most = calls::soft_limit(libc::RLIMIT_NOFILE) / 16;
        self.table.take(line, most as usize, |channel| is_let_go(self.at(channel)), private::close).is_some()
    }

    /// Whether the near side has let go of a line's channel.
    pub fn is_over(&self, line: usize) -> bool {
        is_let_go(self.place(line))
    }

    /// A line and its channel are free.
    pub fn free(&self, line: usize) {
        self.near[line].store(core::ptr::null_mut(), Ordering::Release);
        self.table.free(line);
    }

    /// A line is free, and its channel stands with the far end of its companion, until its program closes the connection. Both of the stream's locks are
    /// the caller's, and nothing is in its rings, whose memory goes.
    pub fn stand(&self, line: usize, end: i32) {
        let (base, _, channel) = self.place(line);
        for class in 1..shunt_segment::area::FIRST_IN_WINDOW {
            // SAFETY: both rings of the class, which lie in the link side by side.
            let rings = unsafe { base.add(ring_offset(channel, 0, class)) };
            let _ = calls::madvise(rings, 2 * RING_SIZE[class] as usize, libc::MADV_REMOVE);
        }
        self.near[line].store(core::ptr::null_mut(), Ordering::Release);
        self.table.stand(line, end);
    }

    /// A private descriptor got another number.
    pub fn moved(&self, from: i32, to: i32) {
        self.table.renumber(|end| if end == from { to } else { end });
    }

    /// In a process whose streams have all been left to the kernel, in a child: it keeps no sight of the parent's. A link with one that could not be left is
    /// kept until its process becomes another user.
    pub fn part(&self) {
        self.table.renumber(|end| {
            private::close(end);
            -1
        });
        let Some(_setup) = SETUP.lock() else { return };
        let is_used = |line| self.near(line).is_some_and(|near| numbers_of(near).next().is_some());
        for which in (0..LINKS).filter(|which| !self.links[*which].load(Ordering::Relaxed).is_null()) {
            let index = self.indices[which].load(Ordering::Relaxed) as usize;
            match (0..LINES).any(|line| self.table.channel_of(line) / CHANNELS == which && is_used(line)) {
                true => link::no_longer_lasting(index),
                false => link::part_with(index),
            }
        }
    }
}
