//! A stream that is large goes on by TCP, and its program takes the connection over.

use super::*;
use crate::switch_to_tcp;
use shunt_station::Pump;

#[test]
fn a_peer_that_finds_it_large_is_followed() {
    let mut played = played(paths::FAST);
    played.pump().leave(STREAM);
    assert!(played.has(flag::BULK));
    played.put(&played.record(0, BY_ENGINE));
    assert_eq!(played.tend().way, paths::TCP);
    assert!(switch_to_tcp::is_marked(played.alone.local, STREAM), "the program is to take it over");
    switch_to_tcp::mark(played.alone.local, STREAM, false);
}

#[test]
fn a_lost_path_alone_is_no_reason_to_take_it_over() {
    let mut played = played(paths::FAST);
    played.pump().lost(STREAM);
    played.put(&played.record(0, BY_ENGINE));
    assert_eq!(played.tend().way, paths::TCP);
    assert!(!switch_to_tcp::is_marked(played.alone.local, STREAM));
}

#[test]
fn a_peer_that_does_not_know_leave_keeps_the_stream() {
    let played = played(paths::FAST);
    crate::stream_life::happens(&played.alone.local.station, STREAM, crate::stream_life::Event::FoundLarge);
    assert!(played.has(flag::QUITS | flag::LEAVE_DUE));
    played.pump().stays(STREAM);
    assert!(played.has(flag::STAYS) && !played.has(flag::QUITS) && !played.has(flag::LEAVE_DUE));
    assert_eq!(played.alone.standing().way, paths::FAST);
}

#[test]
fn it_is_given_when_both_rings_are_empty() {
    let mut played = played(paths::TCP);
    assert!(played.alone.shadow.may_be_left(played.alone.local, STREAM));
    played.put(b"unread");
    played.tend();
    assert!(!played.alone.shadow.may_be_left(played.alone.local, STREAM), "the program has not read");
    assert_eq!(played.text(), "unread");
    assert!(played.alone.shadow.may_be_left(played.alone.local, STREAM));
    played.alone.send(b"unsent");
    assert!(!played.alone.shadow.may_be_left(played.alone.local, STREAM), "what was sent waits");
    played.tend();
    assert!(played.alone.shadow.may_be_left(played.alone.local, STREAM));
}

#[test]
fn it_is_not_given_behind_an_end_or_on_another_way() {
    let mut ended = played(paths::TCP);
    calls::shutdown(ended.peer, libc::SHUT_WR).unwrap();
    ended.tend();
    assert!(!ended.alone.shadow.may_be_left(ended.alone.local, STREAM), "the peer has ended");
    drop(ended);
    let mut ends = played(paths::TCP);
    ends.alone.finish();
    ends.tend();
    assert!(!ends.alone.shadow.may_be_left(ends.alone.local, STREAM), "the program has");
    drop(ends);
    for way in [paths::PROVISIONAL, paths::BEGINNING, paths::CLAIMED, paths::FAST, paths::RESUMING] {
        let played = played(way);
        assert!(!played.alone.shadow.may_be_left(played.alone.local, STREAM), "{}", paths::word(way));
    }
}

#[test]
fn a_short_ring_has_its_room_again() {
    let played = played(paths::TCP);
    let (near, far) = (played.alone.socket.own(), played.alone.socket.peer());
    use core::sync::atomic::Ordering::Relaxed;
    stream_words::set(&played.alone.local.station, STREAM, stream_words::LIMITS, 5000 << 32 | 4000);
    near.transmit.send_buffer.store(1, Relaxed);
    far.receive_buffer.store(2, Relaxed);
    switch_to_tcp::lengthen(played.alone.local, STREAM, near, far);
    assert_eq!((near.transmit.send_buffer.load(Relaxed), far.receive_buffer.load(Relaxed)), (4000, 5000));
}

#[test]
fn a_limit_that_the_program_has_set_since_stays() {
    let played = played(paths::TCP);
    let (near, far) = (played.alone.socket.own(), played.alone.socket.peer());
    use core::sync::atomic::Ordering::Relaxed;
    stream_words::set(&played.alone.local.station, STREAM, stream_words::LIMITS, 5000 << 32 | 4000);
    near.transmit.send_buffer.store(9000, Relaxed);
    far.receive_buffer.store(2, Relaxed);
    switch_to_tcp::lengthen(played.alone.local, STREAM, near, far);
    assert_eq!((near.transmit.send_buffer.load(Relaxed), far.receive_buffer.load(Relaxed)), (9000, 5000));
}

#[test]
fn marks_of_streams_are_apart() {
    let played = played(paths::TCP);
    let local = played.alone.local;
    switch_to_tcp::mark(local, 3, true);
    switch_to_tcp::mark(local, 64, true);
    assert!(switch_to_tcp::is_marked(local, 3) && switch_to_tcp::is_marked(local, 64));
    assert!(!switch_to_tcp::is_marked(local, 4) && !switch_to_tcp::is_marked(local, 65));
    switch_to_tcp::mark(local, 3, false);
    assert!(!switch_to_tcp::is_marked(local, 3) && switch_to_tcp::is_marked(local, 64));
    switch_to_tcp::mark(local, 64, false);
}
