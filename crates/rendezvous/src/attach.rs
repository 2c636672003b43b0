//! A socket becomes one end of a channel, and a companion takes its number: however the two programs met.

use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::channel::{state, ChannelPage};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::options::limits;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::owner::Owner;
use shunt_stream::waiting::watchers;
use shunt_stream::waiting::watchers::Change;
use shunt_sys::{calls, clock, libc, processor, thread, Errno};
use shunt_table::process::status_page;
use shunt_table::table::Kind;
use shunt_table::{global, table};

/// The socket that connects.
pub struct Setting {
    /// Its descriptor.
    pub fd: i32,
    /// The socket.
    pub socket: &'static Socket,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// Where the program bound it; unspecified: nowhere.
    pub bound: Address,
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
    shunt_stream::tap::connected(socket);
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

/// The companion takes the place of the TCP socket under all its descriptors. `reason`: what carries the stream.
pub fn replace(fd: i32, companion: i32, socket: &'static Socket, channel: usize, reason: Reason) {
    watchers::changed(socket, Change::Replacing);
    let owner = socket.has(flag::OWNED).then(|| Owner::of(fd));
    crate::socket_cache::put_by(fd, socket);
    let several = socket.references.load(Ordering::Relaxed) > 1;
    let known = !several && socket.has(flag::CLOSE_ON_EXEC_KNOWN);
    let range = if several { 0..table::high_water() } else { fd..fd + 1 };
    for number in range.filter(|number| table::get(*number).kept_pipe().is_none()) {
        if !table::get(number).object::<Socket>().is_some_and(|s| core::ptr::eq(s, socket)) {
            continue;
        }
        let close_on_exec = if known { socket.has(flag::CLOSE_ON_EXEC) } else { closes_on_exec(number) };
        let _ = calls::dup3(companion, number, if close_on_exec { libc::O_CLOEXEC } else { 0 });
        shunt_table::table::enter(number, Kind::Stream, socket);
        status_page::note(number, kind::STREAM, reason, Some(channel));
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

/// The reason if an AF_UNIX socket could not be made because the process may make none: a filter of system calls, or a security module, as a rule
/// for the family alone. Other calls are not asked for that: they fail so in other cases, too.
pub fn forbidden(error: Errno) -> Option<Reason> {
    let is = matches!(error.0, libc::EAFNOSUPPORT | libc::EACCES | libc::EPERM | libc::ENOSYS);
    is.then_some(Reason::NoUnix)
}
