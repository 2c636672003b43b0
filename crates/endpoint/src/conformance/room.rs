//! Full queues, buffers that are missing, and whose the bytes are meanwhile.

use super::joined::{connect, content, drops, joined, meet, next, pass, pattern, provide, send, Joined, DEADLINE, PATIENCE};
use super::{Couple, Make};
use crate::{Area, Arrival, Body, Buffers, Bytes, Drop as Reason, Message, SendError};
use std::time::Instant;

/// A full queue answers `NoResource`, at once, and all is well when the other side has caught up.
pub fn back_pressure(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    let bytes = pattern(600, 2);
    let message = Message { channel: to_b, head: &[], body: Body::Bytes(Bytes::from(&bytes[..])) };
    let small = Message::small(to_b, &bytes[..50]);
    let mut taken = 0u64;
    for round in 0..20_000 {
        match a.send(if round % 3 == 0 { &message } else { &small }) {
            Ok(_) => taken += 1,
            Err(SendError::NoResource) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(taken > 0);
    let _ = a.flush();
    let mut got = 0u64;
    while next(&mut *b, PATIENCE).is_some() {
        got += 1;
        let _ = a.flush();
    }
    let lossy = a.capabilities().lossy;
    assert!(got > 0 || lossy);
    if !lossy {
        assert_eq!(got + b.counters().dropped_in_all(), taken, "a message arrives, or is counted");
    }
    pass(&mut *a, &mut *b, &Message::small(to_b, b"after"), b"after");
}

/// Without buffers a large message is dropped and counted, or waits where it is until there are some; the next one after a
/// buffer came arrives.
pub fn no_buffers(make: Make<'_>) {
    let Some(Couple { mut a, mut b, keep }) = make() else { return };
    if b.capabilities().buffers == Buffers::Own || a.capabilities().lossy {
        return;
    }
    let (to_b, _) = connect(&mut *a, &mut *b);
    meet(&mut *a, &mut *b);
    let bytes = pattern(500, 4);
    let message = Message { channel: to_b, head: &[], body: Body::Bytes(Bytes::from(&bytes[..])) };
    send(&mut *a, &message);
    assert_eq!(next(&mut *b, PATIENCE), None);
    let dropped = b.counters().dropped_in_all();
    provide(&mut *b, 4);
    if dropped == 0 {
        assert_eq!(next(&mut *b, DEADLINE).as_deref(), Some(&bytes[..]), "what was not dropped has waited");
    }
    assert_eq!((b.counters().dropped(Reason::NoBuffer), b.counters().dropped_in_all()), (dropped, dropped));
    assert!(dropped <= 1);
    pass(&mut *a, &mut *b, &message, &bytes);
    drop(keep);
}

/// Arrivals are held, keep their bytes, and are released in any order; every buffer comes back.
pub fn held_arrivals(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    if a.capabilities().lossy {
        return;
    }
    for round in 0..50 {
        let sent: Vec<Vec<u8>> = (0..8).map(|k| pattern(150 + k * 61, round * 8 + k)).collect();
        for bytes in &sent {
            send(&mut *a, &Message { channel: to_b, head: &bytes[..20], body: Body::Bytes(Bytes::from(&bytes[20..])) });
        }
        let mut held = Vec::new();
        let start = Instant::now();
        while held.len() < sent.len() {
            let mut arrival = Arrival::empty();
            if b.receive(&mut arrival) {
                held.push(arrival);
            }
            assert!(start.elapsed() < DEADLINE, "round {round}: {} of 8 arrived: {:?}", held.len(), drops(&*b));
        }
        for order in [5, 0, 7, 2, 1, 6, 3, 4] {
            assert_eq!(content(&*b, &held[order]), sent[order], "round {round}, message {order}");
            b.release(&mut held[order]);
        }
    }
}

/// What is sent between two flushes arrives as it was and in order, however lengths alternate; arrivals of one batch are released in any
/// order, and every buffer comes back.
pub fn batches(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    let capabilities = *a.capabilities();
    if capabilities.lossy || !capabilities.ordered {
        return;
    }
    let long = (capabilities.largest as usize).min(1400);
    let of = |runs: &[(usize, usize)]| -> Vec<usize> { runs.iter().flat_map(|(n, length)| vec![*length; *n]).collect() };
    let plans = [
        of(&[(60, long)]),
        of(&[(60, 0)]),
        of(&[(60, 8)]),
        of(&[(30, 112), (30, 113)]),
        of(&[(20, long), (1, 700), (20, long), (1, long - 1), (18, 9)]),
        of(&[(1, 8), (1, long), (3, 500), (1, 501), (3, 500), (1, 0), (3, 500), (10, 499)]),
        (0..60).collect(),
        (0..60).rev().map(|length| length * 20).collect(),
    ];
    for (round, plan) in (0..12).flat_map(|_| plans.iter()).enumerate() {
        let sent: Vec<Vec<u8>> = plan.iter().enumerate().map(|(place, length)| pattern(*length, round + place)).collect();
        let (mut held, mut next, start) = (Vec::new(), 0, Instant::now());
        while held.len() < sent.len() {
            let took = sent.get(next).is_some_and(|bytes| {
                let head = bytes.len().min(20 * (round % 3));
                let message = Message { channel: to_b, head: &bytes[..head], body: Body::Bytes(Bytes::from(&bytes[head..])) };
                a.send(&message).is_ok()
            });
            next += usize::from(took);
            if !took {
                a.flush().expect("the device works");
                let mut arrival = Arrival::empty();
                while b.receive(&mut arrival) {
                    held.push(core::mem::replace(&mut arrival, Arrival::empty()));
                }
            }
            assert!(start.elapsed() < DEADLINE, "round {round}: {} arrived: {:?}", held.len(), drops(&*b));
        }
        for place in 0..held.len() {
            // Any order: 61 is a prime.
            let place = (place + 1) * 37 % 61 - 1;
            let Some(arrival) = held.get_mut(place) else { continue };
            assert_eq!(content(&*b, arrival), sent[place], "round {round}, message {place}");
            b.release(arrival);
        }
        held.iter_mut().filter(|arrival| !arrival.is_empty()).for_each(|arrival| b.release(arrival));
    }
}

/// What `send` took before its channel was closed arrives, without a flush.
pub fn closing(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    if a.capabilities().lossy {
        return;
    }
    let sent: Vec<Vec<u8>> = (0..9).map(|number| pattern(600, number)).collect();
    for bytes in &sent {
        let message = Message { channel: to_b, head: &[], body: Body::Bytes(Bytes::from(&bytes[..])) };
        a.send(&message).expect("there is room");
    }
    a.close(to_b);
    let (mut next, start, mut arrival) = (0, Instant::now(), Arrival::empty());
    while next < sent.len() {
        while b.receive(&mut arrival) {
            assert_eq!(content(&*b, &arrival), sent[next], "message {next}");
            b.release(&mut arrival);
            next += 1;
        }
        assert!(start.elapsed() < DEADLINE, "{next} arrived: {:?}", drops(&*b));
    }
}

/// When a message is injected, its areas are the sender's again.
pub fn injection(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    if a.capabilities().lossy {
        return;
    }
    let area = Area::new(4096, 700);
    for round in 0..300 {
        let bytes = pattern(700, round);
        assert!(a.segment().write(area, &bytes));
        let ticket = send(&mut *a, &Message { channel: to_b, head: &[], body: Body::Areas(&[area]) });
        let start = Instant::now();
        while !ticket.is_before(a.injected()) {
            let _ = a.flush();
            assert!(start.elapsed() < DEADLINE, "never injected");
        }
        assert!(a.segment().write(area, &[0xee; 700]));
        assert_eq!(next(&mut *b, DEADLINE).as_deref(), Some(&bytes[..]), "round {round}");
    }
}
