//! Words in shared memory that another sender could have written: calls stay within the memory, return, and give no more than was asked.
//! Processes of one user are not kept apart (docs/ARCHITECTURE.md), but a garbled inbox is no fault and no wait for ever.

use super::*;
use crate::datagram::inbox_table;
use shunt_ring::inbox::Inbox;
use shunt_segment::inbox::{mark, InboxHeader, MAGIC, POSITION, RING, RING_LEAST};
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, SOCK_SEQPACKET, SOCK_STREAM};
use shunt_sys::{calls, mapping};
use std::sync::atomic::{AtomicU64, Ordering};

/// The word of the ring at a position.
fn word(inbox: &Inbox, position: u64) -> &'static AtomicU64 {
    let header: &'static InboxHeader = inbox.header();
    let size = header.size.load(Ordering::Relaxed) as usize;
    let at = RING + ((position as usize % size) & !7);
    // SAFETY: inside the mapping, which is the header and a ring of this size.
    unsafe { &*core::ptr::from_ref(header).byte_add(at).cast::<AtomicU64>() }
}

/// Writes a record at the head as a sender would, with this second word, and tells of it.
fn forge(inbox: &Inbox, marks: u64, second: u64) {
    let head = inbox.header().head.load(Ordering::Relaxed) & POSITION;
    word(inbox, head + 8).store(second, Ordering::Relaxed);
    word(inbox, head).store((head & !mark::ALL) | marks | mark::PRESENT, Ordering::Relaxed);
}

#[test]
fn a_length_that_is_not_there_gives_no_more_than_was_asked_for() {
    let world = &World::new(true);
    let (near, far) = world.two();
    world.send_to(near, b"first", far).unwrap();
    world.text(far, 8, 0).unwrap();
    let inbox = world.inbox(far).unwrap();
    for marks in [0, mark::V6, mark::ALL, mark::STAMPED | mark::FURTHER] {
        for second in [u64::MAX, 0xffff, 0] {
            forge(&inbox, marks, second);
            let got = world.receive_message(far, Room { name: 28, control: 64, ..plain(&[10], MSG_DONTWAIT | MSG_TRUNC) });
            let got = got.expect("a datagram of nonsense");
            assert!(got.told <= 0xffff && got.name.1 == 16, "{got:?}");
        }
    }
}

#[test]
fn random_words_in_the_ring_are_received_or_not_and_calls_return() {
    let world = &World::new(true);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for kind in [0, SOCK_STREAM, SOCK_SEQPACKET] {
        let (near, far) = if kind == 0 { world.two() } else { world.pair(kind) };
        let send = || if kind == 0 { world.send_to(near, b"text", far) } else { world.send(near, b"text", MSG_DONTWAIT) };
        send().unwrap();
        world.text(far, 8, 0).unwrap();
        let inbox = world.inbox(far).unwrap();
        for round in 0..3_000 {
            let head = inbox.header().head.load(Ordering::Relaxed) & POSITION;
            match draw() % 4 {
                0 => (0..8).for_each(|at| word(&inbox, head + 8 * at).store(draw(), Ordering::Relaxed)),
                1 => forge(&inbox, draw() & mark::ALL, draw()),
                2 => forge(&inbox, 0, draw() % 100),
                _ => _ = send(),
            }
            let flags = if round % 3 == 0 { MSG_PEEK } else { 0 };
            if let Ok(got) = world.receive_message(far, Room { control: 128, name: 28, ..plain(&[16, 16], flags | MSG_DONTWAIT) })
            {
                assert!(got.told <= 32, "{got:?}");
            }
            assert!(world.readable(far) <= 64 << 20);
        }
    }
}

#[test]
fn a_charge_that_was_garbled_drops_datagrams_and_no_more() {
    let world = &World::new(true);
    let (near, far) = world.two();
    world.send_to(near, b"x", far).unwrap();
    let header = world.inbox(far).unwrap().header();
    for garbage in [u64::MAX, 1 << 63, 1 << 20, 0] {
        header.charged.store(garbage, Ordering::Relaxed);
        header.released.store(garbage.wrapping_mul(3), Ordering::Relaxed);
        assert_eq!(world.send_to(near, &[1; 1000], far), Ok(1000));
        while world.text(far, 8, MSG_DONTWAIT).is_ok() {}
    }
}

#[test]
fn a_tail_that_was_garbled_does_not_write_beside_the_ring() {
    let world = &World::new(true);
    let (near, far) = world.two();
    world.send_to(near, b"x", far).unwrap();
    let header = world.inbox(far).unwrap().header();
    for garbage in [u64::MAX, 1, 63, (1 << 48) - 64, 1 << 63] {
        header.tail.store(garbage, Ordering::Relaxed);
        assert_eq!(world.send_to(near, &[7; 5000], far), Ok(5000));
        while world.text(far, 8, MSG_DONTWAIT).is_ok() {}
    }
}

#[test]
fn a_lock_of_a_thread_that_is_gone_is_given_up() {
    let world = &World::new(true);
    let (near, far) = world.two();
    world.send_to(near, b"x", far).unwrap();
    assert!(world.in_memory(far));
    let inbox = world.inbox(far).unwrap();
    let gone = std::thread::spawn(calls::gettid).join().unwrap();
    inbox.header().lock.store(gone, Ordering::Relaxed);
    let began = std::time::Instant::now();
    world.send_to(near, b"y", far).unwrap();
    assert!(inbox.is_retired() && began.elapsed().as_secs() < 5);
    assert_eq!(world.all(far, 8), ["x", "y"], "the kernel carries what comes");
}

/// A memfd of this size, sealed with these.
fn memfd(size: i64, seals: i32) -> i32 {
    let fd = calls::memfd_create(shunt_segment::inbox::NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
    calls::ftruncate(fd, size).unwrap();
    calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize).unwrap();
    fd
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[test]
fn only_a_sealed_memfd_of_a_rings_size_is_taken_for_an_inbox() {
    let size = (RING + RING_LEAST) as i64;
    let judged = [
        (size, SEALS),
        (size, SEALS & !libc::F_SEAL_SHRINK),
        (size, SEALS & !libc::F_SEAL_GROW),
        (size, SEALS & !libc::F_SEAL_SEAL),
        (size, SEALS | libc::F_SEAL_FUTURE_WRITE),
        (size + 4096, SEALS),
        (size / 2, SEALS),
        (0, SEALS),
        (RING as i64, SEALS),
        (RING as i64 + (8 << 20), SEALS),
    ]
    .map(|(size, seals)| {
        let fd = memfd(size, seals);
        let judged = inbox_table::check(fd);
        calls::close(fd).unwrap();
        judged.is_ok()
    });
    assert_eq!(judged, [true, false, false, false, false, false, false, false, false, false]);
    let event = calls::eventfd(0, libc::EFD_CLOEXEC).unwrap();
    assert!(inbox_table::check(event).is_err() && inbox_table::check(-1).is_err());
    calls::close(event).unwrap();
}

#[test]
fn an_inbox_is_somebodys_by_its_first_words() {
    world::start();
    let size = RING + RING_LEAST;
    let fd = memfd(size as i64, SEALS);
    let base = mapping::shared(fd, size).unwrap();
    // SAFETY: as large, and zeros.
    let header = unsafe { &*base.cast::<InboxHeader>() };
    header.inode.store(77, Ordering::Relaxed);
    assert_eq!(crate::datagram::adopt::owner(fd), None, "no magic");
    header.magic.store(MAGIC, Ordering::Relaxed);
    assert_eq!(crate::datagram::adopt::owner(fd), None, "no version");
    header.version.store(shunt_segment::VERSION, Ordering::Relaxed);
    assert_eq!(crate::datagram::adopt::owner(fd), Some(77));
    header.version.store(shunt_segment::VERSION + 1, Ordering::Relaxed);
    assert_eq!(crate::datagram::adopt::owner(fd), None, "another version");
    calls::munmap(base.cast(), size).unwrap();
    calls::close(fd).unwrap();
}

#[test]
fn a_head_that_was_garbled_does_not_keep_a_call_from_returning() {
    let world = &World::new(true);
    let (near, far) = world.two();
    for flags in [0, MSG_PEEK] {
        world.send_to(near, b"x", far).unwrap();
        let head = &world.inbox(far).unwrap().header().head;
        head.fetch_or(0xffff << 48, Ordering::Relaxed);
        assert_eq!(world.text(far, 8, flags | MSG_DONTWAIT), Ok("x".into()));
    }
}
