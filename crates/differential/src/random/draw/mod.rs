//! Drawing the next operation from a seed and from what the kernel has answered so far.
//!
//! Left out is what the kernel does not determine (two sleepers for one arrival, the order among clients that come by different
//! ways), and what `docs/SEMANTICS.md` lists as different, as far as it needs no more than one operation to show: the place of
//! each such rule says which.

mod calls;
mod clients;
mod generator;
mod processes;
mod waits;

use super::model::{Kind, Model, SLOTS};
use super::sequence::Operation;
use super::stage::ACTORS;
use generator::Random;
use std::collections::{HashMap, VecDeque};

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
    /// The sides are on hosts of their own: the side that connects is not on the listener's.
    across: bool,
    /// Kinds of operations beyond those that must be equal: `more`.
    features: String,
}

impl Draw {
    /// The sequence of this seed.
    pub fn new(seed: u64, across: bool) -> Draw {
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
            across,
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

    fn is_idle(&self, actor: usize) -> bool {
        self.model.actors[actor].as_ref().is_some_and(|actor| actor.blocked.is_none())
    }

    fn plan(&mut self, actor: usize, words: impl Into<String>) {
        self.planned.push_back(Operation::new(actor, words));
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
