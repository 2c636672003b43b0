//! Which hosts run shunt: asked once for all programs of this host, so that a host that does not costs one of them a moment, and
//! the others nothing.
//!
//! ```text
//!            asked                    a cookie
//! (nothing) ───────► asked, waited for ──────► runs ── 1 s
//!                        │  │ 20 ms, silence
//!                        │  └────────────────► silent ─ 30 s, then asked again, and believed meanwhile
//!                        └───────────────────► refuses ─ 1 s
//!                          "port unreachable"
//! ```
//!
//! An answer that comes later, within a second, counts still.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

use shunt_endpoint::Tag;
use shunt_segment::address::Address;
use shunt_station::question::{Datagram, Kind, SIZE};
use shunt_station::{FourTuple, GATE};

/// How long somebody waits, and when the question is asked again.
const WAITED: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_millis(5);
/// How long an answer may take to count.
const LATE: Duration = Duration::from_secs(1);
/// Hosts that are remembered, and questions at a time: who asks for more is told that nothing is known.
const MOST: usize = 1024;
const QUESTIONS: usize = 64;

/// What a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Runs,
    /// It says that there is no such port, or there is no way to it.
    Refuses,
    Silent,
}

impl Verdict {
    /// How long it is believed, and whether it is told while the host is asked again.
    fn believed(self) -> (Duration, bool) {
        match self {
            Verdict::Runs => (Duration::from_secs(1), false),
            Verdict::Refuses => (Duration::from_secs(1), false),
            Verdict::Silent => (Duration::from_secs(30), true),
        }
    }

    /// As programs are told.
    fn errno(self) -> i32 {
        match self {
            Verdict::Runs => 0,
            Verdict::Refuses | Verdict::Silent => libc::EHOSTUNREACH,
        }
    }
}

struct Question {
    host: IpAddr,
    socket: UdpSocket,
    datagram: [u8; SIZE],
    nonce: [u64; 2],
    since: Instant,
    repeated: bool,
    /// Nobody is told anything any more, unless an answer comes late.
    judged: bool,
    /// Clients, and the numbers of their requests.
    waiting: Vec<(u32, u64)>,
}

/// Who is to be told what: a client, the number of its request, an errno or 0.
pub(crate) type Told = (u32, u64, i32);

/// What an agent knows of other hosts.
#[derive(Default)]
pub(crate) struct Hosts {
    known: HashMap<IpAddr, (Verdict, Instant)>,
    asked: HashMap<u32, Question>,
    next: u32,
}

impl Hosts {
    /// Client `asker` wants to know of `host`: an answer for now, or a question, which is to be watched, that will be answered.
    pub(crate) fn ask(
        &mut self,
        host: IpAddr,
        asker: (u32, u64),
        interface: (&str, u32),
        now: Instant,
    ) -> (Option<i32>, Option<u32>) {
        let told = self.known.get(&host).and_then(|(verdict, since)| {
            let (believed, meanwhile) = verdict.believed();
            let fresh = now.duration_since(*since) < believed;
            (fresh || meanwhile).then_some((verdict.errno(), fresh))
        });
        if let Some((errno, true)) = told {
            return (Some(errno), None);
        }
        let errno = told.map(|(errno, _)| errno);
        if let Some(question) = self.asked.values_mut().find(|question| question.host == host) {
            if errno.is_none() {
                question.waiting.push(asker);
            }
            return (errno, None);
        }
        if self.asked.len() >= QUESTIONS {
            return (errno.or(Some(libc::EAGAIN)), None);
        }
        match Question::ask(host, interface, now) {
            Ok(mut question) => {
                if errno.is_none() {
                    question.waiting.push(asker);
                }
                let number = self.next;
                self.next = self.next.wrapping_add(1);
                self.asked.insert(number, question);
                (errno, Some(number))
            }
            Err(_) => {
                self.learn(host, Verdict::Refuses, now);
                (errno.or(Some(Verdict::Refuses.errno())), None)
            }
        }
    }

    /// The descriptor of a question.
    pub(crate) fn descriptor(&self, number: u32) -> Option<i32> {
        self.asked.get(&number).map(|question| question.socket.as_raw_fd())
    }

    /// Something came for a question.
    pub(crate) fn hear(&mut self, number: u32, now: Instant) -> Vec<Told> {
        let Some(question) = self.asked.get(&number) else { return Vec::new() };
        let mut bytes = [0; SIZE + 1];
        let verdict = match question.socket.recv(&mut bytes) {
            Ok(length) => {
                let answer = bytes.get(..length).and_then(Datagram::parse);
                let is_ours = |answer: &Datagram| answer.kind == Kind::Cookie && answer.nonce == question.nonce;
                answer.filter(is_ours).map(|_| Verdict::Runs)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            Err(_) => Some(Verdict::Refuses),
        };
        let Some(verdict) = verdict else { return Vec::new() };
        let host = question.host;
        self.learn(host, verdict, now);
        let question = self.asked.remove(&number);
        question.map(|question| told(question.waiting, verdict)).unwrap_or_default()
    }

    /// Whether somebody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.asked.values().any(|question| !question.waiting.is_empty())
    }

    /// Asks again, and ends what takes too long.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<Told> {
        let mut all = Vec::new();
        let mut silent = Vec::new();
        self.asked.retain(|_, question| {
            let age = now.duration_since(question.since);
            if age >= AGAIN && !question.repeated {
                question.repeated = true;
                question.send();
            }
            // What is believed meanwhile is believed until the question is over.
            if !question.waiting.is_empty() && age >= WAITED || age >= LATE && !question.judged {
                question.judged = true;
                silent.push(question.host);
                all.append(&mut told(core::mem::take(&mut question.waiting), Verdict::Silent));
            }
            age < LATE
        });
        silent.into_iter().for_each(|host| self.learn(host, Verdict::Silent, now));
        all
    }

    fn learn(&mut self, host: IpAddr, verdict: Verdict, now: Instant) {
        if self.known.len() >= MOST && !self.known.contains_key(&host) {
            let oldest = self.known.iter().min_by_key(|(_, (_, since))| *since).map(|(host, _)| *host);
            oldest.and_then(|host| self.known.remove(&host));
        }
        self.known.insert(host, (verdict, now));
    }
}

fn told(waiting: Vec<(u32, u64)>, verdict: Verdict) -> Vec<Told> {
    waiting.into_iter().map(|(client, number)| (client, number, verdict.errno())).collect()
}

impl Question {
    /// Asks `host`, by the interface with this name and number alone, whether somebody holds a gate there.
    fn ask(host: IpAddr, (name, index): (&str, u32), now: Instant) -> io::Result<Question> {
        let family = if host.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let errno = |errno: shunt_sys::Errno| io::Error::from_raw_os_error(errno.0);
        let fd = shunt_sys::calls::socket(family, kind, 0).map_err(errno)?;
        // SAFETY: made above, ours.
        let socket = unsafe { UdpSocket::from_raw_fd(fd) };
        let length = name.len() as u32;
        shunt_sys::calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_ptr().cast(), length).map_err(errno)?;
        // Neighbours alone.
        shunt_sys::calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_DONTROUTE, 1).map_err(errno)?;
        let at = match host {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => std::net::SocketAddrV6::new(ip, GATE, 0, index).into(),
            ip => SocketAddr::new(ip, GATE),
        };
        // Connected, so that "port unreachable" is heard.
        socket.connect(at)?;
        let random = || Tag::random().map(|tag| tag.0).map_err(errno);
        let nonce = [random()?, random()?];
        let server = match host {
            IpAddr::V4(ip) => Address::v4(ip.octets(), 0),
            IpAddr::V6(ip) => Address::v6(ip.octets(), 0),
        };
        let four = FourTuple { client: Address::default(), server };
        let (cookie, identity) = ([0; 2], [0; 2]);
        let datagram = Datagram { kind: Kind::Ask, nonce, cookie, four, flags: 0, identity, tag: 0, port: 0, refusal: None };
        let question = Question {
            host,
            socket,
            datagram: datagram.emit(),
            nonce,
            since: now,
            repeated: false,
            judged: false,
            waiting: Vec::new(),
        };
        question.send();
        Ok(question)
    }

    fn send(&self) {
        let _ = self.socket.send(&self.datagram);
    }
}

/// A host that can be asked: on a network, and one.
pub(crate) fn is_askable(host: IpAddr) -> bool {
    !host.is_unspecified() && !host.is_loopback() && !host.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2));

    fn asked(hosts: &mut Hosts, since: Instant) -> UdpSocket {
        let [socket, peer] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        socket.set_nonblocking(true).expect("a flag");
        socket.connect(peer.local_addr().expect("an address")).expect("a peer");
        peer.connect(socket.local_addr().expect("an address")).expect("a peer");
        let question = Question {
            host: HOST,
            socket,
            datagram: [1; SIZE],
            nonce: [7, 8],
            since,
            repeated: true,
            judged: false,
            waiting: vec![(3, 30), (4, 40)],
        };
        hosts.asked.insert(9, question);
        peer
    }

    fn cookie(nonce: [u64; 2]) -> [u8; SIZE] {
        let four = FourTuple::default();
        let (cookie, identity) = ([5; 2], [0; 2]);
        Datagram { kind: Kind::Cookie, nonce, cookie, four, flags: 0, identity, tag: 0, port: 0, refusal: None }.emit()
    }

    #[test]
    fn those_that_wait_are_told() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let peer = asked(&mut hosts, now);
        assert!(hosts.is_waited_for());
        // Who does not know the nonce has not read the question.
        peer.send(&cookie([7, 9])).expect("a datagram");
        assert_eq!((hosts.hear(9, now), hosts.is_waited_for()), (vec![], true));
        peer.send(&cookie([7, 8])).expect("a datagram");
        assert_eq!(hosts.hear(9, now), [(3, 30, 0), (4, 40, 0)]);
        assert_eq!(hosts.ask(HOST, (5, 50), ("none", 0), now), (Some(0), None), "remembered");
        // Another question is asked when that is old: the gate may have gone.
        let _peer = asked(&mut hosts, now + Duration::from_secs(2));
        assert_eq!(hosts.ask(HOST, (5, 50), ("none", 0), now + Duration::from_secs(2)), (None, None), "waits");
    }

    #[test]
    fn silence_is_waited_for_once() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let peer = asked(&mut hosts, now);
        assert_eq!(hosts.look(now + Duration::from_millis(19)), []);
        let no = libc::EHOSTUNREACH;
        assert_eq!(hosts.look(now + WAITED), [(3, 30, no), (4, 40, no)]);
        assert!(!hosts.is_waited_for());
        for later in [WAITED, Duration::from_secs(29), Duration::from_secs(60)] {
            assert_eq!(hosts.ask(HOST, (5, 50), ("none", 0), now + later).0, Some(no), "{later:?}");
        }
        // What comes late counts.
        peer.send(&cookie([7, 8])).expect("a datagram");
        assert_eq!(hosts.hear(9, now + LATE), []);
        assert_eq!(hosts.ask(HOST, (5, 50), ("none", 0), now + LATE), (Some(0), None));
    }

    #[test]
    fn a_port_that_nobody_has_is_asked_again() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        drop(asked(&mut hosts, now));
        hosts.asked[&9].send();
        assert_eq!(hosts.hear(9, now), [(3, 30, libc::EHOSTUNREACH), (4, 40, libc::EHOSTUNREACH)]);
        assert_eq!(hosts.ask(HOST, (5, 50), ("none", 0), now), (Some(libc::EHOSTUNREACH), None));
        let _peer = asked(&mut hosts, now + Duration::from_secs(2));
        assert_eq!(hosts.ask(HOST, (5, 50), ("none", 0), now + Duration::from_secs(2)), (None, None), "waits");
    }

    #[test]
    fn no_more_is_remembered_than_has_room() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        for number in 0..2 * MOST as u32 {
            hosts.learn(IpAddr::V4(number.into()), Verdict::Silent, now + Duration::from_millis(number.into()));
        }
        assert_eq!(hosts.known.len(), MOST);
        assert!(hosts.known.contains_key(&IpAddr::V4((2 * MOST as u32 - 1).into())));
    }
}
