//! poll(2): what is told of which descriptor, and when.

use super::*;
use shunt_sys::libc::{
    self, pollfd, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM, SHUT_RD, SHUT_RDWR,
    SHUT_WR,
};
use shunt_sys::Errno;

const ALL: i16 = POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM;
const READABLE: i16 = POLLIN | POLLRDNORM;
const WRITABLE: i16 = POLLOUT | POLLWRNORM;

#[test]
fn a_fresh_stream_has_space_and_no_bytes() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        [world.events(near, ALL), world.events(far, POLLIN)]
    });
    assert_eq!(told, [WRITABLE, 0]);
}

#[test]
fn only_what_is_asked_for_is_told() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.send(near, b"x", 0).unwrap();
        [POLLIN, POLLRDNORM, POLLOUT, POLLWRNORM, POLLPRI, POLLRDHUP, 0, ALL].map(|asked| world.events(far, asked))
    });
    assert_eq!(told, [POLLIN, POLLRDNORM, POLLOUT, POLLWRNORM, 0, 0, 0, READABLE | WRITABLE]);
}

#[test]
fn a_hang_up_is_told_to_those_that_ask_for_nothing() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.shut(near, SHUT_RDWR).unwrap();
        world.shut(far, SHUT_RDWR).unwrap();
        [near, far].map(|fd| world.events(fd, 0))
    });
    assert_eq!(told, [POLLHUP; 2]);
}

#[test]
fn a_reset_is_told_to_those_that_ask_for_nothing() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.reset(near);
        let first = world.events(far, 0);
        (first, world.events(far, ALL), world.take_error(far), world.events(far, 0))
    });
    assert_eq!(told, (POLLERR | POLLHUP, ALL & !POLLPRI | POLLERR | POLLHUP, libc::ECONNRESET, POLLHUP));
}

#[test]
fn the_peers_end_is_told_as_its_end_alone() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.shut(near, SHUT_WR).unwrap();
        [world.events(far, ALL), world.events(far, POLLRDHUP), world.events(far, 0), world.events(near, ALL)]
    });
    assert_eq!(told, [READABLE | WRITABLE | POLLRDHUP, POLLRDHUP, 0, WRITABLE]);
}

#[test]
fn a_half_shut_for_receiving_is_readable() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.shut(near, SHUT_RD).unwrap();
        [world.events(near, ALL), world.events(far, ALL)]
    });
    assert_eq!(told, [READABLE | WRITABLE | POLLRDHUP, WRITABLE]);
}

#[test]
fn the_urgent_byte_is_told_until_it_is_read() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.send(near, b"!", libc::MSG_OOB).unwrap();
        let before = world.events(far, ALL);
        world.receive(far, 1, libc::MSG_OOB).unwrap();
        (before & POLLPRI, world.events(far, POLLPRI))
    });
    assert_eq!(told, (POLLPRI, 0));
}

#[test]
fn low_water_keeps_few_bytes_from_being_told() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.set_low_water(far, 3);
        world.send(near, b"ab", 0).unwrap();
        let few = world.events(far, POLLIN);
        world.send(near, b"c", 0).unwrap();
        [few, world.events(far, POLLIN)]
    });
    assert_eq!(told, [0, POLLIN]);
}

#[test]
fn a_full_stream_has_space_again_when_it_is_read() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.fill(near);
        let full = world.events(near, POLLOUT);
        world.drain(far);
        [full, world.poll(&[(near, POLLOUT)], Some(5_000_000_000)).1[0]]
    });
    assert_eq!(told, [0, POLLOUT]);
}

#[test]
fn each_entry_that_has_something_counts_once() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let (event, quiet) = (world.event(1), world.event(0));
        world.send(near, b"x", 0).unwrap();
        world.poll(&[(near, POLLIN), (far, ALL), (event, POLLIN), (quiet, POLLIN), (far, POLLIN)], AT_ONCE)
    });
    assert_eq!(told, (Ok(3), vec![0, READABLE | WRITABLE, POLLIN, 0, POLLIN]));
}

#[test]
fn negative_numbers_are_passed_over() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        world.poll(&[(-1, ALL), (far, POLLOUT), (i32::MIN, POLLIN), (-7, 0)], AT_ONCE)
    });
    assert_eq!(told, (Ok(1), vec![0, POLLOUT, 0, 0]));
}

#[test]
fn numbers_that_are_not_open_are_told_and_counted() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        // No other test opens this many, and no limit lets any.
        world.poll(&[(1 << 20, POLLIN), (far, POLLIN), (i32::MAX, 0)], FOR_EVER)
    });
    assert_eq!(told, (Ok(2), vec![POLLNVAL, 0, POLLNVAL]));
}

#[test]
fn a_pipe_before_and_behind_a_stream_is_told_in_its_place() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let (read, write) = world.pipe();
        world.send(near, b"x", 0).unwrap();
        world.poll(&[(write, POLLOUT), (far, POLLIN), (read, POLLIN)], FOR_EVER)
    });
    assert_eq!(told, (Ok(2), vec![POLLOUT, POLLIN, 0]));
}

#[test]
fn the_kernels_descriptors_are_told_beside_a_stream_that_is_always_ready() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let (read, write) = world.pipe();
        let quiet = world.poll(&[(far, POLLOUT), (read, POLLIN)], FOR_EVER);
        world.close(write);
        (quiet, world.poll(&[(far, POLLOUT), (read, POLLIN)], FOR_EVER))
    });
    assert_eq!(told, ((Ok(1), vec![POLLOUT, 0]), (Ok(2), vec![POLLOUT, POLLHUP])));
}

#[test]
fn a_time_that_passes_is_no_event_and_no_error() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let began = std::time::Instant::now();
        let told = world.poll(&[(far, POLLIN)], Some(20_000_000));
        (told, began.elapsed().as_millis() >= 20)
    });
    assert_eq!(told, ((Ok(0), vec![0]), true));
}

#[test]
fn a_look_without_time_does_not_wait() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let began = std::time::Instant::now();
        let looks =
            (0..100).map(|_| world.poll(&[(far, POLLIN | POLLPRI | POLLRDHUP)], AT_ONCE).0).filter(|ready| *ready == Ok(0));
        (looks.count(), began.elapsed().as_secs() < 5)
    });
    assert_eq!(told, (100, true));
}

#[test]
fn one_descriptor_may_stand_in_several_entries() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let copy = world.dup(far);
        world.send(near, b"x", 0).unwrap();
        world.poll(&[(far, POLLIN), (far, POLLOUT), (copy, POLLIN), (far, POLLRDHUP)], FOR_EVER)
    });
    assert_eq!(told, (Ok(3), vec![POLLIN, POLLOUT, POLLIN, 0]));
}

#[test]
fn a_duplicate_goes_on_when_the_first_number_is_closed() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let copy = world.dup(far);
        world.close(far);
        world.send(near, b"x", 0).unwrap();
        (world.events(copy, ALL), world.events(near, ALL))
    });
    assert_eq!(told, (READABLE | WRITABLE, WRITABLE));
}

#[test]
fn more_entries_than_stand_on_the_stack_are_told_each_in_its_place() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let event = world.event(1);
        world.send(near, b"x", 0).unwrap();
        let asked: Vec<(i32, i16)> =
            (0..900).map(|at| [(far, POLLIN), (near, POLLIN), (event, POLLIN), (-1, POLLIN)][at % 4]).collect();
        world.poll(&asked, FOR_EVER)
    });
    let each = [POLLIN, 0, POLLIN, 0];
    assert_eq!(told, (Ok(450), (0..900).map(|at| each[at % 4]).collect()));
}

#[test]
fn a_signal_that_only_the_mask_lets_in_ends_a_look_that_finds_nothing() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        with_pending_signal(|mask| {
            let mut entries = [pollfd { fd: far, events: POLLIN, revents: 0 }];
            let quiet = world.ppoll(&mut entries, AT_ONCE, mask);
            send_to_self();
            world.send(near, b"x", 0).unwrap();
            let ready = world.ppoll(&mut entries, AT_ONCE, mask);
            (quiet, ready, entries[0].revents)
        })
    });
    assert_eq!(told, (Err(Errno(libc::EINTR)), Ok(1), POLLIN), "what is ready comes before signals");
}

#[test]
fn a_signal_ends_a_wait() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        with_pending_signal(|mask| {
            let mut entries = [pollfd { fd: far, events: POLLIN, revents: 0 }];
            world.ppoll(&mut entries, FOR_EVER, mask)
        })
    });
    assert_eq!(told, Err(Errno(libc::EINTR)));
}

#[test]
fn a_deadline_of_no_time_stays_one_and_a_long_one_does_not_wrap() {
    start();
    assert_eq!(deadline(Some(0)), 0);
    assert_eq!(deadline(None), u64::MAX);
    assert_eq!(deadline(Some(u64::MAX)), u64::MAX);
    let now = shunt_sys::clock::monotonic_ns();
    assert!((now + 1..).contains(&deadline(Some(1))));
}
