//! What direct access must do on every device that has it.

use super::{connect, meet, provide, DEADLINE};
use crate::{
    Area, Arrival, ArrivalKind, Channel, DirectAccess, DirectError, Import, Key, Message, Notification, Rights, SendError,
};
use std::time::Instant;

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
pub fn import<E: DirectAccess>(endpoint: &mut E, channel: Channel, key: Key) -> Import {
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
pub fn update<E: DirectAccess>(
    endpoint: &mut E,
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

/// Updates come to where they belong, notify who wants to know, and reach nobody once the export was taken back.
pub fn updates_arrive<E: DirectAccess>(mut a: E, mut b: E) {
    provide(&mut a, 64);
    provide(&mut b, 64);
    let (to_b, to_a) = connect(&mut a, &mut b);
    meet(&mut a, &mut b);
    assert!(b.segment().write(AREA, b"before"));
    let key = b.export(to_a, AREA, Rights::Write).unwrap();
    let import = import(&mut a, to_b, key);
    let bytes: Vec<u8> = (0..10_000).map(|k| (k * 31 + k / 256) as u8).collect();
    b.notify(key, true);
    update(&mut a, &import, 100, &bytes, true).unwrap();
    let mut arrival = Arrival::empty();
    until("the notification", || b.receive(&mut arrival).then_some(()));
    assert_eq!((arrival.kind(), arrival.channel()), (ArrivalKind::Notification, to_a));
    let Notification { key: named, offset, length } = arrival.notification().unwrap();
    // Where it is emulated, the last frame notifies.
    assert_eq!((named, offset as usize + length as usize), (key, 100 + bytes.len()));
    b.release(&mut arrival);
    let mut got = vec![0; bytes.len()];
    assert!(b.segment().read(Area::new(AREA.offset + 100, 10_000), &mut got));
    assert_eq!(got, bytes);
    let mut start = [0; 6];
    assert!(b.segment().read(AREA, &mut start));
    assert_eq!(&start, b"before", "what was there stays");

    // Without being asked, or without being wanted, no notification comes.
    update(&mut a, &import, 0, b"quiet", false).unwrap();
    b.notify(key, false);
    update(&mut a, &import, 5, b"still", true).unwrap();
    until("the bytes", || {
        assert!(!b.receive(&mut arrival));
        assert!(b.segment().read(AREA, &mut start));
        (&start == b"quiets").then_some(())
    });

    // Outside of it nothing can be written.
    assert_eq!(update(&mut a, &import, AREA.length - 3, b"four", false), Err(SendError::Area));
    assert_eq!(update(&mut a, &import, u32::MAX, b"four", false), Err(SendError::Area));

    // And nothing after it was taken back.
    b.unexport(key);
    let _ = update(&mut a, &import, 0, b"late!", true);
    assert!(!b.receive(&mut arrival));
    assert!(b.segment().read(AREA, &mut start));
    assert_eq!(&start, b"quiets");
    a.send(&Message::small(to_b, b"on")).unwrap();
    a.flush().unwrap();
    until("a message", || b.receive(&mut arrival).then_some(()));
    assert_eq!(arrival.head(), b"on");
}
