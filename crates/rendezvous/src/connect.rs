//! connect: tries the rendezvous first; any doubt leads to kernel TCP, with a reason.

use crate::answers::{remember, remembered, Answer, Found};
use crate::attach::{self, describe, introduce, replace, settle, Setting};
use crate::carriers::Outcome;
use crate::duplicate_names;
use crate::options::multipath;
use crate::reconnect::{client, shared_client};
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::ports;
use shunt_ring::claim;
use shunt_segment::address::Address;
use shunt_segment::channel::{life, release, state, ChannelPage};
use shunt_segment::name::{self, Hello};
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, clock, Errno};
use shunt_table::global::SETUP;
use shunt_table::process::identity;
use shunt_table::{diag, fd_passing, global, private, route, sockaddr};

/// Tries to connect `socket` (a TCP socket at `fd`) to `server` through shared memory.
pub fn connect(fd: i32, socket: &'static Socket, mut server: Address) -> Outcome {
    let options = global::options();
    if !options.accelerate {
        return Outcome::Kernel(Reason::SwitchedOff);
    }
    if shunt_table::private::are_scarce() {
        return Outcome::Kernel(Reason::NoDescriptors);
    }
    if identity::namespaces_differ() {
        return Outcome::Kernel(Reason::UnsupportedSocket);
    }
    shunt_table::process::filtered::look();
    shunt_table::process::kernel_only::carry();
    if shunt_table::process::kernel_only::keeps() {
        return Outcome::Kernel(shunt_table::process::kernel_only::reason());
    }
    if shunt_table::process::uring::before_connect() {
        return Outcome::Kernel(Reason::IoUring);
    }
    if server.port == 0 || !options.ports.contains(server.port) {
        return Outcome::Kernel(Reason::PortNotListed);
    }
    if socket.family.load(Ordering::Relaxed) == libc::AF_INET6 && server.as_v4().is_some() && is_v6only(fd) {
        return Outcome::Kernel(Reason::UnsupportedSocket); // the kernel says what is wrong with it
    }
    if server.is_unspecified() {
        // RFC 1122 lets 0.0.0.0 mean this host; Linux connects to the loopback address.
        server = if server.as_v4().is_some() {
            Address::v4([127, 0, 0, 1], server.port)
        } else {
            let mut ip = [0; 16];
            ip[15] = 1;
            Address::v6(ip, server.port)
        };
    }
    let Some(setup) = SETUP.lock() else { return Outcome::Kernel(Reason::Unknown) };
    if duplicate_names::lives(fd, socket, &server) {
        return Outcome::Done(Err(Errno(libc::EADDRNOTAVAIL)), Reason::Unknown);
    }
    let outcome = rendezvous(fd, socket, &server);
    shared_client::arrived();
    drop(setup);
    match outcome {
        Ok(()) => Outcome::Connected,
        Err(Reason::NotLocal) if multipath::is(socket) => Outcome::Kernel(Reason::UnsupportedSocket), // its paths are the kernel's
        Err(Reason::NotLocal) => crate::carriers::connect(fd, socket, &server),
        Err(reason) => Outcome::Kernel(reason),
    }
}

/// IPV6_V6ONLY.
pub fn is_v6only(fd: i32) -> bool {
    let mut value = 0i32;
    let mut length = core::mem::size_of::<i32>() as libc::socklen_t;
    let target = (&mut value as *mut i32).cast();
    calls::getsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, target, &mut length).is_ok() && value != 0
}

/// Whether the port that was lent for a connection is in use now; the connection may have one of its own.
type PortUsed = bool;

fn rendezvous(fd: i32, socket: &'static Socket, server: &Address) -> Result<(), Reason> {
    let bound = match (socket.has(flag::BOUND), socket.listening.at_address.load(Ordering::Relaxed)) {
        (false, 0) => Address::default(),
        (true, _) => shunt_table::sockaddr::bound_address(fd),
        (false, _) => Address { port: 0, ..shunt_table::sockaddr::bound_address(fd) },
    };
    let setting = Setting { fd, socket, nonblocking: socket.has(flag::NONBLOCK), bound };
    let now = clock::ticks();
    let known = remembered(server, now);
    let is_group = known.as_ref().is_some_and(|answer| answer.found == Found::Group);
    if let Some(answer) = known.filter(|_| !is_group) {
        match answer.found {
            Found::Plain => return Err(Reason::PeerPlain),
            Found::Elsewhere => return Err(Reason::NotLocal),
            Found::Alone | Found::Group => {}
        }
        let (source, owner) = (answer.source, answer.owner);
        if reconnect(&setting, &source, server, owner) {
            return Ok(());
        }
        let met = with_port(&setting, &source, server, |client, reserved| meet(&setting, client, server, owner, reserved));
        if met != Err(Reason::PeerPlain) {
            return met;
        }
        answer.until = 0; // the listener that we believed in has gone: ask
    }
    let source = match route::local_source(server) {
        Ok(Some(source)) => source,
        Ok(None) => {
            let (found, until) = (Found::Elsewhere, now + Found::Elsewhere.lasts());
            let (source, owner) = (Address::default(), diag::Owner { inode: 0, uid: 0 });
            remember(Answer { server: *server, source, owner, found, until });
            return Err(Reason::NotLocal);
        }
        Err(_) => return Err(Reason::NoDiagnosis),
    };
    with_port(&setting, &source, server, |client, reserved| {
        let ask = |client: &Address| diag::listener(client, server).map_err(|_| Reason::NoDiagnosis);
        let owner = match ask(&asked_for(client, reserved))? {
            Some(owner) => owner,
            // A connection of the kernel's has that pair of addresses.
            None => ask(client)?.ok_or(Reason::NoListener)?,
        };
        let found = |found: Found| remember(Answer { server: *server, source, owner, found, until: now + found.lasts() });
        let members = if is_group { Members::Several } else { members(client, owner, ask) };
        // A group's member was chosen by now, by whichever port the kernel was asked about.
        if members != Members::Unknown && reconnect(&setting, &source, server, owner) {
            match members {
                Members::One => found(Found::Alone),
                _ if !is_group => found(Found::Group),
                _ => {}
            }
            return Ok(false);
        }
        let result = meet(&setting, client, server, owner, reserved);
        match (members, result) {
            (Members::One, Err(Reason::PeerPlain)) => found(Found::Plain),
            (Members::One, Ok(_) | Err(Reason::UserChanged)) => found(Found::Alone),
            (Members::Several, _) if !is_group => found(Found::Group),
            _ => {}
        }
        result
    })
}

/// Connects with what an earlier connection left, unless the program chose its address.
fn reconnect(setting: &Setting, source: &Address, server: &Address, owner: diag::Owner) -> bool {
    !setting.socket.has(flag::BOUND)
        && setting.bound.is_unspecified()
        && (client::connect(setting, source, server, owner.inode) || shared_client::connect(setting, source, server, owner.inode))
}

/// Makes an attempt with a local address whose port is the program's choice or lent.
fn with_port(
    setting: &Setting,
    source: &Address,
    server: &Address,
    attempt: impl FnOnce(&Address, u16) -> Result<PortUsed, Reason>,
) -> Result<(), Reason> {
    let bound = &setting.bound;
    let reserved = if bound.port != 0 { 0 } else { ports::take(server.port).map_err(|_| Reason::NoPort)? };
    let port = if bound.port != 0 { bound.port } else { reserved };
    let result = client_address(source, bound, server, port).and_then(|client| attempt(&client, reserved));
    if reserved != 0 && result != Ok(true) {
        ports::give_back(reserved);
    }
    result.map(|_| ())
}

/// The address for which the kernel is asked who listens. A few ports are lent again and again, and the members of a SO_REUSEPORT group that these
/// lead to would get all connections: so a lent port stands for one after another, as the kernel's own choice walks through its range. One that the
/// program chose leads where it leads on the kernel.
fn asked_for(client: &Address, reserved: u16) -> Address {
    if reserved == 0 {
        return *client;
    }
    Address { port: walked_to(client.port, crate::answers::step()), ..*client }
}

/// The port that `port` stands for after so many steps: itself first, and all others before it comes again.
fn walked_to(port: u16, steps: u32) -> u16 {
    const PORTS: u64 = u16::MAX as u64;
    // A number without a common divisor with that of the ports, 3 * 5 * 17 * 257, and far from simple parts of it.
    const STEP: u64 = 24_989;
    ((u64::from(port.max(1)) - 1 + u64::from(steps) * STEP) % PORTS) as u16 + 1
}

/// Listeners that a port's connections may go to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    One,
    /// Those of a SO_REUSEPORT group, among which the kernel chooses by both addresses.
    Several,
    Unknown,
}

/// How many listeners the port has: asked about other ports of ours, the kernel names the same one, or another.
fn members(client: &Address, owner: diag::Owner, ask: impl Fn(&Address) -> Result<Option<diag::Owner>, Reason>) -> Members {
    let mut found = Members::One;
    for k in 1..=6u16 {
        match ask(&Address { port: client.port ^ (k * 0x1357), ..*client }) {
            Ok(Some(other)) if other == owner => {}
            Ok(Some(_)) => return Members::Several,
            _ => found = Members::Unknown,
        }
    }
    found
}

fn client_address(source: &Address, bound: &Address, server: &Address, port: u16) -> Result<Address, Reason> {
    let from = if bound.is_unspecified() { source } else { bound };
    if from.as_v4().is_some() != server.as_v4().is_some() {
        return Err(Reason::UnsupportedSocket); // the kernel says what is wrong with it
    }
    Ok(Address { port, scope: server.scope, ..*from })
}

/// Closes a descriptor that did not become the companion.
struct Pending(i32);
impl Drop for Pending {
    fn drop(&mut self) {
        if self.0 >= 0 {
            let _ = calls::close(self.0);
        }
    }
}

/// Connects through the kernel, at the rendezvous of the listener that would get the TCP connection.
fn meet(setting: &Setting, client: &Address, server: &Address, owner: diag::Owner, reserved: u16) -> Result<PortUsed, Reason> {
    if link::left_to_kernel(owner.inode) {
        return Err(Reason::UserChanged);
    }
    loop {
        if meet_once(setting, client, server, owner, reserved)? {
            return Ok(true);
        }
    }
}

/// False: the listener went to a process that does not know the link, at this very moment; it is to be sent.
fn meet_once(setting: &Setting, client: &Address, server: &Address, owner: diag::Owner, reserved: u16) -> Result<bool, Reason> {
    let Setting { fd, socket, .. } = *setting;
    let began = clock::ticks();
    let short = |error: Errno| match error.0 {
        libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
        _ => Reason::NoMemory,
    };
    let unix = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    let mut companion = Pending(unix.map_err(|error| attach::forbidden(error).unwrap_or_else(|| short(error)))?);
    let offer = link::offer(owner.inode).map_err(short)?;
    let (base, channel) = (offer.link.base, offer.channel);
    let page = link::page(base, channel);
    let header = link::header(base);
    let must_send = header.sole.load(Ordering::Acquire) == 0;
    let mut hello = Hello {
        version: shunt_segment::VERSION,
        nonce: offer.link.nonce,
        sequence: offer.link.sequence,
        channel: channel as u16,
        link_follows: must_send as u16,
        generation: page.head.generation.load(Ordering::Relaxed),
        client: *client,
        server: *server,
    };
    describe(page, client, server);
    introduce(page, socket);
    let named = name_companion(companion.0, page, &mut hello);
    page.head.state.store(life::OFFERED, Ordering::Release);

    let mut listener = 0;
    let attempt = (|| -> Result<bool, Reason> {
        named.map_err(|_| Reason::Refused)?;
        let (to, to_length) = sockaddr::abstract_name(name::listener(owner.inode as u64).as_slice());
        match calls::connect(companion.0, (&to as *const libc::sockaddr_un).cast(), to_length) {
            Ok(()) => {}
            Err(Errno(libc::ECONNREFUSED)) => return Err(Reason::PeerPlain),
            Err(Errno(libc::EAGAIN)) => return Err(Reason::BacklogFull),
            Err(_) => return Err(Reason::Refused),
        }
        listener = verify(companion.0, owner)?;
        if must_send {
            // While a socket is under way in a message the kernel looks for cycles of such whenever any AF_UNIX socket is closed: the bell
            // goes only to a server that has use for it.
            let both = [offer.link.fd, offer.link.bell_for_server];
            let withheld = both[1] >= 0 && header.several.load(Ordering::Acquire) != 0;
            let sent = &both[..1 + (both[1] >= 0 && !withheld) as usize];
            let byte = if withheld { fd_passing::WITHOUT_BELL } else { fd_passing::ALL };
            fd_passing::send_with(companion.0, &[byte], sent, MSG_DONTWAIT | MSG_NOSIGNAL).map_err(|_| Reason::Refused)?;
        } else if header.sole.load(Ordering::Acquire) == 1 {
            link::bell_known(offer.index);
        } else {
            // A process that had the link counts those that waited before it said so, and hands them on ([`crate::listen::forward`]).
            // Others do not know it, unless one has accepted already.
            return Ok(!claim::take_back(&page.head));
        }
        Ok(true)
    })();
    if attempt != Ok(true) {
        page.head.state.store(life::FREE, Ordering::Release);
        for side in &page.sides {
            side.released.store(release::CLOSED, Ordering::Release);
        }
        link::enter(offer.index);
        link::leave(offer.index, channel, true, false);
        return attempt;
    }
    if !setting.nonblocking {
        let _ = calls::fcntl(companion.0, libc::F_SETFL, libc::O_RDWR as usize);
    }
    settle(setting, base, offer.index, channel);
    if page.head.state.load(Ordering::Relaxed) != life::ACCEPTED {
        socket.set(flag::UNACCEPTED);
    }
    link::note(offer.index, channel, reserved, listener);
    shared_client::met(offer.index, channel, clock::ticks().wrapping_sub(began));
    // A bound TCP socket keeps its port from others for as long as the connection lives.
    if socket.has(flag::BOUND) {
        let kept = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).and_then(private::keep).unwrap_or(-1);
        socket.private_fd.store(kept, Ordering::Relaxed);
    }
    replace(fd, companion.0, socket, channel, Reason::Accelerated);
    crate::options::connected(socket, fd, true);
    let _ = &mut companion;
    Ok(true)
}

/// Names that are tried.
const NAMES: u32 = 4;

/// Binds the client's companion to its name. Every process can see the names of a link's connections, and could have those that come
/// next: then another generation is drawn, which none guesses.
///
/// Errors: those of bind(2).
fn name_companion(companion: i32, page: &ChannelPage, hello: &mut Hello) -> shunt_sys::Result<()> {
    let mut tries = 0..NAMES;
    loop {
        let (own, length) = sockaddr::abstract_name(hello.encode().as_slice());
        match calls::bind(companion, (&own as *const libc::sockaddr_un).cast(), length) {
            Err(Errno(libc::EADDRINUSE)) if tries.next().is_some() => {
                let drawn = (&raw mut hello.generation).cast();
                let _ = calls::getrandom(drawn, 4, libc::GRND_NONBLOCK);
                claim::rename(&page.head, hello.generation);
            }
            bound => return bound,
        }
    }
}

/// connect(2) on a stream: whether it is the first one after EINPROGRESS, which succeeds once for all owners (SS_CONNECTING).
pub fn first_success(socket: &Socket) -> bool {
    let state = &socket.own().receive.state;
    state.load(Ordering::Relaxed) & state::CONNECTING != 0
        && state.fetch_and(!state::CONNECTING, Ordering::AcqRel) & state::CONNECTING != 0
}

/// The user who answers must be the user who owns the port. Gives the process that listened, 0: not visible here.
fn verify(companion: i32, owner: diag::Owner) -> Result<u32, Reason> {
    let peer = fd_passing::creator(companion).map_err(|_| Reason::Refused)?;
    if peer.uid != owner.uid {
        return Err(Reason::PeerNotOwner);
    }
    // Also where the client is that number itself: equality proves nothing of two others.
    if identity::may_be_anybody(peer.uid) {
        return Err(Reason::PeerNotMember);
    }
    Ok(peer.pid as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_several_listeners_is_a_group_s() {
        let (client, one) = (Address::v4([127, 0, 0, 1], 5000), diag::Owner { inode: 1, uid: 0 });
        let another = diag::Owner { inode: 2, uid: 0 };
        assert!(members(&client, one, |_| Ok(Some(one))) == Members::One);
        assert!(members(&client, one, |_| Ok(None)) == Members::Unknown);
        assert!(members(&client, one, |_| Err(Reason::NoDiagnosis)) == Members::Unknown);
        let last = Address { port: client.port ^ (6 * 0x1357), ..client };
        assert!(members(&client, one, |asked| Ok(Some(if *asked == last { another } else { one }))) == Members::Several);
    }

    #[test]
    fn a_lent_port_stands_for_each_port_once() {
        let mut seen = vec![false; 1 << 16];
        for steps in 0..u32::from(u16::MAX) {
            let port = walked_to(40_000, steps);
            assert!(port != 0 && !core::mem::replace(&mut seen[usize::from(port)], true), "{port}");
        }
        assert_eq!(walked_to(40_000, 0), 40_000);
        assert_eq!(walked_to(40_000, u32::from(u16::MAX)), 40_000);
    }

    #[test]
    fn a_name_that_somebody_else_has_is_not_waited_for() {
        // SAFETY: all-zero is a fresh page.
        let page: Box<ChannelPage> = unsafe { Box::new(core::mem::zeroed()) };
        let bound = |hello: &mut Hello| {
            let fd = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0).unwrap();
            name_companion(fd, &page, hello).map(|()| Pending(fd))
        };
        let address = Address::v4([127, 0, 0, 1], 7);
        let hello = Hello {
            version: shunt_segment::VERSION,
            nonce: u64::from(calls::getpid()),
            sequence: 1,
            channel: 2,
            link_follows: 0,
            generation: 3,
            client: address,
            server: address,
        };
        let (mut first, mut next) = (hello, hello);
        let (squatter, companion) = (bound(&mut first), bound(&mut next));
        assert!(squatter.is_ok() && companion.is_ok());
        assert_eq!(first, hello);
        assert_ne!(next.generation, hello.generation);
        assert_eq!(page.head.generation.load(Ordering::Relaxed), next.generation);
        assert_eq!(page.head.pair.load(Ordering::Relaxed), next.generation);
    }
}
