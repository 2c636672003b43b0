//! What a process leaves with the agent of a connection that was taken from the kernel: everything that is needed to give it back,
//! whatever becomes of the process.
//!
//! ```text
//! page    sizes │ word: publications, given │ way │ two statements
//! rings   bytes to be sent │ bytes that were received            the byte with sequence number s lies at s modulo the ring's size
//! ```
//!
//! The process that drives the connection *publishes* a [`Statement`] behind each step, before a frame with its numbers leaves: into
//! the copy that does not count, and then makes that one count by one exchange of the word. The agent, or the process that stands in
//! for it, *closes* the escrow by a bit in the same word. So each step either counts or has not happened, and a driver whose
//! exchange fails knows that the connection is the kernel's. No lock is needed, and none can be left behind.
//!
//! Everything here is the driver's to write: its giver-back reads it once and believes what can be ([`Statement::is_sound`]).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shunt_inet::{Clock, Seq, State};
use shunt_sys::{calls, libc, mapping, memory_file, Errno};

use crate::cause::Cause;
use crate::route::Mac;
use crate::state::{mac_of_word, mac_to_word};

const PAGE: usize = 4096;
/// Bit of the word: the connection is given back, nothing counts any more.
const CLOSED: u64 = 1 << 63;
/// Bit of the word, beside that: the socket is of use again.
const RESTORED: u64 = 1 << 62;
/// Bit of the word, beside the first: the socket is being changed, so that what it holds is no longer what it was.
const BEGUN: u64 = 1 << 61;
/// The word behind the first statement: nothing else makes it other than 0.
const FIRST: u64 = 2;
/// Words of a statement.
const WORDS: usize = 10;
/// Fewest and most bytes of a ring.
const RINGS: core::ops::RangeInclusive<u32> = 1 << 12..=1 << 20;

/// What stands of a connection: what the kernel is to be told, and how far the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The engine's state.
    pub state: State,
    /// The place behind the last byte that the program has written.
    pub written: Seq,
    /// The first byte that the program has not read.
    pub unread: Seq,
}

impl Statement {
    /// Bytes in the ring to be sent; of those the ones that were sent; bytes that were received and not read.
    pub fn bytes(&self) -> (u32, u32, u32) {
        let State { unacknowledged, sent, expected, .. } = self.state;
        (self.written.since(unacknowledged), sent.since(unacknowledged), expected.since(self.unread))
    }

    /// Whether the numbers can be a connection's over rings of these sizes.
    pub fn is_sound(&self, (send, receive): (u32, u32)) -> bool {
        let (held, sent, unread) = self.bytes();
        let State { promised_from, expected, window, largest_window, scale, own_scale, segment, .. } = self.state;
        sent <= held
            && held <= send
            && unread <= receive
            && !promised_from.after(expected)
            && expected.since(promised_from) <= receive
            && window <= largest_window
            && scale <= 14
            && own_scale <= 14
            && segment > 0
    }

    fn words(&self) -> [u64; WORDS] {
        let State { unacknowledged, sent, expected, segment, window_told, window, largest_window, .. } = self.state;
        let State { promised, promised_from, scale, own_scale, selective, timestamps, round_trip, .. } = self.state;
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (clock, recent) = timestamps.unzip();
        let recent = recent.flatten();
        let flags = u32::from(scale)
            | u32::from(own_scale) << 8
            | u32::from(selective) << 16
            | u32::from(clock.is_some()) << 17
            | u32::from(recent.is_some()) << 18;
        let clock = clock.unwrap_or(Clock { value: 0, at: 0 });
        [
            two(unacknowledged.0, sent.0),
            two(expected.0, segment),
            two(window_told.0, window),
            two(largest_window, promised),
            two(promised_from.0, flags),
            two(clock.value, recent.unwrap_or(0)),
            clock.at,
            round_trip.0,
            round_trip.1,
            two(self.written.0, self.unread.0),
        ]
    }

    fn of(words: &[u64; WORDS]) -> Statement {
        let (low, high) = (|at: usize| words[at] as u32, |at: usize| (words[at] >> 32) as u32);
        let flags = high(4);
        let recent = (flags & 1 << 18 != 0).then_some(high(5));
        let clock = Clock { value: low(5), at: words[6] };
        Statement {
            state: State {
                unacknowledged: Seq(low(0)),
                sent: Seq(high(0)),
                expected: Seq(low(1)),
                segment: high(1),
                window_told: Seq(low(2)),
                window: high(2),
                largest_window: low(3),
                promised: high(3),
                promised_from: Seq(low(4)),
                scale: flags as u8,
                own_scale: (flags >> 8) as u8,
                selective: flags & 1 << 16 != 0,
                timestamps: (flags & 1 << 17 != 0).then_some((clock, recent)),
                round_trip: (words[7], words[8]),
            },
            written: Seq(low(9)),
            unread: Seq(high(9)),
        }
    }
}

/// The first page.
#[repr(C, align(4096))]
struct Head {
    send: AtomicU32,
    receive: AtomicU32,
    /// How frames leave, which the agent writes: both Ethernet addresses, and service, hops and whether small packets wait.
    from: AtomicU64,
    to: AtomicU64,
    manner: AtomicU64,
    /// Why its agent gives it back, before it is closed for that.
    cause: AtomicU32,
    word: Line<AtomicU64>,
    statements: [Line<[AtomicU64; WORDS]>; 2],
}

#[repr(align(64))]
struct Line<T>(T);

const _: () = assert!(size_of::<Head>() == PAGE);

/// How frames of a connection leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The interface's Ethernet address, and the next hop's.
    pub from: Mac,
    /// See above.
    pub to: Mac,
    /// Type of service or traffic class.
    pub service: u8,
    /// Hops.
    pub hops: u8,
    /// A packet that is not full waits while others are not acknowledged: the socket is without TCP_NODELAY.
    pub nagle: bool,
    /// Packets that are lost or overtake each other are the engine's affair, not the kernel's.
    pub recovers: bool,
    /// Bytes that the peer may send ahead at most (TCP_WINDOW_CLAMP).
    pub window: u32,
}

/// One of them, mapped in this process.
pub struct Escrow {
    fd: i32,
    base: *mut u8,
    size: usize,
    send: u32,
    receive: u32,
}

// SAFETY: plain memory that several processes share anyway; words are atomics, and bytes of rings are copied.
unsafe impl Send for Escrow {}

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Bytes that the program wrote and the peer has not acknowledged.
    Send,
    /// Bytes that arrived and the program has not read.
    Receive,
}

impl Escrow {
    /// Makes one, with rings of these sizes (powers of two, 4 KiB to 1 MiB each), in a file that cannot shrink.
    ///
    /// # Errors
    /// EINVAL: sizes. What the system answers.
    pub fn create(send: u32, receive: u32) -> Result<Escrow, Errno> {
        let size = Escrow::size(send, receive).ok_or(Errno(libc::EINVAL))?;
        let fd = calls::memfd_create(b"shunt-escrow\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        let made = calls::give_size(fd, size).and_then(|()| {
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize)?;
            Escrow::map(fd, size, send, receive)
        });
        let escrow = made.inspect_err(|_| close(fd))?;
        escrow.head().send.store(send, Ordering::Relaxed);
        escrow.head().receive.store(receive, Ordering::Relaxed);
        Ok(escrow)
    }

    /// Maps one that another process made. The descriptor is owned from now on, also on failure.
    ///
    /// # Errors
    /// EINVAL: it is none, its file could shrink, or is of huge pages, whose owner could take them away. What the system answers.
    pub fn adopt(fd: i32) -> Result<Escrow, Errno> {
        Escrow::look(fd).inspect_err(|_| close(fd))
    }

    fn look(fd: i32) -> Result<Escrow, Errno> {
        let (size, _) = memory_file::sealed(fd, libc::F_SEAL_SHRINK).map_err(|_| Errno(libc::EINVAL))?;
        if !(PAGE..=PAGE + 2 * *RINGS.end() as usize).contains(&size) {
            return Err(Errno(libc::EINVAL));
        }
        let base = mapping::shared(fd, size)?;
        // SAFETY: the first page of the file, which cannot shrink; atomics accept any bytes.
        let head: &Head = unsafe { &*base.cast() };
        let (send, receive) = (head.send.load(Ordering::Relaxed), head.receive.load(Ordering::Relaxed));
        if Escrow::size(send, receive) != Some(size) {
            let _ = calls::munmap(base, size);
            return Err(Errno(libc::EINVAL));
        }
        Ok(Escrow { fd, base, size, send, receive })
    }

    fn size(send: u32, receive: u32) -> Option<usize> {
        let good = |size: u32| size.is_power_of_two() && RINGS.contains(&size);
        (good(send) && good(receive)).then_some(PAGE + send as usize + receive as usize)
    }

    fn map(fd: i32, size: usize, send: u32, receive: u32) -> Result<Escrow, Errno> {
        Ok(Escrow { fd, base: mapping::shared(fd, size)?, size, send, receive })
    }

    fn head(&self) -> &Head {
        // SAFETY: the first page of the mapping, which lives as long as `self`; atomics accept any bytes.
        unsafe { &*self.base.cast() }
    }

    /// The file.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Closes the file, whose memory stays mapped.
    pub fn close_file(&mut self) {
        close(core::mem::replace(&mut self.fd, -1));
    }

    /// Bytes of the rings: to be sent, received. As they were when this process mapped them.
    pub fn sizes(&self) -> (u32, u32) {
        (self.send, self.receive)
    }

    /// How frames leave.
    pub fn manner(&self) -> Manner {
        let head = self.head();
        let manner = head.manner.load(Ordering::Relaxed);
        Manner {
            from: mac_of_word(head.from.load(Ordering::Relaxed)),
            to: mac_of_word(head.to.load(Ordering::Relaxed)),
            service: manner as u8,
            hops: (manner >> 8) as u8,
            nagle: manner & 1 << 16 != 0,
            recovers: manner & 1 << 17 != 0,
            window: (manner >> 32) as u32,
        }
    }

    /// Says how frames leave from now on.
    pub fn set_manner(&self, manner: &Manner) {
        let head = self.head();
        head.from.store(mac_to_word(manner.from, 0), Ordering::Relaxed);
        head.to.store(mac_to_word(manner.to, 0), Ordering::Relaxed);
        let bits = u64::from(manner.service) | u64::from(manner.hops) << 8 | u64::from(manner.nagle) << 16;
        let word = bits | u64::from(manner.recovers) << 17 | u64::from(manner.window) << 32;
        head.manner.store(word, Ordering::Relaxed);
    }

    /// Says why it is about to be given back behind its driver's back.
    pub fn say(&self, cause: Cause) {
        self.head().cause.store(cause as u32, Ordering::Relaxed);
    }

    /// Why another has closed it, if one has.
    pub fn closed_for(&self) -> Option<Cause> {
        let is_closed = self.head().word.0.load(Ordering::Acquire) & CLOSED != 0;
        is_closed.then(|| Cause::of(self.head().cause.load(Ordering::Relaxed)))
    }

    /// The first statement: the connection is its driver's from now on, unless that has closed the escrow as it waits no longer.
    pub fn open(&self, statement: &Statement) {
        self.write(FIRST, statement);
        self.head().word.0.fetch_or(FIRST, Ordering::Release);
    }

    /// Whether there was a first statement.
    pub fn is_open(&self) -> bool {
        self.head().word.0.load(Ordering::Acquire) & !(CLOSED | RESTORED | BEGUN) != 0
    }

    /// The statement that counts, for its driver.
    pub fn statement(&self) -> Statement {
        self.read(self.head().word.0.load(Ordering::Acquire))
    }

    fn read(&self, turn: u64) -> Statement {
        let copy = &self.head().statements[(turn & 1) as usize].0;
        Statement::of(&core::array::from_fn(|index| copy[index].load(Ordering::Relaxed)))
    }

    fn write(&self, turn: u64, statement: &Statement) {
        let copy = &self.head().statements[(turn & 1) as usize].0;
        for (place, word) in copy.iter().zip(statement.words()) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Makes `statement` the one that counts. False: the connection has been given back, and what has happened since the last
    /// statement has not. One process publishes at a time.
    #[inline]
    #[must_use]
    pub fn publish(&self, statement: &Statement) -> bool {
        let word = &self.head().word.0;
        let turn = word.load(Ordering::Relaxed);
        if turn & CLOSED != 0 {
            return false;
        }
        self.write(turn + 1, statement);
        // Release pairs with the acquire in `close`: the words of the copy, and bytes of the rings, are there before it counts.
        word.compare_exchange(turn, (turn + 1) & !CLOSED, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// How often its driver has published: another number tells that it has since the last look.
    pub fn publications(&self) -> u64 {
        self.head().word.0.load(Ordering::Relaxed) & !(CLOSED | RESTORED | BEGUN)
    }

    /// Whether nothing counts any more.
    pub fn is_closed(&self) -> bool {
        self.head().word.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Its socket is being changed, by a process that may not come to the end of that.
    pub fn mark_begun(&self) {
        self.head().word.0.fetch_or(CLOSED | BEGUN, Ordering::Release);
    }

    /// Whether [`Escrow::mark_begun`] was called.
    pub fn is_begun(&self) -> bool {
        self.head().word.0.load(Ordering::Acquire) & BEGUN != 0
    }

    /// The connection is in its socket again, or is closed there.
    pub fn mark_restored(&self) {
        self.head().word.0.fetch_or(CLOSED | RESTORED, Ordering::Release);
    }

    /// Whether [`Escrow::mark_restored`] was called.
    pub fn is_restored(&self) -> bool {
        self.head().word.0.load(Ordering::Acquire) & RESTORED != 0
    }

    /// From now on nothing counts but what is returned, also where another process closes; the socket is of no use before [`Escrow::is_restored`]. Asked again it answers the same, unless its driver
    /// breaks the rules.
    pub fn close(&self) -> Statement {
        self.read(self.head().word.0.fetch_or(CLOSED, Ordering::AcqRel))
    }

    fn ring(&self, ring: Ring) -> (*mut u8, u32) {
        let (at, size) = match ring {
            Ring::Send => (PAGE, self.send),
            Ring::Receive => (PAGE + self.send as usize, self.receive),
        };
        // SAFETY: inside the mapping, by its size.
        (unsafe { self.base.add(at) }, size)
    }

    /// Puts the bytes into a ring where they belong; no more than the ring has.
    pub fn put(&self, ring: Ring, at: Seq, bytes: &[u8]) {
        let (base, size) = self.ring(ring);
        let bytes = &bytes[..bytes.len().min(size as usize)];
        let begin = (at.0 & (size - 1)) as usize;
        let (first, rest) = bytes.split_at(bytes.len().min(size as usize - begin));
        // SAFETY: both parts lie inside the ring. Others may write there at the same time only against the rules, and bytes are bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(first.as_ptr(), base.add(begin), first.len());
            core::ptr::copy_nonoverlapping(rest.as_ptr(), base, rest.len());
        }
    }

    /// Takes a copy of the bytes of a ring from a place on; no more than the ring has.
    pub fn get(&self, ring: Ring, at: Seq, bytes: &mut [u8]) {
        let (base, size) = self.ring(ring);
        let length = bytes.len().min(size as usize);
        let begin = (at.0 & (size - 1)) as usize;
        let (first, rest) = bytes[..length].split_at_mut(length.min(size as usize - begin));
        // SAFETY: as in `put`.
        unsafe {
            core::ptr::copy_nonoverlapping(base.add(begin), first.as_mut_ptr(), first.len());
            core::ptr::copy_nonoverlapping(base, rest.as_mut_ptr(), rest.len());
        }
    }
}

fn close(fd: i32) {
    let _ = calls::close(fd);
}

impl Drop for Escrow {
    fn drop(&mut self) {
        let _ = calls::munmap(self.base, self.size);
        if self.fd >= 0 {
            close(self.fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(number: u32) -> Statement {
        let state = State {
            unacknowledged: Seq(number),
            sent: Seq(number.wrapping_add(1)),
            expected: Seq(number.wrapping_add(2)),
            segment: 1448,
            window_told: Seq(number.wrapping_add(3)),
            window: number / 4,
            largest_window: number / 2,
            promised: number / 3,
            promised_from: Seq(number.wrapping_add(2)),
            scale: 7,
            own_scale: 10,
            selective: number & 1 != 0,
            timestamps: (number & 2 != 0)
                .then_some((Clock { value: number, at: u64::from(number) << 20 }, (number & 4 != 0).then_some(number))),
            round_trip: (u64::from(number), 5),
        };
        Statement { state, written: Seq(number.wrapping_add(9)), unread: Seq(number) }
    }

    #[test]
    fn what_is_published_is_what_is_closed_with() {
        for number in [0, 1, 2, 3, 6, 7, 0xffff_fffc, 0xffff_ffff] {
            let escrow = Escrow::create(1 << 12, 1 << 13).expect("memory");
            let other = Escrow::adopt(calls::fcntl(escrow.fd(), libc::F_DUPFD_CLOEXEC, 0).expect("a number")).expect("the same");
            escrow.open(&statement(number));
            assert!(escrow.publish(&statement(number ^ 8)) && statement(number).is_sound(escrow.sizes()));
            assert_eq!(escrow.closed_for(), None);
            other.say(if number == 0 { Cause::Untold } else { Cause::Silent });
            assert_eq!((other.close(), other.sizes()), (statement(number ^ 8), (1 << 12, 1 << 13)));
            assert!(!escrow.publish(&statement(1)) && escrow.is_closed());
            assert_eq!(escrow.closed_for(), Some(if number == 0 { Cause::Untold } else { Cause::Silent }));
            assert_eq!(escrow.close(), statement(number ^ 8));
        }
    }

    #[test]
    fn bytes_go_round_the_ring() {
        let escrow = Escrow::create(1 << 12, 1 << 12).expect("memory");
        let bytes: Vec<u8> = (0..4096).map(|byte| (byte * 13) as u8).collect();
        let mut read = vec![0; 4096];
        escrow.put(Ring::Receive, Seq(u32::MAX - 100), &bytes);
        escrow.get(Ring::Receive, Seq(u32::MAX - 100), &mut read);
        assert_eq!(read, bytes);
        escrow.get(Ring::Send, Seq(0), &mut read);
        assert_eq!(read, vec![0; 4096]);
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        assert!(Escrow::create(5000, 1 << 12).is_err() && Escrow::create(1 << 12, 1 << 21).is_err());
        let fd = calls::memfd_create(b"other\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).expect("a file");
        calls::give_size(fd, 3 * PAGE).expect("a size");
        assert!(Escrow::adopt(fd).is_err(), "it could shrink");
        let escrow = Escrow::create(1 << 12, 1 << 12).expect("memory");
        escrow.head().send.store(1 << 13, Ordering::Relaxed);
        let fd = calls::fcntl(escrow.fd(), libc::F_DUPFD_CLOEXEC, 0).expect("a number");
        assert!(Escrow::adopt(fd).is_err(), "it lies about its size");
    }

    /// The driver's last step and its taker's look meet in the word: what counted was published, and nothing else.
    #[test]
    fn each_step_counts_or_has_not_happened() {
        for _ in 0..200 {
            let escrow = Escrow::create(1 << 12, 1 << 12).expect("memory");
            let other = Escrow::adopt(calls::fcntl(escrow.fd(), libc::F_DUPFD_CLOEXEC, 0).expect("a number")).expect("the same");
            escrow.open(&statement(0));
            let driver =
                std::thread::spawn(move || (1..).take_while(|number| escrow.publish(&statement(*number))).last().unwrap_or(0));
            std::thread::yield_now();
            let closed = other.close();
            assert_eq!(closed, statement(driver.join().expect("the driver")));
        }
    }
}
