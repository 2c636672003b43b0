//! The inbox of datagrams: order, charges, taking back, and writers that write whatever they like.

use shunt_ring::inbox::{Details, Inbox, Posted, Source};
use shunt_segment::inbox::{gate, RING, RING_LEAST};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

struct Memory {
    words: *mut u8,
    layout: std::alloc::Layout,
}

impl Memory {
    fn new() -> Memory {
        let layout = std::alloc::Layout::from_size_align(RING + RING_LEAST, 4096).unwrap();
        // SAFETY: the layout has a size.
        Memory { words: unsafe { std::alloc::alloc_zeroed(layout) }, layout }
    }

    fn inbox(&self, limit: u32) -> Inbox {
        // SAFETY: the memory outlives the inboxes of these tests and has the right size.
        let inbox = unsafe { Inbox::new(self.words, RING_LEAST as u32) };
        inbox.header().limit.store(limit, Ordering::Relaxed);
        inbox
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.words, self.layout) };
    }
}

// SAFETY: atomics inside.
unsafe impl Sync for Memory {}

fn source(port: u16) -> Source {
    Source { port, ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1], ..Source::default() }
}

fn post(inbox: &Inbox, me: u32, bytes: &[u8]) -> Posted {
    let half = bytes.len() / 2;
    let pieces = [(bytes.as_ptr(), half), (bytes[half..].as_ptr(), bytes.len() - half)];
    // SAFETY: both pieces are slices.
    unsafe {
        inbox.post(me, &source(me as u16), &Details::default(), pieces.into_iter(), bytes.len(), |_| std::thread::yield_now())
    }
}

fn take(inbox: &Inbox) -> Option<(u16, Vec<u8>)> {
    loop {
        let front = inbox.front()?;
        let mut bytes = vec![0u8; front.length];
        // SAFETY: the piece is a slice.
        unsafe { inbox.copy(&front, [(bytes.as_mut_ptr(), bytes.len())].into_iter()) };
        if inbox.take(&front) {
            return Some((front.source.port, bytes));
        }
    }
}

#[test]
fn datagrams_of_all_sizes_come_whole_and_in_order() {
    let memory = Memory::new();
    let inbox = memory.inbox(1 << 20);
    assert!(inbox.open());
    for round in 0..20u8 {
        for length in [0, 1, 8, 40, 41, 104, 105, 1472, 9000, 65507] {
            let bytes: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(7) ^ round).collect();
            assert_eq!(post(&inbox, 9, &bytes), Posted::Done);
            let front = inbox.front().unwrap();
            assert_eq!(front.source, source(9));
            assert_eq!(take(&inbox), Some((9, bytes)));
        }
    }
    assert!(inbox.front().is_none() && inbox.is_drained());
}

#[test]
fn an_ipv6_source_comes_whole() {
    let memory = Memory::new();
    let inbox = memory.inbox(1 << 20);
    inbox.open();
    let from = Source { v6: true, ip: *b"0123456789abcdef", port: 65535, scope: 77, processor: 3 };
    // SAFETY: the piece is a slice.
    let posted = unsafe { inbox.post(1, &from, &Details::default(), [(b"xyz".as_ptr(), 3)].into_iter(), 3, |_| ()) };
    assert_eq!(posted, Posted::Done);
    let front = inbox.front().unwrap();
    assert_eq!((front.source, front.length), (from, 3));
    assert_eq!(take(&inbox).unwrap().1, b"xyz");
}

#[test]
fn details_come_with_every_shape_of_record() {
    let memory = Memory::new();
    let inbox = memory.inbox(1 << 20);
    inbox.open();
    for bits in 0..32u32 {
        let v6 = bits & 1 != 0;
        let set = |bit: u32, value: u64| if bits & bit != 0 { value } else { 0 };
        let mut ip = [0; 16];
        ip[12..].copy_from_slice(&[127, 0, 0, 1]);
        let from = Source { v6, port: 53, ip, ..Source::default() };
        let mut to = ip;
        to[15] = if bits & 2 != 0 { 9 } else { 1 };
        let details = Details {
            to,
            ttl: 64,
            tos: 0x2e,
            segment: set(4, 1200) as u16,
            interface: set(8, 0xfedc_ba98) as u32,
            moment: 0x1234_5678 ^ bits << 28,
            stamp: set(16, u64::MAX - 5),
        };
        for length in [0, 1, 31, 32, 33, 1472] {
            let bytes = vec![bits as u8 ^ 0x5a; length];
            // SAFETY: the piece is a slice.
            let posted = unsafe { inbox.post(1, &from, &details, [(bytes.as_ptr(), length)].into_iter(), length, |_| ()) };
            assert_eq!(posted, Posted::Done);
            let front = inbox.front().unwrap();
            assert_eq!((front.source, inbox.details(&front)), (from, details), "{bits}, {length} bytes");
            assert_eq!(take(&inbox), Some((53, bytes)));
        }
    }
}

/// 212992 bytes of SO_RCVBUF hold 256 of the smallest datagrams on Linux, 92 of 1472 bytes, 3 of 65507.
#[test]
fn as_many_wait_as_the_kernel_would_keep() {
    for (length, most) in
        [(0, 256), (1, 256), (300, 166), (1472, 92), (2000, 48), (4000, 25), (9000, 12), (17000, 11), (65507, 3)]
    {
        let memory = Memory::new();
        let inbox = memory.inbox(212_992);
        inbox.open();
        for round in 0..3 {
            let mut kept = 0;
            while post(&inbox, 1, &vec![0; length]) == Posted::Done {
                kept += 1;
            }
            assert_eq!(kept, most, "{length} bytes, round {round}");
            while take(&inbox).is_some() {}
        }
    }
}

#[test]
fn a_queue_that_is_empty_takes_any_datagram() {
    let memory = Memory::new();
    let inbox = memory.inbox(2304);
    inbox.open();
    assert_eq!(post(&inbox, 1, &[1; 5000]), Posted::Done);
    assert_eq!(post(&inbox, 1, &[1; 1]), Posted::Dropped);
    assert!(take(&inbox).is_some());
    assert_eq!(post(&inbox, 1, &[1; 1]), Posted::Done);
}

#[test]
fn a_shut_gate_sends_to_the_kernel_unless_older_datagrams_wait() {
    let memory = Memory::new();
    let inbox = memory.inbox(1 << 20);
    assert_eq!(post(&inbox, 1, b"a"), Posted::Kernel);
    assert!(inbox.open());
    assert_eq!(post(&inbox, 1, b"a"), Posted::Done);
    inbox.enter();
    assert!(!inbox.open());
    // The receiver is bound to look again: the second one joins the first.
    assert_eq!(post(&inbox, 1, b"b"), Posted::Done);
    assert_eq!(take(&inbox).unwrap().1, b"a");
    assert_eq!(take(&inbox).unwrap().1, b"b");
    assert_eq!(post(&inbox, 1, b"c"), Posted::Kernel);
    inbox.leave();
    assert!(inbox.open());
    assert_eq!(post(&inbox, 1, b"d"), Posted::Done);
    // Whoever pins the gate wants the next one in the kernel, and those before it first.
    inbox.pin();
    assert_eq!(post(&inbox, 1, b"e"), Posted::Kernel);
    assert!(inbox.before_kernel());
    assert!(!inbox.may_yield(&inbox.front().unwrap()));
    assert_eq!(take(&inbox).unwrap().1, b"d");
    assert!(!inbox.before_kernel() && !inbox.open());
    inbox.unpin();
    assert!(inbox.open());
    assert_eq!(post(&inbox, 1, b"f"), Posted::Done);
    assert!(inbox.may_yield(&inbox.front().unwrap()));
    // Once a sender has used the kernel, all do until a later look finds the kernel's queue empty.
    let early = inbox.begin_look();
    inbox.after_kernel();
    inbox.note_drained(early);
    assert_eq!(post(&inbox, 1, b"g"), Posted::Kernel);
    inbox.note_drained(inbox.begin_look());
    assert_eq!(post(&inbox, 1, b"g"), Posted::Done);
    inbox.retire();
    assert_eq!(post(&inbox, 1, b"h"), Posted::Retired);
    assert!(!inbox.open() && inbox.is_retired());
}

#[test]
fn payload_never_passes_for_a_record() {
    let memory = Memory::new();
    let inbox = memory.inbox(1 << 20);
    inbox.open();
    // Each word of the payload says what a record one lap later would say.
    for _ in 0..40 {
        let lap = inbox.arrivals() + RING_LEAST as u64;
        let bytes: Vec<u8> = (0..8000u64).flat_map(|i| (((lap + 24 + 8 * i) & !63) | 1).to_le_bytes()).take(60_000).collect();
        assert_eq!(post(&inbox, 1, &bytes), Posted::Done);
        assert!(take(&inbox).is_some());
        assert!(inbox.front().is_none());
    }
}

/// Senders and receivers at once, and a gate that opens and shuts: each datagram arrives once, in the order of its
/// sender, or was refused.
#[test]
fn nothing_is_lost_doubled_or_overtaken() {
    const EACH: u32 = 30_000;
    let memory = Memory::new();
    let inbox = memory.inbox(212_992);
    let done = AtomicUsize::new(0);
    let received = std::sync::Mutex::new(Vec::new());
    let posted = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for me in 1..=3u32 {
            let (inbox, done, posted) = (memory.inbox(212_992), &done, &posted);
            scope.spawn(move || {
                let mut mine = Vec::new();
                for k in 0..EACH {
                    let mut bytes = k.to_le_bytes().to_vec();
                    bytes.resize(4 + (k % 200) as usize, k as u8);
                    if post(&inbox, me, &bytes) == Posted::Done {
                        mine.push((me as u16, k));
                    }
                }
                posted.lock().unwrap().extend(mine);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        for _ in 0..2 {
            let (inbox, done, received) = (memory.inbox(212_992), &done, &received);
            scope.spawn(move || {
                let mut mine = Vec::new();
                loop {
                    inbox.open();
                    for _ in 0..50 {
                        if let Some(one) = take(&inbox) {
                            mine.push(one);
                        }
                    }
                    inbox.enter();
                    while let Some(one) = take(&inbox) {
                        mine.push(one);
                    }
                    // Asleep now: with the gate shut and nothing waiting, nothing may come to lie here.
                    if inbox.header().gate.load(Ordering::SeqCst) & gate::SLEEPERS == 2 && done.load(Ordering::SeqCst) < 3 {
                        std::thread::yield_now();
                    }
                    inbox.leave();
                    if done.load(Ordering::SeqCst) == 3 && inbox.front().is_none() {
                        break;
                    }
                }
                received.lock().unwrap().push(mine);
            });
        }
    });
    assert!(inbox.front().is_none());
    let mut all = Vec::new();
    for mine in received.into_inner().unwrap() {
        let mut last = [None; 4];
        for (port, bytes) in mine {
            let k = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            assert!(bytes[4..].iter().all(|b| *b == k as u8) && bytes.len() == 4 + (k % 200) as usize);
            assert!(last[port as usize] < Some(k), "overtaken");
            last[port as usize] = Some(k);
            all.push((port, k));
        }
    }
    all.sort_unstable();
    let mut expected = posted.into_inner().unwrap();
    expected.sort_unstable();
    assert!(all == expected, "{} received, {} posted", all.len(), expected.len());
}

/// A sleeper that shut the gate and found nothing: no datagram may come to rest before it wakes.
#[test]
fn nothing_rests_behind_a_shut_gate() {
    let memory = Memory::new();
    let inbox = memory.inbox(212_992);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for me in 1..=2 {
            let (inbox, stop) = (memory.inbox(212_992), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    post(&inbox, me, b"x");
                }
            });
        }
        for _ in 0..2_000 {
            inbox.open();
            std::thread::yield_now();
            inbox.enter();
            while take(&inbox).is_some() {}
            // Records may still appear for an instant, until their senders take them back.
            let mut looks = 0;
            while inbox.front().is_some() {
                looks += 1;
                assert!(looks < 10_000, "a datagram rests behind the gate");
                std::thread::yield_now();
            }
            inbox.leave();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn random_words_harm_nobody() {
    let memory = Memory::new();
    let inbox = memory.inbox(212_992);
    let stop = AtomicBool::new(false);
    let base = memory.words as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut x = 0x9e37_79b9_7f4a_7c15u64;
            while !stop.load(Ordering::Relaxed) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let at = if x & 1 == 0 { 128 + (x >> 8) as usize % 320 } else { (x >> 8) as usize % (RING + RING_LEAST) } & !7;
                // SAFETY: inside the memory; what it holds is atomic words.
                let word = unsafe { &*((base + at) as *const std::sync::atomic::AtomicU64) };
                // The lock's owner is not written: a lock that nobody releases is what revocation is for.
                if at != 256 {
                    word.store(x >> (x & 63), Ordering::Relaxed);
                }
            }
        });
        for k in 0..60_000usize {
            inbox.open();
            let _ = post(&inbox, 1, &vec![1; k * 37 % 3000]);
            if let Some(front) = inbox.front() {
                let mut bytes = [0u8; 4096];
                // SAFETY: the piece is an array.
                let copied = unsafe { inbox.copy(&front, [(bytes.as_mut_ptr(), 4096)].into_iter()) };
                assert!(copied.is_some_and(|copied| copied <= 4096));
                inbox.details(&front);
                inbox.is_crowded();
                let _ = inbox.take(&front);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
