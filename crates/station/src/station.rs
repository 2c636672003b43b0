//! A process's handle on its station: making it, attaching to it, leaving it. Beside it, its turns and what is asked of its streams.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use shunt_am::{Config, Engine, Layout, Nanoseconds};
use shunt_endpoint::{Arrival, Endpoint, Tag};
use shunt_segment::address::Address;
use shunt_sys::{calls, libc, process, sleeping, Errno, Result};

use crate::device::{self, Device};
use crate::device_adapter::{Inner, SCRATCH};
use crate::lock;
use crate::memory::{store2, Count, Memory, Shared, CHANNELS};
use crate::presence::{self, Presence};
use crate::{sockaddr, Choice, Descriptors, DESCRIPTORS, PEERS};

mod streams;
mod turns;

/// Milliseconds of silence after which a path is lost: streams go on over TCP then, so this may be short, but a busy host's
/// keeper gets the processor within it.
const LOST_AFTER: u32 = 2_000;
/// How long a thread of this process that drives is left alone by one that leaves (ns).
const DRIVES: i64 = 20_000;

/// A process's handle on its station. After fork the child's copy is as good.
pub struct Station {
    memory: Memory,
    /// The engine's; `None`: it can be none.
    layout: Option<Layout>,
    inner: UnsafeCell<Inner>,
    /// In the memory of all; attached by the first turn.
    engine: UnsafeCell<Option<Engine<'static>>>,
    keeper: AtomicU32,
    /// Failed tries, to ask now and then whether the holder lives.
    failed: AtomicU32,
    /// This process has no part in it any more ([`Station::leave`]).
    left: AtomicBool,
    /// The last turn of this process's left something to the next ([`Station::owes`]).
    pub(crate) left_over: AtomicBool,
    presence: Presence,
}

// SAFETY: `inner` and `engine` are reached under the lock alone; the rest is atomic.
unsafe impl Sync for Station {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Station {}

/// The engine's shape over a device with such frames.
fn config(frame: u32, checked: bool) -> Config {
    Config { channels: CHANNELS, checked: checked.into(), lost_after: LOST_AFTER, ..Config::lossy(PEERS, frame) }
}

impl Station {
    /// Makes a station.
    ///
    /// # Errors
    /// What the device, memfd_create(2) or mmap(2) answers.
    pub fn make(choice: Choice<'_>, now: Nanoseconds) -> Result<Station> {
        let checked = match &choice {
            // The kernel, or the device, has checked UDP's sum: as good as TCP's.
            Choice::Udp { .. } | Choice::Agent { .. } => true,
            #[cfg(any(test, feature = "std"))]
            Choice::Other { checked, .. } => *checked,
        };
        let device = Device::make(choice)?;
        let frame = device.capabilities().largest.min(SCRATCH as u32);
        let memory = Memory::create(config(frame, checked).words())?;
        let shared = memory.shared();
        shared.frame.store(frame, Relaxed);
        shared.checked.store(checked.into(), Relaxed);
        shared.device.store(device.kind(), Relaxed);
        store2(&shared.secret, [Tag::random()?.0, Tag::random()?.0]);
        store2(&shared.identity, [Tag::random()?.0, Tag::random()?.0]);
        shared.now.store(now.max(1), Relaxed);
        shared.deadline.0.store(Nanoseconds::MAX, Relaxed);
        let station = Station::of(memory, device);
        station.format();
        Ok(station)
    }

    /// The station whose descriptors were inherited, by a program that was exec'd. They belong to the handle from now on, also on
    /// failure.
    ///
    /// # Errors
    /// EINVAL: memory that is no station's; what the system answers.
    pub fn attach(descriptors: Descriptors) -> Result<Station> {
        let close = |from: usize| {
            for fd in &descriptors[from..] {
                let _ = calls::close(*fd);
            }
        };
        let memory = match Memory::attach(descriptors[0]) {
            Ok(memory) => memory,
            Err(error) => {
                close(0);
                return Err(error);
            }
        };
        let shared = memory.shared();
        let config = config(shared.frame.load(Relaxed), shared.checked.load(Relaxed) != 0);
        // SAFETY: only its length is looked at.
        let enough = config.validate().is_ok() && unsafe { memory.engine() }.len() == config.words();
        let device = if enough { Device::attach(shared.device.load(Relaxed), &descriptors) } else { Err(Errno(libc::EINVAL)) };
        match device {
            // The rest are made by the process that attaches.
            Ok(device) => {
                let _ = calls::close(descriptors[6]);
                Ok(Station::of(memory, device))
            }
            Err(error) => {
                memory.unmap();
                if enough {
                    let _ = calls::close(descriptors[0]);
                    let _ = calls::close(descriptors[6]);
                } else {
                    close(0);
                }
                Err(error)
            }
        }
    }

    fn of(memory: Memory, device: Device) -> Station {
        let inner = Inner { device, arrival: Arrival::empty(), scratch: [0; SCRATCH], gone: 0, was_early: false };
        let (keeper, failed, left) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let left_over = AtomicBool::new(false);
        let config = config(memory.shared().frame.load(Relaxed), memory.shared().checked.load(Relaxed) != 0);
        let layout = Layout::of(&config).ok();
        let engine = UnsafeCell::new(None);
        let inner = UnsafeCell::new(inner);
        Station { memory, layout, engine, inner, keeper, failed, left, left_over, presence: Presence::default() }
    }

    /// Makes the engine anew. Under the lock, or before another process has the memory.
    pub(crate) fn format(&self) {
        let shared = self.shared();
        // SAFETY: see above; so no other thread has the engine that is given up here, and the words are free.
        let words = unsafe {
            *self.engine.get() = None;
            self.memory.engine()
        };
        let at = words.as_mut_ptr().cast::<u8>();
        if words.first() != Some(&0) && calls::madvise(at, words.len() * 8, libc::MADV_REMOVE).is_err() {
            words.fill(0);
        }
        let config = config(shared.frame.load(Relaxed), shared.checked.load(Relaxed) != 0);
        let made = Engine::format(words, &config, [shared.draw(), shared.draw()]);
        debug_assert!(made.is_ok());
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        self.memory.shared()
    }

    /// What is to be kept open, and handed on by those that [`Station::attach`]. They are renumbered by [`Station::renumber`].
    pub fn descriptors(&self) -> Descriptors {
        let mut all = [-1; DESCRIPTORS];
        all[0] = self.memory.fd;
        // SAFETY: descriptors change by `renumber` alone, which the caller does not call at the same time.
        unsafe { &*self.inner.get() }.device.descriptors(&mut all);
        all
    }

    /// A descriptor got another number; the old one is the caller's to close, or was replaced. No other thread uses the station
    /// meanwhile.
    pub fn renumber(&mut self, from: i32, to: i32) {
        if self.memory.fd == from {
            self.memory.fd = to;
        }
        self.inner.get_mut().device.renumber(from, to);
    }

    /// In the child after fork, before it drives: another thread of the parent's may have been attaching the engine.
    pub fn forked(&self) {
        // SAFETY: the child has one thread, and no driver: what is given up is views of memory.
        unsafe {
            self.engine.get().write(None);
            // What the parent still has to see to is the parent's.
            (*self.inner.get()).gone = 0;
            (*self.inner.get()).was_early = false;
        }
        self.left_over.store(false, Relaxed);
    }

    /// Whether the device is of no use for ever: its agent ended, or its address is gone. One call of the system's where there is an agent.
    pub fn is_over(&self) -> bool {
        // SAFETY: see `descriptors`; nothing is written.
        self.shared().stranded.load(Relaxed) != 0 || unsafe { &*self.inner.get() }.device.is_over()
    }

    /// Whether the station's address has been taken from the interface, of which `own`, from which another host is reached, makes one
    /// think: another one of its family. The kernel is asked now and then.
    pub fn address_is_gone(&self, own: &Address, now: Nanoseconds) -> bool {
        // SAFETY: see `descriptors`; nothing is written.
        let Some(here) = device::of(&unsafe { &*self.inner.get() }.device.address()) else { return false };
        presence::concerns(&here, own)
            && self.shared().stranded.load(Relaxed) == 0
            && self.presence.is_over(now, || sockaddr::is_gone(&here))
    }

    /// The station's address is gone: the station is over.
    pub fn strand(&self) {
        self.shared().stranded.store(1, Relaxed);
    }

    /// Whether the device is the kernel's UDP.
    pub fn is_over_udp(&self) -> bool {
        // SAFETY: see `descriptors`; nothing is written.
        unsafe { &*self.inner.get() }.device.kind() == crate::device::kind::UDP
    }

    /// The process, which may have been root's, is not any more: it keeps no descriptor that is for root alone.
    pub fn is_not_roots(&self) {
        // SAFETY: see `descriptors`; only the file behind a number changes.
        unsafe { &*self.inner.get() }.device.is_not_roots();
    }

    /// Whether the calling thread has the lock.
    pub fn is_driven_here(&self) -> bool {
        self.shared().lock.0.load(Relaxed) == lock::me()
    }

    /// This process has no part in the station any more: nothing of it stays mapped or open here, and a thread that is late gets no
    /// turn. Not to be called by a thread that drives. `drove`: the process may have another one that does, which is waited for.
    pub fn leave(&'static self, drove: bool) {
        let is_ours = |holder: u64| drove && holder >> 32 == lock::me() >> 32;
        self.left.store(true, SeqCst);
        // A thread that a filter killed while it drove never gives the lock back; others inherit it.
        let drives = |holder: u64| is_ours(holder) && !process::thread_has_ended(holder as u32);
        while drives(self.shared().lock.0.load(SeqCst)) {
            let _ = sleeping::nap(DRIVES);
        }
        self.memory.blank();
        self.give_back_for_the_late(is_ours);
        // SAFETY: no thread of this process has the lock, nor drives if it gets it; the handle is never dropped.
        unsafe { (*self.inner.get()).device.let_go() };
        let _ = calls::close(self.memory.fd);
    }

    /// A late thread may have taken the lock that all share, and given back the word that is this process's own by now. How it got the
    /// lock is not known: what it guards may be half-done.
    fn give_back_for_the_late(&self, is_ours: impl Fn(u64) -> bool) {
        self.memory.with_shared_lock(|word| {
            let holder = word.load(SeqCst);
            if is_ours(holder) {
                lock::abandon(word, holder);
            }
        });
    }

    /// What happened so far.
    pub fn count(&self, what: Count) -> u64 {
        self.shared().counts[what as usize].load(Relaxed)
    }
}

impl Drop for Station {
    /// The memory of others stays; this process's mapping and descriptors go.
    fn drop(&mut self) {
        self.memory.unmap();
        let _ = calls::close(self.memory.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Pump, Stream};
    use shunt_am::Data;
    use shunt_endpoint::device::local::Switch;
    use shunt_endpoint::wrapper::trace::{Event, Trace};
    use shunt_sys::section;
    use std::sync::Arc;

    struct Nobody;

    impl Pump for Nobody {
        fn bytes(&mut self, _: Stream, _: Data<'_>) {}
        fn finished(&mut self, _: Stream) {}
        fn reset(&mut self, _: Stream) {}
        fn begin(&mut self, _: Stream, _: u64) {}
        fn begun(&mut self, _: Stream) {}
        fn urgent(&mut self, _: Stream, _: u64, _: u8) {}
        fn acknowledged(&mut self, _: Stream, _: u64) {}
        fn writable(&mut self, _: &mut Driver<'_>, _: Stream) {}
        fn lost(&mut self, _: Stream) {}
    }

    /// A flush that the device refused one process is due for the next that drives, and for a process that asks when to drive.
    #[test]
    fn refused_flushes_are_everybodys() {
        let switch = Switch::new().expect("a switch");
        let flushed = Arc::new(AtomicU32::new(0));
        let device = |flushed: &Arc<AtomicU32>| {
            let flushed = Arc::clone(flushed);
            let tell = move |event: Event<'_>| {
                if matches!(event, Event::Flush(_)) {
                    flushed.fetch_add(1, Relaxed);
                }
            };
            Box::new(Trace::new(switch.plug().expect("an endpoint"), tell))
        };
        let none = Arc::new(AtomicU32::new(0));
        let first = Station::make(Choice::Other { endpoint: device(&none), checked: true }, 1).expect("a station");
        let copy = calls::fcntl(first.memory.fd, libc::F_DUPFD_CLOEXEC, 0).expect("a descriptor");
        let second = Station::of(Memory::attach(copy).expect("the same memory"), Device::Other(device(&flushed)));
        let mut driver = first.lock().expect("the lock");
        assert_eq!(driver.drive(10, &mut Nobody).deadline, None);
        // As when a frame was put and the device answered that it could not take it yet.
        first.shared().unflushed.store(1, Relaxed);
        core::mem::forget(driver);
        lock::give(&first.shared().lock.0);
        section::leave();
        let mut driver = second.lock().expect("the lock");
        assert_eq!(flushed.load(Relaxed), 0);
        assert_eq!(driver.drive(20, &mut Nobody).deadline, None);
        assert_eq!(flushed.load(Relaxed), 1, "flushed by who drives next");
        drop(driver);
        assert_eq!(first.shared().unflushed.load(Relaxed), 0);
    }

    /// Two processes' handles on one station.
    fn two() -> (&'static Station, Station) {
        let switch = Switch::new().expect("a switch");
        let device = || Box::new(switch.plug().expect("an endpoint"));
        let made = Station::make(Choice::Other { endpoint: device(), checked: true }, 1).expect("a station");
        let first: &'static Station = Box::leak(Box::new(made));
        let copy = calls::fcntl(first.memory.fd, libc::F_DUPFD_CLOEXEC, 0).expect("a descriptor");
        (first, Station::of(Memory::attach(copy).expect("the same memory"), Device::Other(device())))
    }

    /// A process that has left has nothing of the station any more, and takes no other's turn.
    #[test]
    fn who_leaves_is_not_missed() {
        let (first, second) = two();
        assert_eq!(second.shared().next(), Some(0));
        first.retire(0);
        first.retire(2);
        second.shared().used.insert(1);
        assert_eq!(second.shared().next(), Some(3));
        let driver = second.lock().expect("the lock");
        assert!(first.try_lock().is_none() && second.is_driven_here());
        drop(driver);
        first.leave(true);
        // As a late thread may find it.
        first.shared().lock.0.store(0, SeqCst);
        assert!(first.try_lock().is_none() && first.lock().is_none(), "late threads get nothing");
        assert_eq!(first.shared().lock.0.load(SeqCst), 0, "and hold nothing up");
        assert_eq!(first.shared().magic.load(Relaxed), 0);
        assert_eq!(first.shared().next(), Some(0));
        let driver = second.lock().expect("nobody has it");
        drop(driver);
        assert_eq!(second.shared().next(), Some(3));
    }

    /// A late thread may take the lock that all share, and give back the word in its place.
    #[test]
    fn who_is_late_holds_nothing_up() {
        let (first, second) = two();
        first.memory.blank();
        second.shared().lock.0.store(lock::me(), SeqCst);
        first.give_back_for_the_late(|holder| holder == lock::me());
        drop(second.lock().expect("nobody has it"));
        first.leave(true);
    }

    /// Threads that drive when one of them leaves: each has its turn to the end, none has another, and the lock is free then.
    #[test]
    fn who_leaves_waits_for_who_drives() {
        for _ in 0..50 {
            let (first, second) = two();
            let gone = Arc::new(AtomicBool::new(false));
            let drive = |gone: Arc<AtomicBool>| {
                while !gone.load(SeqCst) {
                    if let Some(mut driver) = first.try_lock() {
                        driver.drive(1, &mut Nobody);
                    }
                }
                assert!(first.try_lock().is_none());
            };
            let late = [(); 3].map(|()| {
                let gone = Arc::clone(&gone);
                std::thread::spawn(move || drive(gone))
            });
            first.leave(true);
            gone.store(true, SeqCst);
            late.into_iter().for_each(|thread| thread.join().expect("no late thread drives"));
            drop(second.lock().expect("nobody has it"));
        }
    }

    /// A process that has forbidden itself to write files, as confined servers do, leaves like any other.
    #[test]
    fn who_may_write_no_files_leaves() {
        let (first, second) = two();
        // SAFETY: the child makes system calls, frees memory and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let none = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
            let _ = calls::prlimit(0, libc::RLIMIT_FSIZE, &none, core::ptr::null_mut());
            first.leave(true);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: the child of this test.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        drop(second.lock().expect("nobody has it"));
    }
}
