//! Slabs, what children share, buffers of one call, and the lock of slow paths.

use super::*;
use crate::global::{Mutex, SETUP};
use crate::memory::joint::Joint;
use crate::memory::pieces::Pieces;
use crate::memory::scratch::Scratch;
use crate::memory::slab::{Slab, Slabbed};
use crate::poll_set::Entries;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use libc::iovec;
use std::collections::HashSet;

struct Thing {
    value: AtomicU64,
    next: AtomicPtr<Thing>,
}

// SAFETY: atomics.
unsafe impl Slabbed for Thing {
    const AT_ONCE: usize = 4;

    fn next_free(&self) -> &AtomicPtr<Thing> {
        &self.next
    }
}

#[test]
fn a_slab_gives_each_object_once_and_the_last_one_back_first() {
    static THINGS: Slab<Thing> = Slab::new();
    let things: Vec<_> = {
        let _setup = SETUP.lock().unwrap();
        (0..11).map(|_| THINGS.take().unwrap()).collect()
    };
    assert_eq!(things.iter().map(|thing| *thing as *const Thing).collect::<HashSet<_>>().len(), 11);
    assert!(things.iter().all(|thing| thing.value.load(Ordering::Relaxed) == 0));
    things[3].value.store(77, Ordering::Relaxed);
    THINGS.give(things[5]);
    THINGS.give(things[3]);
    let _setup = SETUP.lock().unwrap();
    let again = [THINGS.take().unwrap(), THINGS.take().unwrap()];
    assert!(core::ptr::eq(again[0], things[3]) && core::ptr::eq(again[1], things[5]));
    assert_eq!(again[0].value.load(Ordering::Relaxed), 77, "as its last user left it");
}

#[test]
fn what_children_share_is_zeroed_aligned_and_nobody_else_s() {
    #[repr(align(256))]
    struct Large(#[allow(dead_code)] [u8; 3_000]);
    let store = Joint::new();
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for turn in 0..60 {
        let (at, size) = match turn % 3 {
            0 => (store.take::<u8>().unwrap() as usize, 1),
            1 => (store.take::<u64>().unwrap() as usize, 8),
            _ => (store.take::<Large>().unwrap() as usize, size_of::<Large>()),
        };
        assert_eq!(at % [1, 8, 256][turn % 3], 0);
        assert!(taken.iter().all(|(other, length)| at + size <= *other || other + length <= at));
        // SAFETY: memory that was taken for this.
        unsafe {
            let bytes = core::slice::from_raw_parts_mut(at as *mut u8, size);
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(0xff);
        }
        taken.push((at, size));
    }
    store.forked();
    let own = store.take::<u64>().unwrap() as usize;
    assert!(taken.iter().all(|(other, length)| own + 8 <= *other || other + length <= own), "the rest is the parent's");
}

#[test]
fn an_array_of_a_call_is_as_long_as_was_asked_for() {
    for length in [0, 1, 64, 65, 5_000] {
        let frame = 0u8;
        let mut scratch = Scratch::new(length, 9u32, &raw const frame as usize).unwrap();
        assert!(scratch.items().len() == length && scratch.items().iter().all(|item| *item == 9));
        scratch.items().iter_mut().for_each(|item| *item = 1);
        assert_eq!(scratch.items().iter().sum::<u32>(), length as u32);
    }
}

#[test]
fn pieces_from_anywhere_are_the_bytes_of_the_buffers_in_order() {
    let mut random = random_numbers(0x9e37_79b9_7f4a_7c15);
    for _ in 0..300 {
        let memory = [0u8; 256];
        let list: Vec<iovec> = (0..random() % 6)
            .map(|_| {
                let at = random() as usize % 200;
                iovec { iov_base: memory[at..].as_ptr().cast_mut().cast(), iov_len: random() as usize % 50 }
            })
            .collect();
        // SAFETY: as many entries as the list has.
        let pieces = unsafe { Pieces::new(list.as_ptr(), list.len()) }.unwrap();
        let addresses = |start: usize, length: usize| start..start + length;
        let all: Vec<usize> = list.iter().flat_map(|piece| addresses(piece.iov_base as usize, piece.iov_len)).collect();
        let (skip, most) = (random() as usize % 120, random() as usize % 120);
        let told: Vec<usize> = pieces.from(skip, most).flat_map(|(start, length)| addresses(start as usize, length)).collect();
        assert_eq!(told, all.iter().copied().skip(skip).take(most).collect::<Vec<_>>());
        assert!(pieces.from(skip, most).all(|(_, length)| length > 0));
        let shorter = pieces.without_last();
        assert_eq!(shorter.from(0, usize::MAX).map(|(_, length)| length).sum::<usize>(), all.len().saturating_sub(1));
    }
}

#[test]
fn a_vector_is_copied_before_it_is_used() {
    let mut list = [iovec { iov_base: core::ptr::null_mut(), iov_len: 3 }; 9];
    let start = list.as_mut_ptr();
    for count in [0, 1, 8, 9] {
        // SAFETY: nine entries.
        let length = unsafe {
            Pieces::with(start, count, |pieces| {
                if count > 0 {
                    (*start).iov_len = 1_000_000; // as another thread may
                }
                Ok(pieces.length())
            })
        };
        list[0].iov_len = 3;
        assert_eq!(length, Ok(3 * count));
    }
    // SAFETY: none is read of too many.
    assert_eq!(unsafe { Pieces::with(start, 1025, |_| Ok(())) }, Err(Errno(libc::EINVAL)));
}

#[test]
fn a_set_of_poll_is_copied_and_told_of_its_events_alone() {
    for count in [1, 512, 513, 2_000] {
        let mut set: Vec<libc::pollfd> = (0..count).map(|fd| libc::pollfd { fd, events: 1, revents: -1 }).collect();
        // SAFETY: read before all else, into room for as many as the set has.
        unsafe {
            let mut entries = Entries::new(count as usize);
            assert!(entries.read(set.as_ptr()));
            for entry in entries.slice() {
                (entry.revents, entry.events, entry.fd) = (entry.fd as i16 & 7, 99, -5);
            }
            entries.write(set.as_mut_ptr()).unwrap();
        }
        assert!(set
            .iter()
            .enumerate()
            .all(|(fd, entry)| { (entry.fd, entry.events, entry.revents) == (fd as i32, 1, fd as i16 & 7) }));
    }
}

#[test]
fn a_lock_of_slow_paths_is_one_thread_s_and_never_its_handler_s() {
    let lock = Mutex::new();
    let held = lock.lock().unwrap();
    assert!(lock.lock().is_none(), "a handler that interrupted the holder would wait for ever");
    std::thread::scope(|scope| scope.spawn(|| assert!(lock.try_lock().is_none())).join().unwrap());
    drop(held);
    core::mem::forget(lock.lock().unwrap());
    lock.reset();
    assert!(lock.try_lock().is_some());
    shunt_sys::section::leave(); // of the guard that was forgotten
}

#[test]
fn a_lock_of_slow_paths_lets_one_thread_in_at_a_time() {
    let (lock, count) = (Mutex::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let _held = lock.lock().unwrap();
                    let seen = count.load(Ordering::Relaxed);
                    count.store(seen + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 8_000);
}
