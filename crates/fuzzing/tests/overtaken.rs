//! A client that is gone at once: its reset comes by TCP, and what it sent before by active messages, through agents that may be
//! slow.

use shunt_remote::alone::{paths, Alone, Nowhere};
use shunt_sys::{calls, libc};

const MILLISECOND: u64 = 1_000_000;

/// A server's stream, before it heard where the client's messages begin, whose TCP connection was reset.
fn reset_early(nowhere: Nowhere) -> Alone {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    calls::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()).expect("a pair");
    let mut alone = Alone::new(nowhere, pair[0], paths::CLAIMED).expect("a stream");
    // The token, which the client has not read when it closes: AF_UNIX says ECONNRESET then.
    calls::sendto(pair[0], alone.token().as_ptr().cast(), 16, 0, core::ptr::null(), 0).expect("room");
    calls::close(pair[1]).expect("an open descriptor");
    assert!(!alone.tend(0).reset);
    alone
}

#[test]
fn what_was_sent_before_the_reset_arrives() {
    // SAFETY: nothing of the engine is used before.
    unsafe { shunt_sockets::start(shunt_config::Options::default(), core::ptr::null_mut(), None) };
    let nowhere = Nowhere::new().expect("a station");
    let mut alone = reset_early(nowhere);
    for _ in 0..10 {
        assert!(!alone.tend(40 * MILLISECOND).reset, "it may be on its way");
    }
    alone.begin(0);
    assert_eq!(alone.tend(0).way, paths::FAST);
    assert_eq!(alone.arrives(b"bytes"), 5);
    let mut room = [0; 16];
    assert_eq!((alone.receive(&mut room), &room[..5]), (5, &b"bytes"[..]));
    drop(alone);
    // Nothing was: the program is told of the reset in the end.
    let mut alone = reset_early(nowhere);
    assert!(!alone.tend(499 * MILLISECOND).reset);
    assert!(alone.tend(MILLISECOND).reset && alone.tells_reset());
}
