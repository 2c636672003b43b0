//! What processes note for this command: memory behind their state, read and written as a file, so that a process that makes it smaller harms itself
//! alone.
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use shunt_segment::address::Address;
use shunt_segment::process::{ProcessHeader, MAGIC, NAME};
use shunt_segment::tap::{self, kind, OFFSET, OPENED_WORDS, RING, WORDS};
use shunt_segment::VERSION;
use shunt_sys::clock::ticks;

use crate::inspect::processes::{self, Descriptor, Target};
use crate::inspect::words::Words;

/// Ticks after which a capture that has not looked counts as gone: a second or more.
const GONE: u64 = 5_000_000_000;

/// Bytes of notes that there is memory for before a process has noted anything.
const FIRST: usize = 256 << 10;

/// A process that is captured.
pub struct Tap {
    /// Names it among all.
    pub id: u64,
    pub pid: u32,
    pub program: String,
    file: File,
    head: u64,
    /// By which the process knows this capture.
    number: u32,
    /// There is memory for the whole ring: it is asked for when the process notes the first time, and nothing of it is the process's to find.
    whole: bool,
    /// What was lost before.
    lost_before: u64,
    /// What was lost since by this command's own doing.
    skipped: u64,
    /// It was not found at the last look.
    pub gone: bool,
    stopped: bool,
    /// The process noted nothing for a while, as this command did not read.
    pub interrupted: bool,
}

/// Whether a process is captured.
pub enum Attached {
    Yes,
    ByAnother,
    /// It is not under shunt, or may not be traced by this user.
    No,
}

/// A record of a process.
pub struct Note {
    /// The index of its tap.
    pub tap: usize,
    pub connection: u32,
    pub ticks: u64,
    pub what: What,
}

/// What it tells.
#[derive(Debug, PartialEq, Eq)]
pub enum What {
    Opened(Opened),
    /// Bytes at a position: so many stood there, of which these were noted.
    Sent {
        position: u64,
        stands_for: u64,
        bytes: Vec<u8>,
    },
    Received {
        position: u64,
        stands_for: u64,
        bytes: Vec<u8>,
    },
    Ended {
        position: u64,
    },
}

/// Which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Which {
    pub nonce: u64,
    pub sequence: u32,
    pub channel: u32,
    pub uses: u32,
}

/// The first record of a connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    pub which: Which,
    /// The process's end: 0 the client's, 1 the server's.
    pub side: usize,
    pub ends: [Address; 2],
}

/// Begins to capture a process, unless that is so already.
pub fn attach(pid: u32, descriptors: &[Descriptor], longest: u32, taps: &mut BTreeMap<(u64, u64), Tap>) -> Attached {
    let name = std::str::from_utf8(&NAME[..NAME.len() - 1]).unwrap_or_default();
    let own = processes::own_number(pid);
    let mut answer = Attached::No;
    for descriptor in descriptors.iter().filter(|descriptor| descriptor.target == Target::Memory(name.to_owned())) {
        let Ok(memory) = processes::memory(pid, descriptor.number) else { continue };
        if let Some(tap) = taps.get_mut(&memory.key) {
            // After a fork a child has its parent's, too, until it makes its own.
            tap.gone = false;
            answer = Attached::Yes;
            continue;
        }
        let Ok(file) = memory.open(true) else { continue };
        let Ok(words) = Words::copy(&file, size_of::<ProcessHeader>()) else { continue };
        let known = words.word64(offset_of!(ProcessHeader, magic)) == MAGIC
            && words.word32(offset_of!(ProcessHeader, version)) == VERSION
            && words.word32(offset_of!(ProcessHeader, pid)) == own;
        if !known {
            continue;
        }
        match Tap::begin(file, pid, longest) {
            Ok(Some(tap)) => {
                taps.insert(memory.key, tap);
                answer = Attached::Yes;
            }
            Ok(None) => return Attached::ByAnother,
            Err(_) => {}
        }
    }
    answer
}

impl Tap {
    fn begin(file: File, pid: u32, longest: u32) -> std::io::Result<Option<Tap>> {
        let told = Words::copy(&file, offset_of!(ProcessHeader, tap) + 4)?.word32(offset_of!(ProcessHeader, tap));
        let mut tap = Tap {
            id: 0,
            pid,
            program: processes::program(pid).unwrap_or_default(),
            file,
            head: 0,
            number: (ticks() >> 10) as u32 | 1,
            whole: false,
            lost_before: 0,
            skipped: 0,
            gone: false,
            stopped: false,
            interrupted: false,
        };
        if told != 0 && ticks().wrapping_sub(tap.word(offset_of!(tap::Tap, seen))) < GONE {
            return Ok(None);
        }
        let length = (OFFSET + tap::SIZE) as u64;
        if tap.file.metadata()?.len() < length {
            tap.file.set_len(length)?;
        }
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        tap.id = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // Not what an earlier capture has left.
        tap.head = tap.word(offset_of!(tap::Tap, tail));
        tap.lost_before = tap.word(offset_of!(tap::Tap, lost));
        // Nor the lock of a thread that was thrown out of a note.
        tap.put(OFFSET + offset_of!(tap::Tap, lock), &0u32.to_ne_bytes())?;
        tap.put(OFFSET + offset_of!(tap::Tap, longest), &longest.to_ne_bytes())?;
        tap.make_room()?;
        // Another number than an earlier capture's.
        tap.put(offset_of!(ProcessHeader, tap), &tap.number.to_ne_bytes())?;
        Ok(Some(tap))
    }

    /// Has memory for what comes next, and tells the process how much. It would be ended by a page that is not to be had (a limit of a group of
    /// processes, a machine that promises no memory it does not have), where this command gets an error.
    fn make_room(&mut self) -> std::io::Result<()> {
        let ring = (OFFSET + size_of::<tap::Tap>()) as u64;
        let have = |from: usize, length: usize| {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), ring + from as u64, length as u64)
        };
        let mut room = RING as u64;
        if !self.whole {
            let at = self.head as usize & (RING - 1);
            let first = FIRST.min(RING - at);
            have(at, first)?;
            if first < FIRST {
                have(0, FIRST - first)?;
            }
            room = FIRST as u64;
        }
        // What lies behind it counts as taken.
        let told = self.head.wrapping_sub(RING as u64 - room);
        self.put(OFFSET + offset_of!(tap::Tap, head), &told.to_ne_bytes())?;
        self.put(OFFSET + offset_of!(tap::Tap, seen), &ticks().to_ne_bytes())
    }

    fn put(&self, offset: usize, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, offset as u64)
    }

    fn word(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        let read = self.file.read_exact_at(&mut bytes, (OFFSET + offset) as u64);
        read.map_or(0, |()| u64::from_ne_bytes(bytes))
    }

    /// Bytes that are missing since it began.
    pub fn lost(&self) -> u64 {
        self.word(offset_of!(tap::Tap, lost)).wrapping_sub(self.lost_before).saturating_add(self.skipped)
    }

    /// The process is to note nothing more.
    pub fn stop(&mut self) {
        self.stopped = true;
        let _ = self.put(offset_of!(ProcessHeader, tap), &0u32.to_ne_bytes());
    }

    /// The memory for notes is given back, once they are read.
    pub fn give_back(&mut self) {
        let ring = (OFFSET + size_of::<tap::Tap>()) as u64;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.file, hole, ring, RING as u64);
    }

    /// Takes what was noted.
    pub fn read(&mut self, index: usize, notes: &mut Vec<Note>) {
        let tail = self.word(offset_of!(tap::Tap, tail));
        let length = tail.wrapping_sub(self.head) as usize;
        let mut bytes = vec![0; length.min(RING)];
        let at = self.head as usize & (RING - 1);
        let first = bytes.len().min(RING - at);
        let ring = OFFSET + size_of::<tap::Tap>();
        let (one, other) = bytes.split_at_mut(first);
        let read = self.file.read_exact_at(one, (ring + at) as u64).and_then(|()| self.file.read_exact_at(other, ring as u64));
        if length > RING || read.is_err() || !parse(index, &bytes, notes) {
            // Nonsense: what there is now is passed over.
            self.skipped = self.skipped.saturating_add(bytes.len() as u64);
        }
        self.head = tail;
        let mut told = [0; 4];
        let known = self.file.read_exact_at(&mut told, offset_of!(ProcessHeader, tap) as u64).is_ok();
        if known && u32::from_ne_bytes(told) == 0 && !self.stopped {
            // This command was held up, so the process took it for gone, and gave the memory back.
            self.whole = false;
            if self.make_room().is_ok() {
                let _ = self.put(offset_of!(ProcessHeader, tap), &self.number.to_ne_bytes());
                self.interrupted = true;
            }
            return;
        }
        if length > 0 && !self.whole {
            let ring = (OFFSET + size_of::<tap::Tap>()) as u64;
            self.whole = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), ring, RING as u64).is_ok();
        }
        // Without memory the process finds no room, and counts what it does not note.
        let _ = self.make_room();
    }
}

/// Records, as long as they make sense; whether all do.
fn parse(index: usize, mut left: &[u8], notes: &mut Vec<Note>) -> bool {
    let word = |bytes: &[u8], index: usize| {
        bytes.get(index * 8..index * 8 + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
    };
    while !left.is_empty() {
        let (length, kind) = (word(left, 0) as u32 as usize, word(left, 0) >> 32);
        let whole = WORDS * 8 + length.next_multiple_of(8);
        if length > RING || left.len() < whole {
            return false;
        }
        let bytes = &left[WORDS * 8..WORDS * 8 + length];
        let (position, stands_for) = (word(left, 2), word(left, 4));
        let what = match kind {
            kind::OPENED if length == OPENED_WORDS * 8 => {
                let value = |index| word(bytes, index);
                let ports = value(7);
                What::Opened(Opened {
                    which: Which {
                        nonce: value(0),
                        sequence: value(1) as u32,
                        channel: (value(1) >> 32) as u32,
                        uses: value(2) as u32,
                    },
                    side: (value(2) >> 32) as usize & 1,
                    ends: [
                        Address::from_words([value(3), value(4)], ports as u16, 0),
                        Address::from_words([value(5), value(6)], (ports >> 16) as u16, 0),
                    ],
                })
            }
            kind::SENT => What::Sent { position, stands_for, bytes: bytes.to_vec() },
            kind::RECEIVED => What::Received { position, stands_for, bytes: bytes.to_vec() },
            kind::ENDED => What::Ended { position },
            _ => return false,
        };
        notes.push(Note { tap: index, connection: word(left, 1) as u32, ticks: word(left, 3), what });
        left = &left[whole..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u64, bytes: &[u8]) -> Vec<u8> {
        let words = [bytes.len() as u64 | kind << 32, 7, 100, 5, bytes.len() as u64];
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        record.extend(bytes);
        record.resize(WORDS * 8 + bytes.len().next_multiple_of(8), 0);
        record
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut bytes = record(kind::SENT, b"hello");
        bytes.extend(record(kind::ENDED, b""));
        let mut notes = vec![];
        assert!(parse(3, &bytes, &mut notes));
        assert_eq!(notes[0].what, What::Sent { position: 100, stands_for: 5, bytes: b"hello".to_vec() });
        assert_eq!((notes[0].tap, notes[0].connection, notes[0].ticks), (3, 7, 5));
        assert_eq!(notes[1].what, What::Ended { position: 100 });
    }

    #[test]
    fn nonsense_ends_the_reading() {
        let good = record(kind::SENT, b"hello");
        for bad in [record(99, b"x"), record(kind::OPENED, b"x"), good[..good.len() - 1].to_vec(), vec![0xff; 80], vec![1; 3]] {
            let mut bytes = good.clone();
            bytes.extend(bad);
            let mut notes = vec![];
            assert!(!parse(0, &bytes, &mut notes));
            assert_eq!(notes.len(), 1);
        }
    }
}
