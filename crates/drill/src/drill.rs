//! The connections of the program, and when each is handed over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use shunt_sys::clock::monotonic_ns;
use shunt_sys::Errno;
use shunt_xdp::escrow::Escrow;
use shunt_xdp::protocol::{Connection, Decline, Kind, Sizes};
use shunt_xdp::taken::{Ended, Taken};
use shunt_xdp::tcp::{Envelope, LONGEST_FRAME};
use shunt_xdp::Xdp;

use crate::line::{tuple, Line};
use crate::report::Report;

/// Bytes of the rings of a connection.
const RINGS: (u32, u32) = (256 << 10, 256 << 10);
/// Descriptors that can be a connection's.
const DESCRIPTORS: usize = 1024;

/// Descriptors of sockets that are, or may become, connections: a call on any other costs a look here.
static STREAMS: [AtomicBool; DESCRIPTORS] = [const { AtomicBool::new(false) }; DESCRIPTORS];
static DRILL: OnceLock<Option<Mutex<Drill>>> = OnceLock::new();

/// What was asked for, and what there is.
pub struct Drill {
    plan: Plan,
    queue: Option<Queue>,
    pub lines: Vec<Line>,
    pub report: Report,
    buffer: Vec<u8>,
}

struct Plan {
    interface: String,
    port: u16,
    every: u64,
    frames: u64,
    report: Option<String>,
}

/// The process's queue.
struct Queue {
    device: Xdp,
    hands: Connection,
}

/// Whether a call on this descriptor is to be looked at.
pub fn is_stream(fd: i32) -> bool {
    usize::try_from(fd).is_ok_and(|fd| STREAMS.get(fd).is_some_and(|word| word.load(Ordering::Relaxed)))
}

/// Says that it is one, or none any more.
pub fn mark(fd: i32, is: bool) {
    if let Some(word) = usize::try_from(fd).ok().and_then(|fd| STREAMS.get(fd)) {
        word.store(is && drill().is_some(), Ordering::Relaxed);
    }
}

fn drill() -> Option<&'static Mutex<Drill>> {
    DRILL.get_or_init(|| Plan::read().map(|plan| Mutex::new(Drill::new(plan)))).as_ref()
}

/// The drill, locked; `None`: none was asked for.
pub fn lock() -> Option<MutexGuard<'static, Drill>> {
    drill().map(|drill| drill.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Plan {
    fn read() -> Option<Plan> {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let plan = Plan {
            interface: std::env::var("SHUNT_DRILL_INTERFACE").ok()?,
            port: number("SHUNT_DRILL_PORT").unwrap_or(8080) as u16,
            every: number("SHUNT_DRILL_EVERY").unwrap_or(1).max(1),
            frames: number("SHUNT_DRILL_FRAMES").unwrap_or(0),
            report: std::env::var("SHUNT_DRILL_REPORT").ok(),
        };
        // Programs that this one starts are no part of it.
        std::env::remove_var("LD_PRELOAD");
        // SAFETY: a function without arguments that is there as long as the library is.
        unsafe { libc::atexit(tell) };
        Some(plan)
    }
}

/// Before the program's first instruction.
#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if let Some(mut drill) = lock() {
        drill.open();
    }
}

extern "C" fn tell() {
    if let Some(drill) = lock() {
        if let Some(path) = &drill.plan.report {
            drill.report.write(path);
        }
    }
}

impl Drill {
    fn new(plan: Plan) -> Drill {
        Drill { plan, queue: None, lines: Vec::new(), report: Report::default(), buffer: vec![0; LONGEST_FRAME] }
    }

    /// Makes the queue, which takes longer than a script waits.
    fn open(&mut self) {
        match Queue::new(&self.plan.interface) {
            Ok(queue) => {
                self.queue = Some(queue);
                std::thread::spawn(crate::driver::drive);
            }
            Err(errno) => self.report.count(format!("no-queue:{}", errno.0)),
        }
    }

    fn find(&self, fd: i32) -> Option<usize> {
        self.lines.iter().position(|line| line.fd == fd)
    }

    /// A call on it begins that is the kernel's.
    pub fn begin(&mut self, fd: i32) {
        if let Some(index) = self.find(fd) {
            self.lines[index].calls += 1;
            self.lines[index].is_wanted = false;
            self.give(index);
        }
    }

    /// A call on it is over.
    pub fn end(&mut self, fd: i32) {
        let index = match self.find(fd) {
            Some(index) => {
                self.lines[index].calls = self.lines[index].calls.saturating_sub(1);
                index
            }
            None => {
                let Some(tuple) = tuple(fd) else { return };
                if ![tuple.ours.port(), tuple.theirs.port()].contains(&self.plan.port) {
                    return;
                }
                self.lines.push(Line::new(fd, tuple));
                self.lines.len() - 1
            }
        };
        self.happened(index);
    }

    /// A call was done, by the kernel or here.
    fn happened(&mut self, index: usize) {
        let line = &mut self.lines[index];
        line.events.0 += 1;
        if line.taken.is_none() && line.events.0.is_multiple_of(self.plan.every) {
            line.is_wanted = true;
            self.take(index);
        }
    }

    /// It is no descriptor any more, or soon none.
    pub fn forget(&mut self, fd: i32) {
        if let Some(index) = self.find(fd) {
            self.give(index);
            self.lines.swap_remove(index);
        }
    }

    /// Takes it, if that can be now.
    fn take(&mut self, index: usize) {
        if !self.lines[index].is_wanted || self.lines[index].calls > 0 || self.lines[index].taken.is_some() {
            return;
        }
        let (Some(queue), line) = (&self.queue, &mut self.lines[index]) else { return };
        let Ok(escrow) = Escrow::create(RINGS.0, RINGS.1) else { return };
        match Taken::take(&queue.hands, line.fd, line.tuple, escrow, monotonic_ns()) {
            Ok(Ok(taken)) => {
                (line.taken, line.is_wanted) = (Some(taken), false);
                self.report.count("taken");
                self.turn(index);
            }
            // Soon.
            Ok(Err(Decline::Unacknowledged)) => self.report.count("declined:unacknowledged"),
            Ok(Err(decline)) => {
                line.is_wanted = false;
                self.report.count(format!("declined:{}", decline.word()));
            }
            Err(errno) => {
                line.is_wanted = false;
                self.report.count(format!("failed:{}", errno.0));
            }
        }
    }

    /// Gives it back, if it is taken.
    fn give(&mut self, index: usize) {
        self.frames();
        let (Some(queue), Some(mut taken)) = (&self.queue, self.lines[index].taken.take()) else { return };
        let _ = taken.keep(monotonic_ns());
        match taken.give(&queue.hands) {
            // ENOENT: the agent did it.
            Ok(()) | Err(Errno(libc::ENOENT)) => {}
            Err(errno) => self.report.count(format!("not-given:{}", errno.0)),
        }
        while !taken.is_given() {
            std::thread::yield_now();
        }
        self.report.count("given");
        // What came while it was being given back.
        self.frames();
    }

    fn ended(&mut self, index: usize, ended: Ended) {
        self.report.count(match ended {
            Ended::Leave(leave) => format!("left:{}", leave.word()),
            other => format!("left:{other:?}").to_lowercase(),
        });
        self.give(index);
    }

    /// Sends for a taken connection what may be sent.
    fn turn(&mut self, index: usize) -> Option<u64> {
        let (Some(queue), Some(taken)) = (&mut self.queue, &mut self.lines[index].taken) else { return None };
        let mut frames = queue.device.frames()?;
        match taken.turn(&mut frames, monotonic_ns()) {
            Ok(deadline) => deadline,
            Err(ended) => {
                self.ended(index, ended);
                None
            }
        }
    }

    /// Frames that wait: for the engine, or for the kernel.
    fn frames(&mut self) {
        loop {
            let Some(queue) = &mut self.queue else { return };
            let Some(mut frames) = queue.device.frames() else { return };
            let Some(frame) = frames.next(&mut self.buffer) else { return };
            let Some(envelope) = Envelope::parse(frame) else { continue };
            let length = envelope.at + envelope.length;
            let index = self.lines.iter().position(|line| line.taken.is_some() && line.tuple == envelope.tuple);
            let Some(index) = index else {
                let _ = queue.hands.pass(&self.buffer[..length]);
                continue;
            };
            let line = &mut self.lines[index];
            let Some(taken) = &mut line.taken else { continue };
            match taken.frame(&envelope, frame, monotonic_ns()) {
                Ok(()) => {
                    line.events.1 += 1;
                    let again = self.plan.frames > 0 && line.events.1.is_multiple_of(self.plan.frames);
                    self.turn(index);
                    if again && self.lines[index].taken.is_some() {
                        self.lines[index].is_wanted = true;
                        self.give(index);
                        self.take(index);
                    }
                }
                Err(ended) => {
                    // Copied, as what is given back brings frames of its own.
                    let frame = self.buffer[..length].to_vec();
                    self.ended(index, ended);
                    if let Some(queue) = &self.queue {
                        let _ = queue.hands.pass(&frame);
                    }
                }
            }
        }
    }

    /// All that is due. When to look again (ns from now at most), and what to wait for.
    pub fn work(&mut self) -> (u64, i32) {
        self.frames();
        let now = monotonic_ns();
        let mut until = now + 1_000_000;
        for index in 0..self.lines.len() {
            self.take(index);
            if let Some(deadline) = self.turn(index) {
                until = until.min(deadline);
            }
        }
        (until.saturating_sub(now), self.queue.as_ref().map_or(-1, |queue| queue.device.descriptors().way))
    }

    /// A send that the rings have room for whole.
    pub fn write(&mut self, fd: i32, pieces: &[&[u8]]) -> Option<usize> {
        let index = self.find(fd)?;
        self.frames();
        let line = &mut self.lines[index];
        let taken = line.taken.as_mut().filter(|_| line.calls == 0)?;
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let bytes: Vec<u8> = pieces.concat();
        if length == 0 || (taken.ready().1 as usize) < length || taken.write(&bytes, monotonic_ns()).is_err() {
            return None;
        }
        self.report.count("written");
        self.turn(index);
        self.happened(index);
        Some(length)
    }

    /// A receive of bytes that the rings have.
    pub fn read(&mut self, fd: i32, bytes: &mut [u8]) -> Option<usize> {
        let index = self.find(fd)?;
        self.frames();
        let line = &mut self.lines[index];
        let taken = line.taken.as_mut().filter(|_| line.calls == 0)?;
        let count = taken.read(bytes, monotonic_ns()).ok().filter(|count| *count > 0)?;
        self.report.count("read");
        self.turn(index);
        self.happened(index);
        Some(count)
    }
}

impl Queue {
    fn new(interface: &str) -> Result<Queue, Errno> {
        let mut device = Xdp::attach(interface, Kind::Own, false, Sizes::default())?;
        device.post_all();
        let hands = device.agent().hands()?;
        Ok(Queue { device, hands })
    }
}
