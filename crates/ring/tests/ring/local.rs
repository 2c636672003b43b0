//! AF_UNIX bytes in an inbox: against a model, and in exact order beside a queue of the kernel's.

use shunt_ring::inbox::Inbox;
use shunt_ring::local::{Put, Seen};
use shunt_segment::inbox::{local_charge, RING, RING_LEAST};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;

struct Memory(Vec<u64>);

impl Memory {
    fn new() -> Memory {
        // One page more, so that the inbox can begin at a multiple of its alignment.
        Memory(vec![0; (RING + RING_LEAST + 4096) / 8])
    }

    fn inbox(&mut self) -> Inbox {
        let base = self.0.as_mut_ptr().cast::<u8>();
        let base = base.wrapping_add(base.align_offset(4096));
        // SAFETY: the memory outlives the inboxes of these tests and has the right size.
        unsafe { Inbox::new(base, RING_LEAST as u32) }
    }
}

fn put(inbox: &Inbox, packet: bool, bytes: &[u8], limit: u64) -> Put {
    let half = bytes.len() / 2;
    let start = bytes.as_ptr().cast_mut();
    let pieces = [(start, half), (start.wrapping_add(half), bytes.len() - half)].into_iter().filter(|piece| piece.1 > 0);
    // SAFETY: both pieces are slices.
    unsafe { inbox.put(1, packet, 3, pieces, bytes.len(), limit, |_| std::thread::yield_now()) }
}

fn see(inbox: &Inbox, target: &mut [u8]) -> Option<Seen> {
    let (start, room) = (target.as_mut_ptr(), target.len());
    let buffers = |from: usize, most: usize| std::iter::once((start.wrapping_add(from), most.min(room - from)));
    // SAFETY: inside the slice.
    unsafe { inbox.see_bytes(room, buffers) }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_stream_is_what_was_put_whatever_parts_are_taken() {
    for seed in 1..40u64 {
        let (mut memory, mut state, mut next) = (Memory::new(), seed * 0x9e37_79b9, 0u8);
        let inbox = memory.inbox();
        let mut model: VecDeque<u8> = VecDeque::new();
        inbox.open();
        for _ in 0..2000 {
            let size = [1, 40, 41, 64, 500, 5000, 30_000][random(&mut state) as usize % 7];
            let size = 1 + random(&mut state) as usize % size;
            match random(&mut state) % 5 {
                0 | 1 => {
                    let bytes: Vec<u8> = (0..size).map(|i| next.wrapping_add(i as u8)).collect();
                    match put(&inbox, false, &bytes, 60_000) {
                        Put::Done => {
                            next = next.wrapping_add(size as u8);
                            model.extend(bytes);
                        }
                        Put::Full => assert!(inbox.waiting_charge() + local_charge(size, false) > 60_000),
                        other => panic!("{other:?}"),
                    }
                }
                2 => {
                    let mut bytes = vec![0; size];
                    match see(&inbox, &mut bytes) {
                        None => assert!(model.is_empty()),
                        Some(seen) => {
                            assert_eq!(seen.copied, size.min(model.len()));
                            assert!(bytes.iter().zip(&model).take(seen.copied).all(|(a, b)| a == b));
                            assert!(inbox.is_still(&seen) && inbox.take_seen(&seen) && !inbox.take_seen(&seen));
                            model.drain(..seen.copied);
                        }
                    }
                }
                3 => assert_eq!(inbox.waiting_bytes(), model.len()),
                _ => {
                    inbox.enter();
                    assert_eq!(put(&inbox, false, &[1], 60_000), Put::Kernel);
                    inbox.leave();
                    assert!(inbox.open());
                }
            }
            assert_eq!(inbox.is_empty(), model.is_empty());
            assert_eq!(inbox.waiting_charge() == 0, model.is_empty());
        }
    }
}

#[test]
fn packets_come_one_by_one_and_empty_ones_too() {
    let mut memory = Memory::new();
    let inbox = memory.inbox();
    inbox.open();
    for size in [5usize, 0, 100, 20_000] {
        assert_eq!(put(&inbox, true, &vec![size as u8; size], 90_000), Put::Done);
    }
    for size in [5usize, 0, 100, 20_000] {
        let mut bytes = vec![0; 50];
        let start = bytes.as_mut_ptr();
        // SAFETY: inside the slice.
        let seen = unsafe { inbox.see_packet(50, |from, most| std::iter::once((start.wrapping_add(from), most))) }.unwrap();
        assert_eq!((seen.whole, seen.copied), (size, size.min(50)));
        assert!(bytes[..seen.copied].iter().all(|byte| *byte == size as u8) && inbox.take_seen(&seen));
    }
    assert!(inbox.is_empty());
}

/// The rule of `shunt_inbox::local`: the ring comes before the kernel's queue; a sender writes to the ring only when that
/// queue is empty, a receiver looks there only with the gate shut and the ring empty.
#[test]
fn the_order_is_exact_beside_a_queue_of_the_kernels() {
    let mut memory = Memory::new();
    let inbox = &memory.inbox();
    let kernel: &Mutex<VecDeque<u32>> = &Mutex::new(VecDeque::new());
    let through = [&AtomicU32::new(0), &AtomicU32::new(0)];
    let expected = &Mutex::new(0u32);
    let ended = &AtomicBool::new(false);
    const COUNT: u32 = 60_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 77;
            for number in 0..COUNT {
                if number % 100 == 0 {
                    // Readers that have all look at the kernel's queue in vain, and open the gate: this one goes to the ring.
                    while *expected.lock().unwrap() != number || put(inbox, false, &number.to_le_bytes(), 50_000) != Put::Done {
                        std::thread::yield_now();
                    }
                    through[0].fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let clean = kernel.lock().unwrap().is_empty();
                // Now and then the sender needs the kernel: rights, say.
                let ring = clean && !random(&mut state).is_multiple_of(16);
                if ring && put(inbox, false, &number.to_le_bytes(), 50_000) == Put::Done {
                    through[0].fetch_add(1, Ordering::Relaxed);
                } else {
                    through[1].fetch_add(1, Ordering::Relaxed);
                    kernel.lock().unwrap().push_back(number);
                }
            }
        });
        for reader in 0..2u64 {
            scope.spawn(move || {
                let mut state = 99 + reader;
                let mut bytes = [0; 4];
                while !ended.load(Ordering::Relaxed) {
                    // Readers take turns, so that what each got can be compared.
                    let mut next = expected.lock().unwrap();
                    let mut check = |number: u32| {
                        assert_eq!(number, *next);
                        *next += 1;
                        ended.store(*next == COUNT, Ordering::Relaxed);
                    };
                    if let Some(seen) = see(inbox, &mut bytes) {
                        assert_eq!(seen.copied, 4);
                        if inbox.take_seen(&seen) {
                            check(u32::from_le_bytes(bytes));
                        }
                        continue;
                    }
                    inbox.enter();
                    if inbox.is_empty() {
                        if let Some(number) = kernel.lock().unwrap().pop_front() {
                            check(number);
                        }
                    }
                    inbox.leave();
                    if !random(&mut state).is_multiple_of(4) {
                        inbox.open();
                    }
                }
            });
        }
    });
    assert!(through.iter().all(|way| way.load(Ordering::Relaxed) > 100), "{through:?}");
}
