//! What endpoints ask for, and who may have it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use shunt_endpoint::shared::{Layout, Memory, Shape as MemoryShape};
use shunt_endpoint::{Area, Tag};
use shunt_sys::{calls, Errno};
use shunt_xdp::address::{decode, encode};
use shunt_xdp::notes::SIZE as NOTES;
use shunt_xdp::packet::ETHERNET;
use shunt_xdp::protocol::{Kind, Operation, Reply, Request};
use shunt_xdp::socket::{Shape, Socket, Umem};
use shunt_xdp::state::{memory_shape, News, State, ASTRAY, DEVICE};

use crate::agent::{Agent, Token};
use crate::aside::Aside;
use crate::capture::Capture;
use crate::client::{answer, event, hear, Attached, Channel, Client, NextHop, Who};
use crate::ebpf::program::Role;
use crate::hosts::{is_askable, Asker, Told};
use crate::paths;

/// Connections that one user may have besides those of endpoints: for `shunt agent status`, and questions for hosts.
const BESIDES: usize = 48;
/// Connections that are taken in one turn: a program that connects without end must not keep the agent from its frames.
const ACCEPTED: usize = 16;

impl Agent {
    /// Takes some of what waits at the listener; the rest makes the next look at the descriptors find it again.
    pub(crate) fn accept(&mut self) {
        for connection in accept_some(&self.listener) {
            let fd = connection.as_raw_fd();
            let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
            let mut size = size_of_val(&credentials) as u32;
            let asked = calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut credentials).cast(), &mut size);
            let who = Who { pid: credentials.pid, user: credentials.uid };
            let limit = self.configuration.limits.endpoints as usize + BESIDES;
            let has = self.clients.values().filter(|client| client.who.user == who.user).count();
            let client = Client { connection, who, endpoint: None, hands: None };
            if asked.is_err() || has >= limit {
                let _ = answer(&client.connection, Reply::refused(libc::EDQUOT).bytes(), &[]);
                continue;
            }
            let number = self.next_client;
            self.next_client = self.next_client.wrapping_add(1);
            if self.watch(fd, Token::Client(number)).is_ok() {
                self.clients.insert(number, client);
            }
        }
    }

    /// Reads one request of a client and answers it; a client that is gone, or makes no sense, loses everything.
    pub(crate) fn hear(&mut self, number: u32) {
        let Some(client) = self.clients.get(&number) else { return };
        let mut bytes = std::mem::take(&mut self.heard);
        let heard = hear(&client.connection, &mut bytes, false);
        if !matches!(heard, Err(Errno(libc::EAGAIN))) {
            self.answer(number, heard.ok().and_then(|(count, _)| Some(Request::of(&bytes[..count])?.0)));
        }
        self.heard = bytes;
    }

    fn answer(&mut self, number: u32, heard: Option<Request>) {
        let Some(request) = heard else { return self.forget(number) };
        let answered = match request.operation {
            operation if operation == Operation::Host as u32 => match self.host(number, &request) {
                Some(answer) => answer,
                None => return,
            },
            operation if operation == Operation::Attach as u32 => self.attach(number, &request),
            operation if operation == Operation::NewTag as u32 => self.new_tag(number),
            operation if operation == Operation::Open as u32 => self.open(number, &request),
            operation if operation == Operation::Close as u32 => {
                self.send_waiting(number);
                self.close(number, request.channel);
                // Answered, so that nothing is delivered by a channel whose owner knows it to be closed.
                Ok((Reply::done(), Vec::new()))
            }
            operation if operation == Operation::Status as u32 => self.status(number),
            operation if operation == Operation::Hands as u32 => self.hands(number),
            _ => Err(libc::EOPNOTSUPP),
        };
        let (mut reply, descriptors) = match answered {
            Ok((reply, descriptors)) => (reply, descriptors),
            Err(errno) => (Reply::refused(errno), Vec::new()),
        };
        reply.number = request.number;
        let numbers: Vec<i32> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
        let sent = self.clients.get(&number).map(|client| answer(&client.connection, reply.bytes(), &numbers));
        if !matches!(sent, Some(Ok(()))) {
            self.forget(number);
        }
    }

    /// Whether a host runs shunt; `None`: it has been asked, and the client will be told.
    fn host(&mut self, number: u32, request: &Request) -> Option<Answer> {
        let Some((host, _)) = decode(&request.remote()).filter(|(host, _)| is_askable(host.ip())) else {
            return Some(Err(libc::EADDRNOTAVAIL));
        };
        let user = self.clients.get(&number)?.who.user;
        let interface = (self.interface.name.as_str(), self.interface.index);
        let asker = Asker { client: number, number: request.number, user };
        let (errno, question) = self.hosts.ask(host.ip(), asker, interface, Instant::now());
        if let Some((fd, question)) = question.and_then(|question| Some((self.hosts.descriptor(question)?, question))) {
            // An answer that is not watched for counts as none.
            let _ = self.watch(fd, Token::Host(question));
        }
        errno.map(|errno| if errno == 0 { Ok((Reply::done(), Vec::new())) } else { Err(errno) })
    }

    /// Tells clients what they have asked of hosts.
    pub(crate) fn tell(&mut self, all: Vec<Told>) {
        for (number, request, errno) in all {
            let mut reply = Reply::refused(errno);
            reply.number = request;
            if self.clients.get(&number).is_some_and(|client| answer(&client.connection, reply.bytes(), &[]).is_err()) {
                self.forget(number);
            }
        }
    }

    /// Takes back everything that a client had.
    fn forget(&mut self, number: u32) {
        let Some(client) = self.clients.remove(&number) else { return };
        self.hosts.forget(number);
        let Some(endpoint) = client.endpoint else { return };
        for tag in endpoint.tags.keys() {
            self.by_tag.remove(tag);
            let _ = self.maps.remove_tag(*tag);
        }
        match client.hands {
            Some(hands) => Agent::end_hands(&hands, Some(endpoint)),
            None if endpoint.kind == Kind::Own => self.maps.remove_socket(endpoint.queue),
            None => {}
        }
    }

    /// Forgets the clients that are gone and were not heard of yet: what they had may be asked for now.
    fn sweep(&mut self) {
        let gone = |client: &Client| {
            let events = calls::poll_one(client.connection.as_raw_fd(), 0, 0);
            events.is_ok_and(|events| events & libc::POLLHUP != 0)
        };
        let all: Vec<u32> = self.clients.iter().filter(|(_, client)| gone(client)).map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.forget(number));
    }

    fn attach(&mut self, number: u32, request: &Request) -> Answer {
        self.sweep();
        let client = self.clients.get(&number).ok_or(libc::EINVAL)?;
        let (who, limits) = (client.who, self.configuration.limits);
        if client.endpoint.is_some() {
            return Err(libc::EALREADY);
        }
        let wanted = Kind::of(request.kind).ok_or(libc::EINVAL)?;
        // Asked anew: the interface may have got addresses since.
        let version_6 = request.version_6 != 0;
        let now = match crate::interface::Interface::find(&self.interface.name) {
            Ok(now) if now.index == self.interface.index => now,
            _ => return Err(libc::ENODEV),
        };
        let mut addresses = now.addresses.into_iter();
        let ip = addresses.find(|address| address.is_ipv6() == version_6).ok_or(libc::EADDRNOTAVAIL)?;
        let trusted = who.user == 0 || self.configuration.trusted.contains(&who.user);
        if wanted == Kind::Own && !trusted {
            return Err(libc::EACCES);
        }
        let (has, bytes) = self.accounted(who.user);
        if has >= limits.endpoints as usize {
            return Err(libc::EDQUOT);
        }
        let address = SocketAddr::new(ip, self.configuration.port);
        let room = limits.bytes.saturating_sub(bytes);
        let own = if wanted != Kind::Multiplexed && trusted {
            self.own(request, &address, (room, now.keeps_order))
        } else {
            Err(libc::EBUSY)
        };
        let (attached, page) = match (own, wanted) {
            (Ok(attached), _) => (attached, None),
            (Err(errno), Kind::Own) => return Err(errno),
            (Err(_), _) => (self.multiplexed(request, &address, room)?, Some(self.page_file.as_raw_fd())),
        };
        self.sort_frames().map_err(|error| error.raw_os_error().unwrap_or(libc::EBUSY))?;
        let copy = |fd: i32| {
            // SAFETY: a duplicate has no other owner.
            calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).map_err(|errno| errno.0)
        };
        let bell = attached.bell.as_raw_fd();
        let way = attached.doorbell.as_ref().map(|doorbell| doorbell.as_raw_fd());
        let way = way.or(attached.socket.as_ref().map(Socket::fd)).unwrap_or(bell);
        // Without a socket for runs frames leave one by one.
        let interface = (self.interface.name.as_str(), self.interface.index);
        let cuts = who.user == 0 && now.keeps_order;
        let cutter = attached.socket.as_ref().filter(|socket| cuts && socket.makes_sums());
        let cutter = cutter.and_then(|_| crate::cutter::make(interface, &attached.address).ok());
        let page = page.or(cutter.as_ref().map(AsRawFd::as_raw_fd)).unwrap_or(bell);
        let descriptors = vec![copy(attached.memory.fd())?, copy(bell)?, copy(way)?, copy(page)?];
        if let Some(doorbell) = &attached.doorbell {
            self.watch(doorbell.as_raw_fd(), Token::Doorbell(number)).map_err(|_| libc::ENOMEM)?;
        }
        if let Some(socket) = &attached.socket {
            self.maps
                .set_socket(attached.queue, socket.fd(), Role { shared: false, pieces: socket.takes_pieces() })
                .map_err(|_| libc::EBUSY)?;
        }
        let state = State::of(&attached.memory);
        let mut reply = Reply::done();
        reply.kind = attached.kind as u32;
        reply.mode = state.mode.load(Relaxed);
        reply.largest = state.largest.load(Relaxed);
        reply.rings = state.rings();
        reply.queue = attached.queue;
        reply.address = encode(&attached.address, 0).to_words();
        let mut attached = attached;
        attached.noted = self.capture.as_ref().and_then(|capture| capture.endpoint(&attached.memory, attached.queue, &who));
        if let Some(client) = self.clients.get_mut(&number) {
            client.endpoint = Some(attached);
        }
        Ok((reply, descriptors))
    }

    /// How many endpoints and bytes a user has.
    pub(crate) fn accounted(&self, user: u32) -> (usize, u64) {
        let of_user = self.clients.values().filter(|client| client.who.user == user);
        of_user
            .filter_map(|client| client.endpoint.as_ref())
            .fold((0, 0), |(count, bytes), endpoint| (count + 1, bytes + endpoint.bytes))
    }

    /// The memory of a new endpoint, within `room` bytes.
    fn memory(&self, kind: Kind, request: &Request, rings: Shape, room: u64) -> Result<(Memory, u64), i32> {
        let shape = memory_shape(kind, &request.sizes, rings.chunk).ok_or(libc::EINVAL)?;
        // All of the file, and so the registry of channels as well.
        let bytes = Layout::new(shape).ok_or(libc::EINVAL)?.size() as u64;
        if bytes > room {
            return Err(libc::EDQUOT);
        }
        // Where the agent captures there is room for notes, which is not accounted to the user.
        let notes = shape.device;
        let is_noted = kind == Kind::Own && self.capture.as_ref().is_some_and(Capture::is_on);
        let more = if is_noted { NOTES as u32 } else { 0 };
        let shape = MemoryShape { device: shape.device + more, ..shape };
        let memory = Memory::create(DEVICE, shape).map_err(|errno| errno.0)?;
        if is_noted {
            State::of(&memory).notes.store(notes, Relaxed);
        }
        Ok((memory, bytes))
    }

    /// Bytes of the largest datagram at an address.
    fn largest(&self, address: &SocketAddr) -> u32 {
        paths::largest_datagram(self.frame - ETHERNET as u32, address.is_ipv6())
    }

    fn multiplexed(&self, request: &Request, address: &SocketAddr, room: u64) -> Result<Attached, i32> {
        let trunk = self.trunks.first().ok_or(libc::EBUSY)?;
        let rings = Shape::for_frames(self.frame, request.sizes.depth).map_err(|errno| errno.0)?;
        let (memory, bytes) = self.memory(Kind::Multiplexed, request, rings, room)?;
        State::of(&memory).write(&News {
            kind: Kind::Multiplexed,
            mode: trunk.mode as u32,
            largest: self.largest(address),
            rings,
            lead: 0,
            owner: memory.shape().segment,
            queue: trunk.queue,
            address: encode(address, 0),
            mac: self.interface.mac,
        });
        Ok(Attached {
            kind: Kind::Multiplexed,
            queue: trunk.queue,
            mode: trunk.mode,
            memory,
            socket: None,
            bell: event().map_err(|_| libc::EMFILE)?,
            doorbell: Some(event().map_err(|_| libc::EMFILE)?),
            address: *address,
            frame: self.frame,
            tags: HashMap::new(),
            channels: HashMap::new(),
            turn: 0,
            aside: Aside::default(),
            bytes,
            due: false,
            moved: [0; 2],
            noted: None,
        })
    }

    /// `runs`: packets may come that are longer than a frame.
    fn own(&self, request: &Request, address: &SocketAddr, (room, runs): (u64, bool)) -> Result<Attached, i32> {
        let rings = Shape::for_frames(self.frame, request.sizes.depth).map_err(|errno| errno.0)?;
        let rings = if runs { rings.for_runs() } else { rings };
        let (memory, bytes) = self.memory(Kind::Own, request, rings, room)?;
        let size = memory.shape().device as usize + memory.shape().segment as usize;
        // SAFETY: device part and segment follow each other in the mapping. The kernel holds their pages as long as the
        // socket lives; the memory itself lives in the same structure.
        let umem = unsafe { Umem::new(memory.device_part(), size) };
        let taken = |queue: &u32| {
            self.clients
                .values()
                .filter_map(|client| client.endpoint.as_ref())
                .any(|endpoint| endpoint.kind == Kind::Own && endpoint.queue == *queue)
        };
        let mut refused = libc::EBUSY;
        for queue in self.lend.iter().filter(|queue| !taken(queue)) {
            // The kernel frees a queue a little after the last descriptor of its socket was closed.
            let began = Instant::now();
            let made = loop {
                match Socket::make(self.interface.index, *queue, umem, rings, self.configuration.mode) {
                    Err(error) if error.errno.0 == libc::EBUSY && began.elapsed() < Duration::from_millis(50) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => break other,
                }
            };
            let (socket, mode) = match made {
                Ok(made) => made,
                Err(error) => {
                    refused = error.errno.0;
                    continue;
                }
            };
            let _ = calls::setsockopt_int(socket.fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 16 << 20);
            State::of(&memory).write(&News {
                kind: Kind::Own,
                mode: mode as u32,
                largest: self.largest(address),
                rings,
                lead: socket.lead(),
                owner: request.sizes.segment,
                queue: *queue,
                address: encode(address, 0),
                mac: self.interface.mac,
            });
            for index in 0..ASTRAY {
                let _ = memory.free_queue().put(&Area::new(request.sizes.segment + index * rings.chunk, rings.chunk));
            }
            return Ok(Attached {
                kind: Kind::Own,
                queue: *queue,
                mode,
                memory,
                socket: Some(socket),
                bell: event().map_err(|_| libc::EMFILE)?,
                doorbell: None,
                address: *address,
                frame: self.frame,
                tags: HashMap::new(),
                channels: HashMap::new(),
                turn: 0,
                aside: Aside::default(),
                bytes,
                due: false,
                moved: [0; 2],
                noted: None,
            });
        }
        Err(refused)
    }

    fn endpoint(&mut self, number: u32) -> Result<&mut Attached, i32> {
        self.clients.get_mut(&number).and_then(|client| client.endpoint.as_mut()).ok_or(libc::ENOTCONN)
    }

    fn new_tag(&mut self, number: u32) -> Answer {
        let user = self.clients.get(&number).ok_or(libc::ENOTCONN)?.who.user;
        let of_user = self.clients.values().filter(|client| client.who.user == user);
        let has: usize = of_user.filter_map(|client| client.endpoint.as_ref()).map(|endpoint| endpoint.tags.len()).sum();
        if has >= self.configuration.limits.tags as usize {
            return Err(libc::EDQUOT);
        }
        self.sort_frames().map_err(|error| error.raw_os_error().unwrap_or(libc::EBUSY))?;
        let tag = Tag::random().map_err(|errno| errno.0)?.0;
        let queue = self.endpoint(number)?.queue;
        self.maps.set_tag(tag, queue).map_err(|_| libc::ENOSPC)?;
        self.endpoint(number)?.tags.insert(tag, None);
        let mut reply = Reply::done();
        reply.tag = tag;
        Ok((reply, Vec::new()))
    }

    fn open(&mut self, number: u32, request: &Request) -> Answer {
        let (interface, frame) = (self.interface.index, self.frame);
        let endpoint = self.endpoint(number)?;
        let mtu = endpoint.frame.min(frame) - ETHERNET as u32;
        let (peer, scope) = decode(&request.remote()).ok_or(libc::EADDRNOTAVAIL)?;
        if peer.is_ipv6() != endpoint.address.is_ipv6() {
            return Err(libc::EADDRNOTAVAIL);
        }
        let tags = request.tags();
        if tags.send.0 == 0 || endpoint.tags.get(&tags.receive.0) != Some(&None) {
            return Err(libc::EKEYREJECTED);
        }
        let index = shunt_endpoint::Channel(request.channel).index();
        if index >= endpoint.memory.shape().channels as usize {
            return Err(libc::ENOBUFS);
        }
        // The owner uses the place anew: it gave up waiting for our answer to an earlier request.
        if let Some(old) = endpoint.channels.get(&index).map(|channel| channel.number) {
            if old == request.channel {
                return Err(libc::ENOBUFS);
            }
            self.close(number, old);
        }
        let endpoint = self.endpoint(number)?;
        let scope = match peer.ip() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => interface,
            _ => scope,
        };
        let way = paths::find(interface, mtu, &peer, scope)?;
        let (receive, send, channel) = (tags.receive.0, tags.send.0, request.channel);
        endpoint.tags.insert(receive, Some(channel));
        let paths::Way { route, largest, next_hop } = way;
        let made = Channel { number: channel, peer, scope, send, receive, route, largest, next_hop };
        endpoint.channels.insert(index, made);
        endpoint.set_next_hop(index, next_hop);
        self.by_tag.insert(receive, (number, channel));
        self.resolving |= matches!(next_hop, NextHop::Unknown(_));
        Ok((Reply::done(), Vec::new()))
    }

    /// Forgets channel `channel` of client `number`.
    fn close(&mut self, number: u32, channel: u32) {
        let Ok(endpoint) = self.endpoint(number) else { return };
        let index = shunt_endpoint::Channel(channel).index();
        if endpoint.channels.get(&index).is_some_and(|entry| entry.number == channel) {
            let Some(channel) = endpoint.channels.remove(&index) else { return };
            endpoint.tags.remove(&channel.receive);
            self.by_tag.remove(&channel.receive);
            let _ = self.maps.remove_tag(channel.receive);
        }
    }
}

/// What waits at a listener, [`ACCEPTED`] at most.
fn accept_some(listener: &impl AsRawFd) -> Vec<OwnedFd> {
    let next = || {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = calls::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags).ok()?;
        // SAFETY: made by the kernel for us just now.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    std::iter::from_fn(next).take(ACCEPTED).collect()
}

/// An answer and its descriptors, or an errno.
pub(crate) type Answer = Result<(Reply, Vec<OwnedFd>), i32>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};

    /// However many connect at once, one turn takes no more than it should, and the next ones take the rest.
    #[test]
    fn accepts_a_few_in_a_turn() {
        let name = format!("shunt-accepts-a-few-{}", std::process::id());
        let address = UnixAddress::from_abstract_name(name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("a listener");
        listener.set_nonblocking(true).expect("a flag");
        let connect = || UnixStream::connect_addr(&address).expect("a connection");
        let _waiting: Vec<UnixStream> = std::iter::repeat_with(connect).take(2 * ACCEPTED + 3).collect();
        let taken: Vec<usize> = (0..4).map(|_| accept_some(&listener).len()).collect();
        assert_eq!(taken, [ACCEPTED, ACCEPTED, 3, 0]);
    }
}
