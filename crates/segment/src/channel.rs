//! One channel: a page that two processes share for one connection.
//!
//! Each end of the connection is a [`Side`] (0: the client, 1: the server). A side's words are written by that side
//! only, except [`Wait::armed`], which the peer clears when it rings. Words that both ends touch in one round trip
//! are kept on one cache line ([`Post`]): announcing a message, carrying it when it is small, and acknowledging the
//! peer's last one is a single line transfer.

mod carriage;
pub mod cut;
pub mod references;
mod side;
mod stream;
mod wait;

pub use carriage::{Carriage, RELAYS};
use references::References;
pub use side::{release, urgent, Side, FAMILY, STAMP_POSITION};
pub use stream::{state, word, Post, Receive, Transmit, INLINE};
pub use wait::{arm, style, Wait, BELL};

use crate::settings::Settings;
use crate::sync::{AtomicU32, AtomicU64};

/// States of a channel ([`Head::state`]).
pub mod life {
    /// Unused.
    pub const FREE: u32 = 0;
    /// Given to a connection that is not accepted yet.
    pub const OFFERED: u32 = 1;
    /// Accepted.
    pub const ACCEPTED: u32 = 2;
}

/// What the connection is; written when it is set up.
#[repr(C)]
pub struct Head {
    /// [`life`] of the channel.
    pub state: AtomicU32,
    /// Counts the connections that used this channel.
    pub generation: AtomicU32,
    /// Client's address: two words ([`crate::address::Address::words`]).
    pub client: [AtomicU64; 2],
    /// Server's address.
    pub server: [AtomicU64; 2],
    /// Client port in the low half, server port in the high half.
    pub ports: AtomicU32,
    /// Scope id, if the address is link-local.
    pub scope: AtomicU32,
    /// CLOCK_MONOTONIC seconds when the client connected.
    pub since: AtomicU32,
    /// The generation that the companion's name tells: later connections on the same companion count on from it.
    pub pair: AtomicU32,
    /// The same moment by the time stamp counter, which is one for all processes of a host: which of a listener's options were
    /// meant.
    pub began: AtomicU64,
    /// Of each side's relays, how many hold bytes that their programs wrote and that found no room: what other owners send
    /// comes behind them. Written by the relays.
    pub owes: [AtomicU32; 2],
    /// What becomes of a connection that is announced in memory: [`announced`].
    pub announced: AtomicU32,
    /// The mark that its SYN shows.
    pub mark: AtomicU32,
    /// What becomes of a request to put the stream back on the TCP connection beside it: [`cut`].
    pub cut: AtomicU32,
    /// Of a stream whose peer has only a kernel: [`taken`].
    pub taken: AtomicU32,
    _reserved: [u32; 2],
    /// What the server's proof is to hold.
    pub token: [AtomicU64; 2],
    /// What the client has read in it.
    pub secret: [AtomicU64; 2],
    /// What each side sends by reference.
    pub references: [References; 2],
}

/// Which end of a connection with a peer that has only a kernel side 0 is ([`Head::taken`]): it is the program's, and says it for tools.
pub mod taken {
    /// None: nothing is taken, or it was given back.
    pub const NOT: u32 = 0;
    /// The client's.
    pub const CLIENT: u32 = 1;
    /// The server's.
    pub const SERVER: u32 = 2;
}

/// States of a connection between two network namespaces that is made again ([`Head::announced`]), in one word with the channel's generation: what a server has
/// found of one connection changes nothing of the next one on the channel.
pub mod announced {
    const BITS: u32 = 3;
    const STATE: u32 = (1 << BITS) - 1;
    /// Nothing is announced, or no longer.
    pub const NONE: u32 = 0;
    /// The client is making a TCP connection: its addresses follow.
    pub const COMING: u32 = 1;
    /// The client's: it has the connection that has these addresses, and waits for the server's proof.
    pub const ANNOUNCED: u32 = 2;
    /// The server's: it has accepted that connection, and writes a proof into it.
    pub const CLAIMED: u32 = 3;
    /// The server's: it does not take it, or waits for the client's answer to the proof no longer.
    pub const REFUSED: u32 = 4;
    /// The client's: it has read the proof, and leaves the connection to TCP.
    pub const LEFT: u32 = 5;
    /// The client's: it has read the proof, and the connection is a stream.
    pub const TAKEN: u32 = 6;

    /// The word for a state of this generation, of which it holds the lower bits.
    pub const fn word(state: u32, generation: u32) -> u32 {
        generation << BITS | state
    }

    /// The state that a word tells.
    pub const fn state(word: u32) -> u32 {
        word & STATE
    }

    /// The same generation's word for another state.
    pub const fn with(word: u32, state: u32) -> u32 {
        word & !STATE | state
    }
}

#[cfg(loom)]
impl Head {
    /// A head for a model: its atomics are not plain memory.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Head {
        let (narrow, wide) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Head {
            state: narrow(),
            generation: narrow(),
            client: core::array::from_fn(|_| wide()),
            server: core::array::from_fn(|_| wide()),
            ports: narrow(),
            scope: narrow(),
            since: narrow(),
            pair: narrow(),
            began: wide(),
            owes: core::array::from_fn(|_| narrow()),
            announced: narrow(),
            mark: narrow(),
            cut: narrow(),
            taken: narrow(),
            _reserved: [0; 2],
            token: core::array::from_fn(|_| wide()),
            secret: core::array::from_fn(|_| wide()),
            references: [References::new(), References::new()],
        }
    }
}

/// The page of one channel.
#[repr(C, align(4096))]
pub struct ChannelPage {
    /// What the connection is.
    pub head: Head,
    /// The two ends: client, server.
    pub sides: [Side; 2],
    /// The relays of each end.
    pub carriages: [Carriage; 2],
    /// What the program set on each end.
    pub settings: [Settings; 2],
    /// Class 0 rings follow here at [`crate::area::SMALL_RINGS`].
    _rings: [u64; 256],
}

#[cfg(not(loom))]
mod layout {
    use super::*;
    use core::mem::{offset_of, size_of};
    const _: () = assert!(size_of::<Head>() == 512);
    // Apart from what every send reads (`owes`).
    const _: () = assert!(offset_of!(Head, references) == 128);
    const _: () = assert!(size_of::<Side>() == 512);
    const _: () = assert!(offset_of!(ChannelPage, sides) == 512);
    const _: () = assert!(offset_of!(Side, transmit) == 128 && offset_of!(Side, wait) == 256);
    const _: () = assert!(offset_of!(ChannelPage, _rings) == crate::area::SMALL_RINGS);
    const _: () = assert!(size_of::<ChannelPage>() == crate::area::PAGE);
}
