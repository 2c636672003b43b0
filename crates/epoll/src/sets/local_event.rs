//! What a thread of this process brings to a stream itself, from another host: its sets need no bell.

use super::arming::kick;
use super::entry::Entry;
use super::set::{activate, watcher, Set, SETS};
use super::EXCLUSIVE;
use core::sync::atomic::{fence, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::arm;
use shunt_stream::socket::Socket;
use shunt_stream::stamp;
use shunt_sys::clock;

/// Sets that may look at one stream: more need bells.
const AT_ONCE: usize = 4;
/// So long behind a kick that no thread has heard one (ticks) there is no other: it looks at all that came.
const ON_ITS_WAY: u64 = 100_000;

/// Something came for a near side of this process. True: it takes no bell, because no thread sleeps, or only a set
/// of this process has announced that it waits, in which no thread sleeps, or one that was kicked.
pub fn hears_by_itself(near: &Socket, far: &Socket, conditions: u32) -> bool {
    fence(Ordering::SeqCst); // behind what came, as every waker's look
    let wait = &near.own().wait;
    if conditions & arm::IN != 0 && bell::wants_stamp(wait) {
        stamp::arrived(far);
    }
    let armed = wait.armed.load(Ordering::Relaxed);
    let sets = conditions << arm::SET_SHIFT;
    let (others, anybody) = ((arm::IN | arm::OUT) | arm::ALWAYS, conditions | sets | arm::ALWAYS);
    armed & anybody == 0 || (armed & others == 0 && near.own().asks_time.load(Ordering::Relaxed) == 0 && arrived(near))
}

/// Bytes, space or an end came to a stream by the calling thread's doing: the sets that watch it look at it from now on, and what
/// they had announced is taken back. One kick wakes a thread for all of a set's streams. False: a bell is needed.
///
/// The caller may hold any lock, so none is waited for.
fn arrived(socket: &Socket) -> bool {
    let Some(_watchers) = SETS.watchers.try_lock() else { return false };
    let mut held = [const { None }; AT_ONCE];
    let mut next = watcher(socket.watchers.entries());
    for place in &mut held {
        let Some(entry) = next else { break };
        let Some(set) = set_of(entry) else { return false };
        // Held until all is taken back: no thread announces anything meanwhile.
        let Some(lock) = set.lock.try_lock() else { return false };
        activate(set, entry);
        *place = Some((set, entry, lock));
        next = watcher(&entry.next_watcher);
    }
    if next.is_some() || held[0].is_none() {
        return false;
    }
    // A thread that falls asleep from now on arms what is looked at, and looks at it.
    fence(Ordering::SeqCst);
    // The calling thread looks when it has brought what there is, before it sleeps; another is woken, unless one is on its way already.
    for (set, entry, _) in held.iter().flatten().filter(|(set, ..)| set.others_asleep()) {
        let now = clock::ticks();
        if now.wrapping_sub(set.kicked_at.load(Ordering::Relaxed)) > ON_ITS_WAY {
            if !set.descriptor().is_some_and(|epfd| kick(epfd, entry)) {
                return false;
            }
            set.kicked_at.store(now, Ordering::Relaxed);
        }
    }
    bell::disarm(&socket.own().wait, (arm::IN | arm::OUT) << arm::SET_SHIFT);
    true
}

/// The set of an entry, if it is this process's alone, in no other set, and does not take turns with others.
fn set_of(entry: &'static Entry) -> Option<&'static Set> {
    let alone = |set: &&Set| !set.shared.load(Ordering::Relaxed) && set.watchers.load(Ordering::Acquire).is_null();
    let set = entry.set().filter(alone)?;
    (entry.valid() && entry.wanted() & EXCLUSIVE == 0).then_some(set)
}
