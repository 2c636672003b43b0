//! The peer's inbox, as a sender has it, and whether it may be used now.

use crate::datagram::{inbox_table, Datagram};
use core::sync::atomic::Ordering;
use shunt_ring::inbox::Inbox;
use shunt_sys::libc::{self, c_int};
use shunt_sys::{calls, clock};
use shunt_table::diag;
use shunt_table::global::SETUP;

/// Ticks between two looks whether the peer still lives (about 20 us).
const LIVES_EVERY: u64 = 50_000;

/// Sends through the kernel before the peer's inbox is asked for; then at each doubling.
const FIRST_ASKED: u32 = 16;

/// Ticks for which a sender waits for an awake peer to empty the kernel's queue (about 8 us).
const PATIENCE: u64 = 20_000;

/// Longest piece of a stream: the kernel's own sk_buff (SKB_MAX_ALLOC and UNIX_SKB_FRAGS_SZ in `unix_stream_sendmsg`).
const LONGEST_PIECE: usize = 48_832;

/// The way to the peer. Under the lock for sending.
pub struct PeerInbox {
    found: Option<inbox_table::Address>,
    /// Sends that went through the kernel while there was none.
    sent: u32,
    /// The inbox was asked for, and may come.
    waiting: bool,
    /// The peer is gone, or uses its inbox no longer.
    ended: bool,
    seen_alive: u64,
    /// What may wait in the ring, as the kernel would charge it; 0: not known yet.
    limit: u64,
    piece: usize,
    /// Sends that do not wait for the kernel's queue, after one that did in vain; and how many at the next time.
    refused: u32,
    penalty: u32,
}

impl PeerInbox {
    /// None yet.
    pub const fn new() -> PeerInbox {
        PeerInbox {
            found: None,
            sent: 0,
            waiting: false,
            ended: false,
            seen_alive: 0,
            limit: 0,
            piece: 0,
            refused: 0,
            penalty: 0,
        }
    }

    /// The inbox, whether or not it may be used now.
    pub fn inbox(&self) -> Option<Inbox> {
        self.found.map(|found| found.inbox)
    }

    /// Whether it is known.
    pub fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// SO_SNDBUF is another one.
    pub fn forget_limit(&mut self) {
        self.limit = 0;
    }

    /// Says whether this process tells of all that it sends through the kernel. Something was sent perhaps.
    pub fn tell(&mut self, all: bool) {
        if let Some(inbox) = self.inbox() {
            inbox.note_news();
            inbox.attach(all);
        }
    }

    /// The socket goes. The set-up lock is held.
    pub fn give_back(&mut self) {
        if let Some(found) = self.found.take() {
            found.inbox.note_news(); // the peer finds its end in the kernel's queue
            inbox_table::give_back(found.index);
        }
    }

    /// What may wait, and the longest piece.
    ///
    /// A quarter of SO_SNDBUF leaves the socket writable in the kernel's eyes (`unix_writable`), so a full ring is never
    /// what poll(2) waits for.
    pub fn limits(&mut self, fd: i32) -> (u64, usize) {
        if self.limit == 0 {
            let buffer = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(4608).max(2304) as u64;
            self.limit = buffer / 4;
            // Two pieces of a large write overlap; a small buffer is not worth that.
            let half = if self.limit < 16384 { LONGEST_PIECE } else { self.limit as usize / 2 - 768 };
            self.piece = LONGEST_PIECE.min(buffer as usize / 2 - 64).min(half);
        }
        (self.limit, self.piece)
    }

    /// The inbox, if the peer is awake and the kernel's queue holds nothing of ours.
    #[inline]
    pub fn ready(&mut self, fd: i32, socket: &'static Datagram) -> Option<Inbox> {
        let Some(found) = self.found else { return self.look_for(fd, socket) };
        let inbox = found.inbox;
        if !inbox.is_open() || self.ended {
            return None;
        }
        let now = clock::ticks();
        if now.wrapping_sub(self.seen_alive) > LIVES_EVERY {
            self.seen_alive = now;
            if calls::poll_one(fd, 0, 0).is_ok_and(|events| events & (libc::POLLHUP | libc::POLLERR) != 0) {
                self.ended = true;
                return None;
            }
        }
        self.clean_soon(fd, socket).then_some(inbox)
    }

    /// Whether the peer, which is awake, has read what the kernel holds, or does so in a moment. A stream that filled the
    /// kernel's queue would otherwise never leave it.
    fn clean_soon(&mut self, fd: i32, socket: &Datagram) -> bool {
        if is_clean(fd, socket) {
            self.penalty = 0;
            return true;
        }
        if self.refused > 0 {
            self.refused -= 1;
            return false;
        }
        let begun = clock::ticks();
        while clock::ticks().wrapping_sub(begun) < PATIENCE {
            if is_clean(fd, socket) {
                self.penalty = 0;
                return true;
            }
        }
        self.penalty = (self.penalty * 2).clamp(1, 256);
        self.refused = self.penalty;
        false
    }

    /// Counts a send through the kernel, and looks for the inbox now and then.
    #[cold]
    fn look_for(&mut self, fd: i32, socket: &'static Datagram) -> Option<Inbox> {
        self.sent = self.sent.saturating_add(1);
        let due = self.sent >= FIRST_ASKED && (self.sent.is_power_of_two() || self.sent.is_multiple_of(8) && self.waiting);
        if self.ended || !due && !socket.is_eager() {
            return None;
        }
        let _setup = SETUP.lock()?;
        let inode = diag::unix_peer(fd).ok()?;
        let (found, waiting) = inbox_table::find(diag::Owner { inode, uid: calls::geteuid() }, 0);
        self.waiting = waiting;
        self.found = Some(found?);
        // What went before went through the kernel, and the peer was not told.
        socket.local.use_kernel();
        self.tell(true);
        let inbox = self.inbox()?;
        (inbox.is_open() && is_clean(fd, socket)).then_some(inbox)
    }
}

impl Default for PeerInbox {
    fn default() -> Self {
        PeerInbox::new()
    }
}

/// Whether the peer has read all that went through the kernel. AF_UNIX counts what is unread against its sender, so one
/// question tells.
#[inline]
fn is_clean(fd: i32, socket: &Datagram) -> bool {
    let local = &socket.local;
    // In this order: a use that begins in between changes the count again when it ends.
    let uses = local.uses.load(Ordering::SeqCst);
    if uses == local.clean.load(Ordering::Relaxed) {
        return true;
    }
    if unread(fd) != Some(0) {
        return false;
    }
    local.clean.store(uses, Ordering::Relaxed);
    true
}

/// What the peer has not read of what went through the kernel, as the kernel charges it (SIOCOUTQ).
pub fn unread(fd: i32) -> Option<u64> {
    let mut bytes: c_int = 0;
    calls::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes as usize).ok().map(|_| bytes.max(0) as u64)
}
