//! What is refused, and whom a tag keeps out.

use super::joined::{joined, next, pass, tags, Joined, PATIENCE};
use super::Make;
use crate::{Area, Body, Buffers, Bytes, Channel, Message, OpenError, PostError, SendError, Tag, Tags, INLINE};

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

/// A message whose tag the receiver did not register, or has closed, reaches no receiver.
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
