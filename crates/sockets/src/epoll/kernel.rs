//! The kernel's half of a set: asking it, and sorting what it says.

use super::entry::{address, entry_at};
use super::nested::inner_ready;
use super::plain::plain;
use super::scan::Events;
use super::set::{activate, Set};
use super::{ERR, HUP, TAG, TAG_MASK};
use crate::readiness;
use crate::table::Kind;
use core::sync::atomic::Ordering;
use shunt_sys::libc::{epoll_event, sigset_t, timespec};
use shunt_sys::{calls, clock, libc, Errno, Result};

/// Ticks between questions to the kernel while streams alone keep a set busy.
pub(super) const KERNEL_EVERY: u64 = 60_000;

/// The same where descriptors of the kernel's are in the set, whose events belong in the same answer: only a program
/// that asks again within two microseconds spares the question.
pub(super) const KERNEL_EVERY_MIXED: u64 = 5_000;

pub(super) const BATCH: usize = 64;

/// Asks the kernel's set, for `timeout` ns (`None`: for ever), and sorts what it says.
pub(super) fn ask_kernel(
    set: &'static Set,
    epfd: i32,
    events: &mut Events,
    timeout: Option<u64>,
    mask: *const sigset_t,
) -> Result<()> {
    let mut batch = [epoll_event { events: 0, u64: 0 }; BATCH];
    let room = (events.room - events.count).min(BATCH);
    if room == 0 {
        return Ok(());
    }
    let time = timeout.map(|ns| timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
    let pointer = time.as_ref().map_or(core::ptr::null(), |t| t as *const timespec);
    let got = calls::epoll_pwait2(epfd, batch.as_mut_ptr(), room as i32, pointer, mask, calls::KERNEL_SIGSET)?;
    set.last_kernel.store(clock::ticks(), Ordering::Relaxed);
    if got == 0 {
        return Ok(());
    }
    sort(set, &batch[..got], events)
}

/// Sorts the kernel's events: streams become active, ours get the program's data back, others pass as they are.
pub(super) fn sort(set: &'static Set, batch: &[epoll_event], events: &mut Events) -> Result<()> {
    let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
    let mut listeners = [u32::MAX; 8];
    for event in batch {
        let (flags, data) = (event.events, event.u64);
        let entry = if data & TAG_MASK == TAG { entry_at(data as u32) } else { None };
        let Some(entry) = entry else {
            events.push(flags, data);
            continue;
        };
        if entry.set.load(Ordering::Acquire) != address(set) {
            continue; // removed meanwhile, or registered by another process after a fork
        }
        // SAFETY: null or a slab object.
        let socket = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() };
        match (socket.map(|s| s.kind()), socket) {
            (Some(Kind::Stream), Some(socket)) => {
                if flags & (ERR | HUP) != 0 {
                    readiness::note_gone(socket);
                }
                if !entry.dormant.load(Ordering::Relaxed) {
                    activate(set, entry);
                }
            }
            (None, _) if !entry.inner.load(Ordering::Acquire).is_null() => {
                // The inner set heard a bell: whether it has events is seen in memory, or is the kernel's to say.
                // SAFETY: not null.
                let inner = unsafe { &*entry.inner.load(Ordering::Acquire) };
                if plain(inner) || inner_ready(inner) {
                    events.push(flags, entry.data.load(Ordering::Relaxed));
                }
            }
            (Some(Kind::Listener), _) => {
                // Both queues may have spoken: one event is enough.
                if !listeners.contains(&entry.index) {
                    if let Some(slot) = listeners.iter_mut().find(|s| **s == u32::MAX) {
                        *slot = entry.index;
                    }
                    events.push(flags, entry.data.load(Ordering::Relaxed));
                }
            }
            _ => events.push(flags, entry.data.load(Ordering::Relaxed)),
        }
    }
    Ok(())
}
