//! Whether peers are gone: of those that were killed nothing in memory tells.

use super::Query;
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;
use shunt_stream::due;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{readiness, wake};
use shunt_sys::clock;

/// Ticks between two looks for peers that were killed while something is always ready (about a millisecond), and the addition for
/// each entry.
const BETWEEN: [u64; 2] = [2_000_000, 25_000];

/// Whether it is time for such a look, in a call with `count` entries.
#[inline]
pub fn due_for_check(socket: &Socket, now: u64, count: usize) -> bool {
    let [least, each] = BETWEEN;
    now.wrapping_sub(socket.last_check.load(Ordering::Relaxed)) > least + each * count as u64
}

impl Query<'_> {
    /// The same, of those that said an end and have more to say: what was found may be that end, which is nothing new. And of
    /// servers that have not accepted: they refuse without a word.
    pub(super) fn check_half_ended(&self) -> bool {
        let mut gone = false;
        for entry in self.entries.iter().filter(|entry| entry.revents != 0) {
            let Some(s) = shunt_stream::socket::stream(entry.fd) else { continue };
            if s.has(flag::UNACCEPTED) {
                readiness::while_unaccepted(s, entry.fd);
            } else if readiness::half_ended(s) {
                wake::ask_peer(s, entry.fd);
            } else {
                continue;
            }
            gone |= s.own().receive.state.load(Ordering::Relaxed) & state::PEER_GONE != 0;
        }
        gone
    }

    /// The same, where a program that finds something ready in each call never comes to wait.
    pub(super) fn check_now_and_then(&self) -> bool {
        let (now, count) = (clock::ticks(), self.entries.len());
        self.check_those(|s| due_for_check(s, now, count))
    }

    /// Whether some peer turns out to be gone.
    pub(super) fn check_peers(&self) -> bool {
        self.check_those(|_| true)
    }

    fn check_those(&self, due: impl Fn(&Socket) -> bool) -> bool {
        let mut gone = due::keep();
        shunt_stream::beside::drive();
        for entry in self.entries.iter() {
            if let Some(s) = shunt_stream::socket::stream(entry.fd).filter(|s| due(s)) {
                wake::check_peer(s, entry.fd);
                gone |= s.own().receive.state.load(Ordering::Relaxed) & (state::PEER_GONE | state::TIMED_OUT) != 0;
            }
        }
        gone | due::keep()
    }
}
