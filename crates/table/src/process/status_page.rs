//! What tools see of this process: reasons per descriptor and counters, in a memfd that `shunt why` reads.

pub use crate::status_rows::{address, descriptor, forget, receivers};
use crate::status_rows::{own, BEING_MADE, PAGE};
use core::sync::atomic::Ordering;
use shunt_segment::process::{self, row, ProcessState, ROWS};
use shunt_segment::reason::Reason;
use shunt_segment::tap::{self, Tap};
use shunt_sys::libc::{self, MFD_ALLOW_SEALING, MFD_CLOEXEC};
use shunt_sys::{calls, mapping};

use crate::private;

/// Makes the state of this process. Failing leaves the program without `shunt why`, nothing else.
pub fn start() {
    if private::are_scarce() {
        return leave(); // it would take a descriptor that the program may need
    }
    if calls::soft_limit(libc::RLIMIT_FSIZE) < process::SIZE as u64 {
        return leave(); // ftruncate would raise SIGXFSZ
    }
    let Ok(fd) = calls::memfd_create(process::NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING) else { return };
    let Ok(fd) = private::keep(fd) else { return };
    // A child that has other rights may still have the descriptor: it is not to make the file shorter, which would end this process.
    let sized = calls::ftruncate(fd, process::SIZE as i64);
    let sealed = sized.and_then(|_| calls::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK as usize));
    if sealed.is_err() {
        private::close(fd);
        return;
    }
    let Ok(memory) = mapping::shared(fd, process::SIZE) else {
        private::close(fd);
        return;
    };
    let state = memory.cast::<ProcessState>();
    // SAFETY: fresh zeroed memory of the right size.
    let header = unsafe { &(*state).header };
    header.version.store(shunt_segment::VERSION, Ordering::Relaxed);
    header.pid.store(calls::getpid(), Ordering::Relaxed);
    header.rows.store(ROWS as u32, Ordering::Relaxed);
    header.magic.store(process::MAGIC, Ordering::Release);
    let old = PAGE.state.swap(state, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: both are mapped.
        unsafe { inherit_found(&*old, &*state) };
        for (to, from) in rows(state).iter().zip(rows(old)) {
            let word = from.load(Ordering::Relaxed);
            if word != 0 {
                to.store(word, Ordering::Relaxed);
            }
        }
        let _ = calls::munmap(old.cast(), process::SIZE);
        private::close(PAGE.fd.load(Ordering::Relaxed));
    }
    forget_tap();
    PAGE.fd.store(fd, Ordering::Relaxed);
    PAGE.owner.store(calls::getpid() as i32, Ordering::Release);
}

/// Which capture has what this process sends and receives; 0: none.
#[inline]
pub fn capture() -> u32 {
    own().map_or(0, |state| state.header.tap.load(Ordering::Acquire))
}

/// The tool that made this capture has gone: nothing is noted, unless another one has begun, and the memory for it is given back.
#[cold]
pub fn end_capture(capture: u32) {
    let Some(state) = own() else { return };
    let ended = state.header.tap.compare_exchange(capture, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let tap = PAGE.tap.load(Ordering::Acquire);
    if ended && !tap.is_null() {
        // Behind the words that both sides count by. What a thread still writes there is a page that is made anew.
        let ring = tap.wrapping_add(1).cast::<u8>();
        let _ = calls::madvise(ring, tap::RING, libc::MADV_REMOVE);
    }
}

/// Before this process runs for another user: its parent's page is not to be in its hands, through which the parent could be told to note what it
/// sends.
#[cold]
pub fn separate() {
    if PAGE.owner.load(Ordering::Relaxed) == 0 {
        let made = state().is_some();
        if !made && PAGE.owner.load(Ordering::Relaxed) == 0 {
            leave();
        }
    }
}

/// Where that is noted; `None`: no tool captures it, or what it has made room for cannot be mapped.
pub fn tap() -> Option<&'static Tap> {
    if capture() == 0 {
        return None;
    }
    let mut found = PAGE.tap.load(Ordering::Acquire);
    if found.is_null() {
        let fd = PAGE.fd.load(Ordering::Relaxed);
        // A file that is shorter than the mapping would be this process's end.
        if calls::status_of(fd).ok()?.st_size < (tap::OFFSET + tap::SIZE) as i64 {
            return None;
        }
        let made = mapping::shared_part(fd, tap::OFFSET, tap::SIZE).ok()?.cast::<Tap>();
        found = match PAGE.tap.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                let _ = calls::munmap(made.cast(), tap::SIZE);
                other
            }
        };
    }
    // SAFETY: mapped, until this process forks or makes another state.
    Some(unsafe { &*found })
}

/// Another state, or none: what was noted is the old one's, and stays mapped where a thread may be at it.
fn forget_tap() {
    PAGE.tap.store(core::ptr::null_mut(), Ordering::Release);
}

/// Without a state: after a fork it is the parent's.
fn leave() {
    forget_tap();
    let old = PAGE.state.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !old.is_null() {
        let _ = calls::munmap(old.cast(), process::SIZE);
        private::close(PAGE.fd.swap(-1, Ordering::Relaxed));
    }
}

/// In a copy of the process that has nothing of the other's descriptors: a state of its own.
pub fn begin_anew() {
    forget_tap();
    let old = PAGE.state.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !old.is_null() {
        let _ = calls::munmap(old.cast(), process::SIZE);
    }
    PAGE.fd.store(-1, Ordering::Relaxed);
    start();
}

fn rows(state: *mut ProcessState) -> &'static [shunt_segment::sync::AtomicU32] {
    let high = (crate::table::high_water().max(64) as usize).min(ROWS);
    // SAFETY: a mapped state.
    unsafe { &(&(*state).rows)[..high] }
}

/// In the child after fork: the state still is the parent's; the first note makes our own.
pub fn forked() {
    let tap = PAGE.tap.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !tap.is_null() {
        let _ = calls::munmap(tap.cast(), tap::SIZE); // a child has one thread, which is here
    }
    PAGE.owner.store(0, Ordering::Relaxed);
}

fn state() -> Option<&'static ProcessState> {
    // In a child of a fork one thread makes it, of however many there are by now.
    let begins = || PAGE.owner.compare_exchange(0, BEING_MADE, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if PAGE.owner.load(Ordering::Relaxed) == 0 && !PAGE.state.load(Ordering::Relaxed).is_null() && begins() {
        start();
        // Where it could not, the next note tries again.
        let _ = PAGE.owner.compare_exchange(BEING_MADE, 0, Ordering::Release, Ordering::Relaxed);
    }
    own()
}

/// Notes what `fd` is, and counts the reason.
pub fn note(fd: i32, kind: u8, reason: Reason, channel: Option<usize>) {
    if let Some(state) = state() {
        show_in(state, fd, kind, reason, channel);
        if !matches!(reason, Reason::Unconnected | Reason::Unknown) {
            state.header.counters[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The same of a further number of what is counted once.
pub fn show(fd: i32, kind: u8, reason: Reason) {
    if let Some(state) = state() {
        show_in(state, fd, kind, reason, None);
    }
}

fn show_in(state: &ProcessState, fd: i32, kind: u8, reason: Reason, channel: Option<usize>) {
    if let Some(slot) = state.rows.get(fd as u32 as usize) {
        let channel = channel.map_or(0, |c| c as u16 + 1);
        slot.store(row::pack(reason as u8, kind, channel), Ordering::Relaxed);
    }
}

/// The reason that was noted of `fd`.
pub fn reason(fd: i32) -> Reason {
    let word = state().and_then(|state| Some(state.rows.get(fd as u32 as usize)?.load(Ordering::Relaxed)));
    word.and_then(|word| Reason::from_code(row::reason(word))).unwrap_or(Reason::Unknown)
}

/// Counts a reason that belongs to no descriptor.
pub fn count(reason: Reason) {
    if let Some(state) = state() {
        state.header.counters[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Of waits that are over, so many ticks of looking; and if this one slept, for how long.
#[cold]
pub fn waited(spun: u64, slept: Option<u64>) {
    // In the child of a fork it is the parent's until something is noted.
    let Some(state) = own() else { return };
    let waits = &state.header.waits;
    waits.spun.fetch_add(spun, Ordering::Relaxed);
    if let Some(slept) = slept {
        waits.sleeps.fetch_add(1, Ordering::Relaxed);
        waits.slept.fetch_add(slept, Ordering::Relaxed);
    }
}

/// Tells of an object, by its file's name, whose own instructions could make calls on connections, and of one such call. See
/// [`process::found`] for its fate.
pub fn found(name: &[u8], call: Option<u32>, fate: u32) {
    let Some(state) = state() else { return };
    let Some(place) = state.header.found.iter().find(|place| place.fate.load(Ordering::Relaxed) == 0) else { return };
    let mut padded = [0; process::found::NAME];
    let length = name.len().min(padded.len());
    padded[..length].copy_from_slice(&name[..length]);
    for (word, bytes) in place.name.iter().zip(padded.chunks_exact(8)) {
        word.store(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), Ordering::Relaxed);
    }
    place.call.store(call.map_or(0, |call| call.wrapping_add(1)), Ordering::Relaxed);
    place.fate.store(fate, Ordering::Release);
}

/// What is loaded in the parent of a fork is in the child.
fn inherit_found(from: &ProcessState, to: &ProcessState) {
    for (from, to) in from.header.found.iter().zip(&to.header.found) {
        from.name.iter().zip(&to.name).for_each(|(from, to)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        to.call.store(from.call.load(Ordering::Relaxed), Ordering::Relaxed);
        to.fate.store(from.fate.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// `to` is now what `from` is.
pub fn copy(from: i32, to: i32) {
    if let Some(state) = state() {
        if let (Some(a), Some(b)) = (state.rows.get(from as u32 as usize), state.rows.get(to as u32 as usize)) {
            b.store(a.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    crate::private::renumber(&PAGE.fd, from, to);
}
