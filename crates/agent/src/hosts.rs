//! Which hosts run shunt: asked once for all programs of this host, so that a host that does not costs one of them a moment, and
//! the others nothing.
//!
//! ```text
//!            asked                    a cookie
//! (nothing) ───────► asked, waited for ──────► runs ── 1 s, then asked again, and believed meanwhile, for 30 s
//!                        │  │ 20 ms, silence      └──► missed ─ a first silence: 1 s
//!                        │  └────────────────► silent ─ 30 s, then asked again, and believed meanwhile
//!                        └───────────────────► refuses ─ 1 s
//!                          "port unreachable"
//! ```
//!
//! An answer that comes later, within a second, counts still.
//!
//! Users share what is known, and each has bounds of its own: questions at a time, one of them for each connection; and where there is
//! no room to remember one host more, the user that has asked for most loses one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

use shunt_endpoint::Tag;
use shunt_segment::address::Address;
use shunt_station::discovery_packet::{Datagram, Kind, SIZE};
use shunt_station::{FourTuple, GATE};

/// How long a client waits, and when the question is asked again.
const WAITED: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_millis(5);
/// How long an answer may take to count.
const LATE: Duration = Duration::from_secs(1);
/// Hosts that are remembered.
const MOST: usize = 1024;
/// Questions at a time, and those of one user: a user that asks for more is told that nothing is known.
const QUESTIONS: usize = 64;
const EACH: usize = 8;

/// What a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Runs,
    /// It says that there is no such port, or there is no way to it.
    Refuses,
    Silent,
    /// It has said nothing, though it ran shunt: two datagrams may have been lost.
    Missed,
}

impl Verdict {
    /// How long it is believed, and how long it is told, then while the host is asked again.
    fn believed(self) -> [Duration; 2] {
        match self {
            Verdict::Runs => [Duration::from_secs(1), Duration::from_secs(30)],
            Verdict::Refuses | Verdict::Missed => [Duration::from_secs(1); 2],
            Verdict::Silent => [Duration::from_secs(30), Duration::MAX],
        }
    }

    /// As programs are told.
    fn errno(self) -> i32 {
        match self {
            Verdict::Runs => 0,
            Verdict::Refuses | Verdict::Silent | Verdict::Missed => libc::EHOSTUNREACH,
        }
    }
}

/// What is known of a host, since when, and for whom it was asked.
struct Known {
    verdict: Verdict,
    since: Instant,
    user: u32,
}

struct Question {
    host: IpAddr,
    /// For whom it is asked; others may wait, too.
    user: u32,
    socket: UdpSocket,
    datagram: [u8; SIZE],
    nonce: [u64; 2],
    since: Instant,
    repeated: bool,
    /// No client is told anything any more, unless an answer comes late.
    judged: bool,
    /// Clients, and the numbers of their requests.
    waiting: Vec<(u32, u64)>,
}

/// Which client is to be told what: the client, the number of its request, an errno or 0.
pub(crate) type Told = (u32, u64, i32);

/// The client that asks.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) client: u32,
    /// The number of its request.
    pub(crate) number: u64,
    pub(crate) user: u32,
}

/// What an agent knows of other hosts.
#[derive(Default)]
pub(crate) struct Hosts {
    known: HashMap<IpAddr, Known>,
    asked: HashMap<u32, Question>,
    next: u32,
}

impl Hosts {
    /// A client wants to know of `host`: an answer for now, or a question, which is to be watched, that will be answered.
    pub(crate) fn ask(&mut self, host: IpAddr, asker: Asker, interface: (&str, u32), now: Instant) -> (Option<i32>, Option<u32>) {
        let told = self.known.get(&host).and_then(|known| {
            let (age, [fresh, told]) = (now.duration_since(known.since), known.verdict.believed());
            (age < told).then_some((known.verdict.errno(), age < fresh))
        });
        if let Some((errno, true)) = told {
            return (Some(errno), None);
        }
        let errno = told.map(|(errno, _)| errno);
        // One that sends requests without end is to have no list without end.
        let waits = |question: &Question| question.waiting.iter().any(|(client, _)| *client == asker.client);
        if errno.is_none() && self.asked.values().any(waits) {
            return (Some(libc::EAGAIN), None);
        }
        if let Some(question) = self.asked.values_mut().find(|question| question.host == host) {
            if errno.is_none() {
                question.waiting.push((asker.client, asker.number));
            }
            return (errno, None);
        }
        // Those that are judged only wait for a late answer.
        let of_user = self.asked.values().filter(|question| question.user == asker.user && !question.judged).count();
        if of_user >= EACH || (self.asked.len() >= QUESTIONS && !self.drop_judged()) {
            return (errno.or(Some(libc::EAGAIN)), None);
        }
        match Question::ask(host, asker.user, interface, now) {
            Ok(mut question) => {
                if errno.is_none() {
                    question.waiting.push((asker.client, asker.number));
                }
                let number = self.next;
                self.next = self.next.wrapping_add(1);
                self.asked.insert(number, question);
                (errno, Some(number))
            }
            // Such as an address that is no neighbour's: it is found out as fast the next time, and takes no user's room.
            Err(_) => (errno.or(Some(libc::EHOSTUNREACH)), None),
        }
    }

    /// The question that was judged longest ago is over: false, there is none.
    fn drop_judged(&mut self) -> bool {
        let judged = self.asked.iter().filter(|(_, question)| question.judged);
        let oldest = judged.min_by_key(|(_, question)| question.since).map(|(number, _)| *number);
        oldest.and_then(|number| self.asked.remove(&number)).is_some()
    }

    /// A client is gone.
    pub(crate) fn forget(&mut self, client: u32) {
        self.asked.values_mut().for_each(|question| question.waiting.retain(|(waiting, _)| *waiting != client));
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
        let (host, user) = (question.host, question.user);
        self.learn(host, verdict, user, now);
        let question = self.asked.remove(&number);
        question.map(|question| told(question.waiting, verdict)).unwrap_or_default()
    }

    /// Whether a client waits.
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
                silent.push((question.host, question.user));
                all.append(&mut told(core::mem::take(&mut question.waiting), Verdict::Silent));
            }
            age < LATE
        });
        silent.into_iter().for_each(|(host, user)| self.miss(host, user, now));
        all
    }

    /// A host has said nothing.
    fn miss(&mut self, host: IpAddr, user: u32, now: Instant) {
        let ran = self.known.get(&host).is_some_and(|known| known.verdict == Verdict::Runs);
        self.learn(host, if ran { Verdict::Missed } else { Verdict::Silent }, user, now);
    }

    fn learn(&mut self, host: IpAddr, verdict: Verdict, user: u32, now: Instant) {
        if self.known.len() >= MOST && !self.known.contains_key(&host) {
            self.make_room();
        }
        self.known.insert(host, Known { verdict, since: now, user });
    }

    /// The user that has asked for most loses a host: one that says so at once when it is asked again, or else what is known
    /// longest.
    fn make_room(&mut self) {
        let mut shares = HashMap::new();
        self.known.values().for_each(|known| *shares.entry(known.user).or_insert(0) += 1);
        let Some((most, _)) = shares.into_iter().max_by_key(|(_, share)| *share) else { return };
        let of_user = self.known.iter().filter(|(_, known)| known.user == most);
        let goes = of_user.min_by_key(|(_, known)| (known.verdict != Verdict::Refuses, known.since)).map(|(host, _)| *host);
        goes.and_then(|host| self.known.remove(&host));
    }
}

fn told(waiting: Vec<(u32, u64)>, verdict: Verdict) -> Vec<Told> {
    waiting.into_iter().map(|(client, number)| (client, number, verdict.errno())).collect()
}

impl Question {
    /// Asks `host`, by the interface with this name and number alone, whether a process holds a gate there.
    fn ask(host: IpAddr, user: u32, (name, index): (&str, u32), now: Instant) -> io::Result<Question> {
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
            user,
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

    const FIFTH: Asker = Asker { client: 5, number: 50, user: 1000 };

    fn asked(hosts: &mut Hosts, since: Instant) -> UdpSocket {
        let [socket, peer] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        socket.set_nonblocking(true).expect("a flag");
        socket.connect(peer.local_addr().expect("an address")).expect("a peer");
        peer.connect(socket.local_addr().expect("an address")).expect("a peer");
        let question = Question {
            host: HOST,
            user: 1000,
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
        // A host that does not know the nonce has not read the question.
        peer.send(&cookie([7, 9])).expect("a datagram");
        assert_eq!((hosts.hear(9, now), hosts.is_waited_for()), (vec![], true));
        peer.send(&cookie([7, 8])).expect("a datagram");
        assert_eq!(hosts.hear(9, now), [(3, 30, 0), (4, 40, 0)]);
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now), (Some(0), None), "remembered");
        // It is asked again when that is old, and no client waits for it; the gate may have gone when it is very old.
        let _peer = asked(&mut hosts, now + Duration::from_secs(2));
        hosts.forget(3);
        hosts.forget(4);
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + Duration::from_secs(2)), (Some(0), None), "told meanwhile");
        assert!(!hosts.is_waited_for());
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + Duration::from_secs(31)), (None, None), "waits");
        assert!(hosts.is_waited_for());
    }

    /// A host that ran shunt and says nothing for once is asked again soon.
    #[test]
    fn one_silence_is_not_the_end() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let no = Some(libc::EHOSTUNREACH);
        hosts.learn(HOST, Verdict::Runs, 1000, now);
        let _peer = asked(&mut hosts, now);
        hosts.look(now + WAITED);
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + WAITED).0, no);
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + WAITED + Duration::from_secs(1)), (None, None), "waits");
        // Then it is believed.
        hosts.look(now + WAITED + Duration::from_secs(1));
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + Duration::from_secs(20)).0, no);
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
            assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + later).0, Some(no), "{later:?}");
        }
        // What comes late counts.
        peer.send(&cookie([7, 8])).expect("a datagram");
        assert_eq!(hosts.hear(9, now + LATE), []);
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + LATE), (Some(0), None));
    }

    #[test]
    fn a_port_that_nobody_has_is_asked_again() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        drop(asked(&mut hosts, now));
        hosts.asked[&9].send();
        assert_eq!(hosts.hear(9, now), [(3, 30, libc::EHOSTUNREACH), (4, 40, libc::EHOSTUNREACH)]);
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now), (Some(libc::EHOSTUNREACH), None));
        let _peer = asked(&mut hosts, now + Duration::from_secs(2));
        assert_eq!(hosts.ask(HOST, FIFTH, ("none", 0), now + Duration::from_secs(2)), (None, None), "waits");
    }

    fn numbered(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    #[test]
    fn no_more_is_remembered_than_has_room() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        for number in 0..2 * MOST as u32 {
            hosts.learn(numbered(number), Verdict::Silent, 1000, now + Duration::from_millis(number.into()));
        }
        assert_eq!(hosts.known.len(), MOST);
        assert!(hosts.known.contains_key(&numbered(2 * MOST as u32 - 1)));
    }

    /// However many one user asks for, what others have asked for stays known.
    #[test]
    fn a_user_loses_his_own() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        for number in 0..MOST as u32 / 4 {
            hosts.learn(numbered(number), Verdict::Silent, 1000, now);
        }
        for number in MOST as u32..4 * MOST as u32 {
            let verdict = if number % 2 == 0 { Verdict::Silent } else { Verdict::Refuses };
            hosts.learn(numbered(number), verdict, 2000, now + Duration::from_millis(number.into()));
        }
        assert_eq!(hosts.known.len(), MOST);
        assert!((0..MOST as u32 / 4).all(|number| hosts.known.contains_key(&numbered(number))));
    }

    /// Of one user's, those go first that answer at once.
    #[test]
    fn who_refuses_goes_first() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        for number in 0..MOST as u32 {
            let verdict = if number == 700 { Verdict::Refuses } else { Verdict::Silent };
            hosts.learn(numbered(number), verdict, 1000, now + Duration::from_millis(number.into()));
        }
        hosts.learn(HOST, Verdict::Silent, 1000, now);
        assert!(!hosts.known.contains_key(&numbered(700)) && hosts.known.contains_key(&numbered(0)));
    }

    #[test]
    fn a_user_has_so_many_questions_and_a_client_one() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let mut ask = |host, client, user| hosts.ask(host, Asker { client, number: 1, user }, ("lo", 1), now);
        // Of this host, so no other one is reached; what they answer is not read.
        let gates: Vec<IpAddr> = (1..=EACH as u8 + 2).map(|number| [127, 77, 0, number].into()).collect();
        for (client, host) in (0..).zip(&gates[..EACH]) {
            let (errno, question) = ask(*host, client, 1000);
            assert!(errno.is_none() && question.is_some(), "{errno:?}");
        }
        // Another one's answer can be waited for; for one more there is no question left, but there is for others.
        assert_eq!(ask(gates[0], 100, 1000), (None, None));
        assert_eq!(ask(gates[EACH], 101, 1000), (Some(libc::EAGAIN), None));
        assert!(ask(gates[EACH], 102, 2000).1.is_some());
        assert_eq!(ask(gates[EACH + 1], 102, 2000), (Some(libc::EAGAIN), None), "one at a time");
        assert_eq!(ask(gates[0], 102, 2000), (Some(libc::EAGAIN), None));
        // A client that is gone waits no longer.
        hosts.forget(102);
        assert!(hosts.asked.values().all(|question| question.waiting.iter().all(|(client, _)| *client != 102)));
        // What is judged waits for a late answer in no user's share, and makes room for others.
        for turn in 0..=(QUESTIONS / EACH) as u32 {
            let now = now + (turn + 1) * WAITED;
            hosts.look(now);
            for client in 0..EACH as u32 {
                let host = [127, 78, turn as u8, client as u8 + 1].into();
                let asker = Asker { client, number: 2, user: 1000 };
                assert!(hosts.ask(host, asker, ("lo", 1), now).1.is_some(), "{turn} {client}");
            }
        }
        assert!(hosts.asked.len() <= QUESTIONS);
    }

    /// An address that cannot be asked takes no room.
    #[test]
    fn what_is_no_neighbour_is_not_remembered() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        assert_eq!(hosts.ask([192, 0, 2, 7].into(), FIFTH, ("shunt-nowhere", 0), now), (Some(libc::EHOSTUNREACH), None));
        assert!(hosts.known.is_empty() && hosts.asked.is_empty());
    }
}
