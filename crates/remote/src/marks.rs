//! Which streams are to be looked after, and what tells of it: marks in the station's memory, the keeper's socket.

use super::local_station::LocalStation;
use super::message::Message;
use super::stream_words;
use core::sync::atomic::Ordering;
use shunt_station::Stream;

/// A stream is to be looked after by the next holder of the lock.
pub fn mark(local: &LocalStation, stream: Stream) {
    local.common().dirty[(stream % stream_words::STREAMS) as usize / 64].fetch_or(1 << (stream % 64), Ordering::AcqRel);
}

/// As [`mark`], by the holder of the lock.
pub fn owe(local: &LocalStation, stream: Stream) {
    let word = &local.common().owed[(stream % stream_words::STREAMS) as usize / 64];
    word.store(word.load(Ordering::Relaxed) | 1 << (stream % 64), Ordering::Relaxed);
}

/// Wakes the keeper.
pub fn wake_keeper(local: &LocalStation) {
    let _ = Message::Wake.send(local.control.load(Ordering::Relaxed), &[]);
}
