//! The states of a region, and what leads from one to another: sections 2.1, 2.2, 4 and 6 of "Effects of Buffering Semantics
//! on I/O Performance" (OSDI '96).
//!
//! ```text
//!            allocate              mark moving out              mark moved out
//!   free ────────────────> moved in ───────────────> moving out ───────────────> moved out
//!    ^                      ^  ^                       │  │                          │
//!    │                      │  └──── recover ──────────┘  │ mark weakly moved out    │
//!    │        mark moved in │                             v                          │
//!    │                      │                      weakly moved out                  │
//!    │                      │                             │ mark moving in           │
//!    │                  moving in <───────────────────────┴──────────────────────────┘
//!    │
//!   removed <── remove, from any state in which no input is under way; free once nothing refers to it
//! ```
//!
//! *Removed* is the paper's I/O-deferred deallocation: the owner has let go, and the memory is another's only when the last
//! output has been read.

/// Where a region is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// No region: its units can be allocated.
    Free = 0,
    /// Memory of the application's own, which it keeps: never moved.
    Unmovable = 1,
    /// The application may use it.
    MovedIn = 2,
    /// An output that takes it away is under way.
    MovingOut = 3,
    /// Taken away; hidden, and kept for a later input.
    MovedOut = 4,
    /// Taken away, but in sight; kept for a later input.
    WeaklyMovedOut = 5,
    /// An input into it is under way.
    MovingIn = 6,
    /// Let go while outputs of it are being read.
    Removed = 7,
}

/// What happens to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Event {
    /// The system allocates it for the application.
    Allocate,
    /// The application's own memory becomes a region.
    Adopt,
    /// Table 2, prepare: "mark region moving out".
    MarkMovingOut,
    /// Table 2, dispose: "mark region moved out and enqueue".
    MarkMovedOut,
    /// Table 2, dispose: "mark region weakly moved out and enqueue".
    MarkWeaklyMovedOut,
    /// Table 3, prepare: "dequeue (weakly) moved out region, mark region moving in".
    MarkMovingIn,
    /// Table 3 and 4, dispose: "mark region moved in".
    MarkMovedIn,
    /// An output failed: the application has its region back (section 6.1).
    Recover,
    /// An input failed: the region goes back where it came from, without being looked at.
    Abandon,
    /// Table 2, dispose: "remove region"; or the application frees it.
    Remove,
}

use Event::*;
use State::*;

/// All transitions there are.
pub const TRANSITIONS: &[(State, Event, State)] = &[
    (Free, Allocate, MovedIn),
    (Free, Adopt, Unmovable),
    (Free, Event::MarkMovingIn, MovingIn),
    (MovedIn, Event::MarkMovingOut, MovingOut),
    (MovingOut, Event::MarkMovedOut, MovedOut),
    (MovingOut, Event::MarkWeaklyMovedOut, WeaklyMovedOut),
    (MovingOut, Recover, MovedIn),
    (MovedOut, Event::MarkMovingIn, MovingIn),
    (WeaklyMovedOut, Event::MarkMovingIn, MovingIn),
    (MovingIn, Event::MarkMovedIn, MovedIn),
    (MovingIn, Abandon, WeaklyMovedOut),
    (Unmovable, Remove, Removed),
    (MovedIn, Remove, Removed),
    (MovingOut, Remove, Removed),
    (MovedOut, Remove, Removed),
    (WeaklyMovedOut, Remove, Removed),
];

impl State {
    /// All states, by their numbers.
    pub const ALL: [State; 8] = [Free, Unmovable, MovedIn, MovingOut, MovedOut, WeaklyMovedOut, MovingIn, Removed];
    /// Events there are.
    const EVENTS: usize = Event::Remove as usize + 1;

    /// The state after `event`; `None`: it cannot happen here.
    #[inline]
    pub fn after(self, event: Event) -> Option<State> {
        const NONE: u8 = u8::MAX;
        /// The same table, by state and event.
        static NEXT: [[u8; State::EVENTS]; 8] = {
            let mut next = [[NONE; State::EVENTS]; 8];
            let mut i = 0;
            while i < TRANSITIONS.len() {
                let (from, event, to) = TRANSITIONS[i];
                next[from as usize][event as usize] = to as u8;
                i += 1;
            }
            next
        };
        let next = NEXT[self as usize][event as usize];
        (next != NONE).then(|| State::ALL[next as usize])
    }

    /// Whether the application may use the region; in others a fault there is its own mistake (section 4).
    pub fn is_usable(self) -> bool {
        matches!(self, Unmovable | MovedIn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_a_function_and_every_state_is_reached_and_left() {
        for (number, (from, event, to)) in TRANSITIONS.iter().enumerate() {
            assert_eq!(from.after(*event), Some(*to));
            assert!(TRANSITIONS[..number].iter().all(|other| (other.0, other.1) != (*from, *event)));
        }
        for state in State::ALL {
            assert!(state == Free || TRANSITIONS.iter().any(|transition| transition.2 == state), "{state:?}");
            assert!(state == Removed || TRANSITIONS.iter().any(|transition| transition.0 == state), "{state:?}");
        }
        assert_eq!((Unmovable.after(Event::MarkMovingOut), Removed.after(Allocate)), (None, None));
        assert_eq!(MovingIn.after(Remove), None);
    }
}
