//! What the one who draws knows about the actors' descriptors: enough to choose operations that mean something, and to leave out
//! those whose outcome the kernel itself does not determine. It never predicts an answer; it learns from those that the kernel
//! gave.

use super::sequence::Operation;
use super::stage::{Step, ACTORS, BLOCKS};
use std::collections::VecDeque;

/// How many descriptors a process has names for; `actor.c` has the same number.
pub const SLOTS: usize = 16;

/// An open file description.
#[derive(Clone, Debug)]
pub struct Description {
    /// What it is.
    pub kind: Kind,
    /// O_NONBLOCK.
    pub nonblock: bool,
}

/// What a description is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A socket of an IP version, neither connected nor listening.
    Fresh(u8),
    /// A listener on a port, and the connections that wait to be accepted.
    Listener {
        /// The port.
        port: usize,
        /// Ends of connections, oldest first.
        waiting: VecDeque<usize>,
    },
    /// An end of a connection; the other end is the number with the lowest bit turned.
    Stream(usize),
    /// An epoll set, the process that made it and the descriptions in it.
    Epoll(usize, Vec<usize>),
}

/// A process's slots.
#[derive(Clone, Debug)]
pub struct Process {
    /// Which of the two roots it descends from.
    pub side: usize,
    /// Descriptions by slot.
    pub slots: [Option<usize>; SLOTS],
}

/// An actor.
#[derive(Clone, Debug)]
pub struct Actor {
    /// Its process.
    pub process: usize,
    /// The call it sleeps in, with the descriptions that can wake it.
    pub blocked: Option<(Operation, Vec<usize>)>,
}

/// All that is known.
#[derive(Clone, Debug)]
pub struct Model {
    /// All descriptions that ever were.
    pub descriptions: Vec<Description>,
    /// All processes that ever were.
    pub processes: Vec<Process>,
    /// Those on the stage.
    pub actors: [Option<Actor>; ACTORS],
    /// Bytes on their way, by the end that will receive them.
    pub coming: Vec<usize>,
    /// Whether an urgent byte was sent to the end.
    pub urgent: Vec<bool>,
    /// Which of its halves, for receiving and for sending, the end has shut down.
    pub shut: Vec<[bool; 2]>,
    /// Descriptions that a set was asked to watch edge-triggered.
    pub edges: Vec<usize>,
    /// Ports that descriptions are bound to.
    bound: Vec<(usize, usize)>,
    /// Descriptors in the mail, with their receiver.
    passed: Vec<(usize, Option<usize>)>,
}

impl Model {
    /// Two processes without sockets.
    pub fn new() -> Model {
        let process = |side| Process { side, slots: [None; SLOTS] };
        let mut actors: [Option<Actor>; ACTORS] = Default::default();
        actors[0] = Some(Actor { process: 0, blocked: None });
        actors[1] = Some(Actor { process: 1, blocked: None });
        Model {
            descriptions: Vec::new(),
            processes: vec![process(0), process(1)],
            actors,
            coming: Vec::new(),
            urgent: Vec::new(),
            shut: Vec::new(),
            edges: Vec::new(),
            bound: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// The actor's process.
    pub fn process_of(&self, actor: usize) -> Option<usize> {
        self.actors[actor].as_ref().map(|actor| actor.process)
    }

    /// The description in an actor's slot.
    pub fn at(&self, actor: usize, slot: usize) -> Option<usize> {
        self.processes[self.process_of(actor)?].slots[slot % SLOTS]
    }

    /// Whether some blocked call waits at the end of a connection.
    pub fn someone_waits_at(&self, end: usize) -> bool {
        (0..self.descriptions.len()).any(|at| self.end_at(Some(at)) == Some(end) && self.is_waited_for(at))
    }

    /// Whether some blocked call waits for the description.
    pub fn is_waited_for(&self, description: usize) -> bool {
        self.actors.iter().flatten().any(|actor| actor.blocked.as_ref().is_some_and(|(_, on)| on.contains(&description)))
    }

    /// Whether a live process has a name for the description.
    pub fn is_open(&self, description: usize) -> bool {
        let live = self.actors.iter().flatten().map(|actor| actor.process);
        live.into_iter().any(|process| self.processes[process].slots.contains(&Some(description)))
    }

    /// Whether a process has that end of a connection, or will have it: from a listener's queue, or out of the mail.
    pub fn has_owner(&self, end: usize) -> bool {
        (0..self.descriptions.len()).any(|at| match &self.descriptions[at].kind {
            Kind::Stream(own) => *own == end && self.holders(at) > 0,
            Kind::Listener { waiting, .. } => waiting.contains(&end) && self.holders(at) > 0,
            _ => false,
        })
    }

    /// Whether its end may be said without another edge: the acknowledgement of an end is one on the kernel, after up to 40 ms.
    pub fn may_end(&self, description: Option<usize>) -> bool {
        description.is_none_or(|at| !self.edges.contains(&at))
    }

    /// Whether a set that is open has it.
    pub fn is_watched(&self, description: usize) -> bool {
        (0..self.descriptions.len()).any(|at| match &self.descriptions[at].kind {
            Kind::Epoll(_, members) => members.contains(&description) && self.is_open(at),
            _ => false,
        })
    }

    /// How many processes have it, or will have it when they take it out of their mail.
    pub fn holders(&self, description: usize) -> usize {
        let mut live: Vec<usize> = self.actors.iter().flatten().map(|actor| actor.process).collect();
        live.sort_unstable();
        live.dedup();
        let mailed = self.passed.iter().filter(|(_, passed)| *passed == Some(description)).count();
        live.iter().filter(|&&process| self.processes[process].slots.contains(&Some(description))).count() + mailed
    }

    /// The slots of an actor whose descriptions satisfy `condition`.
    pub fn slots(&self, actor: usize, condition: impl Fn(&Description) -> bool) -> Vec<usize> {
        (0..SLOTS).filter(|&slot| self.at(actor, slot).is_some_and(|at| condition(&self.descriptions[at]))).collect()
    }

    /// Ports of listeners that are open, with no client waiting: the order among several is not determined when they come by
    /// different ways.
    pub fn listeners(&self) -> Vec<usize> {
        (0..self.descriptions.len())
            .filter_map(|at| match &self.descriptions[at].kind {
                Kind::Listener { port, waiting } if waiting.is_empty() && self.is_open(at) => Some(*port),
                _ => None,
            })
            .collect()
    }

    /// The side of the processes that have the listener on the port.
    pub fn side_of_listener(&self, wanted: usize) -> Option<usize> {
        let listens = |at: &Option<usize>| {
            at.is_some_and(|at| matches!(&self.descriptions[at].kind, Kind::Listener { port, .. } if *port == wanted))
        };
        let live = self.actors.iter().flatten().map(|actor| &self.processes[actor.process]);
        live.into_iter().find(|process| process.slots.iter().any(listens)).map(|process| process.side)
    }

    /// Whether an open description listens on the port, or is bound for it.
    pub fn port_is_taken(&self, wanted: usize) -> bool {
        (0..self.descriptions.len())
            .any(|at| matches!(&self.descriptions[at].kind, Kind::Listener { port, .. } if *port == wanted) && self.is_open(at))
    }

    /// What a call on `slots` would wait for: descriptions, and those in a set.
    pub fn waits_for(&self, actor: usize, slots: &[usize]) -> Vec<usize> {
        let mut found = Vec::new();
        for at in slots.iter().filter_map(|&slot| self.at(actor, slot)) {
            found.push(at);
            if let Kind::Epoll(_, members) = &self.descriptions[at].kind {
                found.extend(members);
            }
        }
        found
    }

    /// Takes in what the kernel did.
    pub fn learn(&mut self, operation: &Operation, step: &Step) {
        let actor = operation.actor;
        match operation.verb() {
            "kill" if step.reply == "killed" => return self.bury(operation.number(1) % ACTORS),
            "exit" if step.reply == "the process is gone" => return self.bury(actor),
            _ => {}
        }
        if step.reply == BLOCKS {
            let slots: &[usize] = match operation.verb() {
                "accept" => &[operation.number(2)],
                "poll2" => &[operation.number(1), operation.number(3)],
                _ => &[operation.number(1)],
            };
            let on = self.waits_for(actor, slots);
            if let Some(actor) = &mut self.actors[actor] {
                actor.blocked = Some((operation.clone(), on));
            }
        } else {
            self.effect(operation, &step.reply);
        }
        for (woken, answer) in &step.woken {
            let blocked = self.actors[*woken].as_mut().and_then(|actor| actor.blocked.take());
            if let Some((operation, _)) = blocked {
                self.effect(&operation, answer);
            }
        }
    }

    fn bury(&mut self, actor: usize) {
        let Some(process) = self.process_of(actor) else { return };
        for slot in self.actors.iter_mut() {
            if slot.as_ref().is_some_and(|actor| actor.process == process) {
                *slot = None;
            }
        }
    }

    fn new_description(&mut self, kind: Kind, nonblock: bool) -> usize {
        self.descriptions.push(Description { kind, nonblock });
        self.descriptions.len() - 1
    }

    fn put(&mut self, actor: usize, slot: usize, description: Option<usize>) {
        if let Some(process) = self.process_of(actor) {
            self.processes[process].slots[slot % SLOTS] = description;
        }
    }

    /// What an answered call changed.
    fn effect(&mut self, operation: &Operation, reply: &str) {
        let (actor, slot) = (operation.actor, operation.number(1));
        let result: Option<i64> = reply.split(' ').next().and_then(|word| word.parse().ok());
        let succeeded = reply.starts_with("ok") || result.is_some_and(|result| result >= 0);
        let here = self.at(actor, slot);
        match operation.verb() {
            "socket" if succeeded => {
                let family = operation.number(2) as u8;
                let made = self.new_description(Kind::Fresh(family), operation.word(3) == "nonblock");
                self.put(actor, slot, Some(made));
            }
            "bind" if succeeded => {
                if let Some(at) = here {
                    self.bound.retain(|(bound, _)| *bound != at);
                    self.bound.push((at, operation.number(3)));
                }
            }
            "listen" if succeeded => {
                let port = here.and_then(|at| self.bound.iter().find(|(bound, _)| *bound == at)).map(|(_, port)| *port);
                if let (Some(at), Some(port)) = (here, port.filter(|port| *port != 0)) {
                    if matches!(self.descriptions[at].kind, Kind::Fresh(_)) {
                        self.descriptions[at].kind = Kind::Listener { port, waiting: VecDeque::new() };
                    }
                }
            }
            "connect" if succeeded || reply == "-1 EINPROGRESS" => self.connect(here, operation.number(3)),
            "disconnect" if succeeded => {
                if let Some(at) = here {
                    if matches!(self.descriptions[at].kind, Kind::Stream(_) | Kind::Listener { .. }) {
                        self.descriptions[at].kind = Kind::Fresh(4);
                    }
                }
            }
            "accept" if succeeded => {
                let listener = self.at(actor, operation.number(2));
                let end = listener.and_then(|at| match &mut self.descriptions[at].kind {
                    Kind::Listener { waiting, .. } => waiting.pop_front(),
                    _ => None,
                });
                if let Some(end) = end {
                    let made = self.new_description(Kind::Stream(end), operation.word(3) == "nonblock");
                    self.put(actor, slot, Some(made));
                }
            }
            "send" | "write" | "writev" | "sendmsg" | "sendfile" => {
                if let (Some(end), Some(sent)) = (self.end_at(here), result.filter(|sent| *sent > 0)) {
                    self.coming[end ^ 1] += sent as usize;
                    if operation.word(4).contains("oob") {
                        self.urgent[end ^ 1] = true;
                    }
                }
            }
            "recv" | "read" | "readv" | "recvmsg" if !operation.word(3).contains("peek") => {
                if let (Some(end), Some(got)) = (self.end_at(here), result.filter(|got| *got > 0)) {
                    self.coming[end] = self.coming[end].saturating_sub(got as usize);
                }
            }
            "drain" => {
                if let Some(end) = self.end_at(here) {
                    self.coming[end] = 0;
                }
            }
            "shutdown" if succeeded => {
                if let Some(end) = self.end_at(here) {
                    let how = operation.number(2);
                    self.shut[end][0] |= how != 1;
                    self.shut[end][1] |= how != 0;
                }
            }
            "close" => self.put(actor, slot, None),
            "dup" | "dupfd" if succeeded => self.put(actor, operation.number(2), here),
            "dup2" if succeeded => self.put(actor, operation.number(2), here),
            "nonblock" if succeeded => {
                if let Some(at) = here {
                    self.descriptions[at].nonblock = operation.number(2) != 0;
                }
            }
            "epoll" if succeeded => {
                let process = self.process_of(actor).unwrap_or(0);
                let made = self.new_description(Kind::Epoll(process, Vec::new()), false);
                self.put(actor, slot, Some(made));
            }
            "add" | "del" if succeeded => {
                let member = self.at(actor, operation.number(2));
                if let (Some(at), Some(member)) = (here, member) {
                    if operation.word(3).contains("et") {
                        self.edges.push(member);
                    }
                    if let Kind::Epoll(_, members) = &mut self.descriptions[at].kind {
                        if operation.verb() == "add" {
                            members.push(member);
                        } else if let Some(place) = members.iter().position(|&present| present == member) {
                            members.remove(place);
                        }
                    }
                }
            }
            "mod" if succeeded && operation.word(3).contains("et") => self.edges.extend(self.at(actor, operation.number(2))),
            "fork" if reply == "ok" => {
                if let Some(process) = self.process_of(actor) {
                    self.processes.push(self.processes[process].clone());
                    self.actors[slot % ACTORS] = Some(Actor { process: self.processes.len() - 1, blocked: None });
                }
            }
            "thread" if reply == "ok" => {
                if let Some(process) = self.process_of(actor) {
                    self.actors[slot % ACTORS] = Some(Actor { process, blocked: None });
                }
            }
            "exec" if !reply.starts_with("-1") => {
                let kept: Vec<usize> = reply.split(' ').filter_map(|word| word.parse().ok()).collect();
                for slot in (0..SLOTS).filter(|slot| !kept.contains(slot)) {
                    self.put(actor, slot, None);
                }
            }
            "take" if reply.contains("number") => {
                if let Some(place) = self.passed.iter().position(|(receiver, _)| *receiver == actor) {
                    let (_, passed) = self.passed.remove(place);
                    self.put(actor, slot, passed);
                }
            }
            "pass" if succeeded => self.passed.push((operation.number(2), here)),
            _ => {}
        }
    }

    /// The end of a connection that a description is.
    pub fn end_at(&self, description: Option<usize>) -> Option<usize> {
        match self.descriptions[description?].kind {
            Kind::Stream(end) => Some(end),
            _ => None,
        }
    }

    fn connect(&mut self, here: Option<usize>, port: usize) {
        let Some(at) = here else { return };
        if !matches!(self.descriptions[at].kind, Kind::Fresh(_)) {
            return;
        }
        let listener = (0..self.descriptions.len()).find(|&listener| {
            matches!(&self.descriptions[listener].kind, Kind::Listener { port: own, .. } if *own == port)
                && self.is_open(listener)
        });
        let Some(listener) = listener else { return };
        let end = self.coming.len();
        self.coming.extend([0, 0]);
        self.urgent.extend([false, false]);
        self.shut.extend([[false; 2]; 2]);
        self.descriptions[at].kind = Kind::Stream(end);
        if let Kind::Listener { waiting, .. } = &mut self.descriptions[listener].kind {
            waiting.push_back(end + 1);
        }
    }
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}
