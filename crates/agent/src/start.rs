//! What an agent sets up, in order; each step says what failed and what to do. All of it is descriptors, so the kernel
//! undoes it when the process ends, however it ends.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_sys::{calls, libc as system, mapping};
use shunt_xdp::multiplexed::AgentPage;
use shunt_xdp::protocol;

use crate::agent::{Agent, Token};
use crate::capture::Capture;
use crate::configuration::Configuration;
use crate::connections::{Guard, Shared};
use crate::ebpf::kernel::Program;
use crate::ebpf::program::{self, Maps, Role};
use crate::hosts::Hosts;
use crate::interface::Interface;
use crate::sorting::{Lingering, Sorting};
use crate::trunk::Trunk;

/// Most tags that all endpoints of an interface can have.
const TAGS: u32 = 1 << 16;
/// The kernel frees a queue some time after its socket was closed.
const RELEASE: Duration = Duration::from_secs(2);

pub(crate) fn last_error() -> io::Error {
    io::Error::last_os_error()
}

impl Agent {
    /// Takes the interface.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn start(configuration: Configuration) -> Result<Agent, String> {
        // SAFETY: takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            return Err("the agent needs root: it loads a program into the kernel and opens AF_XDP sockets. \
                        Run `sudo shunt agent`; without it, endpoints of the device `udp` work for every user"
                .to_string());
        }
        raise_descriptor_limit();
        let interface = Interface::find(&configuration.interface)?;
        let name = &interface.name;
        let lend = match &configuration.lend {
            Some(queues) => queues.clone(),
            // Frames of connections can be steered where there is one.
            None if configuration.take => vec![0],
            None => (1..interface.queues).collect(),
        };
        if configuration.take && !lend.contains(&0) {
            return Err(
                "--take: connections are taken for processes that have queue 0, which is not lent. Use --lend 0".to_string()
            );
        }
        if let Some(queue) = lend.iter().find(|queue| **queue >= interface.queues) {
            return Err(format!("{name} has {} receive queues, so no queue {queue} can be lent", interface.queues));
        }
        // Before there is anything that it should not inherit.
        let guard = configuration.take.then(Guard::start).transpose().map_err(|error| format!("the agent's guard: {error}"))?;
        // The name first: the process that has it is the agent of this interface, and it goes away with its process.
        let listener = listen(name)?;
        if let Some(number) = interface.program {
            return Err(occupied(name, number));
        }
        let datagrams = bind_port(&configuration, name)?;
        let signals = catch_signals()?;
        // Behind the name: a second agent leaves the file of the first one alone.
        let capture = configuration.capture.as_ref();
        let capture = capture.map(|path| Capture::start(path, configuration.capture_length, name)).transpose()?;
        let maps = Arc::new(Maps::new(TAGS, interface.queues).map_err(not_allowed)?);
        let sorting = Sorting::new(&configuration, &interface, maps.clone());
        drop(sorting.load(&interface).map_err(not_allowed)?);
        // It costs each packet something, TCP's too, and streams of sockets without queues need none. Where queues are lent it is tried now.
        let mut sorts = Lingering::default();
        if !lend.is_empty() || configuration.attachment.is_some() {
            sorts.hold(&sorting).map_err(|error| {
                match (error.raw_os_error(), Interface::find(name).ok().and_then(|now| now.program)) {
                    (Some(libc::EBUSY | libc::EEXIST), Some(number)) => occupied(name, number),
                    _ => format!("the program cannot be attached to {name}: {error}"),
                }
            })?;
        }

        // The largest frame that a chunk can take, where the interface has larger ones.
        let frame = interface.frame();
        let mut trunks = Vec::new();
        for queue in (0..interface.queues).filter(|queue| !lend.contains(queue)) {
            let began = Instant::now();
            let trunk = loop {
                match Trunk::new(interface.index, queue, frame, configuration.depth, configuration.mode) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < RELEASE => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    other => break other,
                }
            };
            let mut trunk = match trunk {
                Ok(trunk) => trunk,
                // Fewer real queues than it may have: the first is what counts.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && !trunks.is_empty() => break,
                Err(error) => return Err(format!("AF_XDP on queue {queue} of {name}: {error}")),
            };
            maps.set_socket(queue, trunk.fd(), Role { shared: true, pieces: trunk.takes_pieces() })
                .map_err(|error| format!("queue {queue} of {name}: {error}"))?;
            if let Some(capture) = &capture {
                trunk
                    .note(capture)
                    .map_err(|errno| format!("--capture: memory for queue {queue}: {}", io::Error::from_raw_os_error(errno.0)))?;
            }
            trunks.push(trunk);
        }
        let (page_file, page) = page().map_err(|error| format!("no memory for the agent's page: {error}"))?;
        // SAFETY: one flag and no address.
        let epoll = unsafe { OwnedFd::from_raw_fd(descriptor(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let links = watch_links()?;
        let connections = guard.map(|guard| Shared::new(guard, &sorting, &interface, frame, &configuration));
        let mut agent = Agent {
            frame,
            longest: frame,
            interface,
            configuration,
            listener,
            datagrams,
            maps,
            sorting,
            sorts,
            trunks,
            lend,
            page_file,
            page,
            epoll,
            signals,
            links,
            clients: HashMap::new(),
            next_client: 0,
            hosts: Hosts::default(),
            beacon: beacon(),
            by_tag: HashMap::default(),
            resolving: false,
            next_refresh: Instant::now() + Duration::from_secs(1),
            next_question: Instant::now(),
            dropped: Default::default(),
            astray: 0,
            began: Instant::now(),
            connections,
            capture,
            heard: vec![0; protocol::LONGEST_REQUEST],
        };
        agent.watch_all().map_err(|error| format!("epoll: {error}"))?;
        agent.interface.addresses.sort_by_key(|address| address.is_ipv6());
        Ok(agent)
    }

    /// Has the program sort frames by tags from now on, until there are none for a while.
    ///
    /// # Errors
    /// As for [`program::attach`].
    pub(crate) fn sort_frames(&mut self) -> io::Result<()> {
        self.sorts.hold(&self.sorting).map(|_| ())
    }

    /// Once in a while: the program stays where `--attach` says so, or tags are in use.
    pub(crate) fn look_whether_frames_are_sorted(&mut self) {
        let mut endpoints = self.clients.values().filter_map(|client| client.endpoint.as_ref());
        let is_used = self.configuration.attachment.is_some() || endpoints.any(|endpoint| !endpoint.tags.is_empty());
        self.sorts.look(is_used);
    }

    fn watch_all(&mut self) -> io::Result<()> {
        self.watch(self.listener.as_raw_fd(), Token::Listener)?;
        self.watch(self.signals.as_raw_fd(), Token::Signal)?;
        self.watch(self.links.as_raw_fd(), Token::Links)?;
        for socket in &self.datagrams {
            self.watch(socket.as_raw_fd(), Token::Datagrams)?;
        }
        for trunk in &self.trunks {
            self.watch(trunk.fd(), Token::Trunk)?;
        }
        Ok(())
    }
}

fn descriptor(fd: i32) -> Result<i32, String> {
    (fd >= 0).then_some(fd).ok_or_else(|| last_error().to_string())
}

fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the structure.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            // Fewer endpoints are possible if this fails; nothing else.
            let _ = libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

fn not_allowed(error: io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "the kernel does not let this process load a program: it needs CAP_BPF and CAP_NET_ADMIN in the \
                              first user namespace (a container without them cannot run the agent; `udp` works there)"
            .to_string(),
        Some(libc::ENOSYS) => "this kernel was built without bpf(2)".to_string(),
        _ => format!("the program that sorts frames: {error}"),
    }
}

/// Another program is attached.
fn occupied(interface: &str, number: u32) -> String {
    match Program::name_of(number) {
        Ok(name) if name == program::NAME => format!(
            "a program of shunt (number {number}) is still attached to {interface}: some process has inherited it from an \
             agent that is gone; `ip link set dev {interface} xdp off` cannot detach it, ending that process will"
        ),
        Ok(name) => format!("another XDP program, {name} (number {number}), is attached to {interface}; shunt leaves it alone"),
        Err(_) => format!("another XDP program (number {number}) is attached to {interface}; shunt leaves it alone"),
    }
}

pub(crate) fn listen(interface: &str) -> Result<OwnedFd, String> {
    let mut text = [0; 48];
    let length = protocol::name(interface, &mut text);
    // SAFETY: zero is a valid address structure; the name fits, and lengths are as said.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let listener = OwnedFd::from_raw_fd(descriptor(libc::socket(libc::AF_UNIX, kind, 0))?);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in address.sun_path[1..].iter_mut().zip(&text[..length]) {
            *place = *byte as libc::c_char;
        }
        let size = (3 + length) as u32;
        if libc::bind(listener.as_raw_fd(), (&raw const address).cast(), size) != 0 {
            return Err(match last_error() {
                error if error.kind() == io::ErrorKind::AddrInUse => {
                    format!("{interface} has an agent already ({})", holder(&address, size))
                }
                error => format!("the agent's name cannot be taken: {error}"),
            });
        }
        // No client has a descriptor to give by this way, and the last close(2) of one can wait (Linux 6.16).
        let no = 0i32;
        const SO_PASSRIGHTS: i32 = 83;
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const no).cast(), 4);
        if libc::listen(listener.as_raw_fd(), 64) != 0 {
            return Err(last_error().to_string());
        }
        Ok(listener)
    }
}

/// The name by which programs see that there are agents here, without a word to any of them; nothing is ever read by it. `None`:
/// another process has it already, which is as good.
pub(crate) fn beacon() -> Option<OwnedFd> {
    // SAFETY: zero is a valid address structure; the name fits, and lengths are as said.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let fd = (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))?;
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in address.sun_path[1..].iter_mut().zip(protocol::BEACON) {
            *place = *byte as libc::c_char;
        }
        let size = (3 + protocol::BEACON.len()) as u32;
        (libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) == 0).then_some(fd)
    }
}

/// The process that has the name.
fn holder(address: &libc::sockaddr_un, size: u32) -> String {
    // SAFETY: the address is as long as said; the credentials are written by the kernel.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        if fd < 0 {
            return "unknown".to_string();
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of_val(&who) as u32;
        let connected = libc::connect(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), size) == 0
            && libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut length) == 0;
        match (connected, who.uid) {
            (true, 0) => format!("process {}", who.pid),
            (true, user) => format!("process {} of user {user}, which is no agent: end it", who.pid),
            (false, _) => "it does not answer".to_string(),
        }
    }
}

/// The kernel's own end of the port: no other process gets it, peers get no "port unreachable", and what comes on a queue that
/// another user has arrives here.
fn bind_port(configuration: &Configuration, interface: &str) -> Result<Vec<UdpSocket>, String> {
    let mut sockets = Vec::new();
    let wildcards: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, configuration.port).into(), (Ipv6Addr::UNSPECIFIED, configuration.port).into()];
    for address in wildcards {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: integers; the descriptor is owned at once.
        let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 && !address.is_ipv4() {
            // A kernel without IPv6.
            continue;
        }
        // SAFETY: made above, ours.
        let socket = unsafe { UdpSocket::from_raw_fd(descriptor(fd)?) };
        let one = 1i32;
        let set = |level, option, value: *const libc::c_void, size: usize| {
            // SAFETY: a value of the length said.
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, size as u32) }
        };
        // Our own sockets that only send share it.
        set(libc::SOL_SOCKET, libc::SO_REUSEPORT, (&raw const one).cast(), 4);
        // Without it the port would be taken on all interfaces, which were not given to us.
        if set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_ptr().cast(), interface.len()) != 0 {
            return Err(format!("UDP port {}: no socket of {interface} alone: {}", configuration.port, last_error()));
        }
        // SAFETY: an address of the length said.
        let bound = unsafe {
            let address = shunt_xdp::address::encode(&address, 0);
            let bytes = address.bytes();
            if family == libc::AF_INET6 {
                set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, (&raw const one).cast(), 4);
            }
            libc::bind(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len() as u32)
        };
        if bound != 0 {
            let error = last_error();
            return Err(format!("UDP port {} on {interface}: {error}; choose another with --port", configuration.port));
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// A page that we write and others can only read.
fn page() -> io::Result<(OwnedFd, *const AgentPage)> {
    let of = |errno: shunt_sys::Errno| io::Error::from_raw_os_error(errno.0);
    let flags = system::MFD_CLOEXEC | system::MFD_ALLOW_SEALING;
    let fd = calls::memfd_create(b"shunt-agent-page\0", flags).map_err(of)?;
    // SAFETY: made above, ours.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    calls::ftruncate(fd, 4096).map_err(of)?;
    let address = mapping::shared(fd, 4096).map_err(of)?;
    // Linux 5.1: from now on it can be mapped for reading only.
    const F_SEAL_FUTURE_WRITE: i32 = 0x10;
    let seals = system::F_SEAL_SHRINK | system::F_SEAL_GROW | F_SEAL_FUTURE_WRITE | system::F_SEAL_SEAL;
    calls::fcntl(fd, system::F_ADD_SEALS, seals as usize).map_err(of)?;
    Ok((file, address.cast()))
}

/// SIGTERM, SIGINT and SIGHUP as a descriptor.
fn catch_signals() -> Result<OwnedFd, String> {
    // SAFETY: the set is initialised by sigemptyset.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        Ok(OwnedFd::from_raw_fd(descriptor(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?))
    }
}

/// News of interfaces (rtnetlink(7), RTMGRP_LINK).
fn watch_links() -> Result<OwnedFd, String> {
    // SAFETY: zero is a valid address structure, as long as said.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = OwnedFd::from_raw_fd(descriptor(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?);
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        (address.nl_family, address.nl_groups) = (libc::AF_NETLINK as u16, libc::RTMGRP_LINK as u32);
        if libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) != 0 {
            return Err(last_error().to_string());
        }
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port that cannot be held on one interface is not taken on all of them.
    #[test]
    fn port_is_one_interfaces() {
        let mut configuration = Configuration::new("shunt-none0");
        configuration.port = 0;
        let error = bind_port(&configuration, &configuration.interface).expect_err("there is no such interface");
        assert!(error.contains("shunt-none0"), "{error}");
        assert_eq!(bind_port(&configuration, "lo").expect("there is one").len(), 2);
    }
}
