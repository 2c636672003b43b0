//! What comes by the shadow connection, and what is said there.

use super::*;
use shunt_station::Pump;

#[test]
fn a_client_without_a_token_sends_by_tcp() {
    let mut played = played(paths::PROVISIONAL);
    assert_eq!(played.alone.send(b"early"), 5);
    assert_eq!(played.tend().way, paths::PROVISIONAL);
    assert_eq!(played.got(), b"early");
    assert_eq!(played.alone.standing().acknowledged, 5, "the kernel has them");
}

#[test]
fn a_token_is_no_byte_of_the_stream() {
    let mut played = played(paths::PROVISIONAL);
    played.put(&played.alone.token());
    let standing = played.tend();
    assert_eq!((standing.way, standing.received), (paths::BEGINNING, 0));
    assert_eq!(played.text(), "");
}

#[test]
fn what_was_sent_before_the_token_is_where_the_engine_begins() {
    let mut played = played(paths::PROVISIONAL);
    played.alone.send(b"early");
    played.tend();
    played.put(&played.alone.token());
    played.tend();
    let words = &played.alone.local.station;
    assert_eq!(stream_words::get(words, STREAM, stream_words::OUT_BASE), 5);
}

#[test]
fn the_beginning_of_a_token_is_the_streams_where_none_is_to_come() {
    let mut played = played(paths::PROVISIONAL);
    let token = played.alone.token();
    played.put(&token[..7]);
    // The station of this test has reserved nothing, so no server can have claimed it.
    assert_eq!(played.tend().way, paths::TCP);
    assert_eq!(played.alone.standing().received, 7);
}

#[test]
fn other_bytes_than_a_token_are_the_streams() {
    let mut played = played(paths::PROVISIONAL);
    played.put(b"HTTP/1.1 200 OK and more");
    assert_eq!(played.tend().way, paths::TCP);
    assert_eq!(played.text(), "HTTP/1.1 200 OK and more");
}

#[test]
fn a_token_behind_the_end_ends_nothing_else() {
    let mut played = played(paths::PROVISIONAL);
    played.alone.finish();
    played.tend();
    assert!(played.is_at_end());
    played.put(&played.alone.token());
    let standing = played.tend();
    assert!(standing.way == paths::BEGINNING && !standing.reset && !standing.ended, "{standing:?}");
}

#[test]
fn before_begin_a_server_takes_bytes_by_tcp() {
    let mut played = played(paths::CLAIMED);
    played.put(b"request");
    assert_eq!(played.tend().way, paths::CLAIMED);
    assert_eq!(played.text(), "request");
}

#[test]
fn before_begin_a_server_keeps_what_its_program_sends() {
    let mut played = played(paths::CLAIMED);
    played.alone.send(b"answer");
    played.tend();
    assert_eq!(played.got(), b"", "the client decides by which way it comes");
}

#[test]
fn begin_at_the_bytes_that_are_there_goes_on_by_the_engine() {
    let mut played = played(paths::CLAIMED);
    played.put(b"abc");
    played.tend();
    played.alone.begin(3);
    assert_eq!(played.alone.standing().way, paths::FAST);
}

#[test]
fn begin_behind_bytes_under_way_waits_for_them() {
    let mut played = played(paths::CLAIMED);
    played.alone.begin(6);
    assert_eq!(played.tend().way, paths::CLAIMED);
    played.put(b"abcdef");
    assert_eq!(played.tend().way, paths::FAST);
    assert_eq!(played.text(), "abcdef");
}

#[test]
fn begin_before_bytes_that_came_is_refused() {
    let mut played = played(paths::CLAIMED);
    played.put(b"abc");
    played.tend();
    played.alone.begin(2);
    assert!(played.has(flag::REFUSED));
    assert_ne!(played.alone.standing().way, paths::FAST);
}

#[test]
fn a_second_begin_changes_nothing() {
    let mut played = played(paths::CLAIMED);
    played.alone.begin(0);
    played.alone.begin(9);
    assert_eq!(played.alone.standing().way, paths::FAST);
    assert!(!played.has(flag::REFUSED));
    played.tend();
}

#[test]
fn a_server_that_hears_no_begin_goes_on_by_tcp_and_says_so() {
    let mut played = played(paths::CLAIMED);
    played.put(b"abc");
    played.alone.send(b"answer");
    played.tend();
    assert_eq!(played.alone.tend(2 * SECOND).way, paths::TCP);
    let got = played.got();
    assert_eq!(got[..32], played.record(3, NEVER_FAST));
    assert_eq!(got[32..], *b"answer");
}

#[test]
fn a_client_whose_begin_was_never_heard_sends_all_again_by_tcp() {
    let mut played = played(paths::BEGINNING);
    played.alone.send(b"question");
    played.alone.given(8, 0);
    played.put(&played.record(0, NEVER_FAST));
    assert_eq!(played.tend().way, paths::TCP);
    assert_eq!(played.got(), b"question");
}

#[test]
fn a_lost_path_is_told_by_a_record_of_what_came() {
    let mut played = played(paths::FAST);
    assert_eq!(played.alone.arrives(b"seven b"), 7);
    played.pump().lost(STREAM);
    assert_eq!(played.tend().way, paths::RESUMING);
    assert_eq!(played.got(), played.record(7, BY_ENGINE));
    assert_eq!(played.text(), "seven b");
}

#[test]
fn the_record_is_written_once() {
    let mut played = played(paths::FAST);
    played.pump().lost(STREAM);
    played.tend();
    assert_eq!(played.got().len(), 32);
    played.pump().lost(STREAM);
    played.tend();
    assert_eq!(played.got(), b"");
}

#[test]
fn bytes_go_on_behind_what_the_peer_has() {
    let mut played = played(paths::FAST);
    played.alone.send(b"0123456789");
    played.alone.given(10, 2);
    played.put(&played.record(4, BY_ENGINE));
    assert_eq!(played.tend().way, paths::TCP);
    let got = played.got();
    assert_eq!(got[..32], played.record(0, BY_ENGINE));
    assert_eq!(got[32..], *b"456789");
    assert_eq!(played.alone.standing().acknowledged, 10);
}

#[test]
fn bytes_behind_a_record_are_the_streams() {
    let mut played = played(paths::RESUMING);
    let mut both = played.record(0, BY_ENGINE).to_vec();
    both.extend(b"by TCP");
    played.put(&both);
    assert_eq!(played.tend().way, paths::TCP);
    assert_eq!(played.text(), "by TCP");
}

#[test]
fn a_record_in_two_parts_is_one() {
    let mut played = played(paths::RESUMING);
    let record = played.record(0, BY_ENGINE);
    played.put(&record[..20]);
    assert_eq!(played.tend().way, paths::RESUMING);
    played.put(&record[20..]);
    assert_eq!(played.tend().way, paths::TCP);
}

#[test]
fn a_record_that_names_more_than_was_sent_is_a_lie() {
    let mut played = played(paths::FAST);
    played.alone.send(b"0123");
    played.alone.given(4, 0);
    played.put(&played.record(5, BY_ENGINE));
    let standing = played.tend();
    assert!(standing.reset && played.alone.tells_reset());
}

#[test]
fn a_record_that_takes_back_what_was_confirmed_is_a_lie() {
    let mut played = played(paths::FAST);
    played.alone.send(b"0123");
    played.alone.given(4, 3);
    played.put(&played.record(2, BY_ENGINE));
    assert!(played.tend().reset);
}

#[test]
fn a_record_without_the_token_is_none() {
    let mut played = played(paths::FAST);
    let mut record = played.record(0, BY_ENGINE);
    record[3] ^= 1;
    played.put(&record);
    assert!(played.tend().reset);
}

#[test]
fn a_record_of_no_kind_is_none() {
    for kind in [0, 4, u64::MAX] {
        let mut played = played(paths::FAST);
        played.put(&played.record(0, kind));
        assert!(played.tend().reset, "{kind}");
    }
}

#[test]
fn only_a_record_may_come_while_the_engine_carries() {
    let mut played = played(paths::FAST);
    played.put(b"bytes that nobody may send here, 32");
    assert!(played.tend().reset);
}

#[test]
fn a_peer_that_lets_go_has_perhaps_said_its_end_by_the_engine() {
    let mut played = played(paths::FAST);
    calls::shutdown(played.peer, libc::SHUT_RDWR).unwrap();
    let standing = played.tend();
    assert!(standing.let_go && !standing.reset, "messages may be on their way");
}

#[test]
fn a_record_of_the_end_stands_for_the_ends_that_were_lost() {
    let mut played = played(paths::FAST);
    played.alone.arrives(b"all");
    played.alone.send(b"mine");
    played.alone.given(4, 0);
    crate::stream_life::happens(&played.alone.local.station, STREAM, crate::stream_life::Event::EndSaid);
    played.put(&played.record(3, ENDED));
    let standing = played.tend();
    assert!(standing.ended && !standing.reset);
    assert_eq!(standing.acknowledged, 4, "the peer has all, or it would not have let go");
    assert_eq!(played.text(), "all");
}

#[test]
fn a_record_of_the_end_behind_bytes_that_are_missing_is_a_reset() {
    let mut played = played(paths::FAST);
    played.alone.arrives(b"some");
    crate::stream_life::happens(&played.alone.local.station, STREAM, crate::stream_life::Event::EndSaid);
    played.put(&played.record(5, ENDED));
    assert!(played.tend().reset);
}

#[test]
fn by_tcp_the_end_comes_behind_the_bytes() {
    let mut played = played(paths::TCP);
    played.put(b"last");
    calls::shutdown(played.peer, libc::SHUT_WR).unwrap();
    let standing = played.tend();
    assert!(standing.ended && !standing.reset);
    assert_eq!(played.text(), "last");
}

#[test]
fn by_tcp_the_programs_end_is_said_behind_its_bytes() {
    let mut played = played(paths::TCP);
    played.alone.send(b"last");
    played.alone.finish();
    played.tend();
    assert_eq!(played.got(), b"last");
    assert!(played.is_at_end());
}

#[test]
fn by_tcp_the_program_is_not_flooded() {
    let mut played = played(paths::TCP);
    let bytes = vec![7; 160 << 10];
    let mut put = 0;
    let mut most = 0;
    for _ in 0..40 {
        let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        put += calls::sendto(played.peer, bytes.as_ptr().cast(), bytes.len(), flags, core::ptr::null(), 0).unwrap_or(0);
        played.tend();
        most = played.alone.standing().received;
    }
    assert!(put as u64 > most && most <= crate::pump::WINDOW, "{most} of {put} unread bytes");
    assert!(!played.alone.standing().reset);
}

#[test]
fn a_reset_by_the_engine_is_one_of_a_stream_that_it_carries() {
    let played = played(paths::FAST);
    played.pump().reset(STREAM);
    assert!(played.alone.standing().reset && played.alone.tells_reset());
}

#[test]
fn a_reset_by_the_engine_before_begin_leaves_the_connection() {
    let mut played = played(paths::CLAIMED);
    played.put(b"abc");
    played.tend();
    played.pump().reset(STREAM);
    assert_eq!(played.tend().way, paths::TCP);
    assert!(!played.alone.standing().reset);
    assert_eq!(played.got(), played.record(3, NEVER_FAST));
}

#[test]
fn a_reset_by_the_engine_says_nothing_of_a_stream_by_tcp() {
    let mut played = played(paths::TCP);
    played.pump().reset(STREAM);
    assert!(!played.tend().reset);
}

#[test]
fn an_end_by_the_engine_is_told_behind_the_bytes() {
    let played = played(paths::FAST);
    played.alone.arrives(b"x");
    played.pump().finished(STREAM);
    assert!(played.alone.standing().ended);
    assert_eq!(played.text(), "x");
}
