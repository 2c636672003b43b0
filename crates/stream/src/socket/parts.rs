//! Parts of a socket that belong to rooms above: the data stands here, and what is done with it there.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use shunt_ring::bell_consumer::BellConsumer;
use shunt_ring::passage::Passage;

/// The number of waiters, and what keeps the open file when no descriptor does.
pub struct Hold {
    /// Counts them by `WAITER`, and by `ASLEEP` those waits in a set that are one with a sleep in it.
    pub(crate) waiters: AtomicU64,
    /// The private duplicate, or `NONE`.
    pub(crate) number: AtomicI32,
    /// The kernel's end of a stream that has become the kernel's, for calls that go on there, or `NONE`.
    pub(crate) end: AtomicI32,
    /// Of a stream's numbers: `waiting::holding::aside::state`.
    pub(crate) state: AtomicU32,
    /// Waits on a socket that may be asleep, and the thread that takes their bells.
    pub(crate) gate: BellConsumer,
    /// The threads that ring by its descriptors, and the one that closes one.
    pub(crate) passage: Passage,
    /// 1: a sleeper was woken by a bell that is not taken yet.
    pub(crate) woken: AtomicU32,
    /// How often in a row no thread could take them, because others slept.
    pub(crate) in_vain: AtomicU32,
}

/// A process's own bell listener for the bells of a side that others have, too.
pub struct BellListener {
    /// An epoll descriptor; -1: not made yet.
    pub(crate) descriptor: AtomicI32,
    /// It hears [`crate::waiting::bells::poke`] as well.
    pub(crate) space: AtomicBool,
}

/// First entry of a list of watchers.
#[derive(Default)]
pub struct Head(pub(crate) AtomicPtr<()>);

/// Of one stream ([`crate::send_pacing`]). All zero: its ring has not been found full.
#[derive(Default)]
pub struct Restraint {
    /// In ticks.
    pub(crate) until: AtomicU64,
    /// 1: the send under way waits for room awake. More: so many large messages less one will not.
    pub(crate) alone: AtomicU32,
    pub(crate) penalty: AtomicU32,
}

/// What is noted of one stream ([`crate::stalled`]). All zero: nothing.
pub struct Stalled {
    /// TCP_USER_TIMEOUT, in ns; 0: none.
    pub(crate) limit: AtomicU64,
    /// Since when there is no room, in CLOCK_MONOTONIC ns; 0: there is.
    pub(crate) since: AtomicU64,
    /// The position up to which the peer had taken, as last seen.
    pub(crate) taken: AtomicU64,
    /// Bytes that it had not taken when a send last found no room.
    pub(crate) full: AtomicU64,
}
