//! Pools as their owner has them, and the regions in them (`region`: one that the application has).

use crate::fifo::{Fifo, Vain};
use crate::guard::{Access, Claim, Guard, Marks};
use crate::limit::Limit;
use crate::shape::{Audience, Shape, PAGE};
use crate::state::{Event, State};
use crate::word::{Use, Value, Word};
use crate::{cgroup, registry};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{action, calls, libc, mapping, Errno};

mod making;
mod region;
mod run;

use making::populate;
pub use region::{Located, Region};
use run::Run;

/// First word of a pool: "shuntpol".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"shuntpol");
/// Version of what a pool's file holds.
pub(crate) const VERSION: u32 = 2;

/// The first page of a pool's file.
#[repr(C)]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub unit: AtomicU32,
    pub units: AtomicU32,
    /// The process that made it, as it knows itself.
    pub owner: AtomicU32,
    /// Drawn at random, and known to processes that can read the pool ([`crate::shown`]). Zeros: there was none to draw.
    pub secret: [AtomicU64; 2],
}

/// What the owner keeps of a pool, in private memory: no peer can reach it. The arrays follow, one entry a unit.
#[repr(C)]
pub struct Control {
    base: *mut u8,
    shape: Shape,
    fd: i32,
    huge: bool,
    audience: Audience,
    handles: AtomicU32,
    /// A child has no pools.
    forked: AtomicBool,
    /// 0, or the peer that sees it.
    peer: AtomicU64,
    cursor: AtomicU32,
    vain: Vain,
    /// Runs of units, and units, that have a protection of their own.
    apart: AtomicU32,
}

/// Per unit. Of a region the first one's counts.
pub(crate) struct Unit {
    word: Word,
    /// Units of the region.
    count: AtomicU32,
    /// How many outputs and inputs want the region's pages wired.
    wired: AtomicU32,
    /// All its pages are memory.
    touched: AtomicBool,
    claim: Claim,
    marks: Marks,
}

/// The mappings that protections may add to this process, an eighth of what it may have by default (vm.max_map_count). A run of units that
/// differs from what is around it is two.
const MAPPINGS: u32 = 65_530 / 8;
static APART: AtomicU32 = AtomicU32::new(0);

impl Control {
    fn arrays(shape: Shape) -> (usize, usize, usize) {
        let words = size_of::<Control>().next_multiple_of(64);
        let units = words;
        (units, units + shape.units * size_of::<Unit>(), units + shape.units * (size_of::<Unit>() + size_of::<AtomicU32>()))
    }

    fn unit(&self, number: usize) -> &Unit {
        debug_assert!(number < self.shape.units);
        // SAFETY: inside the arrays that were reserved behind this.
        unsafe { &*core::ptr::from_ref(self).cast::<u8>().add(Control::arrays(self.shape).0).cast::<Unit>().add(number) }
    }

    fn fifo(&self) -> Fifo<'_> {
        let at = Control::arrays(self.shape).1;
        // SAFETY: as in `unit`.
        let taken =
            unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>().add(at).cast(), self.shape.units) };
        Fifo { taken, cursor: &self.cursor, vain: &self.vain }
    }

    fn word(&self, unit: usize) -> &Word {
        &self.unit(unit).word
    }

    /// A word that peers read: 0 the redirect, 1 the generation.
    fn told(&self, unit: usize, which: usize) -> &AtomicU32 {
        // SAFETY: in front of the units; the mapping lasts as long as this.
        unsafe { &*self.base.add(PAGE).cast::<AtomicU32>().add(2 * unit + which) }
    }

    /// Where the units are.
    pub(crate) fn units(&self) -> Range<usize> {
        let start = self.base as usize + self.shape.front();
        start..start + self.shape.bytes()
    }

    pub(crate) fn unit_at(&self, address: usize) -> Option<usize> {
        let units = self.units();
        units.contains(&address).then(|| (address - units.start) / self.shape.unit)
    }

    fn pointer(&self, unit: usize) -> *mut u8 {
        // SAFETY: inside the mapping.
        unsafe { self.base.add(self.shape.front() + unit * self.shape.unit) }
    }

    fn spare(&self, unit: usize) -> *mut u8 {
        // SAFETY: inside the mapping.
        unsafe { self.pointer(unit).add(self.shape.bytes()) }
    }

    /// The run of `count` units from `first` on, as TCOW sees it.
    fn guard(&self, first: usize, count: usize) -> Guard<'_, Run<'_>> {
        let entry = self.unit(first);
        Guard { word: &entry.word, marks: &entry.marks, count, hands: Run { control: self, first, count, last: false } }
    }

    /// The region that `unit` belongs to, if writing was taken away from it.
    fn armed(&self, unit: usize) -> Option<Range<usize>> {
        let first = self.fifo().first(unit)?;
        let units = first..first + self.unit(first).count.load(Ordering::Acquire) as usize;
        (units.contains(&unit) && self.unit(first).marks.protection() == Access::Read).then_some(units)
    }

    /// Gives writing back where that would be a mapping too many: the region lies in the middle of others that are protected as it is. Those in
    /// front of it, from the first on, are given up: each joins what lies in front of it, which is no mapping more, and so does the region
    /// then. Or those behind it, from the last on. (Regions that are hidden at both ends are more than this can help.)
    #[cold]
    fn open_among_others(&self, units: Range<usize>) -> Result<(), Errno> {
        let open = || self.change(units.clone(), libc::PROT_READ | libc::PROT_WRITE);
        let give_up = |region: &Range<usize>| {
            let mut guard = self.guard(region.start, region.len());
            guard.hands.last = true;
            let _ = guard.give_up();
        };
        let mut low = units.start;
        while let Some(region) = low.checked_sub(1).and_then(|unit| self.armed(unit)) {
            low = region.start;
        }
        while let Some(region) = self.armed(low).filter(|region| region.start < units.start) {
            give_up(&region);
            low = region.end;
        }
        if open().is_ok() {
            return Ok(());
        }
        let mut high = units.end;
        while let Some(region) = (high < self.shape.units).then(|| self.armed(high)).flatten() {
            high = region.end;
        }
        while let Some(region) = self.armed(high - 1).filter(|region| region.start >= units.end) {
            give_up(&region);
            high = region.start;
        }
        open()
    }

    fn change(&self, units: Range<usize>, protection: i32) -> Result<(), Errno> {
        calls::mprotect(self.pointer(units.start), units.len() * self.shape.unit, protection)
    }

    /// The region's last reference has gone: its units can be another's.
    fn free(&self, first: usize) {
        let count = self.unit(first).count.load(Ordering::Relaxed) as usize;
        let guard = self.guard(first, count);
        if guard.marks.protection() != Access::Write {
            // Where that fails the units stay taken: memory is lost, and nothing else.
            if guard.protect(Access::Write).is_err() {
                return;
            }
        }
        if self.unit(first).wired.swap(0, Ordering::AcqRel) > 0 {
            let _ = calls::munlock(self.pointer(first), count * self.shape.unit);
        }
        guard.settle();
        guard.release();
        self.told(first, 1).store(self.word(first).load().generation(), Ordering::Release);
        self.fifo().give(first, count);
    }

    /// Makes memory of units.
    ///
    /// # Errors
    /// As [`populate`].
    #[cold]
    fn touch(&self, units: Range<usize>) -> Result<(), Limit> {
        populate(self.pointer(units.start), units.len() * self.shape.unit)?;
        units.for_each(|unit| self.unit(unit).touched.store(true, Ordering::Relaxed));
        Ok(())
    }

    pub(crate) fn forked(&self) {
        self.forked.store(true, Ordering::Release);
        // SAFETY: this process's own mapping; readers see the same bytes.
        if unsafe { mapping::private_over(self.base, self.fd, self.shape.file()) }.is_err() {
            // SAFETY: as above. Nothing is better than what others share.
            unsafe { mapping::blank_at_any_price(self.base, self.shape.file()) };
        }
    }

    fn hold(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }
}

/// A pool: memory of its owner's, that peers can map. A handle; clones are the same pool, and it lasts as long as a region of it.
pub struct Pool(core::ptr::NonNull<Control>);

// SAFETY: all that is behind the pointer is atomic, or does not change.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Clone for Pool {
    fn clone(&self) -> Pool {
        self.control().hold();
        Pool(self.0)
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(to, "Pool({:?}, {} free)", self.shape(), self.free())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.control().handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let control = self.0.as_ptr();
        registry::remove(control);
        let (base, shape, fd) = (self.control().base, self.shape(), self.control().fd);
        APART.fetch_sub(2 * self.control().apart.load(Ordering::Relaxed), Ordering::Relaxed);
        let _ = calls::munmap(base, shape.file());
        let _ = calls::close(fd);
        let _ = calls::munmap(control.cast(), Control::arrays(shape).2);
        cgroup::leave(shape.bytes());
    }
}

impl Pool {
    fn control(&self) -> &Control {
        // SAFETY: it lasts as long as a handle.
        unsafe { self.0.as_ref() }
    }

    /// The pool that has `address` in its units.
    pub fn of(address: usize) -> Option<Pool> {
        let control = registry::find(address)?;
        control.hold();
        Some(Pool(control.into()))
    }

    /// The descriptor to pass to peers. It stays the pool's.
    pub fn descriptor(&self) -> i32 {
        self.control().fd
    }

    /// Where its file is mapped.
    pub fn address(&self) -> usize {
        self.control().base as usize
    }

    /// Its units.
    pub fn shape(&self) -> Shape {
        self.control().shape
    }

    /// To whom it can be lent.
    pub fn audience(&self) -> Audience {
        self.control().audience
    }

    /// Whether its pages are huge.
    pub fn is_huge(&self) -> bool {
        self.control().huge
    }

    /// Whether both are the same pool.
    pub fn is(&self, other: &Pool) -> bool {
        self.0 == other.0
    }

    /// Units that no region has.
    pub fn free(&self) -> usize {
        self.control().fifo().free()
    }

    /// Touches all pages, so that no region is the first to: a fresh one costs the kernel more than copying it would.
    pub fn populate(&self) {
        let control = self.control();
        // What could not be touched is when it is used.
        let _ = control.touch(0..control.shape.units);
    }

    /// Touches what no process has touched yet of the units that hold `length` bytes: a peer does not read what it would have to pay for. Once
    /// in a unit's life.
    ///
    /// # Errors
    /// [`Limit::Protection`]: the region is hidden. [`Limit::Memory`].
    pub fn touch(&self, at: &Located, length: usize) -> Result<(), Limit> {
        let control = self.control();
        let unit = control.shape.unit;
        let units = at.offset / unit..(at.offset + length).div_ceil(unit);
        if self.audience() == Audience::Trusted || units.clone().all(|unit| control.unit(unit).touched.load(Ordering::Relaxed)) {
            return Ok(());
        }
        control.touch(units)
    }

    /// The same, whatever is remembered of it: of a pool into which its own program has made a hole, which reads as zeros.
    ///
    /// # Errors
    /// As [`Pool::touch`].
    pub fn touch_again(&self, at: &Located, length: usize) -> Result<(), Limit> {
        let control = self.control();
        let unit = control.shape.unit;
        control.touch(at.offset / unit..(at.offset + length).div_ceil(unit))
    }

    /// From now on peer `peer` (never 0) sees the pool. Others that it could be lent to: those that are trusted.
    ///
    /// # Errors
    /// [`Limit::OtherPeer`].
    pub fn admit(&self, peer: u64) -> Result<(), Limit> {
        if self.audience() == Audience::Trusted {
            return Ok(());
        }
        match self.control().peer.compare_exchange(0, peer, Ordering::AcqRel, Ordering::Acquire) {
            Err(other) if other != peer => Err(Limit::OtherPeer),
            _ => Ok(()),
        }
    }

    /// A region of at least `bytes`, moved in. What it holds is what its last use left, or zeros.
    ///
    /// # Errors
    /// [`Limit::PoolFull`], [`Limit::TooLarge`], [`Limit::Forked`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Limit> {
        self.allocate_as(bytes, Event::Allocate)
    }

    /// A region for an input that is to come: moving in.
    ///
    /// # Errors
    /// As for [`Pool::allocate`].
    pub fn allocate_for_input(&self, bytes: usize) -> Result<Region, Limit> {
        self.allocate_as(bytes, Event::MarkMovingIn)
    }

    fn allocate_as(&self, bytes: usize, event: Event) -> Result<Region, Limit> {
        let control = self.control();
        if control.forked.load(Ordering::Acquire) {
            return Err(Limit::Forked);
        }
        let count = bytes.div_ceil(control.shape.unit).max(1);
        if count > control.shape.units {
            return Err(Limit::TooLarge);
        }
        let first = control.fifo().take(count).ok_or(Limit::PoolFull)?;
        let begun = control.word(first).begin(event);
        let Ok((value, poisoned)) = begun else {
            control.fifo().give(first, count);
            return Err(Limit::State);
        };
        control.unit(first).count.store(count as u32, Ordering::Release);
        // Any unit may have been a poisoned region's first.
        let others = (first + 1..first + count).filter(|unit| control.word(*unit).load().is_poisoned());
        let dirty = others.fold(poisoned, |_, unit| {
            if let Ok((value, _)) = control.word(unit).begin(Event::Allocate) {
                let _ = control.word(unit).apply(value.generation(), Event::Remove);
            }
            true
        });
        if dirty {
            // SAFETY: the units are this call's alone.
            unsafe { control.pointer(first).write_bytes(0, count * control.shape.unit) };
        }
        control.told(first, 1).store(value.generation(), Ordering::Release);
        control.hold();
        Ok(Region { pool: Pool(self.0), first: first as u32, count: count as u32, generation: value.generation() })
    }

    /// Where `length` bytes at `address` lie, if that is in one region: its first unit, its generation, and the offset from the
    /// start of all units.
    ///
    /// # Errors
    /// [`Limit::Private`], [`Limit::Outside`].
    pub fn locate(&self, address: usize, length: usize) -> Result<Located, Limit> {
        let control = self.control();
        let unit = control.unit_at(address).ok_or(Limit::Private)?;
        let first = control.fifo().first(unit).ok_or(Limit::Outside)?;
        let count = control.unit(first).count.load(Ordering::Acquire) as usize;
        let offset = address - control.units().start;
        match length <= (first + count) * control.shape.unit - offset {
            true => Ok(Located { first, count, generation: control.word(first).load().generation(), offset }),
            false => Err(Limit::Outside),
        }
    }

    /// The word of the region at `first`.
    pub fn value(&self, first: usize) -> Value {
        self.control().word(first).load()
    }

    /// `event` happens to a region.
    ///
    /// # Errors
    /// As [`Word::apply`].
    pub fn apply(&self, at: &Located, event: Event) -> Result<State, Limit> {
        let value = self.control().word(at.first).apply(at.generation, event)?;
        if value.state() == State::Free {
            self.control().free(at.first);
        }
        Ok(value.state())
    }

    /// One more output or input.
    ///
    /// # Errors
    /// As [`Word::reference`]; [`Limit::Forked`].
    pub fn reference(&self, at: &Located, kind: Use) -> Result<Value, Limit> {
        if self.control().forked.load(Ordering::Acquire) {
            return Err(Limit::Forked);
        }
        self.control().word(at.first).reference(at.generation, kind)
    }

    /// One less.
    ///
    /// # Errors
    /// As [`Word::unreference`].
    pub fn unreference(&self, at: &Located, kind: Use) -> Result<Value, Limit> {
        let control = self.control();
        let value = control.word(at.first).unreference(at.generation, kind)?;
        if value.state() == State::Free {
            control.free(at.first);
        }
        Ok(value)
    }

    /// The region's bytes are wiped before its units are a region again.
    pub fn poison(&self, at: &Located) {
        self.control().word(at.first).poison(at.generation);
    }

    /// That no reader of an output whose reference has just been taken would be sent to a spare: those of outputs that are over are
    /// forgotten here.
    ///
    /// # Errors
    /// [`Limit::Redirected`]: an output is under way whose bytes are in one; a new output would be read from there, too.
    pub fn settled(&self, at: &Located) -> Result<(), Limit> {
        self.control().guard(at.first, at.count).settled()
    }

    /// Takes away writing, for an output whose reference has been taken: the first step of TCOW. A thread that writes then
    /// faults, and is helped by [`mend`].
    ///
    /// # Errors
    /// [`Limit::Redirected`], [`Limit::Faulting`]: it is not protected as the output needs it. [`Limit::Mappings`],
    /// [`Limit::Protection`].
    pub fn arm(&self, at: &Located) -> Result<(), Limit> {
        self.control().guard(at.first, at.count).arm()
    }

    /// Gives writing back if no output is under way.
    pub fn disarm(&self, at: &Located) {
        self.control().guard(at.first, at.count).disarm(at.generation);
    }

    /// Whether the region was written since writing was taken away.
    pub fn was_written(&self, at: &Located) -> bool {
        self.control().guard(at.first, at.count).was_written()
    }

    /// Whether writing was taken away from the region.
    pub fn is_armed(&self, at: &Located) -> bool {
        self.control().unit(at.first).marks.protection() == Access::Read
    }

    /// Hides a region, or gives it back. Not for [`Access::Read`]: see [`Pool::arm`].
    ///
    /// # Errors
    /// [`Limit::Mappings`], [`Limit::Protection`].
    pub fn access(&self, at: &Located, access: Access) -> Result<(), Limit> {
        let guard = self.control().guard(at.first, at.count);
        match guard.marks.protection() == access {
            true => Ok(()),
            false => guard.protect(access),
        }
    }

    /// Keeps a region's pages in memory, until each such call was taken back ([`Pool::unwire`]): mlock(2) itself does not count.
    ///
    /// # Errors
    /// [`Limit::Locked`].
    pub fn wire(&self, at: &Located) -> Result<(), Limit> {
        let control = self.control();
        let wired = &control.unit(at.first).wired;
        wired.fetch_add(1, Ordering::AcqRel);
        // Each call asks for itself: the one that was first may be refused.
        let done = calls::mlock(control.pointer(at.first), at.count * control.shape.unit);
        if done.is_err() {
            wired.fetch_sub(1, Ordering::AcqRel);
        }
        done.map_err(|_| Limit::Locked)
    }

    /// One who wanted them does no longer.
    pub fn unwire(&self, at: &Located) {
        let control = self.control();
        let (wired, start, size) = (&control.unit(at.first).wired, control.pointer(at.first), at.count * control.shape.unit);
        // None: the region that was wired has gone, and this one took its place (table 3: "check region").
        if wired.fetch_update(Ordering::AcqRel, Ordering::Acquire, |wired| wired.checked_sub(1)) == Ok(1) {
            let _ = calls::munlock(start, size);
            if wired.load(Ordering::Acquire) > 0 {
                // Another thread's call came in between.
                let _ = calls::mlock(start, size);
            }
        }
    }

    /// Where a unit is.
    pub fn pointer(&self, at: &Located) -> *mut u8 {
        // SAFETY: inside the units.
        unsafe { self.control().pointer(0).add(at.offset) }
    }
}

/// A write to `address` faulted. True: it can be tried again, as far as its unit goes.
///
/// It takes no lock and calls nothing but the kernel, so it runs in a handler of SIGSEGV; other handlers do not run in this thread
/// meanwhile (`shunt_sys::action::undisturbed`, or the handler's mask). A unit of an output that is under way is saved in its spare first,
/// and peers are told; see [`crate::Span::copy_to`].
pub fn mend(address: usize) -> bool {
    in_region(address, |guard, unit| guard.mend(unit))
}

fn in_region(address: usize, mend: impl FnOnce(Guard<'_, Run<'_>>, usize) -> bool) -> bool {
    let Some(control) = registry::find(address) else { return false };
    let Some(unit) = control.unit_at(address) else { return false };
    let Some(first) = control.fifo().first(unit) else { return false };
    let count = control.unit(first).count.load(Ordering::Acquire) as usize;
    match unit < first + count {
        true => mend(control.guard(first, count), unit - first),
        // The run is being taken, or let go.
        false => false,
    }
}

/// Before the kernel is told to write `length` bytes at `address`: it does not call handlers, it fails. Two compares where there
/// is no pool.
pub fn before_kernel_writes(address: usize, length: usize) {
    if length == 0 || !registry::touches(address, length) {
        return;
    }
    action::undisturbed(|| {
        let mut at = address;
        while at < address.saturating_add(length) {
            let unit = registry::find(at).map_or(PAGE, |control| control.shape.unit);
            in_region(at, |guard, unit| guard.mend_for_good(unit));
            at = at - at % unit + unit;
        }
    });
}
