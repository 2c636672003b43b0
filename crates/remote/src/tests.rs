//! Tests that need a stream: one whose keeper and whose other host are played by the test.

mod switching;
mod tcp_fallback;

use crate::alone::{paths, Alone, Nowhere, Standing, STREAM};
use crate::pump::Rings;
use crate::stream_words::{self, flag};
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, clock, Errno};
use shunt_table::global;
use std::sync::{Mutex, MutexGuard, Once, OnceLock};

/// Kinds of records.
const BY_ENGINE: u64 = 1;
const NEVER_FAST: u64 = 2;
const ENDED: u64 = 3;

const SECOND: u64 = 1_000_000_000;

/// A stream, and the peer's end of its shadow.
struct Played {
    alone: Alone,
    peer: i32,
    _turn: MutexGuard<'static, ()>,
}

/// The engine's state is the process's, and is made once; one stream at a time.
fn played(way: u64) -> Played {
    static STARTED: Once = Once::new();
    static NOWHERE: OnceLock<Nowhere> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    STARTED.call_once(|| {
        clock::start();
        // SAFETY: nothing of the engine is used before; null says that there may be several threads.
        unsafe { global::set(shunt_config::Options::default(), core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
    let nowhere = *NOWHERE.get_or_init(|| Nowhere::new().expect("a station"));
    let mut pair = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    calls::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()).expect("a pair");
    Played { alone: Alone::new(nowhere, pair[0], way).expect("a stream"), peer: pair[1], _turn: turn }
}

impl Played {
    /// The peer writes into its shadow.
    fn put(&self, bytes: &[u8]) {
        let put = calls::sendto(self.peer, bytes.as_ptr().cast(), bytes.len(), MSG_DONTWAIT | MSG_NOSIGNAL, core::ptr::null(), 0);
        assert_eq!(put, Ok(bytes.len()));
    }

    /// What the peer finds in its shadow.
    fn got(&self) -> Vec<u8> {
        let mut room = vec![0; 1 << 20];
        let (at, null) = (room.as_mut_ptr().cast(), core::ptr::null_mut());
        match calls::recvfrom(self.peer, at, room.len(), MSG_DONTWAIT, null, null.cast()) {
            Ok(count) => room[..count].to_vec(),
            Err(Errno(libc::EAGAIN)) => vec![],
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Whether the peer finds the end, behind what it has read.
    fn is_at_end(&self) -> bool {
        let null = core::ptr::null_mut();
        calls::recvfrom(self.peer, [0u8; 1].as_mut_ptr().cast(), 1, MSG_DONTWAIT, null, null.cast()) == Ok(0)
    }

    /// A record, as either end writes it.
    fn record(&self, position: u64, kind: u64) -> [u8; 32] {
        let mut record = [0; 32];
        record[..16].copy_from_slice(&self.alone.token().map(|byte| !byte));
        record[16..24].copy_from_slice(&position.to_le_bytes());
        record[24..].copy_from_slice(&kind.to_le_bytes());
        record
    }

    /// The keeper looks.
    fn tend(&mut self) -> Standing {
        self.alone.tend(0)
    }

    /// The program takes what there is.
    fn text(&self) -> String {
        let mut room = [0; 1 << 16];
        let got = self.alone.receive(&mut room);
        String::from_utf8_lossy(&room[..got]).into_owned()
    }

    fn has(&self, flags: u64) -> bool {
        stream_words::flags(&self.alone.local.station, STREAM) & flags == flags
    }

    fn pump(&self) -> Rings<'_> {
        Rings::of(self.alone.local)
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = calls::close(self.peer);
    }
}
