//! Two endpoints with a channel between them, and patience with their device.

use super::{Boxed, Couple, Make};
use crate::{Area, Arrival, Buffers, Channel, Drop as Reason, Endpoint, Message, SendError, Tag, Tags, Ticket};
use std::any::Any;
use std::time::{Duration, Instant};

/// How long anything may take. Nothing that works comes near.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);
/// After this, a message on a lossy device is sent again.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// Two endpoints with a channel between them, and buffers posted.
pub(super) struct Joined {
    pub a: Boxed,
    pub b: Boxed,
    pub to_b: Channel,
    pub to_a: Channel,
    pub _keep: Option<Box<dyn Any>>,
}

pub(super) fn tags() -> (Tags, Tags) {
    let (one, two) = (Tag::random().expect("random bits"), Tag::random().expect("random bits"));
    (Tags { receive: one, send: two }, Tags { receive: two, send: one })
}

/// Opens a channel between two endpoints.
pub fn connect(a: &mut dyn Endpoint, b: &mut dyn Endpoint) -> (Channel, Channel) {
    crate::join(a, b).expect("a channel")
}

/// Drives both ends until what the device sets up between them is there: where that takes both, nothing leaves before.
pub fn meet(a: &mut dyn Endpoint, b: &mut dyn Endpoint) {
    let start = Instant::now();
    while !(a.flush().expect("the device works") & b.flush().expect("the device works")) {
        assert!(start.elapsed() < DEADLINE, "they do not find each other");
    }
}

/// Posts up to `count` buffers of the device's liking in the upper half of the segment; gives them.
pub fn provide(endpoint: &mut dyn Endpoint, count: usize) -> Vec<Area> {
    let Buffers::Posted { smallest, alignment } = endpoint.capabilities().buffers else { return Vec::new() };
    let size = smallest.max(2048).next_multiple_of(alignment);
    let half = (endpoint.segment().size() / 2).next_multiple_of(alignment);
    let areas = (0..count as u32).map(|k| Area::new(half + k * size, size));
    let inside: Vec<Area> = areas.filter(|area| endpoint.segment().contains(*area)).collect();
    inside.into_iter().filter(|area| endpoint.post(*area).is_ok()).collect()
}

pub(super) fn joined(make: Make<'_>) -> Option<Joined> {
    let Couple { mut a, mut b, keep } = make()?;
    provide(&mut *a, 128);
    provide(&mut *b, 128);
    let (to_b, to_a) = connect(&mut *a, &mut *b);
    meet(&mut *a, &mut *b);
    Some(Joined { a, b, to_b, to_a, _keep: keep })
}

pub(super) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|k| (k * 7 + k / 251 + seed * 13) as u8).collect()
}

/// Sends, trying again while there is no resource.
pub(super) fn send(endpoint: &mut dyn Endpoint, message: &Message<'_>) -> Ticket {
    let start = Instant::now();
    loop {
        match endpoint.send(message) {
            Ok(ticket) => {
                while !endpoint.flush().expect("the device works") {
                    assert!(start.elapsed() < DEADLINE, "the device stays backed up");
                }
                return ticket;
            }
            Err(SendError::NoResource) => {
                endpoint.flush().expect("the device works");
                std::thread::yield_now();
            }
            Err(error) => panic!("send: {error:?}"),
        }
        assert!(start.elapsed() < DEADLINE, "no resource for ever");
    }
}

/// Waits for the next message; `None` when `patience` is over.
pub(super) fn next(endpoint: &mut dyn Endpoint, patience: Duration) -> Option<Vec<u8>> {
    let start = Instant::now();
    let mut arrival = Arrival::empty();
    loop {
        if endpoint.receive(&mut arrival) {
            let bytes = content(endpoint, &arrival);
            endpoint.release(&mut arrival);
            return Some(bytes);
        }
        if start.elapsed() > patience {
            return None;
        }
        std::thread::yield_now();
    }
}

pub(super) fn content(endpoint: &dyn Endpoint, arrival: &Arrival) -> Vec<u8> {
    let mut bytes = vec![0; arrival.len()];
    assert_eq!(arrival.copy_to(&endpoint.segment(), 0, &mut bytes), bytes.len(), "all bytes of the arrival are there");
    bytes
}

/// Sends until exactly these bytes have arrived; on a faithful device the first message must be they.
pub(super) fn pass(from: &mut dyn Endpoint, to: &mut dyn Endpoint, message: &Message<'_>, bytes: &[u8]) {
    let lossy = from.capabilities().lossy || to.capabilities().lossy;
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        match from.send(message) {
            // What came late or twice may fill the receiver: no other call takes it.
            Err(SendError::NoResource) if lossy => {
                from.flush().expect("the device works");
                next(to, Duration::ZERO);
                continue;
            }
            Err(SendError::NoResource) => {
                send(from, message);
            }
            outcome => {
                outcome.expect("the message is sent");
            }
        }
        from.flush().expect("the device works");
        let mut waited = Instant::now();
        while waited.elapsed() < if lossy { PATIENCE } else { DEADLINE } {
            match next(to, PATIENCE) {
                Some(got) if got == bytes => return,
                Some(got) => assert!(lossy, "{} bytes arrived instead of {}", got.len(), bytes.len()),
                None => {}
            }
            if from.flush().is_err() {
                waited = Instant::now() - DEADLINE;
            }
        }
    }
    panic!("{} bytes never arrived; dropped: {:?}", bytes.len(), drops(to));
}

pub(super) fn drops(endpoint: &dyn Endpoint) -> Vec<(&'static str, u64)> {
    let all = Reason::ALL.iter().map(|reason| (reason.name(), endpoint.counters().dropped(*reason)));
    all.filter(|(_, count)| *count > 0).collect()
}
