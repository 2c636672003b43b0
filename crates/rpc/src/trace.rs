//! What a server tells the tool that watches it: a record for each call, or how many calls of each procedure took how long.
//!
//! Nothing of it happens while nobody watches: a server that is watched sends its calls the long way round, where they are timed.
//! Only the server's own user and root may watch, on its host. A server never waits for a watcher: what finds no room is counted.

use crate::rendezvous::Socket;
use crate::wire::status;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// A record for each call.
pub const CALLS: u32 = 1;
/// Sums of calls, several times a second.
pub const SUMS: u32 = 2;
/// The procedure of sums over calls of procedures that a server does not have.
pub const UNKNOWN: u16 = u16::MAX;
/// Bytes that a watcher may be behind.
const BEHIND: usize = 1 << 20;
/// Watchers at most.
const WATCHERS: usize = 8;
/// Nanoseconds between two tellings of sums.
const PERIOD: u64 = 200_000_000;
/// Buckets of a [`Histogram`]: eight for each power of two.
const BUCKETS: usize = 496;

/// How a call ended, as its caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outcome(pub u16);

impl std::fmt::Display for Outcome {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::wire::status as s;
        to.write_str(match self.0 {
            s::OK => "ok",
            s::NO_PROCEDURE => "no-procedure",
            s::BAD_ARGUMENTS => "bad-arguments",
            s::DEADLINE => "too-late",
            s::CANCELLED => "cancelled",
            s::TOO_LONG => "too-long",
            s::PANICKED => "panicked",
            s::APPLICATION => "fault",
            s::PROTOCOL => "broken",
            _ => "?",
        })
    }
}

/// Which procedure, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The procedure.
    pub procedure: u16,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// One call.
    Call {
        /// What was called.
        subject: Subject,
        /// The server's thread.
        thread: u16,
        /// When it was begun: CLOCK_MONOTONIC, nanoseconds.
        begun: u64,
        /// Nanoseconds until it was answered.
        took: u64,
        /// The caller's process; 0: on another host.
        caller: u32,
        /// Bytes of its arguments.
        arguments: u32,
        /// Bytes of its results.
        results: u32,
    },
    /// So many calls more that took so long.
    Sum {
        /// What was called.
        subject: Subject,
        /// The bucket of a [`Histogram`].
        bucket: u32,
        /// How many.
        calls: u64,
        /// The nanoseconds of all of them.
        took: u64,
    },
    /// So many records found no room.
    Missing {
        /// How many.
        records: u64,
    },
}

impl Record {
    /// As bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        let mut words = [0u64; 8];
        let subject = |words: &mut [u64; 8], kind: u64, thread: u16, of: &Subject| {
            words[0] = kind | u64::from(of.procedure) << 16 | u64::from(of.outcome.0) << 32 | u64::from(thread) << 48;
            words[1] = u64::from(of.program) | u64::from(of.version) << 32;
        };
        match *self {
            Self::Call { subject: of, thread, begun, took, caller, arguments, results } => {
                subject(&mut words, 1, thread, &of);
                (words[2], words[3], words[4]) = (begun, took, caller.into());
                words[5] = u64::from(arguments) | u64::from(results) << 32;
            }
            Self::Sum { subject: of, bucket, calls, took } => {
                subject(&mut words, 2, 0, &of);
                (words[2], words[3], words[4]) = (bucket.into(), calls, took);
            }
            Self::Missing { records } => (words[0], words[2]) = (3, records),
        }
        bytemuck::cast(words.map(u64::to_le))
    }

    /// From bytes; `None`: they are none.
    #[must_use]
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut words = [0u64; 8];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words).copy_from_slice(bytes);
        let words = words.map(u64::from_le);
        let subject = Subject {
            program: words[1] as u32,
            version: (words[1] >> 32) as u32,
            procedure: (words[0] >> 16) as u16,
            outcome: Outcome((words[0] >> 32) as u16),
        };
        Some(match words[0] as u16 {
            1 => Self::Call {
                subject,
                thread: (words[0] >> 48) as u16,
                begun: words[2],
                took: words[3],
                caller: words[4] as u32,
                arguments: words[5] as u32,
                results: (words[5] >> 32) as u32,
            },
            2 => Self::Sum {
                subject,
                bucket: u32::try_from(words[2]).ok().filter(|&bucket| (bucket as usize) < BUCKETS)?,
                calls: words[3],
                took: words[4],
            },
            3 => Self::Missing { records: words[2] },
            _ => return None,
        })
    }
}

/// How many calls took how long, to an eighth.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    /// Calls.
    pub calls: u64,
    /// Nanoseconds of all of them.
    pub took: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], calls: 0, took: 0 }
    }
}

impl Histogram {
    /// Where a duration belongs.
    #[must_use]
    pub fn bucket(took: u64) -> u32 {
        match took.checked_ilog2() {
            Some(power @ 3..) => (power - 3) * 8 + (took >> (power - 3)) as u32,
            _ => took as u32,
        }
    }

    /// The shortest duration of a bucket.
    #[must_use]
    pub fn least(bucket: u32) -> u64 {
        match bucket / 8 {
            0 => bucket.into(),
            octave => u64::from(bucket % 8 + 8) << (octave - 1),
        }
    }

    /// More calls of a bucket.
    pub fn add(&mut self, bucket: u32, calls: u64, took: u64) {
        if let Some(count) = self.buckets.get_mut(bucket as usize) {
            *count = count.saturating_add(calls);
            self.calls = self.calls.saturating_add(calls);
            self.took = self.took.saturating_add(took);
        }
    }

    /// Buckets that are not empty, with their calls.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(self.buckets.iter().copied()).filter(|(_, calls)| *calls > 0)
    }

    /// The duration that this part of the calls did not exceed, to an eighth: the longest of its bucket.
    #[must_use]
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.calls as f64 * part).ceil().max(1.0) as u64;
        let mut passed = 0;
        for (bucket, calls) in self.iter() {
            passed += calls;
            if passed >= wanted {
                return if bucket + 1 < BUCKETS as u32 { Self::least(bucket + 1) - 1 } else { u64::MAX };
            }
        }
        0
    }
}

struct Watcher {
    socket: Socket,
    wants: u32,
    behind: Vec<u8>,
    missing: u64,
}

impl Watcher {
    fn own_up(&mut self) {
        if self.missing > 0 {
            self.behind.extend(Record::Missing { records: std::mem::take(&mut self.missing) }.emit());
        }
    }

    /// Says more, and what it has not taken yet. False: it is gone.
    fn say(&mut self, records: &[u8]) -> bool {
        if self.behind.len() + records.len() > BEHIND {
            self.missing += (records.len() / RECORD_BYTES) as u64;
        } else {
            self.own_up();
            self.behind.extend(records);
        }
        while !self.behind.is_empty() {
            match self.socket.send_some(&self.behind) {
                Ok(sent) => {
                    self.behind.drain(..sent);
                    if self.behind.is_empty() {
                        self.own_up();
                    }
                }
                Err(error) => return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            }
        }
        true
    }
}

/// The tool that watches a server.
#[derive(Default)]
pub(crate) struct Watchers {
    wants: AtomicU32,
    all: Mutex<Vec<Watcher>>,
}

impl Watchers {
    /// What is to be told: [`CALLS`], [`SUMS`].
    pub fn wants(&self) -> u32 {
        self.wants.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Watcher>)) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
        let wants = all.iter().fold(0, |wants, watcher| wants | watcher.wants);
        self.wants.store(wants, Ordering::Relaxed);
    }

    /// One more; its descriptor tells of its end. `None`: there are enough.
    pub fn admit(&self, socket: Socket, wants: u32) -> Option<RawFd> {
        let mut descriptor = None;
        self.change(|all| {
            if all.len() < WATCHERS {
                descriptor = Some(socket.as_raw_fd());
                all.push(Watcher { socket, wants: wants & (CALLS | SUMS), behind: vec![], missing: 0 });
            }
        });
        descriptor
    }

    /// Lets go who is gone, and tells the others what they are behind.
    pub fn look_after(&self) {
        self.change(|all| all.retain_mut(|watcher| !watcher.socket.is_over() && watcher.say(&[])));
    }

    fn tell(&self, what: u32, records: &[u8], missing: u64) {
        self.change(|all| {
            all.retain_mut(|watcher| {
                if watcher.wants & what == 0 {
                    return true;
                }
                watcher.missing += missing;
                watcher.say(records)
            });
        });
    }
}

/// What a thread of a server has not told yet.
pub(crate) struct Journal<'a> {
    watchers: &'a Watchers,
    thread: u16,
    /// What is wanted, as of the last look.
    pub wants: u32,
    calls: Vec<u8>,
    missing: u64,
    sums: HashMap<Subject, Histogram>,
    told: u64,
}

impl<'a> Journal<'a> {
    pub fn new(watchers: &'a Watchers, thread: usize) -> Self {
        Self { watchers, thread: thread as u16, wants: 0, calls: vec![], missing: 0, sums: HashMap::new(), told: 0 }
    }

    #[cold]
    pub fn note(&mut self, subject: Subject, begun: u64, took: u64, caller: u32, arguments: usize, results: usize) {
        if self.wants & CALLS != 0 {
            if self.calls.len() >= BEHIND {
                self.missing += 1;
            } else {
                let (arguments, results) = (arguments as u32, results as u32);
                let record = Record::Call { subject, thread: self.thread, begun, took, caller, arguments, results };
                self.calls.extend(record.emit());
            }
        }
        if self.wants & SUMS != 0 {
            // Numbers that are no procedure's are as many as a caller likes.
            let unknown = subject.outcome.0 == status::NO_PROCEDURE;
            let subject = if unknown { Subject { procedure: UNKNOWN, ..subject } } else { subject };
            self.sums.entry(subject).or_default().add(Histogram::bucket(took), 1, took);
        }
    }

    /// When sums are to be told; `None`: there are none.
    pub fn due(&self) -> Option<u64> {
        (!self.sums.is_empty()).then_some(self.told + PERIOD)
    }

    /// Looks at what is wanted, and tells what is due.
    pub fn tell(&mut self, time: u64) {
        let wants = self.watchers.wants();
        if wants == 0 && self.wants == 0 {
            return;
        }
        self.wants = wants;
        if !self.calls.is_empty() {
            self.watchers.tell(CALLS, &self.calls, std::mem::take(&mut self.missing));
            self.calls.clear();
        }
        if self.due().is_some_and(|due| time >= due) {
            self.told = time;
            let mut records = vec![];
            for (subject, sums) in self.sums.drain() {
                let mut took = sums.took;
                for (bucket, calls) in sums.iter() {
                    records.extend(Record::Sum { subject, bucket, calls, took: std::mem::take(&mut took) }.emit());
                }
            }
            self.watchers.tell(SUMS, &records, 0);
        }
    }
}

/// A server that is being watched.
pub struct Watch {
    socket: Socket,
    bytes: Vec<u8>,
    at: usize,
}

impl Watch {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, bytes: vec![], at: 0 }
    }

    /// The next record. `None`: the server ended.
    ///
    /// # Errors
    /// `WouldBlock`: none in that time. `InvalidData`: what came is none.
    pub fn next(&mut self, limit: std::time::Duration) -> io::Result<Option<Record>> {
        let until = crate::clock::later(limit);
        loop {
            if let Some(record) = self.bytes[self.at..].first_chunk::<RECORD_BYTES>() {
                let record = Record::parse(record).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no record"))?;
                self.at += RECORD_BYTES;
                return Ok(Some(record));
            }
            self.bytes.drain(..std::mem::take(&mut self.at));
            let left = until.saturating_duration_since(std::time::Instant::now());
            if !crate::readable::readable(&[std::os::fd::AsFd::as_fd(&self.socket)], left) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut more = [0; RECORD_BYTES * 512];
            match self.socket.receive(&mut more, &mut None) {
                Ok(0) => return Ok(None),
                Ok(count) => self.bytes.extend(&more[..count]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A thread that runs calls for long without a look at those that watch.
    #[test]
    fn a_thread_keeps_so_many_calls_for_those_that_watch() {
        let watchers = Watchers::default();
        let mut journal = Journal::new(&watchers, 0);
        journal.wants = CALLS;
        let subject = Subject { program: 1, version: 1, procedure: 1, outcome: Outcome(0) };
        let many = BEHIND / RECORD_BYTES + 100;
        (0..many).for_each(|_| journal.note(subject, 1, 1, 1, 0, 0));
        assert_eq!((journal.calls.len(), journal.missing), (BEHIND, 100));
    }

    #[test]
    fn quantiles_are_right_to_an_eighth() {
        let mut all = Histogram::default();
        for took in 1..=1000u64 {
            all.add(Histogram::bucket(took), 1, took);
        }
        assert_eq!((all.calls, all.took), (1000, 500_500));
        for (part, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let told = all.quantile(part);
            assert!(told >= exact && told < exact + exact / 8 + 1, "{part}: {told}");
        }
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    proptest! {
        #[test]
        fn a_duration_lies_in_its_bucket(took: u64) {
            let bucket = Histogram::bucket(took);
            prop_assert!((bucket as usize) < BUCKETS && Histogram::least(bucket) <= took);
            prop_assert!(bucket as usize == BUCKETS - 1 || took < Histogram::least(bucket + 1));
        }

        #[test]
        fn records_return_as_they_went(words: [u64; 8]) {
            let bytes: [u8; RECORD_BYTES] = bytemuck::cast(words);
            if let Some(record) = Record::parse(&bytes) {
                prop_assert_eq!(Record::parse(&record.emit()), Some(record));
            }
        }

        #[test]
        fn each_call_is_a_record(procedure: u16, version: u32, begun: u64, took: u64, caller: u32, arguments: u32) {
            let subject = Subject { program: 9, version, procedure, outcome: Outcome(7) };
            let call = Record::Call { subject, thread: 3, begun, took, caller, arguments, results: 5 };
            prop_assert_eq!(Record::parse(&call.emit()), Some(call));
        }
    }
}
