//! Drawing the next operation from a seed and from what the kernel has answered so far.
//!
//! Left out is what the kernel does not determine (two sleepers for one arrival, the order among clients that come by different ways), and what
//! `docs/SEMANTICS.md` lists as different, as far as it needs no more than one operation to show: the place of each such rule says which.

use super::model::{Description, Kind, Model, SLOTS};
use super::sequence::Operation;
use super::stage::ACTORS;
use std::collections::{HashMap, VecDeque};

/// How many bytes may be on their way in one direction: what every buffer of either kind holds.
const MOST_COMING: usize = 30_000;

/// Where a server listens and a client connects: host and IP version of each.
const WAYS: [(&str, u8, &str, u8); 10] = [
    ("127.0.0.1", 4, "127.0.0.1", 4),
    ("127.0.0.1", 4, "127.0.0.1", 4),
    ("0.0.0.0", 4, "127.0.0.1", 4),
    ("0.0.0.0", 4, "127.0.0.2", 4),
    ("0.0.0.0", 4, "0.0.0.0", 4),
    ("::1", 6, "::1", 6),
    ("::", 6, "::1", 6),
    ("::", 6, "127.0.0.1", 4),
    ("::", 6, "::ffff:127.0.0.1", 6),
    ("127.0.0.1", 4, "::ffff:127.0.0.1", 6),
];

const SIZES: [usize; 20] = [1, 1, 2, 7, 8, 47, 48, 49, 55, 56, 57, 64, 100, 1000, 1024, 1025, 4096, 4097, 5000, 16384];

/// Numbers from a seed (xorshift, Marsaglia 2003).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// The one who draws.
pub struct Draw {
    /// What is known; the caller lets it learn.
    pub model: Model,
    random: Random,
    planned: VecDeque<Operation>,
    left: usize,
    ended: bool,
    next_seed: usize,
    next_data: usize,
    ways: HashMap<usize, (&'static str, u8)>,
    /// Ends of connections whose other end was killed, and the processes that do not know it yet.
    unnoticed: Vec<(usize, usize)>,
    /// The operation given last was a `kill`.
    killed: bool,
    /// Kinds of operations beyond those that must be equal: `more`.
    features: String,
}

impl Draw {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Draw {
        let mut random = Random::new(seed);
        for _ in 0..8 {
            random.below(2);
        }
        let left = 25 + random.below(50);
        let mut draw = Draw {
            model: Model::new(),
            random,
            planned: VecDeque::new(),
            left,
            ended: false,
            next_seed: 1,
            next_data: 1,
            ways: HashMap::new(),
            unnoticed: Vec::new(),
            killed: false,
            features: std::env::var("LABORATORY_FEATURES").unwrap_or_default(),
        };
        for actor in 0..2 {
            draw.plan(actor, "handler plain");
        }
        draw.plan_listener_and_client();
        draw
    }

    /// The next operation, for an actor that is idle; `None` at the end.
    pub fn next(&mut self) -> Option<Operation> {
        if std::mem::take(&mut self.killed) {
            self.mourn();
        }
        for _ in 0..200 {
            while let Some(operation) = self.planned.pop_front() {
                if !self.is_idle(operation.actor) {
                    continue;
                }
                if let Some(look) = self.look_at_the_dead(operation.actor) {
                    self.planned.push_front(operation);
                    return Some(look);
                }
                self.killed = operation.verb() == "kill";
                return Some(operation);
            }
            let idle: Vec<usize> = (0..ACTORS).filter(|&actor| self.is_idle(actor)).collect();
            if idle.is_empty() || self.left == 0 {
                if self.ended {
                    return None;
                }
                self.ended = true;
                self.plan_the_end(&idle);
                continue;
            }
            self.left -= 1;
            if self.random.below(10) < 4 {
                self.help();
            } else {
                let actor = self.random.one_of(&idle);
                self.draw_for(actor);
            }
        }
        None
    }

    /// Somebody was killed: takes down whose connections have no other end any more.
    fn mourn(&mut self) {
        for (number, process) in self.model.processes.iter().enumerate() {
            let ends = process.slots.iter().filter_map(|&at| self.model.end_at(at));
            self.unnoticed.extend(ends.filter(|end| !self.model.has_owner(end ^ 1)).map(|end| (number, end)));
        }
        self.unnoticed.sort_unstable();
        self.unnoticed.dedup();
    }

    /// Of a peer that was killed only the hang-up of the companion tells, for which no write asks, and no poll that finds something:
    /// listed. So a process looks first, in a call that waits.
    fn look_at_the_dead(&mut self, actor: usize) -> Option<Operation> {
        let process = self.model.process_of(actor)?;
        while let Some(place) = self.unnoticed.iter().position(|(whose, _)| *whose == process) {
            let (_, end) = self.unnoticed.remove(place);
            if let Some(slot) = self.model.slots(actor, |at| at.kind == Kind::Stream(end)).first() {
                return Some(Operation::new(actor, format!("poll {slot} rdhup -1")));
            }
        }
        None
    }

    fn is_idle(&self, actor: usize) -> bool {
        self.model.actors[actor].as_ref().is_some_and(|actor| actor.blocked.is_none())
    }

    fn plan(&mut self, actor: usize, words: impl Into<String>) {
        self.planned.push_back(Operation::new(actor, words));
    }

    /// Whether the actor may sleep for what is in the slots: nobody else does, and somebody stays awake.
    fn may_sleep_for(&self, actor: usize, slots: &[usize]) -> bool {
        let idle = (0..ACTORS).filter(|&actor| self.is_idle(actor)).count();
        idle > 1 && self.model.waits_for(actor, slots).iter().all(|&at| !self.model.is_waited_for(at))
    }

    fn blocking(&self, actor: usize, slot: usize) -> bool {
        self.model.at(actor, slot).is_some_and(|at| !self.model.descriptions[at].nonblock)
    }

    /// A slot with an end of a connection.
    fn stream(&mut self, actor: usize) -> Option<usize> {
        let slots = self.model.slots(actor, |at| matches!(at.kind, Kind::Stream(_)));
        (!slots.is_empty()).then(|| self.random.one_of(&slots))
    }

    fn any_socket(&mut self, actor: usize) -> Option<usize> {
        let slots = self.model.slots(actor, |at| !matches!(at.kind, Kind::Epoll(..)));
        (!slots.is_empty()).then(|| self.random.one_of(&slots))
    }

    fn free_slot(&mut self, actor: usize) -> Option<usize> {
        let free: Vec<usize> = (0..SLOTS).filter(|&slot| self.model.at(actor, slot).is_none()).collect();
        free.first().copied()
    }

    fn draw_for(&mut self, actor: usize) {
        match self.random.below(100) {
            0..=17 => self.send(actor),
            18..=37 => self.receive(actor),
            38..=45 => self.poll(actor),
            46..=56 => self.epoll(actor),
            57..=62 => self.duplicate(actor),
            63..=66 => self.close(actor),
            67..=69 => self.shut_down(actor),
            70..=73 => self.flags(actor),
            74..=80 => self.ask(actor),
            81..=84 => self.plan_listener_and_client(),
            85..=87 => self.fork(actor),
            88..=89 => self.thread(actor),
            90..=92 => self.pass(actor),
            93 => self.exec(actor),
            94 => self.end_process(actor),
            95 => self.disconnect(actor),
            96 => {
                let how = self.random.one_of(&["plain", "restart"]);
                self.plan(actor, format!("handler {how}"));
            }
            _ => self.odd(actor),
        }
    }

    fn send(&mut self, actor: usize) {
        let Some(slot) = self.stream(actor) else { return self.plan_listener_and_client() };
        let end = self.model.end_at(self.model.at(actor, slot)).expect("a stream");
        let size = self.random.one_of(&SIZES);
        if self.model.coming[end ^ 1] + size > MOST_COMING {
            return;
        }
        let seed = self.next_seed;
        self.next_seed += 1;
        // To a side that has shut down both halves, and to a reader that is blocked, it is listed as different.
        let listed = self.model.shut[end ^ 1] == [true; 2] || self.model.someone_waits_at(end ^ 1);
        if self.random.once_in(25) && !self.model.urgent[end ^ 1] && !listed {
            return self.plan(actor, format!("send {slot} 1 {seed} oob"));
        }
        let words = match self.random.below(7) {
            0 => format!("send {slot} {size} {seed} dontwait"),
            1 => format!("write {slot} {size} {seed}"),
            2 => format!("writev {slot} {size} {seed}"),
            3 => format!("sendmsg {slot} {size} {seed}"),
            4 => format!("sendfile {slot} {size} {seed}"),
            // MSG_MORE does not gather, which is listed.
            5 if self.features.contains("more") => format!("send {slot} {size} {seed} more"),
            _ => format!("send {slot} {size} {seed}"),
        };
        self.plan(actor, words);
    }

    fn receive(&mut self, actor: usize) {
        let Some(slot) = self.stream(actor) else { return };
        let size = self.random.one_of(&SIZES);
        let flags = self.random.one_of(&["", "", "", "", "peek", "waitall", "trunc", "peek+trunc", "oob"]);
        // A reader that is blocked at the mark of an urgent byte passes it late, which is listed.
        let marked = self.model.end_at(self.model.at(actor, slot)).is_some_and(|end| self.model.urgent[end]);
        let sleeps = self.blocking(actor, slot) && (marked || !self.may_sleep_for(actor, &[slot]));
        let waits = |flags: &str| if sleeps { format!("{flags}+dontwait") } else { flags.to_owned() };
        let words = match self.random.below(6) {
            0 if !sleeps => format!("read {slot} {size}"),
            1 if !sleeps => format!("readv {slot} {size}"),
            2 => format!("recvmsg {slot} {size} {}", waits(flags)),
            3 => format!("recv {slot} {size} {flags}+dontwait"),
            _ => format!("recv {slot} {size} {}", waits(flags)),
        };
        self.plan(actor, words.trim_end());
    }

    fn some_events(&mut self) -> &'static str {
        self.random.one_of(&["in", "in+out", "in+rdhup", "in+out+rdhup+pri", "out", "rdhup", "pri", "0"])
    }

    fn poll(&mut self, actor: usize) {
        let (Some(slot), Some(second)) = (self.any_socket(actor), self.any_socket(actor)) else { return };
        let (events, more) = (self.some_events(), self.some_events());
        let both = self.may_sleep_for(actor, &[slot, second]);
        let words = match self.random.below(6) {
            0 if self.may_sleep_for(actor, &[slot]) => format!("poll {slot} {events} -1"),
            1 if both => format!("poll2 {slot} {events} {second} {more} -1"),
            2 => format!("poll2 {slot} {events} {second} {more} 0"),
            3 if self.may_sleep_for(actor, &[slot]) => format!("select {slot} {} wait", self.random.one_of(&["r", "rx", "rwx"])),
            4 => format!("select {slot} rwx now"),
            _ => format!("poll {slot} in+out+rdhup+pri 0"),
        };
        self.plan(actor, words);
    }

    /// Sets belong to the process that made them: what one shared by fork does is listed as different.
    fn epoll(&mut self, actor: usize) {
        let process = self.model.process_of(actor);
        let own = |at: &Description| matches!(&at.kind, Kind::Epoll(owner, _) if Some(*owner) == process);
        let sets = self.model.slots(actor, own);
        let Some(set) = sets.first().copied() else {
            let Some(free) = self.free_slot(actor) else { return };
            return self.plan(actor, format!("epoll {free}"));
        };
        let Some(slot) = self.any_socket(actor) else { return };
        // An edge-triggered entry for OUT alone is listed as different.
        let events = self.random.one_of(&[
            "in",
            "in+out",
            "in+rdhup",
            "in+et",
            "in+rdhup+et",
            "in+out+rdhup+et",
            "in+oneshot",
            "in+et+oneshot",
            "out",
            "rdhup",
            "in+pri",
            "0",
        ]);
        let end = self.model.end_at(self.model.at(actor, slot));
        let events = match end {
            Some(end) if self.model.shut[end][1] && events.contains("et") => "in+rdhup",
            _ => events,
        };
        let data = self.next_data;
        self.next_data += 1;
        let words = match self.random.below(8) {
            0..=2 => format!("add {set} {slot} {events} {data}"),
            3 => format!("mod {set} {slot} {events} {data}"),
            4 if self.random.once_in(2) => format!("del {set} {slot}"),
            5 if self.may_sleep_for(actor, &[set]) => format!("wait {set} -1"),
            _ => format!("wait {set} 0"),
        };
        // Who sleeps in a set that changes is woken by what was not foreseen.
        let at = self.model.at(actor, set).expect("a set");
        if words.starts_with('w') || !self.model.is_waited_for(at) {
            self.plan(actor, words);
        }
    }

    /// Closing what a thread of the same process sleeps for is listed as different, and so is closing what a set of this process watches
    /// and another process keeps.
    fn may_close(&self, actor: usize, slot: usize) -> bool {
        let Some(at) = self.model.at(actor, slot) else { return true };
        let process = self.model.process_of(actor);
        let last =
            self.model.slots(actor, |_| true).into_iter().filter(|&other| self.model.at(actor, other) == Some(at)).count() == 1;
        if last && self.model.is_watched(at) && self.model.holders(at) > 1 {
            return false;
        }
        let sleepers = self.model.actors.iter().flatten().filter(|other| Some(other.process) == process);
        sleepers.into_iter().all(|other| other.blocked.as_ref().is_none_or(|(_, on)| !on.contains(&at)))
    }

    fn duplicate(&mut self, actor: usize) {
        let Some(slot) = self.any_socket(actor) else { return };
        let words = match (self.random.below(4), self.free_slot(actor), self.any_socket(actor)) {
            (0, _, Some(over)) if over != slot && self.may_close(actor, over) => format!("dup2 {slot} {over}"),
            (1, Some(free), _) => format!("dupfd {slot} {free} {}", 20 + self.random.below(10)),
            (_, Some(free), _) => format!("dup {slot} {free}"),
            _ => return,
        };
        self.plan(actor, words);
    }

    fn close(&mut self, actor: usize) {
        let slots = self.model.slots(actor, |_| true);
        if slots.is_empty() {
            return;
        }
        let slot = self.random.one_of(&slots);
        if !self.may_close(actor, slot) {
            return;
        }
        if self.random.once_in(6) {
            self.plan(actor, format!("set {slot} linger 0"));
        }
        self.plan(actor, format!("close {slot}"));
    }

    fn shut_down(&mut self, actor: usize) {
        let Some(slot) = self.stream(actor) else { return };
        let how = self.random.one_of(&[0, 1, 1, 1, 2]);
        if how != 0 && !self.model.may_end(self.model.at(actor, slot)) {
            return;
        }
        // Both ends shut down for reading: listed.
        if self.model.end_at(self.model.at(actor, slot)).is_some_and(|end| how != 1 && self.model.shut[end ^ 1][0]) {
            return;
        }
        self.plan(actor, format!("shutdown {slot} {how}"));
    }

    fn flags(&mut self, actor: usize) {
        let Some(slot) = self.any_socket(actor) else { return };
        let on = self.random.below(2);
        let words = match self.random.below(4) {
            0 | 1 => format!("nonblock {slot} {on}"),
            2 => format!("cloexec {slot} {on}"),
            _ => format!("flags {slot}"),
        };
        self.plan(actor, words);
    }

    fn ask(&mut self, actor: usize) {
        let Some(slot) = self.any_socket(actor) else { return };
        let on = self.random.below(2);
        let words = match self.random.below(9) {
            0 => format!("name {slot}"),
            1 => format!("peer {slot}"),
            2 => format!("readable {slot}"),
            3 => format!("mark {slot}"),
            4 => format!("get {slot} error"),
            5 => {
                format!("get {slot} {}", self.random.one_of(&["type", "domain", "accepting", "oobinline", "keepalive", "linger"]))
            }
            6 => format!("set {slot} oobinline {on}"),
            7 => format!("set {slot} nodelay 1"),
            _ => format!("set {slot} keepalive {on}"),
        };
        self.plan(actor, words);
    }

    fn new_actor(&self) -> Option<usize> {
        (2..ACTORS).find(|&actor| self.model.actors[actor].is_none())
    }

    fn fork(&mut self, actor: usize) {
        if let Some(new) = self.new_actor() {
            self.plan(actor, format!("fork {new}"));
        }
    }

    fn thread(&mut self, actor: usize) {
        if let Some(new) = self.new_actor() {
            self.plan(actor, format!("thread {new}"));
        }
    }

    /// Within a side: a program without shunt cannot take an accelerated connection, which is listed.
    fn pass(&mut self, actor: usize) {
        let side = |model: &Model, actor: usize| model.process_of(actor).map(|process| model.processes[process].side);
        let friends: Vec<usize> =
            (0..ACTORS).filter(|&other| self.is_idle(other) && side(&self.model, other) == side(&self.model, actor)).collect();
        let friend = self.random.one_of(&friends);
        let (Some(slot), Some(free)) = (self.any_socket(actor), self.free_slot(friend)) else { return };
        self.plan(actor, format!("pass {slot} {friend}"));
        self.plan(friend, format!("take {free}"));
    }

    /// An exec ends the other threads, and sets are not handed over, which is listed.
    fn exec(&mut self, actor: usize) {
        let process = self.model.process_of(actor);
        let alone = self.model.actors.iter().flatten().filter(|other| Some(other.process) == process).count() == 1;
        if alone && self.model.slots(actor, |at| matches!(at.kind, Kind::Epoll(..))).is_empty() {
            self.plan(actor, "exec");
            self.plan(actor, "handler plain");
        }
    }

    fn end_process(&mut self, actor: usize) {
        if actor < 2 && self.left > 10 {
            return;
        }
        let killed = self.random.once_in(2);
        let words = if killed { format!("kill {actor}") } else { "exit 0".into() };
        self.plan(actor, words);
    }

    fn disconnect(&mut self, actor: usize) {
        let Some(slot) = self.stream(actor) else { return };
        // What another process that holds it sees afterwards is listed as different, and so is the name of an accepted socket.
        if self.model.at(actor, slot).is_some_and(|at| !self.model.is_waited_for(at) && self.model.holders(at) == 1)
            && self.model.end_at(self.model.at(actor, slot)).is_some_and(|end| end % 2 == 0)
        {
            self.plan(actor, format!("disconnect {slot}"));
        }
    }

    /// A call on a descriptor of the wrong kind, or on none.
    fn odd(&mut self, actor: usize) {
        let slot = self.random.below(SLOTS);
        if self.model.at(actor, slot).is_some_and(|at| !matches!(self.model.descriptions[at].kind, Kind::Fresh(_))) {
            return;
        }
        let words = match self.random.below(8) {
            0 => format!("send {slot} 5 1 dontwait"),
            1 => format!("recv {slot} 5 dontwait"),
            2 => format!("shutdown {slot} 2"),
            3 => format!("poll {slot} in+out+rdhup 0"),
            4 => format!("peer {slot}"),
            5 => format!("name {slot}"),
            6 => format!("readable {slot}"),
            _ => format!("get {slot} error"),
        };
        self.plan(actor, words);
    }

    /// Something that a sleeper may be waiting for.
    fn help(&mut self) {
        let sleepers: Vec<usize> =
            (0..ACTORS).filter(|&actor| self.model.actors[actor].as_ref().is_some_and(|actor| actor.blocked.is_some())).collect();
        if sleepers.is_empty() {
            return;
        }
        let sleeper = self.random.one_of(&sleepers);
        let idle: Vec<usize> = (0..ACTORS).filter(|&actor| self.is_idle(actor)).collect();
        if self.random.once_in(5) {
            let actor = self.random.one_of(&idle);
            return self.plan(actor, format!("signal {sleeper}"));
        }
        let (_, on) = self.model.actors[sleeper].as_ref().and_then(|actor| actor.blocked.clone()).expect("it sleeps");
        let at = self.random.one_of(&on);
        match self.model.descriptions[at].kind.clone() {
            Kind::Stream(end) => {
                let holders: Vec<(usize, usize)> = idle
                    .iter()
                    .flat_map(|&actor| {
                        self.model.slots(actor, |at| at.kind == Kind::Stream(end ^ 1)).into_iter().map(move |slot| (actor, slot))
                    })
                    .collect();
                if holders.is_empty() {
                    return;
                }
                let (actor, slot) = self.random.one_of(&holders);
                let (size, seed) = (1 + self.random.below(300), self.next_seed);
                self.next_seed += 1;
                let words = match self.random.below(8) {
                    0 if self.model.may_end(self.model.at(actor, slot)) => format!("shutdown {slot} 1"),
                    1 if self.may_close(actor, slot) => format!("close {slot}"),
                    _ if self.model.coming[end] + size < MOST_COMING => format!("send {slot} {size} {seed}"),
                    _ => return,
                };
                self.plan(actor, words);
            }
            Kind::Listener { port, .. } => self.plan_client(port),
            _ => {}
        }
    }

    fn plan_listener_and_client(&mut self) {
        let listeners = self.model.listeners();
        if !listeners.is_empty() && self.random.once_in(2) {
            let port = self.random.one_of(&listeners);
            return self.plan_client(port);
        }
        let idle: Vec<usize> = (0..ACTORS).filter(|&actor| self.is_idle(actor)).collect();
        let server = self.random.one_of(&idle);
        let port = (20000..20010).find(|&port| !self.model.port_is_taken(port));
        let (Some(slot), Some(port)) = (self.free_slot(server), port) else { return };
        let (host, family, target, target_family) = self.random.one_of(&WAYS);
        let nonblock = if self.random.once_in(4) { " nonblock" } else { "" };
        self.ways.insert(port, (target, target_family));
        self.plan(server, format!("socket {slot} {family}{nonblock}"));
        // Without it a port may stay taken for a minute by connections that ended, on the kernel alone: listed as different.
        self.plan(server, format!("set {slot} reuse 1"));
        // What Nagle's algorithm holds back comes after the peer's delayed acknowledgement: a matter of milliseconds.
        self.plan(server, format!("set {slot} nodelay 1"));
        self.plan(server, format!("bind {slot} {host} {port}"));
        self.plan(server, format!("listen {slot} 8"));
        let client = self.random.one_of(&idle);
        self.plan_connect(client, port);
        let Some(accepted) = self.slot_beside(server) else { return };
        let nonblock = if self.random.once_in(4) { " nonblock" } else { "" };
        self.plan(server, format!("accept {accepted} {slot}{nonblock}"));
    }

    /// A client for a listener that exists, and an accept by one who has it.
    fn plan_client(&mut self, port: usize) {
        if !self.model.listeners().contains(&port) {
            return;
        }
        let idle: Vec<usize> = (0..ACTORS).filter(|&actor| self.is_idle(actor)).collect();
        let client = self.random.one_of(&idle);
        let listens = |at: &Description| matches!(&at.kind, Kind::Listener { port: own, .. } if *own == port);
        let acceptors: Vec<(usize, usize)> =
            idle.iter().filter_map(|&actor| Some((actor, self.model.slots(actor, listens).first().copied()?))).collect();
        self.plan_connect(client, port);
        if acceptors.is_empty() {
            return;
        }
        let (actor, slot) = self.random.one_of(&acceptors);
        // A listener that somebody sleeps for gets its client from that sleep.
        if self.model.at(actor, slot).is_some_and(|at| self.model.is_waited_for(at)) {
            return;
        }
        if let Some(free) = self.slot_beside(actor) {
            self.plan(actor, format!("accept {free} {slot}"));
        }
    }

    fn plan_connect(&mut self, client: usize, port: usize) {
        let (host, family) = self.ways.get(&port).copied().unwrap_or(("127.0.0.1", 4));
        let Some(slot) = self.slot_beside(client) else { return };
        let nonblock = if self.random.once_in(3) { " nonblock" } else { "" };
        self.plan(client, format!("socket {slot} {family}{nonblock}"));
        self.plan(client, format!("set {slot} nodelay 1"));
        self.plan(client, format!("connect {slot} {host} {port}"));
    }

    /// A free slot of `actor` that none of what is planned fills: threads of one process share theirs.
    fn slot_beside(&self, actor: usize) -> Option<usize> {
        let process = self.model.process_of(actor);
        let planned: Vec<usize> = self
            .planned
            .iter()
            .filter(|operation| operation.verb() == "socket" && self.model.process_of(operation.actor) == process)
            .map(|operation| operation.number(1))
            .collect();
        (0..SLOTS).find(|slot| self.model.at(actor, *slot).is_none() && !planned.contains(slot))
    }

    /// Everything that is still there is read and looked at.
    fn plan_the_end(&mut self, idle: &[usize]) {
        for &actor in idle {
            for slot in self.model.slots(actor, |at| matches!(at.kind, Kind::Stream(_))) {
                self.plan(actor, format!("drain {slot}"));
                self.plan(actor, format!("poll {slot} in+out+rdhup+pri 0"));
                self.plan(actor, format!("get {slot} error"));
            }
        }
    }
}
