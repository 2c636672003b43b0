//! Pools and files that go over streams by reference: those of this process that peers may see, and those of peers that are mapped, or open.
//!
//! A pool of a peer's stays mapped while a stream reads it, and until another one is to be mapped, so that a connection that is made anew
//! finds it. A file of a program's own goes with the stream: its memory is to be free when the program gives it up.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use shunt_region::files::CALLS;
use shunt_region::shown::{List, Shown, View};
use shunt_region::viewed::Viewed;
use shunt_segment::channel::references::{ShownPool, SHOWN};
use shunt_sys::{calls, libc, thread, Errno, Result};
use shunt_table::global::{LockedCell, Mutex};
use shunt_table::private;
use shunt_table::process::kernel_only;
use shunt_table::table;

struct Memory {
    own: List,
    views: Viewed,
}

struct Tables {
    lock: Mutex,
    memory: LockedCell<Memory>,
}

static TABLES: Tables =
    Tables { lock: Mutex::new(), memory: LockedCell::new(Memory { own: List::new(), views: Viewed::new(close) }) };

/// One thread at a time. `None`: this one was interrupted in there.
fn with<R>(part: impl FnOnce(&mut Memory) -> R) -> Option<R> {
    let held = TABLES.lock.lock()?;
    // SAFETY: the lock is held.
    let result = part(unsafe { &mut *TABLES.memory.get() });
    drop(held);
    Some(result)
}

/// In a child of fork: no other thread exists here. What is mapped of peers' is its own, too; the pools are its parent's.
pub fn forked() {
    TABLES.lock.reset();
}

/// Enters what this process shows; gives its number. Errors: those of [`List::enter`].
pub(crate) fn enter(shown: Shown) -> Result<u32> {
    let (number, gone) = with(|memory| memory.own.enter(shown, thread::process())).unwrap_or(Err(Errno(libc::EBUSY)))?;
    if let Some(gone) = gone {
        gone.release(); // without the lock, which every receiver takes
    }
    Ok(number)
}

/// The pool of this number, if it is still there.
pub(crate) fn pool(number: u32) -> Option<Shown> {
    let found = with(|memory| memory.own.get(number))?;
    found.filter(|shown| shown.is_there(thread::process()))
}

/// Pools that a stream looks for in its life. A peer that offers more, or others again and again, has them copied, until bytes that were received by reference
/// have saved as much as such looks cost.
const LOOKS: u32 = 32;
/// What a look costs, in such bytes: a mapping, and of a file the way past all of its locks.
const COSTS: i64 = 1 << 20;
/// The same of entering a pool's pages into the page tables: one byte in so many of the pool's.
const ENTERED: usize = 64;

/// How often a stream has looked for pools of its peer's. Written under its receiving lock.
pub struct Looks {
    count: AtomicU32,
    /// Bytes that were received by reference, less what looks beyond the first ones have cost.
    earned: AtomicI64,
}

impl Looks {
    /// None yet.
    pub(crate) const fn new() -> Looks {
        Looks { count: AtomicU32::new(0), earned: AtomicI64::new(0) }
    }

    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.earned.store(0, Ordering::Relaxed);
    }

    /// `length` bytes of the peer's memory are received.
    pub(crate) fn earn(&self, length: usize) {
        self.spend(-(length as i64));
    }

    #[cfg(test)]
    pub(crate) fn earned(&self) -> i64 {
        self.earned.load(Ordering::Relaxed)
    }

    fn spend(&self, bytes: i64) {
        self.earned.store(self.earned.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Makes a look, if one may be made: whatever it finds, it is counted.
    fn make(&self, look: impl FnOnce() -> Result<View>) -> Option<View> {
        let count = self.count.load(Ordering::Relaxed);
        if count < LOOKS {
            self.count.store(count + 1, Ordering::Relaxed);
            return look().ok();
        }
        if self.earned.load(Ordering::Relaxed) < COSTS {
            return None;
        }
        self.spend(COSTS);
        look().inspect(|view| self.spend(if view.file < 0 { (view.size / ENTERED) as i64 } else { 0 })).ok()
    }
}

/// The pool that a peer offers, mapped now if it is not. `place` is where the stream keeps that it reads it, `looks` how often it looked for one.
/// Nothing of the offer is believed: it names a pool by its secret. The caller holds the stream's receiving lock.
pub(crate) fn view(place: &AtomicU32, looks: &Looks, offer: &ShownPool) -> Option<View> {
    let secret = offer.secret.each_ref().map(|half| half.load(Ordering::Relaxed));
    let (owner, descriptor) = (offer.pid.load(Ordering::Relaxed), offer.descriptor.load(Ordering::Relaxed));
    if let Some(known) = with(|memory| memory.views.known(place, secret))? {
        return Some(known);
    }
    // Where the process is confined no call is made that the program does not make.
    if kernel_only::confined() {
        return None;
    }
    // Without the lock: what a peer names may take its time, and is nothing to other streams.
    let view = looks.make(|| View::open(owner, descriptor, secret, keep))?;
    let entered = with(|memory| match memory.views.known(place, secret) {
        // Another thread was faster.
        Some(known) => (Some(known), true),
        None if memory.views.enter(secret, view) => (memory.views.known(place, secret), false),
        None => (None, true),
    });
    let (found, is_for_nothing) = entered.unwrap_or((None, true));
    if is_for_nothing {
        close(view);
    }
    found
}

/// As [`private::keep`], but of the program's own numbers, where no private one is free, none is taken for a peer's file.
fn keep(fd: i32) -> Result<i32> {
    let kept = private::duplicate(fd);
    let _ = calls::close(fd);
    kept.inspect(|kept| table::set_private(*kept))
}

fn close(view: View) {
    view.close();
    private::close(view.file);
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    with(|memory| memory.views.files().filter(|file| **file == from).for_each(|file| *file = to));
}

/// The system calls by which what peers refer to is read, while something of theirs is open: files, and the link, where bytes are that they have taken back.
pub fn reading() -> &'static [i64] {
    match with(|memory| (memory.views.is_empty(), memory.views.files().next().is_none())) {
        Some((true, _)) => &[],
        Some((false, true)) => &CALLS[..1],
        _ => &CALLS,
    }
}

/// One reader more, besides the streams, of the pool that has this place in the list.
pub(crate) fn retain(view: u32) {
    with(|memory| memory.views.retain(view));
}

/// One less.
pub(crate) fn leave(view: u32) {
    with(|memory| memory.views.leave(view));
}

/// A stream that has ended reads none any more.
pub(crate) fn release(places: &[AtomicU32; SHOWN]) {
    for place in places {
        let view = place.swap(0, Ordering::Relaxed);
        if view != 0 {
            with(|memory| {
                memory.views.leave(view);
                memory.views.close_files();
            });
        }
    }
}
