//! Random calls about two sets, and about what is in them, made in both worlds: each answer must be the kernel's.
//!
//! Left out is what docs/SEMANTICS.md says, and what a program cannot rely on:
//!
//! * An end that shuts a half leaves the sets before, and joins none again: it hears no edge of its acknowledgement, nor of bytes that
//!   come to a half that is shut. Two ends do not both shut their receiving halves.
//! * A set goes into another by levels, and is asked about EPOLLIN, which is all that the kernel wakes it with (`ep_poll_safewake`). It
//!   holds streams alone: of foreign descriptors and a stream whose peer has gone an answer may be due that turns out to be none.
//! * The order within one answer; and full buffers, which have another size than rings.

use super::*;
use proptest::prelude::*;
use shunt_sys::libc::{EPOLLRDNORM, EPOLLWRNORM, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, MSG_DONTWAIT, SHUT_RD, SHUT_WR};
use shunt_sys::Result;

/// One call. Descriptors and sets are chosen from those that there are, by any number.
#[derive(Clone, Debug)]
enum Call {
    Control { set: usize, operation: i32, of: usize, events: i32 },
    Look { set: usize },
    Poll { of: usize },
    Send { of: usize, length: usize },
    Receive { of: usize, most: usize },
    Shut { of: usize, how: i32 },
    Dup { of: usize },
    Close { of: usize },
    Reset { of: usize },
    Connect,
    Count { of: usize },
}

fn events() -> impl Strategy<Value = i32> {
    let plain = prop::sample::subsequence(vec![IN, OUT, RDHUP, EPOLLRDNORM, EPOLLWRNORM], 0..=4)
        .prop_map(|bits| bits.into_iter().fold(0, |all, bit| all | bit));
    let mode = prop::sample::select(vec![0, 0, ET, ET, ET, ONESHOT, ET | ONESHOT]);
    let exclusive = prop::sample::select(vec![IN, OUT, IN | OUT, IN | ET, IN | OUT | ET]).prop_map(|bits| bits | EXCLUSIVE);
    prop_oneof![8 => (plain, mode).prop_map(|(plain, mode)| plain | mode), 1 => exclusive]
}

fn call() -> impl Strategy<Value = Call> {
    let any = 0..1000usize;
    let operation =
        prop::sample::select(vec![EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_MOD, EPOLL_CTL_DEL]);
    prop_oneof![
        8 => (0..3usize, operation, any.clone(), events()).prop_map(|(set, operation, of, events)| Call::Control { set, operation, of, events }),
        8 => (0..3usize).prop_map(|set| Call::Look { set }),
        2 => any.clone().prop_map(|of| Call::Poll { of }),
        6 => (any.clone(), 1..100usize).prop_map(|(of, length)| Call::Send { of, length }),
        4 => (any.clone(), 1..300usize).prop_map(|(of, most)| Call::Receive { of, most }),
        2 => (any.clone(), prop::sample::select(vec![SHUT_RD, SHUT_WR])).prop_map(|(of, how)| Call::Shut { of, how }),
        2 => any.clone().prop_map(|of| Call::Dup { of }),
        2 => any.clone().prop_map(|of| Call::Close { of }),
        1 => any.clone().prop_map(|of| Call::Reset { of }),
        1 => Just(Call::Connect),
        2 => any.prop_map(|of| Call::Count { of }),
    ]
}

/// What a call told.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    Done(Result<()>),
    Events(Vec<(u64, i32)>),
    Bits(i16),
    Bytes(Result<usize>),
    Nothing,
}

/// A world with what is open in it. Streams are known by the end that they are a duplicate of.
struct Player<'a> {
    world: &'a World,
    sets: Vec<i32>,
    streams: Vec<(usize, i32)>,
    events: Vec<i32>,
    ends: usize,
    /// Ends that have shut a half.
    shut: Vec<usize>,
    /// Ends of which numbers were closed, under which sets may know them still.
    halved: Vec<usize>,
    data: u64,
}

impl<'a> Player<'a> {
    fn new(world: &'a World) -> Player<'a> {
        let sets = (0..3).map(|_| world.epoll()).collect();
        let events = (0..2).map(|count| world.event(count)).collect();
        let mut player =
            Player { world, sets, streams: Vec::new(), events, ends: 0, shut: Vec::new(), halved: Vec::new(), data: 0 };
        (0..2).for_each(|_| player.connect());
        player
    }

    fn connect(&mut self) {
        let (near, far) = self.world.pair();
        self.streams.extend([(self.ends, near), (self.ends + 1, far)]);
        self.ends += 2;
    }

    fn stream(&self, of: usize) -> Option<(usize, i32)> {
        (!self.streams.is_empty()).then(|| self.streams[of % self.streams.len()])
    }

    /// What may go into a set: into the first anything, itself and the others, into these streams.
    fn member(&self, set: usize, of: usize) -> i32 {
        let streams = self.streams.iter().map(|(_, fd)| *fd);
        let others = self.sets.iter().chain(&self.events).copied();
        let all: Vec<i32> = if set == 0 { streams.chain(others).collect() } else { streams.chain([self.sets[set]]).collect() };
        all[of % all.len()]
    }

    /// What is polled.
    fn any(&self, of: usize) -> i32 {
        let all: Vec<i32> =
            self.streams.iter().map(|(_, fd)| *fd).chain(self.sets[1..].iter().chain(&self.events).copied()).collect();
        all[of % all.len()]
    }

    /// All numbers of one end leave all sets.
    fn take_out(&self, end: usize) {
        for (_, fd) in self.streams.iter().filter(|(of, _)| *of == end) {
            self.sets.iter().for_each(|set| _ = self.world.delete(*set, *fd));
        }
    }

    fn remove(&mut self, of: usize) -> Option<i32> {
        let (end, fd) = self.streams.remove(of.checked_rem(self.streams.len())?);
        self.halved.push(end);
        Some(fd)
    }

    fn make(&mut self, call: &Call) -> Told {
        let world = self.world;
        match *call {
            Call::Control { set, operation, of, events } => {
                self.data += 1;
                let member = self.member(set, of);
                if self.streams.iter().any(|(end, fd)| *fd == member && self.shut.contains(end)) {
                    return Told::Nothing;
                }
                let events = if self.sets.contains(&member) { (events | IN) & !ET } else { events };
                Told::Done(world.control(self.sets[set], operation, member, Some((events, self.data))))
            }
            Call::Look { set } => Told::Events(world.look(self.sets[set])),
            Call::Poll { of } => {
                Told::Bits(world.events(self.any(of), i16::MAX & !shunt_sys::libc::POLLRDBAND & !shunt_sys::libc::POLLWRBAND))
            }
            Call::Send { of, length } => match self.stream(of) {
                Some((_, fd)) => Told::Bytes(world.send(fd, &vec![1; length], MSG_DONTWAIT)),
                None => Told::Nothing,
            },
            Call::Receive { of, most } => match self.stream(of) {
                Some((_, fd)) => Told::Bytes(world.receive(fd, most, MSG_DONTWAIT)),
                None => Told::Nothing,
            },
            Call::Shut { of, how } => match self.stream(of) {
                // Not both ends their receiving halves.
                Some((end, fd)) if !self.halved.contains(&end) && (how == SHUT_WR || end % 2 == 0) => {
                    self.take_out(end);
                    self.shut.push(end);
                    Told::Done(world.shut(fd, how))
                }
                _ => Told::Nothing,
            },
            Call::Dup { of } => {
                if let Some((end, fd)) = self.stream(of) {
                    self.streams.push((end, world.dup(fd)));
                }
                Told::Nothing
            }
            Call::Close { of } => {
                self.remove(of).into_iter().for_each(|fd| world.close(fd));
                Told::Nothing
            }
            Call::Reset { of } => {
                self.remove(of).into_iter().for_each(|fd| world.reset(fd));
                Told::Nothing
            }
            Call::Connect => {
                if self.streams.len() < 12 {
                    self.connect();
                }
                Told::Nothing
            }
            Call::Count { of } => {
                let fd = self.events[of % self.events.len()];
                Told::Bytes(world.count(fd, of % 3 != 0))
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("CASES").map_or(300, |cases| cases.parse().expect("a number")), failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_the_kernels(calls in prop::collection::vec(call(), 1..80)) {
        let worlds = [World::with_numbers(true, 300), World::with_numbers(false, 500)];
        let [mut ours, mut kernels] = [Player::new(&worlds[0]), Player::new(&worlds[1])];
        for (at, call) in calls.iter().enumerate() {
            let told = [ours.make(call), kernels.make(call)];
            prop_assert_eq!(&told[0], &told[1], "call {}, {:?}", at, call);
        }
        // Nothing is owed, and nothing is told that does not hold.
        for set in 0..3 {
            prop_assert_eq!(ours.make(&Call::Look { set }), kernels.make(&Call::Look { set }), "in the end, set {}", set);
        }
    }
}
