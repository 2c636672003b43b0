//! What direct access must do on every device that has it.

use super::joined::{connect, joined, meet, pass, pattern, Joined, DEADLINE, PATIENCE};
use super::{Boxed, Make};
use crate::direct::GRAIN;
use crate::{
    Area, Arrival, ArrivalKind, Channel, DirectAccess, DirectError, Drop as Reason, Import, Key, Message, Notification, Rights,
    SendError,
};
use std::time::{Duration, Instant};

/// What is exported here.
pub const AREA: Area = Area::new(8192, 16384);

/// Tries until there is an answer.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
    }
}

/// Takes up an export of [`AREA`].
pub fn import(endpoint: &mut dyn DirectAccess, channel: Channel, key: Key) -> Import {
    until("the export", || match endpoint.import(channel, key, AREA.length) {
        Ok(import) => Some(import),
        Err(DirectError::NoResource) => None,
        Err(error) => panic!("{error:?}"),
    })
}

/// Writes bytes, trying again while there is no resource.
///
/// # Errors
/// As for [`DirectAccess::update`].
pub fn update(
    endpoint: &mut dyn DirectAccess,
    import: &Import,
    offset: u32,
    bytes: &[u8],
    notify: bool,
) -> Result<(), SendError> {
    until("room", || match endpoint.update(import, offset, bytes.into(), notify) {
        Err(SendError::NoResource) => None,
        outcome => Some(outcome.map(|_| ())),
    })?;
    endpoint.flush().map(|_| ())
}

/// Updates come to where they belong, notify an owner that wants to know, and reach no memory once the export was taken back.
/// What a lossy device has lost or damaged is sent again.
pub fn updates_arrive(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, to_a, _keep }) = joined(make) else { return };
    let lossy = a.capabilities().lossy || b.capabilities().lossy;
    assert!(b.segment().write(AREA, b"before"));
    let key = b.export(to_a, AREA, Rights::Write).unwrap();
    let import = import(&mut *a, to_b, key);
    let bytes = pattern(10_000, 31);
    let holds = |b: &Boxed, offset: u32, bytes: &[u8]| {
        let mut got = vec![0; bytes.len()];
        assert!(b.segment().read(Area::new(AREA.offset + offset, bytes.len() as u32), &mut got));
        got == bytes
    };
    b.notify(key, true);
    let mut told = 0;
    until("an update", || {
        update(&mut *a, &import, 100, &bytes, true).unwrap();
        while let Some(arrival) = received(&mut *b, if lossy { PATIENCE } else { DEADLINE }) {
            told += 1;
            assert_eq!((arrival.kind(), arrival.channel()), (ArrivalKind::Notification, to_a));
            let Notification { key: named, offset, length } = arrival.notification().unwrap();
            // Where it is emulated, the last frame notifies.
            assert_eq!((named, offset as usize + length as usize), (key, 100 + bytes.len()));
            if !lossy {
                break;
            }
        }
        (told > 0 && holds(&b, 100, &bytes)).then_some(())
    });
    assert!(lossy || told == 1, "one update notified {told} times");
    assert!(holds(&b, 0, b"before"), "what was there stays");

    // Without being asked, or without being wanted, no notification comes.
    for (offset, text, notify) in [(0, b"quiet", false), (5, b"still", true)] {
        until("the bytes", || {
            update(&mut *a, &import, offset, text, notify).unwrap();
            until("a look", || {
                assert!(received(&mut *b, Duration::ZERO).is_none());
                (lossy || holds(&b, offset, text)).then_some(())
            });
            holds(&b, offset, text).then_some(())
        });
        b.notify(key, false);
    }

    // Outside of it nothing can be written.
    assert_eq!(update(&mut *a, &import, AREA.length - 3, b"four", false), Err(SendError::Area));
    assert_eq!(update(&mut *a, &import, u32::MAX, b"four", false), Err(SendError::Area));

    // And nothing after it was taken back.
    b.unexport(key);
    let _ = update(&mut *a, &import, 0, b"late!", true);
    assert!(received(&mut *b, if lossy { PATIENCE } else { Duration::ZERO }).is_none());
    pass(&mut *a, &mut *b, &Message::small(to_b, b"on"), b"on");
    assert!(holds(&b, 0, b"quietstill"));
}

/// Frames for memory that their sender may not write change nothing, and are counted: with a key that is none, with that of
/// an export to another channel, beyond the end, of an export that was taken back or whose channel was closed.
pub fn updates_are_checked(make: Make<'_>) {
    let Some(Joined { mut a, mut b, to_b, to_a, _keep }) = joined(make) else { return };
    let key = b.export(to_a, AREA, Rights::Write).unwrap();
    if import(&mut *a, to_b, key).mapped().is_some() {
        return;
    }
    let (to_b_too, to_a_too) = connect(&mut *a, &mut *b);
    meet(&mut *a, &mut *b);
    let others = b.export(to_a_too, Area::new(0, GRAIN), Rights::Write).unwrap();
    b.notify(key, true);
    b.notify(others, true);
    let refused = |a: &mut Boxed, b: &mut Boxed, channel: Channel, key: Key, offset: u32| {
        let import = a.import(channel, key, u32::MAX).unwrap();
        let before = b.counters().dropped(Reason::Export);
        until("a drop", || {
            update(&mut **a, &import, offset, &[1; 1000], true).unwrap();
            assert!(received(&mut **b, PATIENCE).is_none(), "a notification of what was refused");
            (b.counters().dropped(Reason::Export) > before).then_some(())
        });
    };
    for wrong in [Key(key.0 ^ 1), Key(0), others] {
        refused(&mut a, &mut b, to_b, wrong, 0);
    }
    refused(&mut a, &mut b, to_b_too, key, 0);
    for offset in [AREA.length - 999, AREA.length, u32::MAX - 1000] {
        refused(&mut a, &mut b, to_b, key, offset);
    }
    b.unexport(key);
    refused(&mut a, &mut b, to_b, key, 0);
    b.close(to_a_too);
    // Of a channel that is closed the receiver knows no tag.
    let import = a.import(to_b_too, others, GRAIN).unwrap();
    let _ = update(&mut *a, &import, 0, &[1; 1000], true);
    assert!(received(&mut *b, PATIENCE).is_none());
    assert_eq!(b.export(to_a, Area::new(0, GRAIN), Rights::Write).map(|_| ()), Ok(()), "what was closed is no export any more");
    let mut bytes = vec![1; AREA.end() as usize];
    assert!(b.segment().read(Area::new(0, AREA.end() as u32), &mut bytes));
    assert!(bytes.iter().all(|byte| *byte == 0), "memory was written");
    pass(&mut *a, &mut *b, &Message::small(to_b, b"on"), b"on");
}

/// Waits for the next arrival; releases it.
fn received(endpoint: &mut dyn DirectAccess, patience: Duration) -> Option<Arrival> {
    let (start, mut arrival) = (Instant::now(), Arrival::empty());
    while !endpoint.receive(&mut arrival) {
        if start.elapsed() > patience {
            return None;
        }
        std::thread::yield_now();
    }
    let given = arrival;
    endpoint.release(&mut arrival);
    Some(given)
}
