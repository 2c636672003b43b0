//! A thread that sleeps is woken.

use super::joined::{drops, joined, next, send, Joined, DEADLINE};
use super::Make;
use crate::{Arrival, Message};
use std::time::{Duration, Instant};

fn readable(descriptor: i32, milliseconds: i64) -> bool {
    let events = shunt_sys::calls::poll_one(descriptor, shunt_sys::libc::POLLIN, milliseconds * 1_000_000);
    events.is_ok_and(|events| events & shunt_sys::libc::POLLIN != 0)
}

/// Arming tells whether something waits; the descriptor says when something came, until it is disarmed. It may wake for nothing,
/// not always.
pub fn arming(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    if a.capabilities().lossy {
        return;
    }
    for round in 0..20 {
        // A device may need a look or two until it has nothing of its own to do, and the bell of a message that was seen may come
        // late.
        let start = Instant::now();
        while !b.arm() || readable(b.descriptor(), 0) {
            b.disarm();
            assert_eq!(next(&mut *b, Duration::ZERO), None);
            assert!(start.elapsed() < DEADLINE, "round {round}: cannot be armed, or readable for ever without a message");
        }
        send(&mut *a, &Message::small(to_b, b"wake"));
        assert!(readable(b.descriptor(), 10_000), "round {round}: the sleeper was not woken");
        b.disarm();
        assert_eq!(next(&mut *b, DEADLINE).as_deref(), Some(&b"wake"[..]));
        send(&mut *a, &Message::small(to_b, b"more"));
        let start = Instant::now();
        while b.arm() {
            // On its way: a device between hosts may need a moment.
            b.disarm();
            assert!(start.elapsed() < DEADLINE, "armed while a message waits");
        }
        assert_eq!(next(&mut *b, DEADLINE).as_deref(), Some(&b"more"[..]));
    }
}

/// One that sleeps after each message misses none, whatever the moment it comes at.
pub fn no_wake_up_is_lost(make: Make<'_>) {
    const ROUNDS: u32 = 2000;
    let Some(Joined { mut a, mut b, to_b, to_a, _keep }) = joined(make) else { return };
    if a.capabilities().lossy {
        return;
    }
    let echo = std::thread::spawn(move || {
        let mut arrival = Arrival::empty();
        for round in 0..ROUNDS {
            while !b.receive(&mut arrival) {
                if b.arm() {
                    assert!(readable(b.descriptor(), 20_000), "round {round}: slept for ever: {:?}", drops(&*b));
                    b.disarm();
                }
            }
            assert_eq!(arrival.head(), round.to_le_bytes());
            b.release(&mut arrival);
            for _ in 0..round * 7919 % 2000 {
                std::hint::spin_loop();
            }
            send(&mut *b, &Message::small(to_a, &round.to_le_bytes()));
        }
        b
    });
    for round in 0..ROUNDS {
        for _ in 0..round * 104_729 % 3000 {
            std::hint::spin_loop();
        }
        send(&mut *a, &Message::small(to_b, &round.to_le_bytes()));
        assert_eq!(next(&mut *a, DEADLINE).as_deref(), Some(&round.to_le_bytes()[..]), "round {round}");
    }
    echo.join().expect("the sleeper got all");
}
