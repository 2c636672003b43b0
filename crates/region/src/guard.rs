//! Transient copy-on-write of one region: what takes writing away, what gives it back, and where the bytes are that a reader is
//! owed.
//!
//! ```text
//! output   reference ─> arm: writing is taken away ─> the peer is told
//! write    faults ─> mend: an output under way?  no: writing is given back for all of the region
//!                                                yes: the unit is saved, its redirect says so, writing is given back for it
//! reader   copies the unit; if its redirect says meanwhile that it was saved, copies the saved one
//! ```
//!
//! Each unit that gets writing back alone may be one or two mappings more, of which a process has a bounded number. Where that is used up
//! all units are saved, and writing is given back for the whole region: one protection, and no mapping more.
//!
//! There is no lock: a handler of a fault runs this. A thread that gives rights back counts that it began (`started`) and, at the
//! end, that it is done (`ended`). Arming begins by taking a reference and ends by looking at both counts: either the giver sees the
//! reference, and saves, or the one that arms sees the giver, and copies instead. Each writes, and then looks at what the other
//! writes: the fences stand between.
//!
//! What is done to memory is a [`Hands`]'s: the pool's calls of the kernel, or a model's (`tests/loom_guard.rs`).

use crate::limit::Limit;
use crate::word::Word;
use shunt_segment::sync::{fence, AtomicU32, Ordering};

/// What can be done with bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing: the region is hidden.
    None = 2,
    /// They can be read.
    Read = 1,
    /// They can be read and written.
    Write = 0,
}

/// What a region's first unit keeps.
#[derive(Debug)]
pub struct Marks {
    /// Changes of protection of the region that gave rights back: begun, and ended.
    started: AtomicU32,
    ended: AtomicU32,
    /// What was taken away from the region, an [`Access`].
    protection: AtomicU32,
    /// How often a unit has got writing back alone; and how often it had when writing was last taken away from all.
    opened: AtomicU32,
    closed: AtomicU32,
    /// Units that were given room for a protection of their own since the region last got one as a whole.
    parts: AtomicU32,
    /// What `started` was when no change was under way and no redirect said anything.
    settled: AtomicU32,
}

/// What each unit keeps.
#[derive(Debug)]
pub struct Claim(AtomicU32);

impl Marks {
    /// Of a region that can be written.
    pub fn new() -> Marks {
        Marks {
            started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            protection: AtomicU32::new(Access::Write as u32),
            opened: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            parts: AtomicU32::new(0),
            settled: AtomicU32::new(0),
        }
    }

    /// What was taken away.
    pub fn protection(&self) -> Access {
        match self.protection.load(Ordering::SeqCst) {
            1 => Access::Read,
            2 => Access::None,
            _ => Access::Write,
        }
    }
}

impl Default for Marks {
    fn default() -> Marks {
        Marks::new()
    }
}

impl Claim {
    /// Of a unit in which no fault is being mended.
    pub fn new() -> Claim {
        Claim(AtomicU32::new(0))
    }
}

impl Default for Claim {
    fn default() -> Claim {
        Claim::new()
    }
}

/// What is done to the memory of one region.
pub trait Hands {
    /// Changes what the region can be used for. When it returns, no write under the rights of before is under way.
    ///
    /// # Errors
    /// [`Limit::Protection`]; nothing, or part of it, was changed.
    fn protect(&self, access: Access) -> Result<(), Limit>;
    /// Gives writing back for one unit.
    ///
    /// # Errors
    /// As above.
    fn open(&self, unit: usize) -> Result<(), Limit>;
    /// Copies a unit that no thread can write to its spare.
    fn save(&self, unit: usize);
    /// Where readers learn that a unit was saved. Units are counted from the region's first.
    fn redirect(&self, unit: usize) -> &AtomicU32;
    /// The claim of a unit.
    fn claim(&self, unit: usize) -> &Claim;
    /// Room for one more run of units with a protection of its own.
    ///
    /// # Errors
    /// [`Limit::Mappings`].
    fn part(&self) -> Result<(), Limit>;
    /// So many less.
    fn join(&self, parts: u32);
    /// Lets another thread run.
    fn rest(&self);
}

/// One region, as its owner's threads see it.
pub struct Guard<'a, H> {
    /// Its word.
    pub word: &'a Word,
    /// Its marks.
    pub marks: &'a Marks,
    /// Its units.
    pub count: usize,
    /// Its memory.
    pub hands: H,
}

impl<H: Hands> Guard<'_, H> {
    /// Changes the region's protection, with its account of mappings. Callers see to it that rights are taken away by one at a
    /// time; they can be given back by several.
    ///
    /// # Errors
    /// [`Limit::Mappings`], [`Limit::Protection`].
    pub fn protect(&self, access: Access) -> Result<(), Limit> {
        let taken = access != Access::Write;
        let marks = self.marks;
        if taken && marks.protection.swap(access as u32, Ordering::SeqCst) == Access::Write as u32 {
            if let Err(limit) = self.hands.part() {
                marks.protection.store(Access::Write as u32, Ordering::SeqCst);
                return Err(limit);
            }
        }
        let parts = marks.parts.swap(0, Ordering::Relaxed);
        let done = self.hands.protect(access);
        match done {
            Ok(()) => self.hands.join(parts),
            Err(_) => _ = marks.parts.fetch_add(parts, Ordering::Relaxed),
        }
        if taken && done.is_err() {
            // In part, perhaps: as if a unit had been written since, so the next output does it again.
            marks.protection.store(Access::Read as u32, Ordering::SeqCst);
            marks.opened.fetch_add(1, Ordering::SeqCst);
        }
        if !taken && done.is_ok() {
            // Two that give it back at once are one less.
            if marks.protection.swap(Access::Write as u32, Ordering::SeqCst) != Access::Write as u32 {
                self.hands.join(1);
            }
            // Of a unit that was opened meanwhile: its thread looks at the protection after it has counted.
            fence(Ordering::SeqCst);
            self.release();
        }
        done
    }

    /// That no reader of an output whose reference has just been taken would be sent to a spare: those of outputs that are over are
    /// forgotten here.
    ///
    /// # Errors
    /// [`Limit::Redirected`]: an output is under way whose bytes are in one; a new output would be read from there, too.
    pub fn settled(&self) -> Result<(), Limit> {
        fence(Ordering::SeqCst);
        let ended = self.marks.ended.load(Ordering::SeqCst);
        let started = self.marks.started.load(Ordering::SeqCst);
        // What sets a redirect has begun before that: a long region's are not looked at for nothing.
        if started == self.marks.settled.load(Ordering::SeqCst) {
            return Ok(());
        }
        if (0..self.count).all(|unit| self.hands.redirect(unit).load(Ordering::SeqCst) == 0) {
            if started == ended {
                self.marks.settled.store(started, Ordering::SeqCst);
            }
            return Ok(());
        }
        if self.word.load().outputs() > 1 {
            return Err(Limit::Redirected);
        }
        // A fault that is being mended now finds the next output, and saves what that is to read.
        self.settle();
        Ok(())
    }

    /// Nothing reads the region any more: its spares are not looked at again.
    pub fn settle(&self) {
        for unit in 0..self.count {
            if self.hands.redirect(unit).load(Ordering::Relaxed) != 0 {
                self.hands.redirect(unit).store(0, Ordering::SeqCst);
            }
        }
    }

    /// Takes away writing, for an output whose reference has been taken. A thread that writes then faults, and is helped by
    /// [`Guard::mend`].
    ///
    /// # Errors
    /// [`Limit::Redirected`], [`Limit::Faulting`]: it is not protected as the output needs it. [`Limit::Mappings`],
    /// [`Limit::Protection`].
    pub fn arm(&self) -> Result<(), Limit> {
        let marks = self.marks;
        fence(Ordering::SeqCst);
        // Those units are open for good: the thread that opened them counted that it began first, and below it has ended.
        let opened = marks.opened.load(Ordering::SeqCst);
        // The other way round a change could begin and end in between.
        let ended = marks.ended.load(Ordering::SeqCst);
        let started = marks.started.load(Ordering::SeqCst);
        if started != ended {
            return Err(Limit::Faulting);
        }
        self.settled()?;
        // Protected since an earlier output, and not written since: nothing to do.
        if self.was_opened() || marks.protection() != Access::Read {
            self.protect(Access::Read)?;
            // A unit that is opened meanwhile, perhaps after that, is not among these.
            marks.closed.store(opened, Ordering::SeqCst);
        }
        // A thread that gives writing back from here on finds an output under way, and saves the bytes first.
        fence(Ordering::SeqCst);
        match marks.started.load(Ordering::SeqCst) == started {
            true => Ok(()),
            false => Err(Limit::Faulting),
        }
    }

    /// Gives writing back if no output is under way.
    pub fn disarm(&self, generation: u32) {
        if self.marks.protection() != Access::Read {
            return;
        }
        self.marks.started.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let value = self.word.load();
        if value.outputs() == 0 && value.generation() == generation && value.state().is_usable() {
            let _ = self.protect(Access::Write);
        }
        self.marks.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the region was written since writing was taken away.
    pub fn was_written(&self) -> bool {
        self.was_opened() || self.marks.protection() == Access::Write
    }

    fn was_opened(&self) -> bool {
        self.marks.opened.load(Ordering::SeqCst) != self.marks.closed.load(Ordering::SeqCst)
    }

    /// No room is kept for protections of units: the region has one.
    pub fn release(&self) {
        self.hands.join(self.marks.parts.swap(0, Ordering::Relaxed));
    }

    /// Gives writing back for the region whatever reads it: all that may still be read is saved first.
    ///
    /// # Errors
    /// [`Limit::Protection`].
    pub fn give_up(&self) -> Result<(), Limit> {
        self.marks.started.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let done = self.save_all_and_open();
        self.marks.ended.fetch_add(1, Ordering::SeqCst);
        done
    }

    /// A write to `unit` faulted. True: the write can be tried again. Signals' handlers do not run in this thread meanwhile: one that writes to
    /// the same unit would wait for what it has interrupted.
    pub fn mend(&self, unit: usize) -> bool {
        self.mended(unit).unwrap_or_else(|| {
            // This one tries its write again.
            self.hands.rest();
            true
        })
    }

    /// The kernel is about to write to `unit`. True: it can. Else as [`Guard::mend`].
    pub fn mend_for_good(&self, unit: usize) -> bool {
        loop {
            if let Some(done) = self.mended(unit) {
                return done;
            }
            self.hands.rest();
        }
    }

    /// Whether the unit can be written now. `None`: another thread is at it.
    fn mended(&self, unit: usize) -> Option<bool> {
        match self.marks.protection() {
            Access::Write => return Some(true),
            Access::None => return Some(false),
            Access::Read => {}
        }
        let claim = &self.hands.claim(unit).0;
        if claim.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return None;
        }
        self.marks.started.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let value = self.word.load();
        let usable = value.state().is_usable();
        let alone = usable && value.outputs() != 0 && {
            self.save(unit);
            self.marks.opened.fetch_add(1, Ordering::SeqCst);
            self.open(unit).is_ok()
        };
        // Not kept any longer: what follows may wait for the claims of other units, one at a time.
        claim.store(0, Ordering::SeqCst);
        let done = if alone {
            true
        } else if !usable {
            // The application has given it away.
            false
        } else if value.outputs() == 0 {
            // All of it: a fault costs as much as giving back some hundred pages.
            self.protect(Access::Write).is_ok()
        } else {
            self.save_all_and_open().is_ok()
        };
        self.marks.ended.fetch_add(1, Ordering::SeqCst);
        Some(done)
    }

    /// Keeps what a reader of a unit is owed. The caller has the unit's claim, and has counted that it began.
    fn save(&self, unit: usize) {
        let redirect = self.hands.redirect(unit);
        if redirect.load(Ordering::SeqCst) == 0 {
            self.hands.save(unit);
            redirect.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.word.load().outputs() == 0 {
                redirect.store(0, Ordering::SeqCst);
            }
        }
    }

    fn open(&self, unit: usize) -> Result<(), Limit> {
        self.hands.part()?;
        self.marks.parts.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.marks.protection() == Access::Write {
            // Another thread has given all of it back.
            self.release();
            return Ok(());
        }
        self.hands.open(unit)
    }

    /// The caller has counted that it began, and has no claim.
    #[cold]
    fn save_all_and_open(&self) -> Result<(), Limit> {
        for unit in 0..self.count {
            if self.marks.protection() == Access::Write {
                return Ok(());
            }
            let claim = &self.hands.claim(unit).0;
            while claim.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                self.hands.rest();
            }
            self.save(unit);
            claim.store(0, Ordering::SeqCst);
        }
        self.protect(Access::Write)
    }
}

/// A reader of a unit: `copy` is told whether to take the saved one. A redirect changes once in an output's life; one that changes
/// again is a scribbler's, whose bytes are any bytes.
#[inline]
pub fn read(redirect: &AtomicU32, mut copy: impl FnMut(bool)) {
    let mut saved = redirect.load(Ordering::Acquire);
    for _ in 0..2 {
        copy(saved != 0);
        fence(Ordering::Acquire);
        let now = redirect.load(Ordering::Acquire);
        if now == saved {
            break;
        }
        saved = now;
    }
}
