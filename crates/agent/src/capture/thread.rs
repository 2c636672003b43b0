//! The thread that writes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use shunt_pcapng::block::{self, Interface, Packet, Statistics};
use shunt_pcapng::{Clock, Output};
use shunt_sys::clock::ticks;
use shunt_xdp::notes::{Direction, LONGEST};

use super::{Source, Told};

/// How soon is looked again: after some frames, after none.
const LOOK: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// So often a reader that is slow is waited for when the agent ends, 50 ms each.
const LAST_LOOKS: u32 = 20;

/// A queue, as the file has it.
struct Known {
    source: Source,
    /// Its number in the file.
    interface: u32,
    frames: u64,
    /// When the last one was noted: no later one was before.
    last: u64,
    ends: Ends,
}

/// When a queue's counts are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    No,
    Next,
    Now,
}

/// A packet that waits for its turn: a block, by its place.
struct Waiting {
    ticks: u64,
    at: usize,
    length: usize,
}

/// The thread's own.
pub(super) struct Work {
    output: Output,
    path: PathBuf,
    interface: String,
    longest: u32,
    sources: Receiver<Source>,
    told: Arc<Told>,
    clock: Clock,
    known: Vec<Known>,
    interfaces: u32,
    /// Blocks in no order, and where each is.
    blocks: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Packets that were put behind each other and are not written.
    unwritten: u64,
    /// When the turn before began.
    before: u64,
    /// Of queues that are gone.
    lost: u64,
    bytes: Box<[u8; LONGEST]>,
}

impl Work {
    /// Begins the file.
    pub(super) fn new(
        mut output: Output,
        (path, interface, longest): (&Path, &str, u32),
        sources: Receiver<Source>,
        told: Arc<Told>,
    ) -> Work {
        block::section(output.blocks());
        let mut work = Work {
            output,
            path: path.to_path_buf(),
            interface: interface.to_string(),
            longest,
            sources,
            told,
            clock: Clock::start(),
            known: Vec::new(),
            interfaces: 0,
            blocks: Vec::new(),
            waiting: Vec::new(),
            unwritten: 0,
            before: 0,
            lost: 0,
            bytes: vec![0; LONGEST].into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("of this length")),
        };
        // Readers ask for one interface at least.
        work.describe("the agent's capture");
        work
    }

    /// Until the agent ends, or the file cannot be written.
    pub(super) fn run(mut self) {
        // An agent at real-time priority looks after frames; this is not to keep others from a processor.
        let usual = libc::sched_param { sched_priority: 0 };
        // SAFETY: of the calling thread; the structure is read.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &usual) };
        let mut some = false;
        let ended = loop {
            let ends = match self.sources.recv_timeout(LOOK[usize::from(!some)]) {
                Ok(source) => {
                    self.begin(source);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            while let Ok(source) = self.sources.try_recv() {
                self.begin(source);
            }
            match self.turn(ends) {
                Ok(moved) => some = moved,
                Err(error) => break Err(error),
            }
            if ends {
                break Ok(());
            }
        };
        self.told.is_over.store(true, Relaxed);
        self.known.iter().for_each(|known| known.source.reader.end());
        let frames = self.told.frames.load(Relaxed);
        // And those that were read and could not be written.
        let unwritten = self.unwritten + self.waiting.len() as u64;
        let lost = self.known.iter().fold(self.lost + unwritten, |sum, known| sum.saturating_add(known.source.reader.lost()));
        self.told.lost.store(lost, Relaxed);
        let missing = if lost > 0 { format!("; {lost} are missing: they found no room") } else { String::new() };
        let count = format!("{frames} frames captured{missing}");
        let text = match ended {
            Ok(()) => count,
            Err(error) => {
                let reason = match error.kind() {
                    io::ErrorKind::BrokenPipe => "its reader has ended".to_string(),
                    io::ErrorKind::TimedOut => "its reader does not read".to_string(),
                    _ => error.to_string(),
                };
                let failure = format!("{}: {reason}", self.path.display());
                let text = format!("the capture ends: {failure}; {count}");
                *self.told.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                text
            }
        };
        let _ = writeln!(io::stderr(), "shunt: {}: {text}", self.interface);
    }

    fn describe(&mut self, description: &str) -> u32 {
        let interface = Interface { link: block::ETHERNET, longest: self.longest, name: &self.interface, description };
        block::interface(self.output.blocks(), &interface);
        self.interfaces += 1;
        self.interfaces - 1
    }

    fn begin(&mut self, source: Source) {
        let interface = self.describe(&source.description);
        self.known.push(Known { source, interface, frames: 0, last: self.before, ends: Ends::No });
    }

    /// Reads what was noted, and writes what was noted before the last turn: by now all of that has been seen. Whether there was anything.
    fn turn(&mut self, ends: bool) -> io::Result<bool> {
        if self.output.is_over() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let now = ticks();
        self.clock.look();
        let mut lost = self.lost;
        for known in &mut self.known {
            // Asked before its last frames are read, which are written in the next turn.
            known.ends = match known.ends {
                Ends::No if known.source.life.strong_count() == 0 => Ends::Next,
                Ends::Next => Ends::Now,
                other => other,
            };
            let (blocks, waiting, clock) = (&mut self.blocks, &mut self.waiting, &self.clock);
            let (frames, last, interface) = (&mut known.frames, &mut known.last, known.interface);
            known.source.reader.read(&mut self.bytes, |noted, bytes| {
                // A client says when: behind its last, and not in what is to come.
                *last = noted.ticks.clamp(*last, ticks().max(*last));
                *frames += 1;
                let direction = match noted.direction {
                    Direction::In => block::Direction::In,
                    Direction::Out => block::Direction::Out,
                };
                let (at, time, parts) = (blocks.len(), clock.time(*last), &[bytes][..]);
                let (length, direction) = (noted.length, Some(direction));
                block::packet(blocks, &Packet { interface, time, length, parts, direction, comment: None });
                waiting.push(Waiting { ticks: *last, at, length: blocks.len() - at });
            });
            lost = lost.saturating_add(known.source.reader.lost());
        }
        self.told.lost.store(lost, Relaxed);
        let some = !self.waiting.is_empty();
        self.put(if ends { u64::MAX } else { self.before });
        self.before = now;
        for known in self.known.extract_if(.., |known| ends || known.ends == Ends::Now) {
            let dropped = known.source.reader.lost();
            self.lost = self.lost.saturating_add(dropped);
            let (interface, time) = (known.interface, self.clock.time(now));
            let received = known.frames.saturating_add(dropped);
            block::statistics(self.output.blocks(), &Statistics { interface, time, received, dropped });
        }
        self.write()?;
        Ok(some)
    }

    /// Puts the packets that were noted before a moment behind each other, in order of time.
    fn put(&mut self, until: u64) {
        self.waiting.sort_by_key(|waiting| waiting.ticks);
        let count = self.waiting.partition_point(|waiting| waiting.ticks < until);
        for index in 0..count {
            let Waiting { at, length, .. } = self.waiting[index];
            self.output.blocks().extend_from_slice(&self.blocks[at..at + length]);
        }
        self.unwritten += count as u64;
        self.waiting.drain(..count);
        let mut rest = Vec::new();
        for waiting in &mut self.waiting {
            let at = std::mem::replace(&mut waiting.at, rest.len());
            rest.extend_from_slice(&self.blocks[at..at + waiting.length]);
        }
        self.blocks = rest;
    }

    /// Writes what waits for it. Where the agent ends, a reader that does not read is waited for no longer than a second.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let (told, mut left) = (&self.told, LAST_LOOKS);
        self.output.flush(|| {
            left -= u32::from(told.ends.load(Relaxed) && left > 0);
            left > 0
        })?;
        self.told.frames.fetch_add(std::mem::take(&mut self.unwritten), Relaxed);
        Ok(())
    }
}
