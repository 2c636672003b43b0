//! Listeners, their clients, and who accepts.

use super::Draw;
use crate::random::model::{Description, Kind, SLOTS};
use crate::random::stage::ACTORS;

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

/// Those of [`WAYS`] whose addresses stand for a host's own and for the other's (`meant` in `connections.c`).
fn leads_across(way: &(&str, u8, &str, u8)) -> bool {
    !way.0.starts_with("::ffff") && matches!(way.2, "127.0.0.1" | "::1")
}

impl Draw {
    pub(super) fn plan_listener_and_client(&mut self) {
        let listeners = self.model.listeners();
        if !listeners.is_empty() && self.random.once_in(2) {
            let port = self.random.one_of(&listeners);
            return self.plan_client(port);
        }
        let idle: Vec<usize> = (0..ACTORS).filter(|&actor| self.is_idle(actor)).collect();
        let server = self.random.one_of(&idle);
        let port = (20000..20010).find(|&port| !self.model.port_is_taken(port));
        let (Some(slot), Some(port)) = (self.free_slot(server), port) else { return };
        let ways: Vec<_> = WAYS.into_iter().filter(|way| !self.across || leads_across(way)).collect();
        let (host, family, target, target_family) = self.random.one_of(&ways);
        let nonblock = if self.random.once_in(4) { " nonblock" } else { "" };
        self.ways.insert(port, (target, target_family));
        self.plan(server, format!("socket {slot} {family}{nonblock}"));
        // Without it a port may stay taken for a minute by connections that ended, on the kernel alone: listed as different.
        self.plan(server, format!("set {slot} reuse 1"));
        // What Nagle's algorithm holds back comes after the peer's delayed acknowledgement: a matter of milliseconds.
        self.plan(server, format!("set {slot} nodelay 1"));
        self.plan(server, format!("bind {slot} {host} {port}"));
        self.plan(server, format!("listen {slot} 8"));
        let clients: Vec<usize> = idle.into_iter().filter(|&actor| self.may_connect(actor, self.side(server))).collect();
        if clients.is_empty() {
            return;
        }
        let client = self.random.one_of(&clients);
        self.plan_connect(client, port);
        let Some(accepted) = self.slot_beside(server) else { return };
        let nonblock = if self.random.once_in(4) { " nonblock" } else { "" };
        self.plan(server, format!("accept {accepted} {slot}{nonblock}"));
    }

    /// A client for a listener that exists, and an accept by one who has it.
    pub(super) fn plan_client(&mut self, port: usize) {
        if !self.model.listeners().contains(&port) {
            return;
        }
        let idle: Vec<usize> = (0..ACTORS).filter(|&actor| self.is_idle(actor)).collect();
        let clients: Vec<usize> =
            idle.iter().copied().filter(|&actor| self.may_connect(actor, self.model.side_of_listener(port))).collect();
        if clients.is_empty() {
            return;
        }
        let client = self.random.one_of(&clients);
        let listens = |at: &Description| matches!(&at.kind, Kind::Listener { port: own, .. } if *own == port);
        let acceptors: Vec<(usize, usize)> =
            idle.iter().filter_map(|&actor| Some((actor, self.model.slots(actor, listens).first().copied()?))).collect();
        self.plan_connect(client, port);
        if acceptors.is_empty() {
            return;
        }
        let (actor, slot) = self.random.one_of(&acceptors);
        // A listener that an actor sleeps for gets its client from that sleep.
        if self.model.at(actor, slot).is_some_and(|at| self.model.is_waited_for(at)) {
            return;
        }
        if let Some(free) = self.slot_beside(actor) {
            self.plan(actor, format!("accept {free} {slot}"));
        }
    }

    fn may_connect(&self, actor: usize, listener: Option<usize>) -> bool {
        !self.across || self.side(actor) != listener
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
}
