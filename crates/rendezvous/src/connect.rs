//! connect: tries the rendezvous first; any doubt leads to kernel TCP, with a reason.

use crate::options::multipath;
use crate::{again, bidding, twins};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_link as link;
use shunt_link::ports;
use shunt_ring::claim;
use shunt_segment::address::Address;
use shunt_segment::channel::{life, release, state, ChannelPage};
use shunt_segment::name::{self, Hello};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::options::limits;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::owner::Owner;
use shunt_stream::waiting::watchers;
use shunt_stream::waiting::watchers::Change;
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, clock, processor, thread, Errno};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::process::{identity, status_page};
use shunt_table::table::Kind;
use shunt_table::{diag, fd_passing, global, private, route, sockaddr, table};

/// What connect came to.
pub enum Outcome {
    /// The socket is an accelerated stream now.
    Connected,
    /// The kernel shall connect; the reason is to be noted if that succeeds or is in progress.
    Kernel(Reason),
    /// The kernel has connected, or tried to, with this result; it carries the connection for this reason.
    Done(shunt_sys::Result<isize>, Reason),
}

/// How long an answer of the kernel about a port is believed: a burst of connections asks once.
const BELIEVE_NS: u64 = 20_000_000;
/// How long a port is known to be a SO_REUSEPORT group's. Looking for its members again and again, each time by a few questions, would find
/// but one of them now and then, to which all connections would go for as long as that is believed.
const GROUP_NS: u64 = 1_000_000_000;
const ANSWERS: usize = 16;

/// What is believed of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// One listener has it.
    Alone,
    /// Nobody answered at the owner's rendezvous: a plain server.
    Plain,
    /// The kernel is to be asked for each connection which member of a group gets it.
    Group,
}

impl Found {
    /// How long that is believed, in ticks.
    fn lasts(self) -> u64 {
        clock::ticks_for_ns(if self == Found::Group { GROUP_NS } else { BELIEVE_NS })
    }
}

#[derive(Clone, Copy)]
struct Answer {
    server: Address,
    source: Address,
    owner: diag::Owner,
    found: Found,
    /// In ticks; 0: unused.
    until: u64,
}

const NO_ANSWER: Answer = Answer {
    server: Address { ip: [0; 16], port: 0, scope: 0 },
    source: Address { ip: [0; 16], port: 0, scope: 0 },
    owner: diag::Owner { inode: 0, uid: 0 },
    found: Found::Alone,
    until: 0,
};

static ANSWERED: LockedCell<[Answer; ANSWERS]> = LockedCell::new([NO_ANSWER; ANSWERS]);

fn remembered(server: &Address, now: u64) -> Option<&'static mut Answer> {
    // SAFETY: the set-up lock is held.
    let answers = unsafe { &mut *ANSWERED.get() };
    // The counter begins anew when a machine wakes: no answer is from the future.
    answers.iter_mut().find(|a| a.until > now && a.until <= now + a.found.lasts() && a.server == *server)
}

fn remember(answer: Answer) {
    // SAFETY: the set-up lock is held.
    let answers = unsafe { &mut *ANSWERED.get() };
    // Whatever seems to be from the future is from before the counter began anew, and would never be the oldest.
    let slot = answers.iter_mut().min_by_key(|a| if a.until > answer.until { 0 } else { a.until }).expect("never empty");
    *slot = answer;
}

/// Who listens may have changed: this process listens at another port, or lives in another network namespace. Under the set-up
/// lock.
pub fn forget_answers() {
    // SAFETY: the set-up lock is held.
    let answers = unsafe { &mut *ANSWERED.get() };
    answers.iter_mut().for_each(|answer| answer.until = 0);
}

/// Counts the connects that this process has begun.
pub static BEGUN: AtomicU32 = AtomicU32::new(0);

/// The program connects a socket: to a listener of this process perhaps, which it may poll next.
#[inline]
pub fn begins() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

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
    if twins::lives(fd, socket, &server) {
        return Outcome::Done(Err(Errno(libc::EADDRNOTAVAIL)), Reason::Unknown);
    }
    let outcome = rendezvous(fd, socket, &server);
    bidding::arrived();
    drop(setup);
    match outcome {
        Ok(()) => Outcome::Connected,
        Err(Reason::NotLocal) if multipath::is(socket) => Outcome::Kernel(Reason::UnsupportedSocket), // its paths are the kernel's
        Err(Reason::NotLocal) => crate::other_hosts::connect(fd, socket, &server),
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

/// The socket that connects.
pub struct Setting {
    /// Its descriptor.
    pub fd: i32,
    /// The socket.
    pub socket: &'static Socket,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// Where the program bound it; unspecified: nowhere.
    bound: Address,
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
        if answer.found == Found::Plain {
            return Err(Reason::PeerPlain);
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
        Ok(None) => return Err(Reason::NotLocal),
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
        if members == Members::One && reconnect(&setting, &source, server, owner) {
            found(Found::Alone);
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
        && (again::connect(setting, source, server, owner.inode) || bidding::connect(setting, source, server, owner.inode))
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

/// Connections with a lent port for which the kernel was asked who listens. Under the set-up lock.
static WALKED: AtomicU32 = AtomicU32::new(0);

/// The address for which the kernel is asked who listens. A few ports are lent again and again, and the members of a SO_REUSEPORT group that these
/// lead to would get all connections: so a lent port stands for one after another, as the kernel's own choice walks through its range. One that the
/// program chose leads where it leads on the kernel.
fn asked_for(client: &Address, reserved: u16) -> Address {
    if reserved == 0 {
        return *client;
    }
    let walked = WALKED.load(Ordering::Relaxed);
    WALKED.store(walked.wrapping_add(1), Ordering::Relaxed);
    Address { port: walked_to(client.port, walked), ..*client }
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

/// The reason if an AF_UNIX socket could not be made because the process may make none: a filter of system calls, or a security module, as a rule
/// for the family alone. Other calls are not asked for that: they fail so in other cases, too.
pub fn forbidden(error: Errno) -> Option<Reason> {
    let is = matches!(error.0, libc::EAFNOSUPPORT | libc::EACCES | libc::EPERM | libc::ENOSYS);
    is.then_some(Reason::NoUnix)
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

/// False: the listener went to somebody who does not know the link, at this very moment; it is to be sent.
fn meet_once(setting: &Setting, client: &Address, server: &Address, owner: diag::Owner, reserved: u16) -> Result<bool, Reason> {
    let Setting { fd, socket, .. } = *setting;
    let began = clock::ticks();
    let short = |error: Errno| match error.0 {
        libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
        _ => Reason::NoMemory,
    };
    let unix = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    let mut companion = Pending(unix.map_err(|error| forbidden(error).unwrap_or_else(|| short(error)))?);
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
            // goes only to who has use for it.
            let both = [offer.link.fd, offer.link.bell_for_server];
            let withheld = both[1] >= 0 && header.several.load(Ordering::Acquire) != 0;
            let sent = &both[..1 + (both[1] >= 0 && !withheld) as usize];
            let byte = if withheld { fd_passing::WITHOUT_BELL } else { fd_passing::ALL };
            fd_passing::send_with(companion.0, &[byte], sent, MSG_DONTWAIT | MSG_NOSIGNAL).map_err(|_| Reason::Refused)?;
        } else if header.sole.load(Ordering::Acquire) == 1 {
            link::bell_known(offer.index);
        } else {
            // Who had the link counts those that waited before it said so, and hands them on ([`crate::parcel`]). Others do not
            // know it, unless one has accepted already.
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
    bidding::met(offer.index, channel, clock::ticks().wrapping_sub(began));
    // A bound TCP socket keeps its port from others for as long as the connection lives.
    if socket.has(flag::BOUND) {
        let kept = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).and_then(private::keep).unwrap_or(-1);
        socket.private_fd.store(kept, Ordering::Relaxed);
    }
    replace(fd, companion.0, socket, channel);
    crate::options::connected(socket, fd, true);
    let _ = &mut companion;
    Ok(true)
}

/// Names that are tried.
const NAMES: u32 = 4;

/// Binds the client's companion to its name. Everybody can see the names of a link's connections, and could have those that come next:
/// then another generation is drawn, which nobody guesses.
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

/// The client's side of a channel that is about to be offered.
pub fn introduce(page: &ChannelPage, socket: &Socket) {
    let side = &page.sides[0];
    side.pid.store(thread::process(), Ordering::Relaxed);
    side.owners.store(1, Ordering::Relaxed);
    side.address_family.store(crate::options::multipath::shape(socket), Ordering::Relaxed);
    side.transmit.class_limit.store(class_limit(), Ordering::Relaxed);
    side.wait.processor.store(processor::number() + 1, Ordering::Relaxed);
}

/// The socket becomes the client's end of `channel`.
pub fn settle(setting: &Setting, base: *mut u8, index: usize, channel: usize) {
    let socket = setting.socket;
    crate::options::carry_over(setting.fd, socket);
    if socket.has(flag::BOUND) {
        crate::options::note_six_only(setting.fd, socket);
    }
    socket.attach(base, channel, 0);
    socket.connected.link_index.store(index as u32, Ordering::Relaxed);
    if link::header(base).server.barrier.load(Ordering::Acquire) == 0 || !global::barriers() {
        socket.set(flag::FENCE);
    }
    if setting.nonblocking {
        socket.set(flag::NONBLOCK);
    }
    // With SO_SNDTIMEO of no time at all connect gives EINPROGRESS, too.
    if setting.nonblocking || socket.send_timeout.load(Ordering::Relaxed) == limits::AT_ONCE {
        socket.set(flag::CONNECTING);
        socket.own().receive.state.fetch_or(state::CONNECTING, Ordering::AcqRel);
    }
    if socket.listening.at_address.load(Ordering::Relaxed) != 0 {
        socket.own().receive.state.fetch_or(state::AT_ADDRESS, Ordering::Relaxed);
    }
    link::enter(index);
}

/// connect(2) on a stream: whether it is the first one after EINPROGRESS, which succeeds once for all owners (SS_CONNECTING).
pub fn first_success(socket: &Socket) -> bool {
    let state = &socket.own().receive.state;
    state.load(Ordering::Relaxed) & state::CONNECTING != 0
        && state.fetch_and(!state::CONNECTING, Ordering::AcqRel) & state::CONNECTING != 0
}

/// The companion takes the place of the TCP socket under all its descriptors.
pub fn replace(fd: i32, companion: i32, socket: &'static Socket, channel: usize) {
    watchers::changed(socket, Change::Replacing);
    let owner = socket.has(flag::OWNED).then(|| Owner::of(fd));
    crate::spare::put_by(fd, socket);
    let several = socket.references.load(Ordering::Relaxed) > 1;
    let known = !several && socket.has(flag::CLOSE_ON_EXEC_KNOWN);
    let range = if several { 0..table::high_water() } else { fd..fd + 1 };
    for number in range {
        if !table::get(number).object::<Socket>().is_some_and(|s| core::ptr::eq(s, socket)) {
            continue;
        }
        let close_on_exec = if known { socket.has(flag::CLOSE_ON_EXEC) } else { closes_on_exec(number) };
        let _ = calls::dup3(companion, number, if close_on_exec { libc::O_CLOEXEC } else { 0 });
        shunt_table::table::enter(number, Kind::Stream, socket);
        status_page::note(number, kind::STREAM, Reason::Accelerated, Some(channel));
    }
    if let Some(owner) = owner {
        owner.give(socket, fd);
    }
    watchers::changed(socket, Change::Replaced);
}

/// FD_CLOEXEC of `fd`.
pub fn closes_on_exec(fd: i32) -> bool {
    calls::fcntl(fd, libc::F_GETFD, 0).unwrap_or(0) & libc::FD_CLOEXEC != 0
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

/// Writes the addresses of a connection into its channel.
pub fn describe(page: &ChannelPage, client: &Address, server: &Address) {
    let head = &page.head;
    for (to, from) in [(&head.client, client), (&head.server, server)] {
        let words = from.words();
        to[0].store(words[0], Ordering::Relaxed);
        to[1].store(words[1], Ordering::Relaxed);
    }
    head.ports.store(client.port as u32 | (server.port as u32) << 16, Ordering::Relaxed);
    head.scope.store(server.scope, Ordering::Relaxed);
    head.began.store(clock::ticks(), Ordering::Relaxed);
    head.since.store((clock::monotonic_ns() / 1_000_000_000) as u32, Ordering::Relaxed);
}

/// The largest ring class that the options allow.
pub fn class_limit() -> u32 {
    let most = global::options().ring;
    let sizes = &shunt_segment::area::RING_SIZE;
    sizes.iter().rposition(|size| *size <= most).unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_believed_from_before_the_counter_began_anew() {
        let lasts = clock::ticks_for_ns(BELIEVE_NS);
        let at = |port| Address::v4([127, 0, 0, 1], port);
        let old = 1 << 50;
        for port in 1..=ANSWERS as u16 {
            remember(Answer { server: at(port), until: old + port as u64 + lasts, ..NO_ANSWER });
        }
        assert!(remembered(&at(3), old + 3).is_some());
        assert!(remembered(&at(3), old + 4 + lasts).is_none(), "too old");
        assert!(remembered(&at(3), 1000).is_none(), "from before");
        let group = Answer { server: at(200), found: Found::Group, until: 1000 + Found::Group.lasts(), ..NO_ANSWER };
        remember(group);
        assert!(remembered(&at(200), 1000 + 2 * lasts).is_some(), "a group stays one");
        for port in [101, 102] {
            remember(Answer { server: at(port), until: 1000 + lasts, ..NO_ANSWER });
        }
        assert!([101, 102].iter().all(|&port| remembered(&at(port), 1001).is_some()));
        forget_answers();
    }

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
