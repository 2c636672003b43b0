//! Pools and files that go over streams by reference: those of this process that peers may see, and those of peers that are mapped, or open.
//!
//! A pool of a peer's stays mapped while a stream reads it, and until another one is to be mapped, so that a connection that is made anew
//! finds it. A file of a program's own goes with the stream: its memory is to be free when the program gives it up.

use core::sync::atomic::{AtomicU32, Ordering};
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
    with(|memory| memory.own.enter(shown, thread::process())).unwrap_or(Err(Errno(libc::EBUSY)))
}

/// The pool of this number, if it is still there.
pub(crate) fn pool(number: u32) -> Option<Shown> {
    let found = with(|memory| memory.own.get(number))?;
    found.filter(|shown| shown.is_there(thread::process()))
}

/// Pools that a stream looks for, in its life: each look costs a mapping, and of a file the way past all of its locks. A peer that offers more, or
/// others again and again, has them copied, until bytes that it sends by reference have saved as much as a look costs.
const LOOKS: u32 = 32;
const EARNS: u64 = 1 << 20;

/// `length` bytes of a peer's memory, which begin at `position` of the stream, are received: each MiB earns another look. The caller holds the receiving lock.
pub(crate) fn earn(looks: &AtomicU32, position: u64, length: usize) {
    if position / EARNS != (position + length as u64) / EARNS {
        looks.store(looks.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }
}

/// The pool that a peer offers, mapped now if it is not. `place` is where the stream keeps that it reads it, `looks` how often it looked for one.
/// Nothing of the offer is believed: it names a pool by its secret. The caller holds the stream's receiving lock.
pub(crate) fn view(place: &AtomicU32, looks: &AtomicU32, offer: &ShownPool) -> Option<View> {
    let secret = offer.secret.each_ref().map(|half| half.load(Ordering::Relaxed));
    let (owner, descriptor) = (offer.pid.load(Ordering::Relaxed), offer.descriptor.load(Ordering::Relaxed));
    if let Some(known) = with(|memory| memory.views.known(place, secret))? {
        return Some(known);
    }
    // Where the process is confined no call is made that the program does not make.
    if kernel_only::confined() || !may_look(looks) {
        return None;
    }
    // Without the lock: what a peer names may take its time, and is nothing to other streams.
    let view = View::open(owner, descriptor, secret, keep).ok()?;
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

/// One look more, if there is one. Counted before it is made.
fn may_look(looks: &AtomicU32) -> bool {
    looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < LOOKS).then_some(count + 1)).is_ok()
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
