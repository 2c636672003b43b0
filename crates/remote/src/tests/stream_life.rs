//! The graph of a stream's life: all that the table allows, from a stream that is new to one that is released.
//!
//! `stream_life.txt` is the graph as it should be. After a change that is meant to alter it: `RENEW=1 cargo test -p shunt-remote life`, and look at
//! the difference.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const EVENTS: [Event; 31] = [
    ConnectedByToken,
    Connected,
    Accepted,
    TokenCame,
    NoToken,
    BeginReached,
    NotBegun,
    Begun,
    PathLost,
    EngineReset,
    FoundLarge,
    LeaveCame,
    LeaveReturned,
    RecordCame,
    RecordWritten,
    Agreed,
    PeerEnded,
    PeerReset,
    Refused,
    EndSaid,
    ResetSaid,
    ProgramGone,
    GivenUp,
    GivenUpKnown,
    Lent,
    LentInVain,
    LentAndClosed,
    NoDescriptor,
    Concluded,
    LeftToKernel,
    Released,
];

const NAMES: [(u64, &str); 22] = [
    (flag::ACTIVE, "ACTIVE"),
    (flag::FIN_OUT, "FIN_OUT"),
    (flag::RESET_OUT, "RESET_OUT"),
    (flag::FIN_IN, "FIN_IN"),
    (flag::RESET_IN, "RESET_IN"),
    (flag::NEAR_GONE, "NEAR_GONE"),
    (flag::REFUSED, "REFUSED"),
    (flag::OVER, "OVER"),
    (flag::RING, "RING"),
    (flag::GIVEN_UP, "GIVEN_UP"),
    (flag::BEGIN_DUE, "BEGIN_DUE"),
    (flag::BIND_DUE, "BIND_DUE"),
    (flag::RECORD_OUT, "RECORD_OUT"),
    (flag::RING_URGENT, "RING_URGENT"),
    (flag::CATCH_UP, "CATCH_UP"),
    (flag::NEVER_FAST, "NEVER_FAST"),
    (flag::BULK, "BULK"),
    (flag::COUNTS, "COUNTS"),
    (flag::QUITS, "QUITS"),
    (flag::LEAVE_DUE, "LEAVE_DUE"),
    (flag::STAYS, "STAYS"),
    (flag::LENT, "LENT"),
];

/// Flags on which no row depends, and which no end is made of.
const ASIDE: u64 = !(flag::ACTIVE
    | flag::FIN_OUT
    | flag::FIN_IN
    | flag::RESET_OUT
    | flag::RESET_IN
    | flag::NEAR_GONE
    | flag::OVER
    | flag::GIVEN_UP
    | flag::QUITS
    | flag::LENT);

fn names(flags: u64) -> String {
    NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

/// A way and the flags that matter.
type State = (u64, u64);

fn step((way, flags): State, event: Event) -> Option<State> {
    transition(event, way, flags).map(|row| (row.way.unwrap_or(way), (flags & !row.lowers | row.raises) & !ASIDE))
}

/// All states that a new stream can come to, each with where the events lead.
fn reached() -> BTreeMap<State, Vec<(Event, State)>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![(NEW, 0)]);
    while let Some(state) = open.pop() {
        if found.contains_key(&state) {
            continue;
        }
        // Only the keeper's own descriptors are left of a stream that is over.
        let over = state.1 & flag::OVER != 0;
        let steps: Vec<_> = EVENTS
            .iter()
            .filter(|event| !over || matches!(event, Released))
            .filter_map(|event| step(state, *event).map(|to| (*event, to)))
            .collect();
        open.extend(steps.iter().map(|(_, to)| *to));
        found.insert(state, steps);
    }
    found
}

#[test]
fn the_graph_of_ways_is_as_it_is_drawn() {
    let mut drawn = String::new();
    let ways: BTreeSet<u64> = reached().keys().map(|(way, _)| *way).collect();
    for way in ways {
        for row in TABLE.iter().filter(|row| row.on != ANY && row.on & 1 << way != 0) {
            let to = row.way.map_or(String::new(), |to| format!(" -> {}", shunt_station::paths::word(to)));
            let needs = if row.needs != 0 { format!(" if {}", names(row.needs)) } else { String::new() };
            let raises = if row.raises != 0 { format!(" +{}", names(row.raises)) } else { String::new() };
            let lowers = if row.lowers != 0 { format!(" -{}", names(row.lowers)) } else { String::new() };
            writeln!(drawn, "{}: {:?}{needs}{to}{raises}{lowers}", shunt_station::paths::word(way), row.event).unwrap();
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/stream_life.txt");
    if std::env::var_os("RENEW").is_some() {
        std::fs::write(path, &drawn).unwrap();
    }
    assert_eq!(drawn, std::fs::read_to_string(path).unwrap_or_default(), "RENEW=1 writes it anew");
}

#[test]
fn each_row_can_come_about() {
    let graph = reached();
    for (at, row) in TABLE.iter().enumerate() {
        // The rows above it for the same event must leave it something.
        let above = |way: u64, flags: u64| TABLE[..at].iter().any(|row| row.event == TABLE[at].event && row.fits(way, flags));
        assert!(
            graph.keys().any(|(way, flags)| row.fits(*way, *flags) && !above(*way, *flags)),
            "row {at}, {:?}, is hidden by those above it or never reached",
            row.event
        );
    }
}

#[test]
fn each_event_has_a_row_and_each_flag_a_name() {
    for event in EVENTS {
        assert!(TABLE.iter().any(|row| row.event == event), "{event:?}");
    }
    for row in &TABLE {
        let all = row.raises | row.lowers | row.needs | row.unless;
        assert!(EVENTS.contains(&row.event), "{:?}", row.event);
        assert_eq!(NAMES.iter().filter(|(bit, _)| all & bit != 0).count() as u32, all.count_ones(), "{:?}", row.event);
    }
}

#[test]
fn tcp_is_for_good() {
    for (state, steps) in reached() {
        let left = steps.iter().find(|(_, to)| state.0 == TCP && to.0 != TCP);
        assert_eq!(left, None, "{state:?}");
    }
}

#[test]
fn the_engine_is_used_once_and_not_again_behind_a_lost_path() {
    for (state, steps) in reached() {
        for (event, to) in steps {
            assert!(!(state.0 == RESUMING && [FAST, BEGINNING, CLAIMED].contains(&to.0)), "{state:?} {event:?}");
            assert!(state.0 != FAST || [FAST, RESUMING].contains(&to.0), "{state:?} {event:?}");
        }
    }
}

#[test]
fn an_end_is_said_and_told_once() {
    for (event, bit) in [(PeerEnded, flag::FIN_IN), (PeerReset, flag::RESET_IN), (EndSaid, flag::FIN_OUT)] {
        for (way, flags) in reached().into_keys() {
            assert_eq!(transition(event, way, flags).is_some(), flags & bit == 0, "{event:?} on {way}, {}", names(flags));
        }
    }
}

#[test]
fn a_reset_by_the_engine_ends_no_stream_that_goes_by_tcp() {
    for (way, flags) in reached().into_keys() {
        let ends = step((way, flags), EngineReset).is_some_and(|(_, to)| to & flag::RESET_IN != flags & flag::RESET_IN);
        assert!(!ends || way == FAST, "on {way}, {}", names(flags));
    }
}

#[test]
fn each_stream_can_be_released_from_wherever_it_is() {
    let graph = reached();
    // Backwards from the states of streams that were released, or were never more than reserved.
    let mut good: BTreeSet<State> = graph
        .keys()
        .copied()
        .filter(|(_, flags)| flags & (flag::ACTIVE | flag::OVER | flag::LENT | flag::GIVEN_UP) == 0)
        .collect();
    loop {
        let more: Vec<State> = graph
            .iter()
            .filter(|(state, steps)| !good.contains(state) && steps.iter().any(|(_, to)| good.contains(to)))
            .map(|(state, _)| *state)
            .collect();
        if more.is_empty() {
            break;
        }
        good.extend(more);
    }
    for state in graph.keys() {
        assert!(good.contains(state), "on {}, {}", state.0, names(state.1));
    }
}

#[test]
fn what_is_over_is_moved_no_more() {
    for (_, steps) in reached() {
        for (event, (way, flags)) in steps {
            let both = flags & (flag::ACTIVE | flag::OVER) == flag::ACTIVE | flag::OVER;
            assert!(!both || event == NoDescriptor, "{event:?} on {way}, {}", names(flags));
        }
    }
}

#[test]
fn a_way_that_no_family_knows_has_no_row_but_those_of_all_ways() {
    for event in EVENTS {
        for way in [7, 63, 64, u64::MAX] {
            assert!(transition(event, way, 0).is_none_or(|row| row.way.is_none()), "{event:?}");
        }
    }
}
