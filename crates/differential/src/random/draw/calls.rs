//! Calls on a descriptor that return at once, and those that receive.

use super::Draw;
use crate::random::model::{Kind, SLOTS};

/// How many bytes may be on their way in one direction: what every buffer of either kind holds.
pub(super) const MOST_COMING: usize = 30_000;

const SIZES: [usize; 20] = [1, 1, 2, 7, 8, 47, 48, 49, 55, 56, 57, 64, 100, 1000, 1024, 1025, 4096, 4097, 5000, 16384];

impl Draw {
    pub(super) fn send(&mut self, actor: usize) {
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
            // What is seen of it depends on the time.
            5 if self.features.contains("more") => format!("send {slot} {size} {seed} more"),
            _ => format!("send {slot} {size} {seed}"),
        };
        self.plan(actor, words);
    }

    pub(super) fn receive(&mut self, actor: usize) {
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

    /// Closing what a thread of the same process sleeps for is listed as different, and so is closing what a set of this process
    /// watches and another process keeps.
    pub(super) fn may_close(&self, actor: usize, slot: usize) -> bool {
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

    pub(super) fn duplicate(&mut self, actor: usize) {
        let Some(slot) = self.any_socket(actor) else { return };
        let words = match (self.random.below(4), self.free_slot(actor), self.any_socket(actor)) {
            (0, _, Some(over)) if over != slot && self.may_close(actor, over) => format!("dup2 {slot} {over}"),
            (1, Some(free), _) => format!("dupfd {slot} {free} {}", 20 + self.random.below(10)),
            (_, Some(free), _) => format!("dup {slot} {free}"),
            _ => return,
        };
        self.plan(actor, words);
    }

    pub(super) fn close(&mut self, actor: usize) {
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

    pub(super) fn shut_down(&mut self, actor: usize) {
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

    pub(super) fn flags(&mut self, actor: usize) {
        let Some(slot) = self.any_socket(actor) else { return };
        let on = self.random.below(2);
        let words = match self.random.below(4) {
            0 | 1 => format!("nonblock {slot} {on}"),
            2 => format!("cloexec {slot} {on}"),
            _ => format!("flags {slot}"),
        };
        self.plan(actor, words);
    }

    pub(super) fn ask(&mut self, actor: usize) {
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

    pub(super) fn disconnect(&mut self, actor: usize) {
        let Some(slot) = self.stream(actor) else { return };
        // What another process that holds it sees afterwards is listed as different, and so is the name of an accepted socket.
        if self.model.at(actor, slot).is_some_and(|at| !self.model.is_waited_for(at) && self.model.holders(at) == 1)
            && self.model.end_at(self.model.at(actor, slot)).is_some_and(|end| end % 2 == 0)
        {
            self.plan(actor, format!("disconnect {slot}"));
        }
    }

    /// A call on a descriptor of the wrong kind, or on none.
    pub(super) fn odd(&mut self, actor: usize) {
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
}
