//! What every device and every wrapper must do, as tests that take a maker of joined hosts.
//!
//! ```ignore
//! shunt_endpoint::conformance!(|| Some(Couple::new(a, b)));
//! ```
//!
//! writes one `#[test]` for each function of this module. The maker gives two endpoints that can reach each other, or
//! `None` after it has said why not (no privilege, say). On a lossy device the suite sends again what did not arrive, and
//! leaves out what only a faithful one can promise. Deadlines are long and end a test only by failing it.

use crate::{
    Area, Arrival, Body, Buffers, Bytes, Channel, DirectAccess, Drop as Reason, Endpoint, Message, OpenError, PostError,
    SendError, Tag, Tags, Ticket, INLINE,
};
use std::any::Any;
use std::time::{Duration, Instant};

pub mod direct;
pub mod wrapped;
pub use direct::{updates_are_checked, updates_arrive};

/// An endpoint that may move to another thread.
pub type Boxed = Box<dyn DirectAccess + Send>;

/// Two endpoints that can reach each other, and whatever must live as long.
pub struct Couple {
    /// One.
    pub a: Boxed,
    /// The other.
    pub b: Boxed,
    /// Namespaces, switches.
    pub keep: Option<Box<dyn Any>>,
}

impl Couple {
    /// Two endpoints that need nothing else.
    pub fn new(a: impl DirectAccess + Send + 'static, b: impl DirectAccess + Send + 'static) -> Couple {
        Couple { a: Box::new(a), b: Box::new(b), keep: None }
    }
}

/// A maker of couples.
pub type Make<'m> = &'m mut dyn FnMut() -> Option<Couple>;

/// How long anything may take. Nothing that works comes near.
const DEADLINE: Duration = Duration::from_secs(20);
/// After this, a message on a lossy device is sent again.
const PATIENCE: Duration = Duration::from_millis(20);

/// Two endpoints with a channel between them, and buffers posted.
struct Joined {
    a: Boxed,
    b: Boxed,
    to_b: Channel,
    to_a: Channel,
    _keep: Option<Box<dyn Any>>,
}

fn tags() -> (Tags, Tags) {
    let (one, two) = (Tag::random().expect("random bits"), Tag::random().expect("random bits"));
    (Tags { receive: one, send: two }, Tags { receive: two, send: one })
}

/// Opens a channel between two endpoints, with tags that each has made.
pub fn connect(a: &mut dyn Endpoint, b: &mut dyn Endpoint) -> (Channel, Channel) {
    let (for_a, for_b) = (a.new_tag().expect("a tag"), b.new_tag().expect("a tag"));
    let to_b = a.open(&b.address(), Tags { receive: for_a, send: for_b }).expect("a opens");
    let to_a = b.open(&a.address(), Tags { receive: for_b, send: for_a }).expect("b opens");
    (to_b, to_a)
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

fn joined(make: Make<'_>) -> Option<Joined> {
    let Couple { mut a, mut b, keep } = make()?;
    provide(&mut *a, 128);
    provide(&mut *b, 128);
    let (to_b, to_a) = connect(&mut *a, &mut *b);
    meet(&mut *a, &mut *b);
    Some(Joined { a, b, to_b, to_a, _keep: keep })
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|k| (k * 7 + k / 251 + seed * 13) as u8).collect()
}

/// Sends, trying again while there is no resource.
fn send(endpoint: &mut dyn Endpoint, message: &Message<'_>) -> Ticket {
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
fn next(endpoint: &mut dyn Endpoint, patience: Duration) -> Option<Vec<u8>> {
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

fn content(endpoint: &dyn Endpoint, arrival: &Arrival) -> Vec<u8> {
    let mut bytes = vec![0; arrival.len()];
    assert_eq!(arrival.copy_to(&endpoint.segment(), 0, &mut bytes), bytes.len(), "all bytes of the arrival are there");
    bytes
}

/// Sends until exactly these bytes have arrived; on a faithful device the first message must be they.
fn pass(from: &mut dyn Endpoint, to: &mut dyn Endpoint, message: &Message<'_>, bytes: &[u8]) {
    let lossy = from.capabilities().lossy || to.capabilities().lossy;
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        match from.send(message) {
            // What came late or twice may fill the receiver: nobody else takes it.
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

fn drops(endpoint: &dyn Endpoint) -> Vec<(&'static str, u64)> {
    let all = Reason::ALL.iter().map(|reason| (reason.name(), endpoint.counters().dropped(*reason)));
    all.filter(|(_, count)| *count > 0).collect()
}

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

/// What is asked for wrongly is refused, and nothing is sent.
pub fn refusals(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    let (largest, size) = (a.capabilities().largest, a.segment().size());
    let long = vec![0; largest as usize + 1];
    assert_eq!(a.send(&Message::small(to_b, &long[..INLINE + 1])), Err(SendError::TooLarge));
    fn with(channel: Channel, body: Body<'_>) -> Message<'_> {
        Message { channel, head: &[], body }
    }
    assert_eq!(a.send(&with(to_b, Body::Bytes(Bytes::from(&long[..])))), Err(SendError::TooLarge));
    assert_eq!(a.send(&with(to_b, Body::Areas(&[Area::new(size - 8, 9)]))), Err(SendError::Area));
    assert_eq!(a.send(&with(to_b, Body::Areas(&[Area::new(u32::MAX, 9)]))), Err(SendError::Area));
    let many = vec![Area::new(0, 1); a.capabilities().gather as usize + 1];
    assert_eq!(a.send(&with(to_b, Body::Areas(&many))), Err(SendError::TooLarge));
    for wrong in [Channel(to_b.0 ^ 1 << 16), Channel(to_b.0 ^ 0x1f), Channel(u32::MAX)] {
        assert_eq!(a.send(&Message::small(wrong, b"x")), Err(SendError::Channel));
    }
    match a.capabilities().buffers {
        Buffers::Own => assert_eq!(a.post(Area::new(0, 4096)), Err(PostError::NotNeeded)),
        Buffers::Posted { smallest, .. } => {
            assert_eq!(a.post(Area::new(0, smallest - 1)), Err(PostError::Area));
            assert_eq!(a.post(Area::new(size - smallest + 1, smallest)), Err(PostError::Area));
        }
    }
    let _ = a.flush();
    assert_eq!(next(&mut *b, PATIENCE), None);
}

/// Tags that are 0 or taken, and addresses of other devices, open nothing; the registry has an end.
pub fn opening(make: Make<'_>) {
    let Some(Joined { mut a, b, to_b, _keep, .. }) = joined(make) else { return };
    let remote = b.address();
    let (good, _) = tags();
    assert_eq!(a.open(&remote, Tags { receive: Tag(0), ..good }), Err(OpenError::Tag));
    assert_eq!(a.open(&remote, Tags { send: Tag(0), ..good }), Err(OpenError::Tag));
    assert_eq!(a.open(&crate::Address::NONE, good), Err(OpenError::Address));
    let mut fresh = || {
        let tag = a.new_tag().expect("a tag");
        (a.open(&remote, Tags { receive: tag, send: good.send }), tag)
    };
    let (first, taken) = fresh();
    let first = first.expect("a second channel");
    assert_ne!(first, to_b);
    let mut all = vec![first];
    let error = loop {
        match fresh().0 {
            Ok(channel) => all.push(channel),
            Err(error) => break error,
        }
        assert!(all.len() <= 65536);
    };
    assert_eq!(error, OpenError::Full);
    for channel in all.drain(1..) {
        a.close(channel);
        assert_eq!(a.send(&Message::small(channel, b"x")), Err(SendError::Channel));
    }
    assert_eq!(a.open(&remote, Tags { receive: taken, send: good.send }), Err(OpenError::Tag), "in use");
    a.close(first);
    let receive = a.new_tag().expect("a tag");
    let again = a.open(&remote, Tags { receive, ..good }).expect("place came free");
    assert_ne!(again, first, "a closed channel's name does not come back at once");
}

/// A message whose tag the receiver did not register, or has closed, reaches nobody.
pub fn tags_protect(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, to_a, _keep }) = joined(make) else { return };
    let guessed = Tags { receive: a.new_tag().expect("a tag"), send: Tag(0x1234_5678_9abc_def0) };
    let wrong = a.open(&b.address(), guessed).expect("a may believe what it likes");
    for _ in 0..10 {
        let _ = a.send(&Message::small(wrong, b"guess"));
        let _ = a.flush();
    }
    assert_eq!(next(&mut *b, PATIENCE), None);
    a.close(wrong);
    pass(&mut *a, &mut *b, &Message::small(to_b, b"right"), b"right");
    b.close(to_a);
    for _ in 0..10 {
        let _ = a.send(&Message::small(to_b, b"late"));
        let _ = a.flush();
    }
    let late = next(&mut *b, PATIENCE);
    assert!(late.is_none() || a.capabilities().lossy && late.as_deref() == Some(b"right"), "{late:?}");
}

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

/// One `#[test]` for each function of the suite; the argument is a maker of couples. With `@wrapped`, the same behind each of the
/// wrappers; with `@each`, only the functions that are named.
#[macro_export]
macro_rules! conformance {
    ($make:expr) => {
        $crate::conformance!(
            @each $make;
            small_messages large_messages gathered ordered_stream refusals opening tags_protect back_pressure no_buffers
            held_arrivals injection arming no_wake_up_is_lost counting updates_arrive
            updates_are_checked
        );
    };
    (@wrapped $make:expr) => {
        mod traced_and_captured {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(|| $make().map($crate::conformance::Couple::traced_and_captured));
        }
        mod captured_and_traced {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(|| $make().map($crate::conformance::Couple::captured_and_traced));
        }
        mod bad_network {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(|| $make().map(|couple| couple.with_faults($crate::conformance::wrapped::BAD_NETWORK)));
        }
    };
    (@each $make:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::$name(&mut $make);
            }
        )*
    };
}
