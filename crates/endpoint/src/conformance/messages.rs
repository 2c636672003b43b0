//! What is sent arrives as it was, in order, and is counted.

use super::joined::{drops, joined, next, pass, pattern, send, Joined, DEADLINE};
use super::Make;
use crate::{Area, Body, Bytes, Message, INLINE};
use std::time::Duration;

/// Messages of every size that fits a descriptor arrive as they were.
pub fn small_messages(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, to_a, _keep }) = joined(make) else { return };
    for length in 0..=INLINE {
        let bytes = pattern(length, length);
        pass(&mut *a, &mut *b, &Message::small(to_b, &bytes), &bytes);
        pass(&mut *b, &mut *a, &Message::small(to_a, &bytes), &bytes);
    }
}

/// Larger messages arrive too, from the program's bytes and from areas, with heads of any length.
pub fn large_messages(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    let Ok(largest) = usize::try_from(a.capabilities().largest) else { return };
    let usual = [1, 7, 56, 64, 111, 113, 200, 1000, 1400, 2047, 2049, 4096, 6000, 9000, 16000, 32000, 65000, largest];
    for (round, &body) in usual.iter().enumerate() {
        for head in [0, 1, 20, 57, INLINE] {
            let body = body.min(largest - head);
            let bytes = pattern(head + body, round);
            let message = Message { channel: to_b, head: &bytes[..head], body: Body::Bytes(Bytes::from(&bytes[head..])) };
            pass(&mut *a, &mut *b, &message, &bytes);
            assert!(a.segment().write(Area::new(0, body as u32), &bytes[head..]));
            let areas = [Area::new(0, body as u32)];
            pass(&mut *a, &mut *b, &Message { body: Body::Areas(&areas), ..message }, &bytes);
        }
    }
}

/// A message is gathered from several areas, in their order.
pub fn gathered(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    let count = a.capabilities().gather as usize;
    let bytes = pattern(count * 100 + 5, 3);
    let areas: Vec<Area> = (0..count as u32).map(|k| Area::new(8192 - k * 1000, 100)).collect();
    for (area, part) in areas.iter().zip(bytes[5..].chunks(100)) {
        assert!(a.segment().write(*area, part));
    }
    pass(&mut *a, &mut *b, &Message { channel: to_b, head: &bytes[..5], body: Body::Areas(&areas) }, &bytes);
}

/// Messages arrive in order, each once, where the device says so; buffers go round.
pub fn ordered_stream(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    if a.capabilities().lossy || !a.capabilities().ordered {
        return;
    }
    for round in 0u32..5000 {
        let bytes = pattern(8 + (round as usize * 37) % 1300, 1);
        let head = round.to_le_bytes();
        send(&mut *a, &Message { channel: to_b, head: &head, body: Body::Bytes(Bytes::from(&bytes[..])) });
        let got = next(&mut *b, DEADLINE).unwrap_or_else(|| panic!("message {round} is lost: {:?}", drops(&*b)));
        assert_eq!(got[..4], head, "order");
        assert_eq!(got[4..], bytes, "content of message {round}");
    }
    assert_eq!(next(&mut *b, Duration::ZERO), None, "each arrives once");
}

/// What was done is counted.
pub fn counting(make: Make<'_>) {
    use std::sync::atomic::Ordering::Relaxed;
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    if a.capabilities().lossy {
        return;
    }
    for length in [0usize, 10, 300] {
        let bytes = pattern(length, 1);
        pass(&mut *a, &mut *b, &Message { channel: to_b, head: &[], body: Body::Bytes(Bytes::from(&bytes[..])) }, &bytes);
    }
    let (sent, got) = (a.counters(), b.counters());
    assert_eq!((sent.sent.load(Relaxed), sent.sent_bytes.load(Relaxed)), (3, 310));
    assert_eq!((got.received.load(Relaxed), got.received_bytes.load(Relaxed)), (3, 310));
    assert_eq!(got.dropped_in_all(), 0);
    let backlog = b.backlog();
    assert!(backlog.waiting == 0 && backlog.capacity > 0);
}
