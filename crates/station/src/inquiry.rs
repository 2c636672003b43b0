//! A client's question to the gate of another host.

use core::sync::atomic::Ordering::Relaxed;
use shunt_am::{config::MILLISECOND, Nanoseconds};
use shunt_endpoint::{Endpoint, Tag};
use shunt_segment::address::Address;
use shunt_sys::{calls, libc, Errno, Result};

use crate::discovery_packet::{Datagram, Kind, FRESH, KNOWN, SIZE};
use crate::memory::{load2, peer_state};
use crate::sockaddr::{self, Socket};
use crate::{device, Driver, FourTuple, Peer, Pump, Refusal, Station, GATE};

/// First pause before the question is asked again; it doubles.
const AGAIN: Nanoseconds = 15 * MILLISECOND;
/// Times that it is asked into silence, and times that a gate may ask for a cookie.
const TIMES: u32 = 3;
/// How long it is believed that no gate answers there; that the host says so (a port unreachable); that a gate knows no such
/// listener, or another reason.
const SILENCE: Nanoseconds = 30_000 * MILLISECOND;
const UNREACHABLE: Nanoseconds = 5_000 * MILLISECOND;
const DENIED: Nanoseconds = 2_000 * MILLISECOND;

/// A client's question. Its process asks, and no other one; several may ask the same. It never blocks.
pub struct Inquiry {
    socket: Socket,
    question: Datagram,
    peer: Peer,
    /// When the peer's place was taken: by which another one's is known.
    since: Nanoseconds,
    tries: u32,
    cookies: u32,
    deadline: Nanoseconds,
}

/// How far an inquiry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Poll [`Inquiry::descriptor`] until [`Inquiry::deadline`], then [`Inquiry::step`] again.
    Pending,
    /// This peer serves the listener.
    Peer(Peer),
    /// None does; remembered.
    None(Refusal),
}

impl Inquiry {
    /// Begins to ask which station serves the listener that would get this connection.
    ///
    /// # Errors
    /// What the system answers; EAGAIN: the station is busy; ENOSPC: it has too many peers.
    pub fn begin(station: &Station, four: &FourTuple, now: Nanoseconds, pump: &mut dyn Pump) -> Result<Inquiry> {
        let mut driver = station.lock().ok_or(Errno(libc::EAGAIN))?;
        let now = driver.time(now);
        let socket = sockaddr::udp(&four.server)?;
        let here = device::of(&driver.inner.device.address()).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        let from = if here.is_unspecified() { four.client } else { here };
        sockaddr::with(&Address { port: 0, ..from }, |name, length| calls::bind(socket.0, name, length))?;
        // Connected, so that "port unreachable" is heard.
        sockaddr::with(&Address { port: GATE, ..four.server }, |name, length| calls::connect(socket.0, name, length))?;
        let peer = driver.place(now, &four.server, false, pump).ok_or(Errno(libc::ENOSPC))?;
        let tag = driver.inner.device.new_tag()?;
        let record = driver.shared.peer(peer).ok_or(Errno(libc::ENOSPC))?;
        record.since.store(now, Relaxed);
        record.receive.store(tag.0, Relaxed);
        record.state.store(peer_state::ASKING, Relaxed);
        driver.shared.has_chores.store(1, Relaxed);
        let nonce = [driver.shared.draw(), driver.shared.draw()];
        let question = Datagram {
            kind: Kind::Ask,
            nonce,
            cookie: [0; 2],
            four: *four,
            flags: 0,
            identity: driver.identity(),
            tag: tag.0,
            port: driver.port(),
            refusal: None,
        };
        let inquiry = Inquiry { socket, question, peer, since: now, tries: 1, cookies: 0, deadline: now + AGAIN };
        inquiry.ask();
        Ok(inquiry)
    }

    fn ask(&self) {
        sockaddr::send(self.socket.0, &self.question.emit(), None);
    }

    /// What is to be polled (POLLIN).
    pub fn descriptor(&self) -> i32 {
        self.socket.0
    }

    /// When to step at the latest.
    pub fn deadline(&self) -> Nanoseconds {
        self.deadline
    }

    /// Goes on.
    pub fn step(&mut self, station: &Station, now: Nanoseconds) -> Answer {
        let mut bytes = [0; SIZE + 1];
        loop {
            match sockaddr::receive(self.socket.0, &mut bytes) {
                Ok((length, _)) => {
                    let datagram = bytes.get(..length).and_then(Datagram::parse);
                    // A gate that knows the nonce has read the question.
                    let Some(datagram) = datagram.filter(|datagram| datagram.nonce == self.question.nonce) else { continue };
                    match datagram.kind {
                        Kind::Cookie if self.cookies < TIMES => {
                            self.cookies += 1;
                            self.question.cookie = datagram.cookie;
                            self.ask();
                        }
                        Kind::Answer => {
                            if let Some(answer) = self.conclude(station, now, &datagram) {
                                return answer;
                            }
                        }
                        _ => {}
                    }
                }
                Err(Errno(libc::EAGAIN | libc::EINTR)) => break,
                Err(_) => return self.fail(station, now, Refusal::NoStation, UNREACHABLE),
            }
        }
        if now < self.deadline {
            return Answer::Pending;
        }
        if self.tries >= TIMES {
            return self.fail(station, now, Refusal::NoStation, SILENCE);
        }
        self.deadline = now + (AGAIN << self.tries);
        self.tries += 1;
        self.ask();
        Answer::Pending
    }

    /// The peer's place, if it is still ours.
    fn give_back(&self, driver: &Driver<'_>) {
        let Some(record) = driver.shared.peer(self.peer) else { return };
        if record.state.load(Relaxed) == peer_state::ASKING && record.since.load(Relaxed) == self.since {
            record.state.store(peer_state::FREE, Relaxed);
        }
    }

    fn fail(&mut self, station: &Station, now: Nanoseconds, refusal: Refusal, believed: Nanoseconds) -> Answer {
        if let Some(driver) = station.lock() {
            self.give_back(&driver);
            driver.shared.remember(&self.question.four.server, Err(refusal), now + believed);
        }
        Answer::None(refusal)
    }

    /// An answer; `None`: it leads nowhere, and another one is asked for.
    fn conclude(&mut self, station: &Station, now: Nanoseconds, answer: &Datagram) -> Option<Answer> {
        if let Some(refusal) = answer.refusal {
            // A gate has answered: it is the server that has no station, not the host.
            let refusal = if refusal == Refusal::NoStation { Refusal::Elsewhere } else { refusal };
            return Some(self.fail(station, now, refusal, DENIED));
        }
        let server = self.question.four.server;
        let Some(mut driver) = station.lock() else {
            return Some(Answer::None(Refusal::Lost));
        };
        let now = driver.time(now);
        if let Some(known) = driver.acquainted(answer.identity, &server).filter(|known| driver.engine.is_up(*known)) {
            self.give_back(&driver);
            driver.shared.remember(&server, Ok(known), now);
            return Some(Answer::Peer(known));
        }
        if answer.flags & KNOWN != 0 {
            // It knows us and we have forgotten it.
            if self.question.flags & FRESH == 0 {
                self.question.flags |= FRESH;
                self.ask();
                return None;
            }
            drop(driver);
            return Some(self.fail(station, now, Refusal::Device, DENIED));
        }
        let ours = driver
            .shared
            .peer(self.peer)
            .is_some_and(|record| record.state.load(Relaxed) == peer_state::ASKING && record.since.load(Relaxed) == self.since);
        if !ours || answer.tag == 0 || answer.port == 0 || answer.identity == load2(&driver.shared.identity) {
            drop(driver);
            return Some(self.fail(station, now, Refusal::Device, DENIED));
        }
        let at = Address { port: answer.port, ..server };
        match driver.admit(now, self.peer, Tag(self.question.tag), Tag(answer.tag), answer.identity, &at) {
            Ok(()) => {
                driver.connect(now, self.peer);
                driver.shared.remember(&server, Ok(self.peer), now);
                Some(Answer::Peer(self.peer))
            }
            Err(refusal) => {
                drop(driver);
                Some(self.fail(station, now, refusal, DENIED))
            }
        }
    }

    /// Gives up: the place of the peer is free again.
    pub fn abandon(self, station: &Station) {
        if let Some(driver) = station.lock() {
            self.give_back(&driver);
        }
    }
}
