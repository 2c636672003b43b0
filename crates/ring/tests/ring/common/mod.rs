//! One connection in memory of its own, where everything that does not belong to the connection faults.
#![allow(dead_code)]

use shunt_ring::{Pipe, Window};
use shunt_segment::area::{ring_offset, window_offset, CHANNEL_PAGES, LINK_SIZE, PAGE, RING_SIZE};
use shunt_segment::channel::{word, ChannelPage};
use shunt_segment::sync::Ordering::Relaxed;
use shunt_sys::{calls, libc};

/// The channel that tests use: one with neighbours on both sides.
pub const CHANNEL: usize = 5;

/// A link of which only [`CHANNEL`] can be touched: its page and its rings are surrounded by inaccessible memory.
pub struct Connection {
    link: *mut u8,
    windows: [Window; 2],
}

// SAFETY: the memory is shared by design; it is reached through atomics and through pipes, whose callers obey their
// contract (one sender and one receiver a direction).
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    /// A fresh connection whose largest ring classes are `class_limits` (client's, server's).
    pub fn new(class_limits: [usize; 2]) -> Connection {
        let map = |at: *mut u8, size, protection, fixed| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
            // SAFETY: a fresh range, or one inside it.
            unsafe { calls::mmap(at, size, protection, flags, -1, 0) }.expect("address space for a link")
        };
        let link = map(core::ptr::null_mut(), LINK_SIZE, libc::PROT_NONE, 0);
        let open = |offset: usize, size: usize| {
            // SAFETY: offset + size <= LINK_SIZE.
            map(unsafe { link.add(offset) }, size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED);
        };
        open(CHANNEL_PAGES + CHANNEL * PAGE, PAGE);
        for (class, &size) in RING_SIZE.iter().enumerate().skip(1) {
            for side in 0..2 {
                open(ring_offset(CHANNEL, side, class), size as usize);
            }
        }
        let connection = Connection { link, windows: [Window::new(), Window::new()] };
        connection.map_windows();
        for (side, limit) in connection.page().sides.iter().zip(class_limits) {
            side.transmit.class_limit.store(limit as u32, Relaxed);
        }
        connection
    }

    /// The ends are on two processors: large messages are copied past the caches.
    pub fn set_apart(&self) {
        for (number, side) in self.page().sides.iter().enumerate() {
            side.wait.processor.store(1 + number as u32, Relaxed);
        }
    }

    /// Both directions can use their largest rings.
    pub fn map_windows(&self) {
        for (side, window) in self.windows.iter().enumerate() {
            // SAFETY: the window lies in the link.
            window.set(unsafe { self.link.add(window_offset(CHANNEL, side)) });
        }
    }

    /// The window of the direction that `sender` sends in.
    pub fn window(&self, sender: usize) -> &Window {
        &self.windows[sender]
    }

    /// `length` bytes of the link's file at `offset`.
    pub fn file(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset + length <= LINK_SIZE);
        // SAFETY: inside the link; only rings of the channel are readable.
        unsafe { core::slice::from_raw_parts(self.link.add(offset), length) }
    }

    /// A byte of the link's file, which lies in a ring of the channel, is lost.
    pub fn clear(&self, offset: usize) {
        assert!(offset < LINK_SIZE);
        // SAFETY: inside the link; rings of the channel are writable, and their bytes are anybody's.
        unsafe { self.link.add(offset).write_volatile(0) }
    }

    /// The shared page.
    pub fn page(&self) -> &ChannelPage {
        // SAFETY: mapped, zeroed, page-aligned, only atomics in it.
        unsafe { &*self.link.add(CHANNEL_PAGES + CHANNEL * PAGE).cast::<ChannelPage>() }
    }

    /// Makes both directions begin at `position` (counted without wrap), as if as many bytes had passed.
    pub fn start_at(&self, position: u64) {
        for side in &self.page().sides {
            side.post.word.store(position & word::POSITION, Relaxed);
            side.post.ack.store(position, Relaxed);
            side.transmit.acked.store(position, Relaxed);
            side.transmit.word.store(position & word::POSITION, Relaxed);
            side.receive.class.store(0, Relaxed);
            side.receive.position.store(position, Relaxed);
        }
    }

    /// The direction that `end` (0: client, 1: server) sends in.
    pub fn outgoing(&self, end: usize) -> Pipe<'_> {
        self.pipe(end, end)
    }

    /// The direction that `end` receives in.
    pub fn incoming(&self, end: usize) -> Pipe<'_> {
        self.pipe(end, 1 - end)
    }

    fn pipe(&self, end: usize, sender: usize) -> Pipe<'_> {
        let sides = &self.page().sides;
        Pipe { own: &sides[end], peer: &sides[1 - end], link: self.link, channel: CHANNEL, sender, window: &self.windows[sender] }
    }

    /// Every word of the page, as the peer can write it.
    pub fn words(&self) -> &[core::sync::atomic::AtomicU64] {
        // SAFETY: the page is mapped and aligned; plain ring bytes in it are only ever garbled by this.
        unsafe { core::slice::from_raw_parts((self.page() as *const ChannelPage).cast(), PAGE / 8) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        calls::munmap(self.link, LINK_SIZE).expect("the link was mapped");
    }
}

/// The byte at `offset` of a stream that `seed` names: any misplaced, lost or doubled byte shows soon.
pub fn byte_at(seed: u64, offset: u64) -> u8 {
    let mixed = (offset / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
    (mixed ^ mixed >> 29).to_le_bytes()[(offset % 8) as usize]
}

/// xorshift64*: repeatable choices.
pub struct Random(pub u64);

impl Random {
    /// The next word.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// A length from 1 to `limit` that is as likely to be small as to be large.
    pub fn length(&mut self, limit: usize) -> usize {
        let bits = usize::BITS - limit.leading_zeros();
        let top = 1u64 << self.below(bits as u64 + 1);
        (1 + self.below(top) as usize).min(limit)
    }
}
