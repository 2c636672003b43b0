//! Processes and threads: how they begin, what they give each other, how they end and who hears of it.

use super::Draw;
use crate::random::model::Kind;
use crate::random::sequence::Operation;
use crate::random::stage::ACTORS;

impl Draw {
    /// A process was killed: takes down whose connections have no other end any more.
    pub(super) fn mourn(&mut self) {
        for (number, process) in self.model.processes.iter().enumerate() {
            let ends = process.slots.iter().filter_map(|&at| self.model.end_at(at));
            self.unnoticed.extend(ends.filter(|end| !self.model.has_owner(end ^ 1)).map(|end| (number, end)));
        }
        self.unnoticed.sort_unstable();
        self.unnoticed.dedup();
    }

    /// Of a peer that was killed only the hang-up of the companion tells, for which no write asks, and no poll that finds
    /// something: listed. So a process looks first, in a call that waits.
    pub(super) fn look_at_the_dead(&mut self, actor: usize) -> Option<Operation> {
        let process = self.model.process_of(actor)?;
        while let Some(place) = self.unnoticed.iter().position(|(whose, _)| *whose == process) {
            let (_, end) = self.unnoticed.remove(place);
            if let Some(slot) = self.model.slots(actor, |at| at.kind == Kind::Stream(end)).first() {
                return Some(Operation::new(actor, format!("poll {slot} rdhup -1")));
            }
        }
        None
    }

    fn new_actor(&self) -> Option<usize> {
        (2..ACTORS).find(|&actor| self.model.actors[actor].is_none())
    }

    pub(super) fn fork(&mut self, actor: usize) {
        if let Some(new) = self.new_actor() {
            self.plan(actor, format!("fork {new}"));
        }
    }

    pub(super) fn thread(&mut self, actor: usize) {
        if let Some(new) = self.new_actor() {
            self.plan(actor, format!("thread {new}"));
        }
    }

    pub(super) fn side(&self, actor: usize) -> Option<usize> {
        self.model.process_of(actor).map(|process| self.model.processes[process].side)
    }

    /// Within a side: a program without shunt cannot take an accelerated connection, which is listed.
    pub(super) fn pass(&mut self, actor: usize) {
        let friends: Vec<usize> =
            (0..ACTORS).filter(|&other| self.is_idle(other) && self.side(other) == self.side(actor)).collect();
        let friend = self.random.one_of(&friends);
        let (Some(slot), Some(free)) = (self.any_socket(actor), self.free_slot(friend)) else { return };
        self.plan(actor, format!("pass {slot} {friend}"));
        self.plan(friend, format!("take {free}"));
    }

    /// An exec ends the other threads, and sets are not handed over, which is listed.
    pub(super) fn exec(&mut self, actor: usize) {
        let process = self.model.process_of(actor);
        let alone = self.model.actors.iter().flatten().filter(|other| Some(other.process) == process).count() == 1;
        if alone && self.model.slots(actor, |at| matches!(at.kind, Kind::Epoll(..))).is_empty() {
            self.plan(actor, "exec");
            self.plan(actor, "handler plain");
        }
    }

    pub(super) fn end_process(&mut self, actor: usize) {
        if actor < 2 && self.left > 10 {
            return;
        }
        let killed = self.random.once_in(2);
        let words = if killed { format!("kill {actor}") } else { "exit 0".into() };
        self.plan(actor, words);
    }
}
