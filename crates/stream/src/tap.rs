//! What a tool captures of this process's streams (`shunt capture`): noted behind the call that moved it, in memory that the tool has made.
//!
//! ```text
//! tool      makes room behind the process's state, says `tap`                 (segment: tap)
//!           peer.wait.armed |= TAP, of connections that there are             new ones: by the process itself ([`connected`])
//! sender    announces; armed has TAP? copies from its ring what it has sent   ([`sent`]; nothing is looked at for it that was not before)
//! receiver  of a connection whose sender does not (it has another tool, or is too young): copies what it received ([`received`])
//! ```
//!
//! Nobody waits for the reader. What finds no room, or a lock that another thread has, is counted as lost.

use crate::socket::{flag, Socket};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, word};
use shunt_segment::tap::{kind, Tap, OPENED_WORDS, RING, WORDS};
use shunt_sys::section::Section;
use shunt_sys::{clock, user};
use shunt_table::global;
use shunt_table::process::status_page;

/// Looks at the lock before what is to be noted counts as lost.
const PATIENCE: u32 = 200;

/// Ticks without a look of the tool after which it counts as gone: some seconds.
const GONE: u64 = 20_000_000_000;

/// A record that is being written.
struct Record<'a> {
    tap: &'a Tap,
    ticks: u64,
    at: u64,
    room: usize,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.tap.lock.store(0, Ordering::Release);
    }
}

impl<'a> Record<'a> {
    /// Takes the lock; `None`: another thread, or a handler's caller, has it.
    fn begin(tap: &'a Tap, ticks: u64) -> Option<Record<'a>> {
        let free = |_: &u32| tap.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (0..PATIENCE).find(|look| {
            if *look > 0 {
                core::hint::spin_loop();
            }
            free(look)
        })?;
        let at = tap.tail.load(Ordering::Relaxed);
        // The tool writes `head`.
        let used = at.wrapping_sub(tap.head.load(Ordering::Acquire));
        Some(Record { tap, ticks, at, room: RING.saturating_sub(used as usize) })
    }

    fn base(&self) -> *mut u8 {
        // SAFETY: the ring lies behind the page.
        unsafe { core::ptr::from_ref(self.tap).add(1).cast_mut().cast() }
    }

    fn word(&self, index: usize, value: u64) {
        let offset = (self.at as usize + index * 8) & (RING - 1) & !7;
        // SAFETY: inside the ring; the tool reads it once `tail` is behind it.
        unsafe { self.base().add(offset).cast::<u64>().write(value) };
    }

    /// The place of the record's bytes behind `done` of them: as far as the ring's end.
    fn place(&self, done: usize) -> (*mut u8, usize) {
        let offset = (self.at as usize + WORDS * 8 + done) & (RING - 1);
        // SAFETY: inside the ring.
        (unsafe { self.base().add(offset) }, RING - offset)
    }

    /// Bytes that fit a record now.
    fn fits(&self) -> usize {
        self.room.saturating_sub(WORDS * 8 + 8)
    }

    fn end(&mut self, kind: u64, connection: u32, position: u64, stands_for: usize, bytes: usize) {
        let now = self.ticks;
        self.word(0, bytes as u64 | kind << 32);
        self.word(1, connection.into());
        self.word(2, position);
        self.word(3, now);
        self.word(4, stands_for as u64);
        let length = WORDS * 8 + bytes.next_multiple_of(8);
        self.at = self.at.wrapping_add(length as u64);
        self.room = self.room.saturating_sub(length);
        self.tap.tail.store(self.at, Ordering::Release);
    }

    /// The connection's number, told of first; `None`: there is no room for that.
    fn connection(&mut self, socket: &Socket) -> Option<u32> {
        let known = socket.connected.tapped.load(Ordering::Relaxed);
        if known != 0 {
            return Some(known);
        }
        if self.fits() < OPENED_WORDS * 8 {
            return None;
        }
        let number = self.tap.connections.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.tap.connections.store(number, Ordering::Relaxed);
        let (client, server) = socket.addresses();
        let (head, link) = (&socket.page().head, shunt_link::header(socket.link()));
        let uses = u64::from(head.generation.load(Ordering::Relaxed));
        let words = [
            link.nonce.load(Ordering::Relaxed),
            u64::from(link.sequence.load(Ordering::Relaxed)) | (socket.channel() as u64) << 32,
            uses | (socket.side() as u64) << 32,
            client.words()[0],
            client.words()[1],
            server.words()[0],
            server.words()[1],
            u64::from(client.port) | u64::from(server.port) << 16,
        ];
        words.iter().enumerate().for_each(|(index, value)| self.word(WORDS + index, *value));
        self.end(kind::OPENED, number, 0, 0, OPENED_WORDS * 8);
        socket.connected.tapped.store(number, Ordering::Relaxed);
        Some(number)
    }
}

/// What an earlier capture was told is nothing to this one. A tool that was killed has left what it asked for: after a while nothing is noted.
fn tap_for(socket: &Socket, now: u64) -> Option<&'static Tap> {
    let (capture, tap) = (status_page::capture(), status_page::tap()?);
    let silent = now.wrapping_sub(tap.seen.load(Ordering::Relaxed));
    if (GONE..1 << 63).contains(&silent) {
        status_page::end_capture(capture);
        socket.peer().wait.armed.fetch_and(!arm::TAP, Ordering::Relaxed);
        return None;
    }
    if socket.connected.tapped_by.swap(capture, Ordering::Relaxed) != capture {
        socket.connected.tapped.store(0, Ordering::Relaxed);
        socket.connected.tapped_sent.store(0, Ordering::Relaxed);
    }
    Some(tap)
}

fn lost(tap: &Tap, bytes: u64) {
    tap.lost.fetch_add(bytes, Ordering::Relaxed);
}

/// `length` bytes were sent at `now`, and the peer's side is one that a tool captures.
#[cold]
#[inline(never)]
pub fn sent(socket: &Socket, length: usize, now: u64) {
    let Some(tap) = tap_for(socket, now) else { return };
    // Nothing is to be sent over what is copied here: not by a handler, other threads, nor other processes, which may have stopped with their lock.
    let section = Section::begin();
    let held = match (socket.has(flag::SHARED), global::single_threaded()) {
        (true, _) => match socket.try_lock_send() {
            None => return lost(tap, length as u64),
            held => held,
        },
        (false, true) => None,
        (false, false) => socket.lock_send().ok(),
    };
    let pipe = socket.outgoing();
    let announced = pipe.announced();
    let end = announced & word::POSITION;
    let told = &socket.connected.tapped_sent;
    // Of several processes with the side each tells of its own calls; the tool leaves out what it has been told twice.
    let from = match told.load(Ordering::Relaxed) {
        0 => end.wrapping_sub(length as u64) & word::POSITION,
        _ if socket.has(flag::SHARED) => end.wrapping_sub(length as u64) & word::POSITION,
        told => (told - 1) & word::POSITION,
    };
    told.store(end + 1, Ordering::Relaxed);
    let left = end.wrapping_sub(from) & word::POSITION;
    if left == 0 || left > 1 << 40 {
        return; // another thread was faster, or the peer writes nonsense
    }
    match Record::begin(tap, now) {
        Some(mut record) => note_sent(&mut record, socket, from, announced),
        None => lost(tap, left),
    }
    drop(held);
    drop(section);
    let noted = &socket.own().receive.noted_from;
    if noted.load(Ordering::Relaxed) == 0 {
        noted.store(from + 1, Ordering::Release);
    }
}

fn note_sent(record: &mut Record<'_>, socket: &Socket, mut from: u64, announced: u64) {
    let (pipe, tap) = (socket.outgoing(), record.tap);
    let end = announced & word::POSITION;
    let longest = tap.longest.load(Ordering::Relaxed) as usize;
    while from != end {
        let left = (end.wrapping_sub(from) & word::POSITION) as usize;
        let Some(connection) = record.connection(socket) else { break };
        let most = record.fits().min(longest);
        if most < left.min(longest) {
            break;
        }
        // In one piece as far as one ring, and the tap's own end, allow.
        let (target, room) = record.place(0);
        let wanted = left.min(most).min(room);
        // SAFETY: so much room is behind `target`, and the sending lock is held or there is one thread.
        let Some(part) = (unsafe { pipe.copy_sent(from, announced, target, wanted) }).filter(|part| *part > 0) else { break };
        // What is cut off is told of with the last piece that is not.
        let cut = part == most && most == longest;
        let stands_for = if cut { left } else { part };
        record.end(kind::SENT, connection, from, stands_for, part);
        from = from.wrapping_add(stands_for as u64) & word::POSITION;
    }
    let left = end.wrapping_sub(from) & word::POSITION;
    if left > 0 {
        lost(tap, left);
    }
}

/// `length` bytes were received into `data`, up to where the socket's position is now; the caller holds the receiving lock.
///
/// # Safety
/// `data` may be any address that is not ours.
#[cold]
#[inline(never)]
pub unsafe fn received(socket: &Socket, behind: usize, data: *const u8, length: usize) {
    let now = clock::ticks();
    let Some(tap) = tap_for(socket, now) else { return socket.clear(flag::TAPPED) };
    let position = socket.own().receive.position.load(Ordering::Relaxed).wrapping_sub((behind + length) as u64) & word::POSITION;
    let noted = socket.peer().receive.noted_from.load(Ordering::Acquire);
    if noted != 0 && position.wrapping_sub(noted - 1) & word::POSITION < 1 << 47 {
        socket.clear(flag::TAPPED); // the sender has told of these bytes, and tells from here on
        return;
    }
    let noted = Record::begin(tap, now).is_some_and(|mut record| {
        let Some(connection) = record.connection(socket) else { return false };
        let part = length.min(tap.longest.load(Ordering::Relaxed) as usize);
        if record.fits() < part {
            return false;
        }
        let (target, room) = record.place(0);
        let first = part.min(room);
        // SAFETY: room for both pieces; a fault of the source is an answer.
        let copied = unsafe {
            user::copy(data, target, first) && user::copy(data.wrapping_add(first), record.place(first).0, part - first)
        };
        if copied {
            record.end(kind::RECEIVED, connection, position, length, part);
        }
        copied
    });
    if !noted {
        lost(tap, length as u64);
    }
}

/// The socket became an end of a connection: a tool that captures this process is to have all of it.
#[inline]
pub fn connected(socket: &Socket) {
    if status_page::capture() != 0 {
        begin(socket);
    }
}

#[cold]
fn begin(socket: &Socket) {
    socket.peer().wait.armed.fetch_or(arm::TAP, Ordering::SeqCst);
    socket.set(flag::TAPPED);
}

/// The side has announced its end.
#[inline]
pub fn ended(socket: &Socket) {
    if socket.peer().wait.armed.load(Ordering::Relaxed) & arm::TAP != 0 {
        note_end(socket);
    }
}

#[cold]
fn note_end(socket: &Socket) {
    let now = clock::ticks();
    let Some(tap) = tap_for(socket, now) else { return };
    let _section = Section::begin();
    let Some(mut record) = Record::begin(tap, now) else { return };
    let position = socket.outgoing().announced() & word::POSITION;
    let known = socket.connected.tapped.load(Ordering::Relaxed);
    if known != 0 && record.room >= WORDS * 8 {
        record.end(kind::ENDED, known, position, 0, 0);
    }
}
