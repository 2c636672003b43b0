//! What this process calls itself, and random bits.

use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::{calls, clock, libc};
use shunt_table::global::SETUP;

/// By which this process names itself to clients; 0: it was not drawn yet.
static ID: AtomicU64 = AtomicU64::new(0);

/// In the child after fork: another process has another name.
pub fn forget() {
    ID.store(0, Ordering::Relaxed);
}

/// Random bits; from the clock where the kernel gives none.
pub fn drawn() -> u64 {
    let mut bits = 0u64;
    match calls::getrandom((&raw mut bits).cast(), 8, libc::GRND_NONBLOCK) {
        Ok(8) => bits,
        _ => clock::ticks() ^ u64::from(calls::getpid()) << 32,
    }
}

/// 128 random bits; `None`: the kernel has none yet.
pub fn token() -> Option<[u8; 16]> {
    token_and_more().map(|(token, _)| token)
}

/// The same, and 64 others, by one call.
pub fn token_and_more() -> Option<([u8; 16], u64)> {
    let mut bits = [0; 24];
    let is_whole = calls::getrandom(bits.as_mut_ptr().cast(), bits.len(), libc::GRND_NONBLOCK) == Ok(bits.len());
    let (token, more) = bits.split_first_chunk()?;
    is_whole.then_some((*token, u64::from_ne_bytes(more.try_into().ok()?)))
}

/// This process's name for its clients, not 0; `None`: a handler interrupted a thread that has the set-up lock.
pub fn id() -> Option<u64> {
    let _setup = SETUP.lock()?;
    Some(match ID.load(Ordering::Relaxed) {
        0 => {
            let id = drawn() & (u64::MAX >> 1) | 1;
            ID.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    })
}
