//! Waits that sleep: what comes wakes them, whichever thread makes it come, and nothing is slept through.

use super::*;
use shunt_sys::libc::{POLLIN, POLLRDHUP, SHUT_RD, SHUT_WR};
use std::thread;
use std::time::{Duration, Instant};

/// What a wait in a set tells when `act` is done meanwhile.
fn during(world: &World, set: i32, act: impl FnOnce()) -> Vec<(u64, i32)> {
    while_asleep(|| world.wait(set, 8, FOR_EVER).unwrap(), act)
}

#[test]
fn bytes_an_end_and_a_reset_wake_a_sleeper_in_a_set() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | RDHUP, 1).unwrap();
        let bytes = during(world, set, || _ = world.send(near, b"x", 0).unwrap());
        world.drain(far);
        world.modify(set, far, IN | ET, 2).unwrap();
        let end = during(world, set, || world.shut(near, SHUT_WR).unwrap());
        let reset = during(world, set, || world.reset(near));
        [bytes, end, reset]
    });
    assert_eq!(told[..2], [vec![(1, IN)], vec![(2, IN)]]);
    assert!(told[2][0].1 & HUP != 0, "{told:?}");
}

#[test]
fn space_wakes_a_sleeper_in_a_set() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.fill(near);
        world.add(set, near, OUT, 1).unwrap();
        during(world, set, || world.drain(far))
    });
    assert_eq!(told, [(1, OUT)]);
}

#[test]
fn an_entry_that_joins_ready_wakes_a_sleeper() {
    let told = in_both(|world| {
        let ((near, far), (_, quiet), set) = (world.pair(), world.pair(), world.epoll());
        world.send(near, b"x", 0).unwrap();
        world.add(set, quiet, IN, 1).unwrap();
        let added = during(world, set, || world.add(set, far, IN, 2).unwrap());
        world.delete(set, far).unwrap();
        let changed = during(world, set, || world.modify(set, quiet, OUT, 3).unwrap());
        [added, changed]
    });
    assert_eq!(told, [vec![(2, IN)], vec![(3, OUT)]]);
}

#[test]
fn a_stream_wakes_a_sleeper_in_a_set_that_held_the_kernels_descriptors_alone() {
    let told = in_both(|world| {
        let ((near, far), set, event) = (world.pair(), world.epoll(), world.event(0));
        world.add(set, event, IN, 1).unwrap();
        during(world, set, || {
            world.add(set, far, IN, 2).unwrap();
            thread::sleep(Duration::from_millis(10));
            world.send(near, b"x", 0).unwrap();
        })
    });
    assert_eq!(told, [(2, IN)]);
}

#[test]
fn the_own_shutdown_wakes_a_sleeper() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | RDHUP, 1).unwrap();
        let in_set = during(world, set, || world.shut(far, SHUT_RD).unwrap());
        let (_, other) = world.pair();
        let in_poll = while_asleep(|| world.poll(&[(other, POLLRDHUP)], FOR_EVER), || world.shut(other, SHUT_RD).unwrap());
        (in_set, in_poll)
    });
    assert_eq!(told, (vec![(1, IN | RDHUP)], (Ok(1), vec![POLLRDHUP])));
}

#[test]
fn a_wait_in_a_set_ends_with_its_time_and_not_before() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        let began = Instant::now();
        let told = world.wait(set, 4, Some(30_000_000));
        (told, began.elapsed() >= Duration::from_millis(30))
    });
    assert_eq!(told, (Ok(vec![]), true));
}

#[test]
fn each_of_many_messages_wakes_a_sleeper_in_poll() {
    in_both(|world| {
        let (near, far) = world.pair();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200 {
                    assert_eq!(world.poll(&[(far, POLLIN)], Some(10_000_000_000)), (Ok(1), vec![POLLIN]), "{round}");
                    world.receive(far, 1, 0).unwrap();
                }
            });
            for round in 0..200 {
                if round % 10 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
                world.send(near, b"x", 0).unwrap();
            }
        });
    });
}

#[test]
fn to_and_fro_by_edges_without_losing_one() {
    in_both(|world| {
        let (near, far) = world.pair();
        let turns = |fd: i32, begins: bool| {
            let set = world.epoll();
            world.add(set, fd, IN | ET, 1).unwrap();
            if begins {
                world.send(fd, b"x", 0).unwrap();
            }
            for round in 0..2_000 {
                while world.receive(fd, 8, shunt_sys::libc::MSG_DONTWAIT).is_err() {
                    let told = world.wait(set, 4, Some(10_000_000_000)).unwrap();
                    assert_eq!(told, [(1, IN)], "{round}");
                }
                world.send(fd, b"x", 0).unwrap();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| turns(far, false));
            turns(near, true);
        });
    });
}

#[test]
fn of_many_messages_to_one_set_each_is_told_to_one_of_the_threads_that_wait() {
    const MESSAGES: usize = 600;
    in_both(|world| {
        let (set, pairs) = (world.epoll(), [world.pair(), world.pair(), world.pair()]);
        for (data, (_, far)) in pairs.iter().enumerate() {
            world.add(set, *far, IN | ET | ONESHOT, data as u64).unwrap();
        }
        let got = std::sync::atomic::AtomicUsize::new(0);
        let count = || got.load(std::sync::atomic::Ordering::SeqCst);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while count() < MESSAGES {
                        for (data, events) in world.wait(set, 2, Some(20_000_000)).unwrap() {
                            assert_eq!(events, IN);
                            let far = pairs[data as usize].1;
                            while world.receive(far, 1, shunt_sys::libc::MSG_DONTWAIT).is_ok() {
                                got.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            }
                            world.modify(set, far, IN | ET | ONESHOT, data).unwrap();
                        }
                    }
                });
            }
            let began = Instant::now();
            for message in 0..MESSAGES {
                world.send(pairs[message % 3].0, b"x", 0).unwrap();
            }
            while count() < MESSAGES {
                assert!(began.elapsed() < Duration::from_secs(20), "{} of {MESSAGES}", count());
                thread::yield_now();
            }
        });
        count()
    });
}

#[test]
fn a_set_that_is_closed_during_a_wait_in_it_goes_on_telling() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        during(world, set, || {
            world.close(set);
            thread::sleep(Duration::from_millis(10));
            world.send(near, b"x", 0).unwrap();
        })
    });
    assert_eq!(told, [(1, IN)]);
}
