//! Turns: the lock, what drives behind it, and how long a thread may sleep between two.

use core::sync::atomic::Ordering::*;
use shunt_am::{Engine, Nanoseconds};
use shunt_endpoint::Endpoint;
use shunt_sys::{calls, section};

use super::Station;
use crate::device_adapter::Inner;
use crate::lock::{self, Got};
use crate::memory::Shared;
use crate::{Driver, Progress, Pump};

/// Tries of [`Station::lock`]: some milliseconds, most of which the processor is another thread's.
const TRIES: u32 = 2000;
/// Failed tries between two questions whether the holder still exists.
const DOUBT: u32 = 64;

impl Station {
    #[inline(always)]
    fn driver(&self, got: Got) -> Option<Driver<'_>> {
        let shared = self.shared();
        // Behind the lock, as a process that leaves looks at the lock behind this: one of the two sees the other (Dekker).
        if self.left.load(SeqCst) {
            self.decline(got);
            return None;
        }
        // SAFETY: the lock is this thread's.
        let inner = unsafe { &mut *self.inner.get() };
        if got == Got::Inherited {
            Driver::recover(self, shared, inner);
        }
        // SAFETY: as above.
        let engine = match unsafe { self.engine() } {
            Some(engine) => engine,
            None => self.start_again(shared, inner)?,
        };
        Some(Driver { station: self, shared, inner, engine, heard: 0 })
    }

    /// The engine's memory is none: a process that has the station's memory wrote nonsense. Where one does so all the time there
    /// is no driver: then the lock is free again.
    #[cold]
    #[allow(clippy::mut_from_ref)] // the lock is the claim
    fn start_again<'s>(&'s self, shared: &'s Shared, inner: &mut Inner) -> Option<&'s mut Engine<'static>> {
        Driver::recover(self, shared, inner);
        // SAFETY: the lock is this thread's.
        let engine = unsafe { self.engine() };
        if engine.is_none() {
            self.decline(Got::Free);
        }
        engine
    }

    /// The engine, if there is one in its memory.
    ///
    /// # Safety
    /// The calling thread has the lock, and has not got the engine yet.
    #[allow(clippy::mut_from_ref)] // the lock is the claim
    #[inline(always)]
    unsafe fn engine(&self) -> Option<&mut Engine<'static>> {
        let layout = self.layout.as_ref()?;
        // SAFETY: promised by the caller.
        let engine = unsafe { &mut *self.engine.get() };
        if !engine.as_ref().is_some_and(|engine| engine.is_still(layout)) {
            *engine = None;
            // SAFETY: as above; there is no other slice of the words, which are mapped for as long as this handle is used.
            *engine = Engine::attach_as(unsafe { &mut *core::ptr::from_mut(self.memory.engine()) }, layout).ok();
        }
        engine.as_mut()
    }

    /// The lock, of which no use was made, is what it was.
    #[cold]
    fn decline(&self, got: Got) {
        lock::decline(&self.shared().lock.0, got);
        section::leave();
    }

    /// The right to drive, if no thread has it. `None`: one has, and will look once more before it gives it up.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Driver<'_>> {
        section::enter();
        let shared = self.shared();
        match lock::try_take(&shared.lock.0, &shared.again.0).or_else(|| self.doubt()) {
            Some(got) => self.driver(got),
            None => {
                section::leave();
                None
            }
        }
    }

    /// As [`Station::try_lock`], but leaves no mark, so that the holder does not stay because of it.
    #[inline(always)]
    pub fn lock_if_free(&self) -> Option<Driver<'_>> {
        section::enter();
        match lock::take_if_free(&self.shared().lock.0).or_else(|| self.doubt()) {
            Some(got) => self.driver(got),
            None => {
                section::leave();
                None
            }
        }
    }

    #[cold]
    fn doubt(&self) -> Option<Got> {
        let failed = self.failed.fetch_add(1, Relaxed);
        if failed % DOUBT == DOUBT - 1 {
            lock::take_from_dead(&self.shared().lock.0)
        } else {
            None
        }
    }

    /// As [`Station::try_lock`], and tries for some time (a holder needs microseconds; one that was stopped is not waited for).
    pub fn lock(&self) -> Option<Driver<'_>> {
        for turn in 0..TRIES {
            if let Some(driver) = self.lock_if_free() {
                return Some(driver);
            }
            if turn % 16 == 15 {
                calls::sched_yield();
            } else {
                core::hint::spin_loop();
            }
        }
        None
    }

    /// Takes the lock if it is free, drives, gives it back; again if another thread left a mark meanwhile. `None`: not free.
    #[inline]
    pub fn drive(&self, now: Nanoseconds, pump: &mut dyn Pump) -> Option<Progress> {
        let mut all: Option<Progress> = None;
        loop {
            let Some(mut driver) = self.try_lock() else { return all };
            let progress = driver.drive(now, pump);
            let moved = progress.moved || all.is_some_and(|all| all.moved);
            all = Some(Progress { moved, ..progress });
            if !driver.leave() {
                return all;
            }
        }
    }

    /// What is to be polled for POLLIN by a thread that sleeps, between [`Station::arm`] and [`Station::disarm`].
    pub fn poll_fd(&self) -> i32 {
        // SAFETY: see `descriptors`.
        unsafe { &*self.inner.get() }.device.descriptor()
    }

    /// Before sleeping on [`Station::poll_fd`]. False: something waits; drive. Several may sleep at once.
    pub fn arm(&self) -> bool {
        let Some(driver) = self.try_lock() else {
            // Its holder may want the processor on which the caller would look again and again.
            calls::sched_yield();
            return false;
        };
        let armed = driver.inner.device.arm();
        if armed {
            self.shared().sleepers.fetch_add(1, Relaxed);
        }
        if driver.leave() {
            // Another thread left something to do to the holder of the lock: that was us, and we must not sleep.
            if armed {
                self.disarm();
            }
            return false;
        }
        armed
    }

    /// After sleeping; then drive. While a thread drives the endpoint stays armed: at worst, the next sleep is short.
    pub fn disarm(&self) {
        let shared = self.shared();
        // Counted under the lock, as [`Station::arm`] does: a thread that arms in between would be disarmed, and no driver told
        // to arm for it again.
        let driver = self.lock_if_free();
        let left = shared.sleepers.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).unwrap_or(0);
        let Some(driver) = driver else { return };
        driver.inner.device.disarm();
        if left > 1 {
            shared.arm_again.store(1, Relaxed);
        }
    }

    /// Whether a turn would have something to do though nothing has come and no clock is due: acknowledgements of one that ended
    /// early, what the device did not take, peers and streams that are gone, sleepers to arm for.
    #[inline]
    pub fn owes(&self) -> bool {
        let shared = self.shared();
        self.left_over.load(Relaxed)
            || shared.arm_again.load(Relaxed) != 0
            || !shared.untold.is_empty()
            || !shared.wants.is_empty()
    }

    /// When a thread is to drive at the latest.
    pub fn deadline(&self) -> Option<Nanoseconds> {
        Some(self.shared().deadline.0.load(Relaxed)).filter(|at| *at != Nanoseconds::MAX)
    }

    /// When a process other than the keeper drove last.
    pub fn driven_at(&self) -> Nanoseconds {
        self.shared().driven_at.load(Relaxed)
    }

    /// This process is the keeper: its driving is not counted by [`Station::driven_at`].
    pub fn set_keeper(&self) {
        self.keeper.store(1, Relaxed);
    }

    #[inline]
    pub(crate) fn is_keeper(&self) -> bool {
        self.keeper.load(Relaxed) != 0
    }
}
