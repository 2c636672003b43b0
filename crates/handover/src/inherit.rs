//! Accelerated descriptors that another program goes on with: by exec, by spawn, by a message.
//!
//! The kernel keeps descriptors across execve(2) and passes them on by itself; what we know about them goes with the memory.
//! Only two things are needed besides: the links' memfds and the listeners' rendezvous, which are private descriptors and
//! closed on exec. [`hand`] names those that the next program needs, and they are let through to it. That program finds its
//! streams by asking the kernel: a companion's name, or its peer's, tells link and channel, whatever number the descriptor
//! has by then. With a message the sender's side of it ([`crate::rights`]) sends the two along.

mod counted;
mod ends;
mod handing;
mod message;
mod popen_order;
mod taken;
mod text;

pub use counted::Counted;
pub use ends::{any as any_ends, come_back, leave};
pub use handing::{failed, hand, kept_over_exec, let_through, prepare, Handed, Way};
pub use message::{Appended, Received};
pub use popen_order::{forked, in_turn};
use shunt_table::process::identity;
pub use taken::take as take_out_of;
pub use text::{Text, VARIABLE};

use core::sync::atomic::Ordering;
use shunt_inbox::datagram::adopt;
use shunt_link as link;
use shunt_rendezvous::accept::of_this_host;
use shunt_rendezvous::listen;
use shunt_segment::address::Address;
use shunt_segment::channel::life;
use shunt_segment::name::{self, Hello};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, sockaddr_un, socklen_t, FD_CLOEXEC, F_SETFD};
use shunt_sys::{calls, Result};
use shunt_table::global::SETUP;
use shunt_table::process::status_page;
use shunt_table::table::Kind;
use shunt_table::{fd_passing, global, procfs, table};
use text::Item;

/// In the next image: takes up what the variable's value names. Whatever is not what it should be is left alone.
pub fn take_up(list: &[u8]) {
    for item in text::items(list) {
        match item {
            Item::Link(fd) if table::get(fd).kind() == Kind::Foreign => {
                if let Some(_setup) = SETUP.lock() {
                    let ours = matches!(link::take_up(fd), Ok((_, true)));
                    if !ours && link::is_segment(fd) {
                        let _ = calls::close(fd); // both ends of a connection were ours: one mapping serves both
                    }
                }
            }
            Item::Rendezvous(fd) if table::get(fd).kind() == Kind::Foreign => take_up_listener(fd),
            Item::Inbox(fd) if table::get(fd).kind() == Kind::Foreign && adopt::owner(fd).is_some() => {
                adopt::take_up(fd, (0..=highest()).filter(|fd| table::get(*fd).kind() == Kind::Foreign));
            }
            _ => {}
        }
    }
    for fd in 0..=highest() {
        if table::get(fd).kind() == Kind::Foreign {
            let _ = take_up_stream(fd, Came::Inherited);
        }
    }
    for item in text::items(list) {
        if let Item::Ends(ended) = item {
            ends::say(&ended);
        }
    }
    if let Some(_setup) = SETUP.lock() {
        link::drop_unused();
    }
}

/// The highest number under which the program may have a descriptor.
fn highest() -> i32 {
    let mut highest = 0;
    let listed = procfs::numbers(&procfs::Path::new(format_args!("/proc/self/fd\0")), |fd| {
        highest = highest.max(fd);
        false
    });
    let most = calls::soft_limit(libc::RLIMIT_NOFILE).min(table::LIMIT as u64) as u32;
    // Without proc(5) the first thousands, which is what there is in nearly all programs.
    highest.max(if listed.is_ok() { 0 } else { 4096 }).min(most) as i32
}

fn unix_name(fd: i32, peer: bool, room: &mut sockaddr_un) -> Result<&[u8]> {
    let mut length = core::mem::size_of::<sockaddr_un>() as socklen_t;
    let target = (room as *mut sockaddr_un).cast();
    if peer {
        calls::getpeername(fd, target, &mut length)?;
    } else {
        calls::getsockname(fd, target, &mut length)?;
    }
    if room.sun_family as i32 != libc::AF_UNIX || length < 4 {
        return Ok(&[]);
    }
    // SAFETY: sun_path is plain bytes.
    let path = unsafe { core::slice::from_raw_parts(room.sun_path.as_ptr().cast::<u8>(), 108) };
    Ok(&path[1..(length as usize - 2).min(108)])
}

fn take_up_listener(rendezvous: i32) {
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let Ok(found) = unix_name(rendezvous, false, &mut room) else { return };
    let mut owner: Option<&'static Socket> = None;
    for fd in 0..=highest() {
        if table::get(fd).kind() != Kind::Foreign {
            continue;
        }
        let Ok(status) = calls::status_of(fd) else { continue };
        if name::listener(status.st_ino).as_slice() != found || status.st_mode & libc::S_IFMT != libc::S_IFSOCK {
            continue;
        }
        let family = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(libc::AF_INET);
        let listener = match owner {
            Some(listener) => {
                listener.references.fetch_add(1, Ordering::Relaxed);
                listener
            }
            None => {
                // Without memory it is the kernel's, as clients find when they connect next.
                let held = SETUP.lock().is_some_and(|_setup| link::holds_range() || link::holds_range());
                let Some(listener) = held.then(|| allocate(family)).flatten() else { break };
                if !listen::promise::come(fd, listener, rendezvous) {
                    listener.listening.inode.store(status.st_ino, Ordering::Relaxed);
                    listener.private_fd.store(rendezvous, Ordering::Relaxed);
                    let bells = shunt_rendezvous::reconnect::server::bells().unwrap_or(-1);
                    listener.listening.bells_fd.store(bells, Ordering::Relaxed);
                    listener.set(flag::LISTENER_SHARED);
                    listener.set_listener();
                }
                listen::note_address(listener, &shunt_table::sockaddr::bound_address(fd));
                listen::options::take_up(fd, listener);
                table::set_private(rendezvous);
                let _ = calls::fcntl(rendezvous, F_SETFD, FD_CLOEXEC as usize);
                shunt_link::fd_reserve::begin();
                owner = Some(listener);
                listener
            }
        };
        shunt_table::table::enter(fd, listener.kind(), listener);
        match listener.kind() {
            Kind::Listener => status_page::note(fd, kind::LISTENER, Reason::Listening, None),
            _ => status_page::note(fd, kind::TCP, Reason::Unconnected, None),
        }
    }
    if owner.is_none() && found.starts_with(b"shunt1-listen-") {
        let _ = calls::close(rendezvous);
    }
}

/// An object for what came. Asked for twice: no call would tell the program that the kernel had no memory for a moment.
fn allocate(family: i32) -> Option<&'static Socket> {
    socket::allocate(family).or_else(|| socket::allocate(family))
}

/// How a stream's descriptor came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// Over an exec: the process was counted as an owner, however many descriptors it has.
    Inherited,
    /// In a message, which was counted as an owner.
    Received,
    /// The same, and the message stays where it is (MSG_PEEK).
    Peeked,
}

/// What the name of a companion, or that of its other end, says: the connection, and which side of it `fd` is.
fn named(fd: i32, room: &mut sockaddr_un) -> Option<(Hello, usize)> {
    let of = |peer: bool, room: &mut sockaddr_un| unix_name(fd, peer, room).ok().and_then(Hello::of_side);
    match of(false, room) {
        Some(own) => Some(own),
        None => of(true, room).map(|(hello, others)| (hello, 1 - others)),
    }
}

fn take_up_stream(fd: i32, came: Came) -> Option<()> {
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let (hello, side) = named(fd, &mut room)?;
    // From here on the link stays, whatever other threads close.
    let (index, base) = {
        let _setup = SETUP.lock()?;
        let (index, link) = link::by_name(hello.nonce, hello.sequence)?;
        if link::page(link.base, hello.channel as usize).head.pair.load(Ordering::Acquire) != hello.generation {
            return None;
        }
        link::enter(index);
        (index, link.base)
    };
    let own = &link::page(base, hello.channel as usize).sides[side];
    let same = |socket: &&Socket| socket.link() == base && socket.channel() == hello.channel as usize && socket.side() == side;
    let known = SETUP.lock().and_then(|_setup| {
        let mut others = table::numbers().filter(|other| *other != fd);
        others.find_map(|other| shunt_stream::socket::stream(other).filter(same).filter(|socket| socket.retain()))
    });
    if let Some(socket) = known {
        // Descriptors that share a socket count once.
        if came == Came::Received {
            own.owners.fetch_sub(1, Ordering::AcqRel);
        }
        shunt_table::table::enter(fd, Kind::Stream, socket);
        if let Some(_setup) = SETUP.lock() {
            link::let_go(index);
        }
    } else {
        let Some(socket) = fresh(fd, index, base, hello.channel as usize, side) else {
            if let Some(_setup) = SETUP.lock() {
                link::let_go(index);
            }
            return None;
        };
        if came == Came::Peeked {
            own.owners.fetch_add(1, Ordering::AcqRel);
        }
        shunt_table::table::enter(fd, Kind::Stream, socket);
    }
    own.join(shunt_sys::thread::process());
    status_page::note(fd, kind::STREAM, Reason::Accelerated, Some(hello.channel as usize));
    Some(())
}

/// The object for a stream that this process had no descriptor of. The caller has entered the link.
fn fresh(fd: i32, index: usize, base: *mut u8, channel: usize, side: usize) -> Option<&'static Socket> {
    let shape = link::page(base, channel).sides[side].address_family.load(Ordering::Relaxed);
    let (family, protocol) = shunt_rendezvous::options::multipath::of_shape(shape);
    let socket = allocate(family)?;
    socket.protocol.store(protocol, Ordering::Relaxed);
    socket.attach(base, channel, side);
    socket.connected.link_index.store(index as u32, Ordering::Relaxed);
    socket.set(flag::SHARED);
    if side == 0 && link::page(base, channel).head.state.load(Ordering::Relaxed) != life::ACCEPTED {
        socket.set(flag::UNACCEPTED);
    }
    if calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0 {
        socket.set(flag::NONBLOCK);
    }
    let header = link::header(base);
    let peer = if side == 0 { &header.server } else { &header.client };
    if peer.barrier.load(Ordering::Acquire) == 0 || !global::barriers() {
        socket.set(flag::FENCE);
    }
    judge_names(fd, socket);
    shunt_rendezvous::options::catch_up(socket);
    shunt_stream::views::taken_up(socket, fd);
    Some(socket)
}

/// Programs decide by an address whom to trust. What the channel says may have been changed by the process at the other end, since
/// a process of ours accepted it: unless that is of our user, or root's, addresses that are not of this host are none.
fn judge_names(fd: i32, socket: &Socket) {
    if fd_passing::creator(fd).is_ok_and(|creator| identity::is_same_user(creator.uid, calls::geteuid()) || creator.uid == 0) {
        return;
    }
    let (client, server) = socket.addresses();
    let believed = SETUP.lock().is_some_and(|_setup| of_this_host(&client) && of_this_host(&server));
    if !believed {
        let nobody = Address::v4([0; 4], 0);
        socket.set_addresses(&nobody, &nobody);
    }
}
