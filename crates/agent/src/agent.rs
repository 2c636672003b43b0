//! The loop: frames while there are any, then requests, then sleep.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{fence, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_endpoint::Drop as Reason;
use shunt_xdp::multiplexed::AgentPage;

use crate::capture::Capture;
use crate::client::Client;
use crate::configuration::Configuration;
use crate::connections::Shared;
use crate::ebpf::program::Maps;
use crate::hosts::Hosts;
use crate::interface::Interface;
use crate::sorting::{Lingering, Sorting};
use crate::trunk::Trunk;

/// The agent of one interface.
pub struct Agent {
    pub(crate) configuration: Configuration,
    pub(crate) interface: Interface,
    /// Bytes of the largest frame, as the interface is now.
    pub(crate) frame: u32,
    /// Bytes of the largest that the agent's own queues take: as the interface was when they were made.
    pub(crate) longest: u32,
    pub(crate) listener: OwnedFd,
    pub(crate) datagrams: Vec<UdpSocket>,
    pub(crate) maps: Arc<Maps>,
    /// The program, and that it is attached while endpoints need it. It is detached before the sockets go.
    pub(crate) sorting: Arc<Sorting>,
    pub(crate) sorts: Lingering,
    pub(crate) trunks: Vec<Trunk>,
    pub(crate) lend: Vec<u32>,
    pub(crate) page_file: OwnedFd,
    pub(crate) page: *const AgentPage,
    pub(crate) epoll: OwnedFd,
    pub(crate) signals: OwnedFd,
    pub(crate) links: OwnedFd,
    pub(crate) clients: HashMap<u32, Client>,
    pub(crate) next_client: u32,
    /// What is known of other hosts.
    pub(crate) hosts: Hosts,
    /// By which programs see that there are agents here; another agent of this host may hold it.
    pub(crate) beacon: Option<OwnedFd>,
    /// Tag to client and channel number.
    pub(crate) by_tag: HashMap<u64, (u32, u32), BuildHasherDefault<TagHasher>>,
    /// Some next hop is not known yet.
    pub(crate) resolving: bool,
    pub(crate) next_refresh: Instant,
    /// When those that are not known are asked for again.
    pub(crate) next_question: Instant,
    /// Frames that belong to no endpoint, by reason.
    pub(crate) dropped: [u64; Reason::COUNT],
    /// Datagrams that came the kernel's way.
    pub(crate) astray: u64,
    pub(crate) began: Instant,
    /// What was taken from the kernel, if this agent takes connections.
    pub(crate) connections: Option<Arc<Shared>>,
    /// Every frame goes to a file.
    pub(crate) capture: Option<Capture>,
    /// What a client said last.
    pub(crate) heard: Vec<u8>,
}

/// Tags are random, so they are their own hash.
#[derive(Default)]
pub struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("tags are u64")
    }
    fn write_u64(&mut self, tag: u64) {
        self.0 = tag;
    }
}

/// What an event of the epoll is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Listener,
    Signal,
    Links,
    Datagrams,
    Trunk,
    Client(u32),
    Doorbell(u32),
    Host(u32),
}

impl Token {
    fn word(self) -> u64 {
        let (kind, number) = match self {
            Token::Listener => (0, 0),
            Token::Signal => (1, 0),
            Token::Links => (2, 0),
            Token::Datagrams => (3, 0),
            Token::Trunk => (4, 0),
            Token::Client(number) => (5, number),
            Token::Doorbell(number) => (6, number),
            Token::Host(number) => (7, number),
        };
        kind << 32 | u64::from(number)
    }

    fn of(word: u64) -> Token {
        let number = word as u32;
        match word >> 32 {
            0 => Token::Listener,
            1 => Token::Signal,
            2 => Token::Links,
            3 => Token::Datagrams,
            4 => Token::Trunk,
            5 => Token::Client(number),
            6 => Token::Doorbell(number),
            _ => Token::Host(number),
        }
    }
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal asked for it.
    Signal(i32),
    /// The interface was removed.
    Removed,
}

/// At real-time priority others are let have the processor after so many frames, also while there are more.
const BURST: u64 = 64;

/// While there is work, the descriptors are looked at so often.
const LOOK: Duration = Duration::from_micros(100);

/// How much longer than the questions for neighbours took they rest.
const SHARE: u32 = 4;

impl Agent {
    pub(crate) fn watch(&self, fd: RawFd, token: Token) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token.word() };
        // SAFETY: both descriptors are open, the event is read.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Works until something ends it.
    ///
    /// # Errors
    /// What epoll_wait(2) answers: nothing that can be expected.
    pub fn run(&mut self) -> io::Result<End> {
        let spin = Duration::from_micros(self.configuration.spin.into());
        let (mut busy_until, mut next_look) = (Instant::now(), Instant::now());
        // Turns in which there was work and nothing could be done: a neighbour is not known, the interface is down or full.
        let mut stuck = 0u32;
        // Frames carried when others were last let have this processor. Where the scheduler gives them no turns (SCHED_FIFO), and a
        // sender keeps us busy, the programs that are to take what we carry would never have it.
        let mut yielded = 0u64;
        // SAFETY: a number, of the calling thread.
        let burst = if unsafe { libc::sched_getscheduler(0) } == libc::SCHED_FIFO { BURST } else { u64::MAX };
        loop {
            let moved = self.move_frames();
            let carried = self.trunks.iter().map(|trunk| trunk.sent + trunk.received).sum::<u64>();
            let now = Instant::now();
            if moved {
                busy_until = now + spin;
                stuck = 0;
            }
            if moved || now < busy_until {
                if now >= next_look {
                    next_look = now + LOOK;
                    if let Some(end) = self.handle_events(0)? {
                        return Ok(end);
                    }
                }
                if !moved || carried - yielded >= burst {
                    // Those that we wait for may need this processor.
                    std::thread::yield_now();
                    yielded = carried;
                }
                continue;
            }
            self.asleep(true);
            // A program that put something before it could see that we sleep is found now; all others ring.
            let timeout = if self.has_work() {
                stuck = stuck.saturating_add(1);
                i32::from(stuck > 2)
            } else if self.resolving || self.hosts.is_waited_for() {
                1
            } else {
                self.next_refresh.saturating_duration_since(now).as_millis() as i32 + 1
            };
            let ended = self.handle_events(timeout)?;
            self.asleep(false);
            if let Some(end) = ended {
                return Ok(end);
            }
        }
    }

    fn asleep(&self, asleep: bool) {
        // SAFETY: mapped as long as the agent lives.
        unsafe { (*self.page).asleep.store(asleep.into(), Relaxed) };
        fence(SeqCst);
    }

    fn has_work(&self) -> bool {
        self.clients.values().filter_map(|client| client.endpoint.as_ref()).any(|endpoint| endpoint.has_work())
    }

    /// Waits for events (`timeout` in milliseconds), and does what they ask for.
    fn handle_events(&mut self, timeout: i32) -> io::Result<Option<End>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: as many events as said.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, timeout) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
        }
        for event in &events[..count as usize] {
            match Token::of(event.u64) {
                Token::Listener => self.accept(),
                Token::Signal => return Ok(Some(End::Signal(self.signal()))),
                Token::Links => {
                    if self.hear_of_links() {
                        return Ok(Some(End::Removed));
                    }
                }
                Token::Datagrams => self.receive_datagrams(),
                // Found by the next look at the rings.
                Token::Trunk => {}
                Token::Client(number) => self.hear(number),
                Token::Host(number) => {
                    let told = self.hosts.hear(number, Instant::now());
                    self.tell(told);
                }
                Token::Doorbell(number) => {
                    if let Some(doorbell) =
                        self.clients.get(&number).and_then(|client| client.endpoint.as_ref()?.doorbell.as_ref())
                    {
                        let mut rung = 0u64;
                        let _ = shunt_sys::calls::read(doorbell.as_raw_fd(), (&raw mut rung).cast(), 8);
                    }
                }
            }
        }
        let now = Instant::now();
        let told = self.hosts.look(now);
        self.tell(told);
        let all = now >= self.next_refresh;
        if all || (self.resolving && now >= self.next_question) {
            if all {
                self.next_refresh = now + Duration::from_secs(1);
                self.beacon = self.beacon.take().or_else(crate::start::beacon);
            }
            self.refresh_neighbours(all);
            self.look_whether_frames_are_sorted();
            // A program may have channels to thousands that do not answer: the others get most of the time.
            let asked = Instant::now();
            self.next_question = asked + (asked - now) * SHARE;
        }
        Ok(None)
    }

    fn signal(&self) -> i32 {
        // SAFETY: integers, for which zero is valid; the kernel writes the structure.
        unsafe {
            let mut news: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of_val(&news);
            libc::read(self.signals.as_raw_fd(), (&raw mut news).cast(), size);
            news.ssi_signo as i32
        }
    }

    /// Reads the news of interfaces, and follows ours; true: it is gone.
    fn hear_of_links(&mut self) -> bool {
        let mut bytes = [0u8; 8192];
        let (mut removed, mut changed) = (false, false);
        loop {
            // SAFETY: as many bytes as said.
            let count = unsafe { libc::recv(self.links.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
            if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) {
                // News were lost: ask.
                removed |= Interface::named(self.interface.index).is_none();
                changed = true;
                continue;
            }
            if count <= 0 {
                break;
            }
            let mut rest = &bytes[..count as usize];
            while rest.len() >= 32 {
                let length = shunt_xdp::netlink::word(rest, 0) as usize;
                let kind = shunt_xdp::netlink::half(rest, 4);
                // `struct nlmsghdr`, then `struct ifinfomsg` with the index at 4.
                let index = shunt_xdp::netlink::word(rest, 20);
                let ours = index == self.interface.index && rest[16] == 0;
                removed |= ours && kind == libc::RTM_DELLINK;
                changed |= ours && kind == libc::RTM_NEWLINK;
                rest = rest.get(length.next_multiple_of(4).max(16)..).unwrap_or_default();
            }
        }
        if changed && !removed {
            self.follow();
        }
        removed
    }

    /// The interface may have another name, address or size of packets now.
    fn follow(&mut self) {
        let Some(Ok(now)) = Interface::named(self.interface.index).map(|name| Interface::find(&name)) else { return };
        if now.name != self.interface.name {
            // Programs look for the agent by the interface's name. Where another process holds that one the old one stays.
            let listener = crate::start::listen(&now.name);
            if let Some(listener) = listener.ok().filter(|listener| self.watch(listener.as_raw_fd(), Token::Listener).is_ok()) {
                self.listener = listener;
                self.interface.name.clone_from(&now.name);
            }
        }
        if now.mac != self.interface.mac {
            self.clients
                .values_mut()
                .filter_map(|client| client.endpoint.as_mut())
                .for_each(|endpoint| endpoint.set_mac(now.mac));
        }
        (self.interface.mac, self.interface.mtu) = (now.mac, now.mtu);
        let frame = now.frame().min(self.longest);
        if frame != self.frame {
            self.frame = frame;
            self.measure_ways();
        }
        self.tell_hands();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.give_back_everything();
        // The agent's queues are silent by now, and its clients know that it ends.
        self.capture.take().into_iter().for_each(Capture::end);
        let _ = shunt_sys::calls::munmap(self.page.cast_mut().cast(), 4096);
    }
}
