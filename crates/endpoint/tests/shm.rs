//! The suite over shared memory.

use shunt_endpoint::conformance::Couple;
use shunt_endpoint::device::shm::{Options, Shm};

fn plain() -> Option<Couple> {
    let make = || Shm::new(Options::default()).expect("shared memory");
    Some(Couple::new(make(), make()))
}

mod shared_memory {
    use super::*;
    shunt_endpoint::conformance!(plain);
    shunt_endpoint::conformance!(@wrapped plain);
}

use shunt_endpoint::conformance::connect;
use shunt_endpoint::{Arrival, Body, Channel, Drop as Reason, Endpoint, Message, SendError};
use shunt_sys::{calls, libc, mapping};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

fn make() -> Shm {
    Shm::new(Options::default()).expect("shared memory")
}

fn get(endpoint: &mut dyn Endpoint, arrival: &mut Arrival) {
    let start = Instant::now();
    while !endpoint.receive(arrival) {
        assert!(start.elapsed() < DEADLINE, "nothing arrives");
        let _ = endpoint.flush();
    }
}

fn put(endpoint: &mut dyn Endpoint, message: &Message<'_>) {
    let start = Instant::now();
    while let Err(error) = endpoint.send(message) {
        assert_eq!(error, SendError::NoResource);
        assert!(start.elapsed() < DEADLINE, "no room for ever");
    }
}

/// Runs `work` in a forked child, which makes system calls and arithmetic only; gives its process number.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child touches no lock that another thread could hold, and leaves without running anything else.
    unsafe {
        match libc_fork() {
            0 => {
                work();
                shunt_sys::syscall!(libc::SYS_exit_group, 0);
                unreachable!()
            }
            child => child,
        }
    }
}

extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> i32;
}

fn wait_for(child: i32) -> i32 {
    let mut status = 0i32;
    // SAFETY: wait4 writes the status.
    unsafe { shunt_sys::syscall!(libc::SYS_wait4, child, &raw mut status, 0, 0) };
    status
}

/// Echoes `rounds` messages.
fn echo(endpoint: &mut Shm, channel: Channel, rounds: u32) {
    let mut arrival = Arrival::empty();
    for _ in 0..rounds {
        while !endpoint.receive(&mut arrival) {}
        let mut bytes = [0u8; 64];
        let length = arrival.copy_to(&endpoint.segment(), 0, &mut bytes);
        endpoint.release(&mut arrival);
        while endpoint.send(&Message::small(channel, &bytes[..length])).is_err() {}
    }
}

#[test]
fn a_child_drives_what_it_inherited_and_the_parent_goes_on() {
    let (mut a, mut b) = (make(), make());
    let (to_b, to_a) = connect(&mut a, &mut b);
    assert!(a.flush().unwrap() && b.flush().unwrap());
    let mut arrival = Arrival::empty();
    for round in 0..10u32 {
        let child = fork(|| echo(&mut b, to_a, 100));
        for number in 0..100 {
            put(&mut a, &Message::small(to_b, &[round as u8, number, 7]));
            get(&mut a, &mut arrival);
            assert_eq!(arrival.head(), [round as u8, number, 7]);
        }
        assert_eq!(wait_for(child), 0);
        // Now the parent, which has seen nothing of all that.
        put(&mut a, &Message::small(to_b, b"parent"));
        get(&mut b, &mut arrival);
        assert_eq!(arrival.head(), b"parent");
    }
}

#[test]
fn an_endpoint_is_handed_over_with_its_lanes() {
    let (mut a, mut b) = (make(), make());
    let (to_b, to_a) = connect(&mut a, &mut b);
    assert!(a.flush().unwrap() && b.flush().unwrap());
    let duplicate = |fd: i32| calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let lanes = |channel| b.lanes(channel).map(|(one, other)| (duplicate(one), duplicate(other)));
    let mut other = Shm::attach(duplicate(b.memory().fd()), duplicate(b.descriptor()), lanes).expect("the same endpoint");
    assert_eq!(other.address(), b.address());
    let mut arrival = Arrival::empty();
    for round in 0..100u32 {
        put(&mut a, &Message { channel: to_b, head: &round.to_le_bytes(), body: Body::Bytes([9; 500][..].into()) });
        let turn = if round % 3 == 0 { &mut b } else { &mut other };
        get(turn, &mut arrival);
        assert_eq!((&arrival.head()[..4], arrival.len()), (&round.to_le_bytes()[..], 504));
        turn.release(&mut arrival);
        put(turn, &Message::small(to_a, b"ok"));
        get(&mut a, &mut arrival);
    }
}

#[test]
fn a_peer_that_died_is_told_to_the_sender() {
    let mut a = make();
    let child = {
        let mut b = make();
        let (to_b, to_a) = connect(&mut a, &mut b);
        assert!(a.flush().unwrap() && b.flush().unwrap());
        let child = fork(|| {
            echo(&mut b, to_a, 10);
            loop {
                calls::sched_yield();
            }
        });
        drop(b);
        let mut arrival = Arrival::empty();
        for _ in 0..10 {
            put(&mut a, &Message::small(to_b, b"x"));
            get(&mut a, &mut arrival);
        }
        calls::kill(child, libc::SIGKILL).unwrap();
        wait_for(child);
        to_b
    };
    let start = Instant::now();
    let error = loop {
        match a.send(&Message::small(child, b"x")) {
            Ok(_) | Err(SendError::NoResource) => assert!(start.elapsed() < DEADLINE, "sends into the void for ever"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, SendError::Peer);
}

#[test]
fn a_sleeping_sender_is_woken_when_there_is_room() {
    let (mut a, mut b) = (make(), make());
    let (to_b, _) = connect(&mut a, &mut b);
    assert!(a.flush().unwrap() && b.flush().unwrap());
    const COUNT: u32 = 20_000;
    let receiver = std::thread::spawn(move || {
        let mut arrival = Arrival::empty();
        for number in 0..COUNT {
            get(&mut b, &mut arrival);
            assert_eq!(arrival.head()[..4], number.to_le_bytes());
            b.release(&mut arrival);
        }
    });
    let body = [1u8; 3000];
    for number in 0..COUNT {
        let message = Message { channel: to_b, head: &number.to_le_bytes(), body: Body::Bytes(body[..].into()) };
        while let Err(error) = a.send(&message) {
            assert_eq!(error, SendError::NoResource);
            if a.arm() {
                let events = calls::poll_one(a.descriptor(), libc::POLLIN, 20_000_000_000).unwrap();
                assert!(events & libc::POLLIN != 0, "message {number}: nobody woke the sender");
                a.disarm();
            }
        }
    }
    receiver.join().unwrap();
}

/// Maps the lane behind `fd` as its peer could.
fn scribble(fd: i32, mut write: impl FnMut(*mut u32, usize)) {
    let size = {
        // SAFETY: plain integers.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        calls::fstat(fd, &mut status).unwrap();
        status.st_size as usize
    };
    let base = mapping::shared(fd, size).unwrap();
    write(base.cast(), size / 4);
    calls::munmap(base, size).unwrap();
}

#[test]
fn a_peer_that_writes_random_words_garbles_only_its_own_channel() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..60u64 {
        let (mut a, mut b, mut friend) = (make(), make(), make());
        let (to_b, to_a) = connect(&mut a, &mut b);
        let (to_friend, _) = connect(&mut a, &mut friend);
        assert!(a.flush().unwrap() && b.flush().unwrap() && friend.flush().unwrap());
        // Both lanes between a and b: b, hostile, can write both.
        let (one, two) = a.lanes(to_b).unwrap();
        let mut arrival = Arrival::empty();
        for step in 0..40u64 {
            for fd in [one, two] {
                scribble(fd, |words, count| {
                    for _ in 0..if step % 8 == 0 { 20_000 } else { 50 } {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        // Half of the words fall where the flags and the first slots are.
                        let at = if random & 1 == 0 { random as usize % 2048 } else { random as usize % count };
                        // Values that come near what is expected do more harm than noise.
                        let value = [random as u32 >> 9, step as u32, 1, 0, 0x4000_0100, 70_000][(random >> 40) as usize % 6];
                        // SAFETY: inside the mapping.
                        unsafe { words.add(at).write_volatile(value) };
                    }
                });
            }
            for _ in 0..200 {
                let _ = a.send(&Message { channel: to_b, head: b"head", body: Body::Bytes([3; 777][..].into()) });
                if a.receive(&mut arrival) {
                    assert_eq!(arrival.channel(), to_b, "round {round}");
                    let mut bytes = vec![0; arrival.len()];
                    arrival.copy_to(&a.segment(), 0, &mut bytes);
                    a.release(&mut arrival);
                }
            }
            let _ = b.send(&Message::small(to_a, b"x"));
            let _ = (a.arm(), a.backlog());
            a.disarm();
        }
        // The other channel never noticed.
        put(&mut a, &Message::small(to_friend, b"untouched"));
        get(&mut friend, &mut arrival);
        assert_eq!(arrival.head(), b"untouched");
        assert_eq!(friend.counters().dropped_in_all(), 0);
    }
}

#[test]
fn strangers_at_the_socket_are_counted_and_leave_no_descriptor() {
    let (mut a, mut b) = (make(), make());
    let (to_b, _) = connect(&mut a, &mut b);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut name = vec![1u8, 0];
    name.extend_from_slice(b"\0shunt1-endpoint-");
    let number = u64::from_le_bytes(b.address().bytes().try_into().unwrap());
    name.extend_from_slice(format!("{number:016x}").as_bytes());
    let stranger = calls::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0).unwrap();
    let before = descriptors();
    let mut random = 77u64;
    for round in 0..2000u32 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let mut bytes = [0u8; 64];
        bytes[..8].copy_from_slice(b"shunthlo");
        bytes[8..16].copy_from_slice(&random.to_le_bytes());
        bytes[24] = round as u8 & 3;
        let length = [48, 0, 31, 64, 8, 48][round as usize % 6];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
        let rights: [u64; 3] = [20, 1 | 1 << 32, stranger as u64];
        // SAFETY: zero is valid; the pointers outlive the call.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = name.len() as u32;
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if round % 2 == 0 {
            message.msg_control = (&raw const rights).cast_mut().cast();
            message.msg_controllen = 24;
        }
        calls::sendmsg(stranger, &message, libc::MSG_DONTWAIT).unwrap();
        b.arm();
        b.disarm();
    }
    assert!(b.counters().dropped(Reason::Tag) > 0 && b.counters().dropped(Reason::Magic) > 0);
    // Other tests of this process open descriptors too; a leak here would be a thousand.
    assert!(descriptors() < before + 500, "descriptors leak");
    calls::close(stranger).unwrap();
    put(&mut a, &Message::small(to_b, b"friend"));
    let mut arrival = Arrival::empty();
    get(&mut b, &mut arrival);
    assert_eq!(arrival.head(), b"friend");
}
