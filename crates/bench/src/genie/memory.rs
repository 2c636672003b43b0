//! One process's memory in the experiment: the operations of `shunt-buffers` on Linux, each with a clock, and pages that are really
//! swapped where the paper swaps them.

use shunt_buffers::align::{steps, Step};
use shunt_buffers::linux::Host;
use shunt_buffers::region::state::State;
use shunt_buffers::region::{Attached, Audience, Limit, Located, Pages, Pool, Reference, Shape};
use shunt_buffers::tables::Operation;
use shunt_buffers::{Memory, Work};

pub const PAGE: usize = 4096;
/// A little above half a page, as the paper has it.
const THRESHOLD: usize = PAGE / 2 + 1;

/// Nanoseconds since some time that all processes of the machine share.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What an operation's time is booked under: most under their own number.
pub const EXCHANGE: u8 = 200;
/// The same where the region that was prepared is hidden, and in sight again before it is let go.
pub const EXCHANGE_HIDDEN: u8 = 201;

/// The name of a booked operation.
pub fn name(code: u8) -> &'static str {
    match code {
        EXCHANGE => "Exchange regions.",
        EXCHANGE_HIDDEN => "Exchange a hidden region.",
        code => Operation::ALL.get(code as usize).map_or("?", |operation| operation.words()),
    }
}

/// What is done in place of one of the paper's techniques.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// As the paper has it.
    Genie,
    /// A region that is hidden is unmapped, and mapped again.
    Unmapped,
    /// An input gets a region of the pool, not one that was moved out before.
    Uncached,
    /// The same, and its pages are new.
    Fresh,
    /// A page that is filled in part is always swapped.
    Reversed,
    /// A page that is filled in part is never swapped.
    Unreversed,
}

impl Variant {
    pub const ALL: [Variant; 6] =
        [Variant::Genie, Variant::Unmapped, Variant::Uncached, Variant::Fresh, Variant::Reversed, Variant::Unreversed];

    fn threshold(self) -> usize {
        match self {
            Variant::Reversed => 1,
            Variant::Unreversed => usize::MAX,
            _ => THRESHOLD,
        }
    }
}

/// An operation that was done, and how long it took.
#[derive(Clone, Copy)]
pub struct Booked {
    pub code: u8,
    pub nanoseconds: u64,
}

pub struct Machine {
    pub host: Host,
    /// Another mapping of the same pool: what a device sees, whatever the process may do with its own.
    device: Attached,
    /// Where the bytes of an outboard buffer are.
    pub outboard: Option<*const u8>,
    /// Whether pages are swapped; else they are copied.
    pub swaps: bool,
    pub variant: Variant,
    pub timed: bool,
    pub booked: Vec<Booked>,
    /// The region that was dequeued last is hidden.
    hidden: bool,
    /// Runs whose pages are another's for now: application's address, system's address, bytes.
    swapped: Vec<(usize, usize, usize)>,
    /// Regions that are unmapped: address, bytes.
    unmapped: Vec<(usize, usize)>,
}

impl Machine {
    pub fn new(bytes: usize) -> Result<Machine, Limit> {
        let shape = Shape { unit: PAGE, units: bytes / PAGE };
        // Not sealed against this process's own second mapping.
        let pool = Pool::create(shape, Pages::Small, Audience::Trusted)?;
        pool.populate();
        let device = Attached::map(pool.descriptor(), Audience::Trusted)?;
        Ok(Machine {
            host: Host::new(pool),
            device,
            outboard: None,
            swaps: true,
            variant: Variant::Genie,
            timed: false,
            booked: Vec::with_capacity(32),
            hidden: false,
            swapped: Vec::new(),
            unmapped: Vec::new(),
        })
    }

    /// Where a device finds these bytes.
    pub fn device(&self, offset: usize, length: usize) -> *mut u8 {
        let reference = Reference { offset: offset as u64, length: length as u64, generation: 0, pool: 0, ticket: 0 };
        self.device.check(&reference).expect("bytes of the pool").pointer()
    }

    /// Where a device puts a message.
    pub fn target(&self, work: &Work) -> *mut u8 {
        match (work.system, work.region) {
            (Some(system), _) => self.device(system.offset + work.offset, work.length),
            (None, Some(at)) => self.device(at.offset, work.length),
            (None, None) => work.address as *mut u8,
        }
    }

    fn start(&self) -> usize {
        self.host.pool().pointer(&Located { first: 0, count: 1, generation: 0, offset: 0 }) as usize
    }

    fn is_applications(&self, work: &Work) -> bool {
        work.region.is_some_and(|at| self.host.pool().value(at.first).state() == State::MovedIn)
    }

    /// Gives addresses of this process other pages of the pool: two runs change places.
    fn exchange(&mut self, ours: usize, theirs: usize, length: usize) -> Result<(), Limit> {
        self.map(ours, theirs, length)?;
        self.map(theirs, ours, length)
    }

    /// Gives addresses the pages that others had first.
    fn map(&self, at: usize, of: usize, length: usize) -> Result<(), Limit> {
        let (fd, front) = (self.host.pool().descriptor(), self.host.pool().shape().front());
        // SAFETY: both lie in the pool's units, whose mapping this replaces by another of the same file.
        let got = unsafe {
            libc::mmap(
                at as *mut _,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE,
                fd,
                (front + of - self.start()) as libc::off_t,
            )
        };
        match got {
            libc::MAP_FAILED => Err(Limit::Protection),
            _ => Ok(()),
        }
    }

    /// A region's address and its bytes.
    fn whole(&self, work: &Work) -> Result<(usize, usize), Limit> {
        let at = work.region.ok_or(Limit::Private)?;
        let unit = self.host.pool().shape().unit;
        Ok((self.start() + at.first * unit, at.count * unit))
    }

    /// In place of hiding: nothing is mapped there but what cannot be read.
    fn unmap(&mut self, work: &Work) -> Result<(), Limit> {
        let (at, length) = self.whole(work)?;
        // SAFETY: units of the pool, which are mapped again before they are used.
        let got = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            libc::mmap(at as *mut _, length, libc::PROT_NONE, flags, -1, 0)
        };
        self.unmapped.push((at, length));
        match got {
            libc::MAP_FAILED => Err(Limit::Protection),
            _ => Ok(()),
        }
    }

    /// In place of reinstating.
    fn map_again(&mut self, work: &Work) -> Result<(), Limit> {
        let (at, length) = self.whole(work)?;
        self.unmapped.retain(|known| known.0 != at);
        self.map(at, at, length)
    }

    /// Maps whatever is unmapped: its units may be another region's soon.
    pub fn show_all(&mut self) -> Result<(), Limit> {
        std::mem::take(&mut self.unmapped).into_iter().try_for_each(|(at, length)| self.map(at, at, length))
    }

    /// Takes the pages of a region away: it has new ones when it is touched.
    fn renew(&self, work: &Work) -> Result<(), Limit> {
        let (at, length) = self.whole(work)?;
        // SAFETY: the region's own units, whose bytes nobody wants.
        match unsafe { libc::madvise(at as *mut _, length, libc::MADV_REMOVE) } {
            0 => Ok(()),
            _ => Err(Limit::Memory),
        }
    }

    /// Swaps what is aligned, and copies the rest. True: pages were swapped.
    fn swap_or_copy(&mut self, work: &Work) -> Result<bool, Limit> {
        let system = work.system.ok_or(Limit::Private)?;
        let from = self.host.pool().pointer(&system) as usize + work.offset;
        let to = work.address;
        let copy = |from: usize, to: usize, length: usize| {
            // SAFETY: the system's pages and the application's, of the same pool.
            unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, length) };
        };
        if !self.swaps {
            copy(from, to, work.length);
            return Ok(false);
        }
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for step in steps(from, to, work.length, PAGE, self.variant.threshold()) {
            match step {
                Step::Copyout { from: part, length } => copy(from + part, to + part, length),
                Step::Swap { page, front, back } => {
                    let ours = to.wrapping_add_signed(page);
                    let theirs = from.wrapping_add_signed(page);
                    copy(ours, theirs, front);
                    copy(ours + PAGE - back, theirs + PAGE - back, back);
                    match runs.last_mut().filter(|run| run.0 + run.2 == ours) {
                        Some(run) => run.2 += PAGE,
                        None => runs.push((ours, theirs, PAGE)),
                    }
                }
            }
        }
        for (ours, theirs, length) in &runs {
            self.exchange(*ours, *theirs, *length)?;
        }
        let any = !runs.is_empty();
        self.swapped.append(&mut runs);
        Ok(any)
    }

    /// Every address has its own pages again: the pool finds regions by their addresses.
    pub fn restore(&mut self) -> Result<(), Limit> {
        for (ours, theirs, length) in std::mem::take(&mut self.swapped) {
            self.map(ours, ours, length)?;
            self.map(theirs, theirs, length)?;
        }
        Ok(())
    }
}

impl Memory for Machine {
    fn perform(&mut self, operation: Operation, work: &mut Work) -> Result<(), Limit> {
        let begun = if self.timed { now() } else { 0 };
        let mut code = operation as u8;
        match operation {
            Operation::SwapPages | Operation::SwapOrCopyout if self.is_applications(work) => {
                let swapped = self.swap_or_copy(work)?;
                code = if swapped { Operation::SwapPages } else { Operation::Copyout } as u8;
            }
            Operation::TransferOutboard => {
                let from = self.outboard.ok_or(Limit::Private)?;
                // SAFETY: the sender's region, mapped here; the target is as long.
                unsafe { core::ptr::copy_nonoverlapping(from, self.target(work), work.length) };
            }
            Operation::Invalidate if self.variant == Variant::Unmapped => self.unmap(work)?,
            Operation::Reinstate if self.variant == Variant::Unmapped => self.map_again(work)?,
            Operation::DequeueMovedOut | Operation::DequeueWeaklyMovedOut
                if matches!(self.variant, Variant::Uncached | Variant::Fresh) =>
            {
                // The one that would have been taken is freed.
                self.host.perform(operation, work)?;
                if work.region.is_some() {
                    self.host.perform(Operation::RemoveRegion, work)?;
                }
                work.region = None;
                self.hidden = false;
            }
            Operation::MarkMovingIn if self.variant == Variant::Fresh => {
                self.host.perform(operation, work)?;
                self.renew(work)?;
            }
            Operation::SwapPages => {
                self.host.perform(operation, work)?;
                code = if self.hidden { EXCHANGE_HIDDEN } else { EXCHANGE };
            }
            Operation::DequeueMovedOut => {
                self.host.perform(operation, work)?;
                self.hidden = work.region.is_some();
            }
            Operation::DequeueWeaklyMovedOut => {
                self.host.perform(operation, work)?;
                self.hidden = false;
            }
            _ => self.host.perform(operation, work)?,
        }
        if self.timed {
            self.booked.push(Booked { code, nanoseconds: now() - begun });
        }
        Ok(())
    }

    fn undo(&mut self, operation: Operation, work: &mut Work) {
        self.host.undo(operation, work);
    }
}
