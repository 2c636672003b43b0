//! What a tool sees of a station: a copy of its memory, read from outside, without a lock.
//!
//! It is torn where a thread drives meanwhile, and may hold anything: numbers are shown, and nothing follows from them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use shunt_am::{Engine, Nanoseconds, Status};
use shunt_segment::address::Address;

use crate::memory::{flag, load2, peer_state, state, Count, Shared, ENGINE, MAGIC, VERSION};
use crate::{device, FourTuple, COUNTS, PEERS, STREAMS, WORDS};

/// The memfd's name, as /proc shows it.
pub const NAME: &str = "shunt-station";

/// Bytes of the largest memory that is read.
const MOST: u64 = 256 << 20;

/// A copy.
pub struct View {
    /// What carries frames: "udp", "xdp".
    pub device: &'static str,
    /// Streams that are lent.
    pub streams: Vec<StreamView>,
    /// Other stations, by number.
    pub peers: Vec<PeerView>,
    /// What happened so far, by [`Count`].
    pub counts: [u64; COUNTS],
}

/// A stream.
pub struct StreamView {
    /// Its number.
    pub number: u32,
    /// The peer's number.
    pub peer: u32,
    /// Both ends.
    pub four: FourTuple,
    /// This station's host is the client.
    pub is_client: bool,
    /// A reservation that is not claimed.
    pub reserved: bool,
    /// No process wants it any more, and the peer has not said so, too.
    pub closing: bool,
    /// CLOCK_MONOTONIC when it was lent.
    pub since: Nanoseconds,
    /// Bytes that the peer has room for now.
    pub room: u64,
    /// The sockets' words.
    pub words: [u64; WORDS],
}

/// Another station.
pub struct PeerView {
    /// Its number.
    pub number: u32,
    /// Its host.
    pub host: Address,
    /// The tag by which it reaches this station. A process that may read a station may know it.
    pub tag: u64,
    /// What the engine knows of the connection.
    pub status: Option<Status>,
}

#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Block([u64; 16]);

impl View {
    /// Reads the station in `file`.
    ///
    /// # Errors
    /// What the system answers; InvalidData: it is no station of this version.
    pub fn read(file: &File) -> io::Result<View> {
        let length = file.metadata()?.len();
        let words = (length as usize).saturating_sub(ENGINE) / 8;
        if length < ENGINE as u64 || length > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Anybody may call a file so: the rest of what is none is not read.
        let mut first = [0; size_of::<u64>() * 2];
        for (place, expected) in [
            (offset_of!(Shared, magic), MAGIC),
            (offset_of!(Shared, version), u64::from(VERSION)),
            (offset_of!(Shared, engine_words), words as u64),
        ] {
            file.read_exact_at(&mut first, place as u64)?;
            let word = u64::from_ne_bytes(first[..8].try_into().unwrap_or_default());
            let short = place == offset_of!(Shared, version);
            if (if short { word & u64::from(u32::MAX) } else { word }) != expected {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let mut blocks = vec![Block([0; 16]); (length as usize).div_ceil(size_of::<Block>())];
        // SAFETY: plain words, as many bytes as the blocks have.
        let bytes = unsafe { core::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast::<u8>(), length as usize) };
        file.read_exact_at(bytes, 0)?;
        let (head, engine) = bytes.split_at_mut(ENGINE);
        // SAFETY: aligned as `Shared`, and as long; atomics accept any bytes.
        let shared = unsafe { &*head.as_ptr().cast::<Shared>() };
        if shared.magic.load(Relaxed) != MAGIC || shared.version.load(Relaxed) != VERSION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: aligned to a page, and `words` long; this copy is ours alone.
        let engine = unsafe { core::slice::from_raw_parts_mut(engine.as_mut_ptr().cast::<u64>(), words) };
        let mut engine = Engine::attach(engine).ok();
        Ok(View {
            device: device::name(shared.device.load(Relaxed)),
            streams: (0..STREAMS).filter_map(|number| stream(shared, number, engine.as_ref())).collect(),
            peers: (0..PEERS).filter_map(|number| peer(shared, number, engine.as_mut())).collect(),
            counts: core::array::from_fn(|at| shared.counts[at].load(Relaxed)),
        })
    }

    /// The peer of that number.
    pub fn peer(&self, number: u32) -> Option<&PeerView> {
        self.peers.iter().find(|peer| peer.number == number)
    }

    /// What happened so far.
    pub fn count(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }
}

fn stream(shared: &Shared, number: u32, engine: Option<&Engine<'_>>) -> Option<StreamView> {
    let entry = shared.entry(number).filter(|entry| entry.state() != state::FREE)?;
    let (peer, channel) = (entry.peer.load(Relaxed), entry.channel.load(Relaxed) as u16);
    Some(StreamView {
        number,
        peer,
        four: entry.four(),
        is_client: entry.has(flag::OURS),
        reserved: entry.state() == state::RESERVED,
        closing: entry.state() == state::CLOSING,
        since: entry.since.load(Relaxed),
        room: engine.map_or(0, |engine| engine.room(peer, channel)),
        words: core::array::from_fn(|at| entry.words[at].load(Relaxed)),
    })
}

fn peer(shared: &Shared, number: u32, engine: Option<&mut Engine<'_>>) -> Option<PeerView> {
    let entry = shared.peer(number).filter(|entry| entry.state.load(Relaxed) == peer_state::OPEN)?;
    Some(PeerView {
        number,
        host: Address::from_words(load2(&entry.host), 0, 0),
        tag: entry.receive.load(Relaxed),
        status: engine.and_then(|engine| engine.status(number)),
    })
}
