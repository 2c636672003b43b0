//! A stream to another host without a keeper and without the other host: its owner plays both. For the fuzzer, which writes into
//! its shadow what a peer could.

use super::connect::{companion, seat};
use super::local_station::{self, LocalStation};
use super::pump::Rings;
use super::stream_words::{self, flag};
use super::tcp_fallback::Shadow;
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_segment::channel::word;
use shunt_station::{Choice, Pump, Station, Stream};
use shunt_stream::socket;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, AF_INET};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::global::SETUP;

/// Which way its bytes go.
pub use shunt_station::paths;

/// The one stream of such a station.
pub(crate) const STREAM: Stream = 0;

/// A station that no host can reach, for the life of the process.
#[derive(Clone, Copy)]
pub struct Nowhere(&'static LocalStation);

// SAFETY: a station is every thread's of its process.
unsafe impl Send for Nowhere {}
// SAFETY: as above.
unsafe impl Sync for Nowhere {}

/// The stream.
pub struct Alone {
    pub(crate) local: &'static LocalStation,
    pub(crate) socket: &'static Socket,
    ends: [i32; 2],
    pub(crate) shadow: Shadow,
    now: u64,
}

/// How the stream stands; positions are those of the program's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// One of [`paths`].
    pub way: u64,
    /// Given to the engine, or to TCP.
    pub sent: u64,
    /// Of these, what the peer is known to have.
    pub acknowledged: u64,
    /// Put into the program's ring.
    pub received: u64,
    /// Its ring's own account of what was confirmed.
    pub passed: u64,
    /// Both directions ended.
    pub reset: bool,
    /// The peer sends no more.
    pub ended: bool,
    /// The peer has let go of it.
    pub let_go: bool,
}

impl Nowhere {
    /// Makes it.
    ///
    /// # Errors
    /// What memfd_create(2), mmap(2) or socket(2) answers.
    pub fn new() -> Result<Nowhere> {
        let choice = Choice::Udp { local: Address::v4([127, 0, 0, 1], 0), mtu: 1500 };
        local_station::lay(Station::make(choice, clock::monotonic_ns())?, -1).map(Nowhere)
    }
}

impl Alone {
    /// A stream whose bytes go this `way`, and whose shadow is `shadow`, which is closed with it. One at a time.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub fn new(Nowhere(local): Nowhere, shadow: i32, way: u64) -> Result<Alone> {
        for which in local.station.words(STREAM) {
            which.store(0, Ordering::Relaxed);
        }
        let (own, peer) = (Address::v4([10, 0, 0, 1], 40000), Address::v4([10, 0, 0, 2], 80));
        let ends = companion(local, STREAM, &own, &peer, true)?;
        let socket = socket::allocate(AF_INET).ok_or(Errno(libc::ENOMEM))?;
        if let Some(_setup) = SETUP.lock() {
            seat(local, STREAM, socket, true);
        }
        stream_words::set(&local.station, STREAM, stream_words::MODE, way);
        stream_words::raise(&local.station, STREAM, flag::ACTIVE);
        // SAFETY: one thread has it.
        unsafe { (*local.far_fds.get())[STREAM as usize] = ends[1] };
        let now = clock::monotonic_ns();
        Ok(Alone { local, socket, ends, shadow: Shadow::new(shadow, now), now })
    }

    /// The token's bytes, in which a peer that was accepted is believed.
    pub fn token(&self) -> [u8; 16] {
        super::message::token_bytes(&self.local.station.token(STREAM))
    }

    /// The program sends; gives how much of it.
    pub fn send(&self, bytes: &[u8]) -> usize {
        // SAFETY: plain memory of ours; no other thread sends.
        unsafe { self.socket.outgoing().send(bytes.as_ptr(), bytes.len()) }
    }

    /// The program receives.
    pub fn receive(&self, into: &mut [u8]) -> usize {
        // SAFETY: plain memory of ours; no other thread receives.
        let got = unsafe { self.socket.incoming().peek(0, into.as_mut_ptr(), into.len()) }.unwrap_or(0);
        self.socket.incoming().pass(got);
        got
    }

    /// The program sends no more.
    pub fn finish(&self) {
        self.socket.outgoing().end(word::FIN);
    }

    /// The engine took so many bytes of the program's, and so many of them arrived. Only before anything comes by the shadow.
    pub fn given(&self, sent: u64, acknowledged: u64) {
        stream_words::set(&self.local.station, STREAM, stream_words::SENT, sent);
        stream_words::set(&self.local.station, STREAM, stream_words::ACKNOWLEDGED, acknowledged);
        self.local.far(STREAM).incoming().pass(acknowledged as usize);
    }

    /// The engine's bytes begin where what was sent ended.
    pub fn begins_here(&self) {
        stream_words::set(
            &self.local.station,
            STREAM,
            stream_words::OUT_BASE,
            stream_words::get(&self.local.station, STREAM, stream_words::SENT),
        );
    }

    /// The client says by the engine after how many bytes it goes on there.
    pub fn begin(&self, position: u64) {
        Rings::of(self.local).begin(STREAM, position);
    }

    /// The engine brings bytes; gives how many found room.
    pub fn arrives(&self, bytes: &[u8]) -> usize {
        // SAFETY: plain memory of ours; no other thread sends.
        let put = unsafe { self.local.far(STREAM).outgoing().send(bytes.as_ptr(), bytes.len()) };
        Rings::of(self.local).add(STREAM, stream_words::RECEIVED, put as u64);
        put
    }

    /// The keeper's look, so many nanoseconds after the last one.
    pub fn tend(&mut self, after: u64) -> Standing {
        self.now += after;
        self.shadow.happened();
        let mut let_go = false;
        if let Some(mut driver) = self.local.station.lock() {
            let_go = self.shadow.tend(self.local, &mut driver, STREAM, self.now);
        }
        Standing { let_go, ..self.standing() }
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        let get = |which| stream_words::get(&self.local.station, STREAM, which);
        let flags = stream_words::flags(&self.local.station, STREAM);
        Standing {
            way: get(stream_words::MODE),
            sent: get(stream_words::SENT),
            acknowledged: get(stream_words::ACKNOWLEDGED),
            received: get(stream_words::RECEIVED),
            passed: self.local.far(STREAM).own().receive.position.load(Ordering::Relaxed),
            reset: flags & (flag::RESET_IN | flag::RESET_OUT) != 0,
            ended: flags & flag::FIN_IN != 0,
            let_go: false,
        }
    }

    /// Whether the program would be told that the stream was reset.
    pub fn tells_reset(&self) -> bool {
        self.socket.incoming().look().0 & word::RST != 0
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        stream_words::lower(&self.local.station, STREAM, flag::ACTIVE);
        // SAFETY: one thread has it.
        unsafe { (*self.local.far_fds.get())[STREAM as usize] = -1 };
        for fd in self.ends.into_iter().chain([self.shadow.fd]) {
            let _ = calls::close(fd);
        }
        if let Some(_setup) = SETUP.lock() {
            shunt_link::let_go(self.local.links[0].1);
        }
        socket::free(self.socket);
    }
}
