//! Two processes that pass messages by the tables of `shunt-buffers`: each walks the rows of its own semantics, and between them a
//! carrier moves the bytes as a device would, past the protections of both.
//!
//! ```text
//! sender     fill ─ ask ─ wait ─┬ t0  prepare ─ carrier ──┐                      ┌ dispose
//! receiver          post [ready]┘                         └ [ready] dispose ─ t1 ┘
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};
use shunt_buffers::input::Input;
use shunt_buffers::linux::Host;
use shunt_buffers::output::Output;
use shunt_buffers::region::{Attached, Audience, Limit, Reference, Region};
use shunt_buffers::tables::Architecture;
use shunt_buffers::{fault, Allocation, Semantics, Work};

use super::carrier::{Carrier, Kept, Link};
use super::memory::{now, Booked, Machine, Variant};

/// The longest message.
pub const LONGEST: usize = 256 << 10;
/// Regions go round in it, all semantics' alike: buffers that stay where they are would be warmer than those that move.
const POOL: usize = 8 << 20;
/// Where an application's buffer lies that is not aligned to the system's pages.
const UNALIGNED: usize = 1024;
const MOST_BOOKED: usize = 48;

/// One kind of message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    pub sender: Semantics,
    pub receiver: Semantics,
    pub architecture: Architecture,
    pub aligned: bool,
    /// Pages are swapped where they can be.
    pub swaps: bool,
    /// A technique that is left out.
    pub variant: Variant,
    pub length: usize,
}

/// At which stage an operation was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    SenderPrepare,
    SenderDispose,
    Ready,
    Dispose,
}

/// What is measured of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Its latency alone: both ends look all the time.
    Latency,
    /// Each operation, with a clock.
    Operations,
    /// The processors' time of both ends, which sleep while there is nothing to do.
    Processor,
}

/// One message.
pub struct Sample {
    pub latency: f64,
    pub booked: Vec<(Stage, Booked)>,
    /// Nanoseconds of the sender's processor and of the receiver's, if they were measured.
    pub processor: [f64; 2],
}

/// What the two processes share.
#[repr(C)]
struct Mail {
    asked: AtomicU64,
    case: [AtomicU64; 5],
    /// An end that waits sleeps.
    sleeps: AtomicU64,
    processor: AtomicU64,
    armed: AtomicU64,
    sent: AtomicU64,
    offset: AtomicU64,
    done: AtomicU64,
    at: AtomicU64,
    failed: AtomicU64,
    count: AtomicU64,
    booked: [AtomicU64; MOST_BOOKED],
}

fn shared() -> io::Result<&'static Mail> {
    // SAFETY: fresh memory; zeros are valid; it is never unmapped.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), size_of::<Mail>(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(&*at.cast())
    }
}

/// The lower half of a word, which is what the kernel compares.
fn half(word: &AtomicU64) -> *const u32 {
    word.as_ptr().cast::<u32>().wrapping_add(usize::from(cfg!(target_endian = "big")))
}

impl Mail {
    /// Sets a word, for the end that waits for it.
    fn tell(&self, word: &AtomicU64, value: u64) {
        word.store(value, SeqCst);
        if self.sleeps.load(SeqCst) != 0 {
            Mail::wake(word);
        }
    }

    fn wake(word: &AtomicU64) {
        // SAFETY: wakes, and reads nothing.
        unsafe { libc::syscall(libc::SYS_futex, half(word), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Goes to sleep, or looks on; for a second at most.
    fn pause(&self, word: &AtomicU64, seen: u64) {
        if self.sleeps.load(SeqCst) == 0 {
            return std::hint::spin_loop();
        }
        let most = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        // SAFETY: a word of memory that stays mapped, and a time that outlives the call.
        unsafe { libc::syscall(libc::SYS_futex, half(word), libc::FUTEX_WAIT, seen as u32, &raw const most) };
    }
}

/// Nanoseconds of the processor that this thread has had.
fn processor() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn other(limit: Limit) -> io::Error {
    io::Error::other(limit)
}

/// The sender's side, which asks for everything.
pub struct Rig {
    mail: &'static Mail,
    machine: Machine,
    child: Pid,
    link: Link,
    _kept: Kept,
    turn: u64,
    empty: u64,
}

impl Rig {
    /// Starts the receiver on the second core. `shunt` is the agent of two hosts.
    pub fn new(carrier: Carrier, cores: (usize, usize), shunt: Option<&Path>) -> io::Result<Rig> {
        let (link, theirs, kept) = carrier.ends(shunt)?;
        let mail = shared()?;
        let machine = Machine::new(POOL).map_err(other)?;
        let fd = machine.host.pool().descriptor();
        let parent = std::process::id();
        // SAFETY: the child goes on alone, and ends here.
        let child = match unsafe { fork()? } {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                // SAFETY: plain call: it ends with its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                if std::os::unix::process::parent_id() == parent {
                    super::pin(cores.1);
                    if let Err(error) = Receiver::new(mail, fd, theirs).and_then(|mut receiver| receiver.run()) {
                        eprintln!("shunt bench: the receiver: {error}");
                    }
                }
                // SAFETY: ends the child, without what the parent would do at its end.
                unsafe { libc::_exit(1) }
            }
        };
        super::pin(cores.0);
        fault::ensure().map_err(other)?;
        let mut times: Vec<u64> = (0..101).map(|_| (now(), now())).map(|(from, to)| to - from).collect();
        times.sort_unstable();
        Ok(Rig { mail, machine, child, link, _kept: kept, turn: 0, empty: times[50] })
    }

    fn wait(&self, word: &AtomicU64) -> io::Result<()> {
        let (mut looks, mut since) = (0u64, Instant::now());
        loop {
            let seen = word.load(SeqCst);
            if seen == self.turn {
                break;
            }
            self.mail.pause(word, seen);
            looks += 1;
            if looks.is_multiple_of(1 << 10) && since.elapsed() > Duration::from_millis(50) {
                since = Instant::now();
                match waitpid(self.child, Some(WaitPidFlag::WNOHANG))? {
                    WaitStatus::StillAlive => {}
                    ended => return Err(io::Error::other(format!("the receiver ended: {ended:?}"))),
                }
            }
        }
        match self.mail.failed.load(SeqCst) {
            0 => Ok(()),
            code => Err(other(Limit::ALL[code as usize - 1])),
        }
    }

    /// Passes one message.
    pub fn pass(&mut self, case: &Case, measure: Measure) -> io::Result<Sample> {
        let timed = measure == Measure::Operations;
        let sleeps = u64::from(measure == Measure::Processor);
        let changed = self.mail.sleeps.swap(sleeps, SeqCst) != sleeps;
        let region = self.machine.host.pool().allocate(case.length).map_err(other)?;
        let address = region.pointer() as usize;
        self.turn += 1;
        // SAFETY: the region's own bytes; a write to one that an earlier output protected is mended.
        unsafe { std::ptr::write_bytes(address as *mut u8, self.turn as u8, case.length) };
        let work = self.machine.host.work(address, case.length);
        // One that is to be moved is the system's from here on; one that is not is let go when this message has passed.
        let kept = match case.sender.allocation {
            Allocation::System => {
                let _ = region.leave();
                None
            }
            Allocation::Application => Some(region),
        };

        let mail = self.mail;
        let flags = case.aligned as u64 | (case.swaps as u64) << 1 | (timed as u64) << 2;
        let architecture = Architecture::ALL.iter().position(|known| *known == case.architecture).unwrap_or(0);
        let words = [case.receiver.index() as u64, architecture as u64, flags, case.length as u64, case.variant as u64];
        words.iter().zip(&mail.case).for_each(|(word, place)| place.store(*word, SeqCst));
        mail.tell(&mail.asked, self.turn);
        if changed {
            // It may have gone to sleep before.
            Mail::wake(&mail.asked);
        }
        self.wait(&mail.armed)?;

        let clock = if sleeps == 1 { processor() } else { 0 };
        (self.machine.timed, self.machine.variant) = (timed, case.variant);
        self.machine.booked.clear();
        let begun = now();
        let output = Output::prepare(case.sender, work, None, &mut self.machine).map_err(other)?;
        if let Some(limit) = output.why() {
            return Err(other(limit));
        }
        let read = if output.realised() == Semantics::COPY { output.work.system } else { output.work.region };
        let offset = read.ok_or_else(|| other(Limit::Private))?.offset;
        let prepared = self.machine.booked.len();
        if self.link.carries() && case.architecture != Architecture::Outboard {
            // SAFETY: the pool's bytes.
            let bytes = unsafe { std::slice::from_raw_parts(self.machine.device(offset, case.length), case.length) };
            self.link.send(bytes)?;
        } else {
            mail.offset.store(offset as u64, SeqCst);
        }
        mail.tell(&mail.sent, self.turn);
        self.wait(&mail.done)?;
        output.complete(&mut self.machine);
        drop(kept);
        let ours = if sleeps == 1 { processor() - clock } else { 0 };
        self.machine.show_all().map_err(other)?;
        let processor = [ours as f64, mail.processor.load(SeqCst) as f64];
        let latency = mail.at.load(SeqCst).saturating_sub(begun) as f64;
        let less = |booked: Booked| Booked { nanoseconds: booked.nanoseconds.saturating_sub(self.empty), ..booked };
        let ours =
            self.machine.booked.iter().enumerate().map(|(number, booked)| {
                (if number < prepared { Stage::SenderPrepare } else { Stage::SenderDispose }, less(*booked))
            });
        let count = (mail.count.load(SeqCst) as usize).min(MOST_BOOKED);
        let theirs = mail.booked[..count].iter().map(|word| {
            let word = word.load(SeqCst);
            let stage = if word >> 56 == 0 { Stage::Ready } else { Stage::Dispose };
            (stage, less(Booked { code: (word >> 48) as u8, nanoseconds: word & 0xffff_ffff_ffff }))
        });
        Ok(Sample { latency, booked: ours.chain(theirs).collect(), processor })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.child, nix::sys::signal::Signal::SIGKILL);
        let _ = waitpid(self.child, None);
    }
}

/// The other process.
struct Receiver {
    mail: &'static Mail,
    machine: Machine,
    sender: Attached,
    link: Link,
    /// For each length the regions that were kept of it: an application has its sizes. A variant has its own.
    hosts: BTreeMap<(usize, u64), Host>,
}

impl Receiver {
    fn new(mail: &'static Mail, fd: i32, link: Link) -> io::Result<Receiver> {
        let machine = Machine::new(POOL).map_err(other)?;
        let sender = Attached::map(fd, Audience::Trusted).map_err(other)?;
        Ok(Receiver { mail, machine, sender, link, hosts: BTreeMap::new() })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut turn = 0;
        loop {
            turn += 1;
            self.wait(&self.mail.asked, turn);
            let [receiver, architecture, flags, length, variant] =
                [0, 1, 2, 3, 4].map(|place: usize| self.mail.case[place].load(SeqCst));
            let semantics = Semantics::of_index(receiver as usize).ok_or_else(|| io::Error::other("no such semantics"))?;
            let architecture = Architecture::ALL[architecture as usize];
            (self.machine.swaps, self.machine.timed) = (flags & 2 != 0, flags & 4 != 0);
            self.machine.variant = Variant::ALL[variant as usize];
            let length = length as usize;
            let own = self.hosts.remove(&(length, variant)).unwrap_or_else(|| Host::new(self.machine.host.pool().clone()));
            let other_sizes = std::mem::replace(&mut self.machine.host, own);
            let passed = self.one(turn, semantics, architecture, flags & 1 != 0, length);
            self.hosts.insert((length, variant), std::mem::replace(&mut self.machine.host, other_sizes));
            if let Err(error) = passed {
                let limit = error.get_ref().and_then(|inner| inner.downcast_ref()).copied().unwrap_or(Limit::State);
                self.mail.failed.store(limit as u64 + 1, SeqCst);
                self.mail.tell(&self.mail.armed, turn);
                self.mail.tell(&self.mail.done, turn);
                return Err(error);
            }
        }
    }

    fn wait(&self, word: &AtomicU64, turn: u64) {
        loop {
            let seen = word.load(SeqCst);
            if seen == turn {
                return;
            }
            self.mail.pause(word, seen);
        }
    }

    fn one(
        &mut self,
        turn: u64,
        semantics: Semantics,
        architecture: Architecture,
        aligned: bool,
        length: usize,
    ) -> io::Result<()> {
        let (mail, early) = (self.mail, architecture == Architecture::Early);
        let shift = if aligned { 0 } else { UNALIGNED };
        let sleeps = mail.sleeps.load(SeqCst) != 0;
        let clock = if sleeps { processor() } else { 0 };
        let mut buffer = None;
        let work = match semantics.allocation {
            Allocation::Application => {
                let region: Region = self.machine.host.pool().allocate(length + shift).map_err(other)?;
                let place = region.pointer() as usize + shift;
                buffer = Some(region);
                self.machine.host.work(place, length)
            }
            Allocation::System => Work { length, ..Work::default() },
        };
        self.machine.booked.clear();
        let mut input = Input::post(semantics, work, &mut self.machine).map_err(other)?;
        if early {
            input.ready(architecture, &mut self.machine).map_err(other)?;
        }
        self.machine.booked.clear();
        mail.tell(&mail.armed, turn);

        let carried = self.link.carries() && architecture != Architecture::Outboard;
        if !carried || sleeps {
            self.wait(&mail.sent, turn);
        }
        if carried {
            self.link.wait()?;
        }
        let offset = mail.offset.load(SeqCst);
        let reference = Reference { offset, length: length as u64, generation: 0, pool: 0, ticket: 0 };
        let source = self.sender.check(&reference).map_err(|violation| other(violation.into()))?.pointer();
        self.machine.outboard = Some(source);
        if !early {
            input.ready(architecture, &mut self.machine).map_err(other)?;
        }
        let ready = if early { 0 } else { self.machine.booked.len() };
        if architecture != Architecture::Outboard {
            let target = self.machine.target(&input.work);
            if self.link.carries() {
                // SAFETY: the pool's own bytes, which no other thread uses before the input is complete.
                self.link.take(unsafe { std::slice::from_raw_parts_mut(target, length) })?;
            } else {
                // SAFETY: as many bytes of the sender's region, which stays as it is until this is done.
                unsafe { std::ptr::copy_nonoverlapping(source, target, length) };
            }
        }
        let done = input.complete(&mut self.machine).map_err(other)?;
        let ended = now();
        // SAFETY: the application's bytes.
        let (first, last) = unsafe { (*(done.address as *const u8), *(done.address as *const u8).add(length - 1)) };
        if (first, last) != (turn as u8, turn as u8) {
            return Err(io::Error::other("other bytes came"));
        }
        let booked = self.machine.booked.iter().enumerate().take(MOST_BOOKED);
        for (number, one) in booked {
            let stage = u64::from(number >= ready) << 56;
            mail.booked[number].store(stage | u64::from(one.code) << 48 | one.nanoseconds, SeqCst);
        }
        mail.count.store(self.machine.booked.len() as u64, SeqCst);
        mail.at.store(ended, SeqCst);
        mail.processor.store(if sleeps { processor() - clock } else { 0 }, SeqCst);
        mail.tell(&mail.done, turn);

        // Not timed: what the next input finds. The application frees what it was given, and sends another of its regions on, which the
        // pool's order makes as cold as everything else is.
        self.machine.restore().map_err(other)?;
        drop(buffer);
        if let Some(at) = done.region.filter(|_| semantics.allocation == Allocation::System) {
            let pool = self.machine.host.pool().clone();
            drop(Region::regain(pool.clone(), at).map_err(other)?);
            let (_, fresh) = pool.allocate(length).map_err(other)?.leave();
            let work = self.machine.host.work(pool.pointer(&fresh) as usize, length);
            self.machine.timed = false;
            let output = Output::prepare(semantics, work, None, &mut self.machine).map_err(other)?;
            output.complete(&mut self.machine);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Way;
    use super::*;

    /// The receiver looks at what came, and the rows of the tables are what was booked.
    #[test]
    fn every_kind_of_message_passes() {
        let machine = crate::machine::Machine::here();
        let tests = std::env::current_exe().unwrap();
        let shunt = tests.ancestors().nth(2).unwrap().join("shunt");
        for carrier in Carrier::ALL {
            let mut rig = match Rig::new(carrier, (machine.client_core, machine.server_core), Some(&shunt)) {
                // Two hosts are not to be had everywhere: the sentence says why.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    eprintln!("skipped: {error}");
                    continue;
                }
                made => made.unwrap(),
            };
            for length in [1, 100, 1480, 4096, 9000, 60 << 10] {
                for way in Way::ALL.into_iter().filter(|way| carrier == Carrier::Shm || *way != Way::Outboard) {
                    for semantics in Semantics::ALL {
                        let case = way.case(semantics, length);
                        for measure in [Measure::Latency, Measure::Operations, Measure::Processor] {
                            let timed = measure == Measure::Operations;
                            let sample = rig.pass(&case, measure).unwrap();
                            assert!(sample.latency > 0.0);
                            assert_eq!(sample.processor.iter().all(|time| *time > 0.0), measure == Measure::Processor);
                            let row = shunt_buffers::tables::output(semantics);
                            let count = |stage| sample.booked.iter().filter(|booked| booked.0 == stage).count();
                            let expected = if timed { row.prepare.len() } else { 0 };
                            assert_eq!(count(Stage::SenderPrepare), expected, "{} {}", semantics.name(), way.title());
                            let dispose = case.architecture.row(semantics).dispose.len();
                            assert_eq!(count(Stage::Dispose), if timed { dispose } else { 0 });
                        }
                    }
                }
            }
        }
    }
}
