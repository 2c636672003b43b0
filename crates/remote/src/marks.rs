//! Which streams are to be looked after, and what tells of it: marks in the station's memory, the keeper's socket, bells of this process.

use super::local_station::LocalStation;
use super::message::Message;
use super::stream_words;
use core::sync::atomic::{fence, Ordering};
use shunt_poll::epoll;
use shunt_ring::bell;
use shunt_segment::channel::arm;
use shunt_station::Stream;
use shunt_stream::socket::Socket;
use shunt_stream::stamp;

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

/// Something came for a near side of this process. True: it takes no bell, because no thread sleeps, or only a set
/// of this process in which no thread sleeps has announced that it waits.
pub fn hears_by_itself(near: &Socket, far: &Socket, conditions: u32) -> bool {
    fence(Ordering::SeqCst); // behind what came, as every waker's look
    let wait = &near.own().wait;
    if conditions & arm::IN != 0 && bell::wants_stamp(wait) {
        stamp::arrived(far);
    }
    let armed = wait.armed.load(Ordering::Relaxed);
    let sets = conditions << arm::SET_SHIFT;
    let (others, anybody) = ((arm::IN | arm::OUT) | arm::ALWAYS, conditions | sets | arm::ALWAYS);
    armed & anybody == 0 || (armed & others == 0 && near.own().asks_time.load(Ordering::Relaxed) == 0 && epoll::arrived(near))
}
