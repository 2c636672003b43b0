//! Calls that wait for several sockets, and what ends a wait.

use super::calls::MOST_COMING;
use super::Draw;
use crate::random::model::{Description, Kind};
use crate::random::stage::ACTORS;

impl Draw {
    /// Whether the actor may sleep for what is in the slots: no other actor does, and one stays awake.
    pub(super) fn may_sleep_for(&self, actor: usize, slots: &[usize]) -> bool {
        let idle = (0..ACTORS).filter(|&actor| self.is_idle(actor)).count();
        idle > 1 && self.model.waits_for(actor, slots).iter().all(|&at| !self.model.is_waited_for(at))
    }

    fn some_events(&mut self) -> &'static str {
        self.random.one_of(&["in", "in+out", "in+rdhup", "in+out+rdhup+pri", "out", "rdhup", "pri", "0"])
    }

    pub(super) fn poll(&mut self, actor: usize) {
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
    pub(super) fn epoll(&mut self, actor: usize) {
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
        // An actor that sleeps in a set that changes is woken by what was not foreseen.
        let at = self.model.at(actor, set).expect("a set");
        if words.starts_with('w') || !self.model.is_waited_for(at) {
            self.plan(actor, words);
        }
    }

    /// Something that a sleeper may be waiting for.
    pub(super) fn help(&mut self) {
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
}
