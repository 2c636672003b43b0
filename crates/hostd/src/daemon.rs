//! The daemon: its name in the directory, and its loop.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use shunt_segment::meeting::{Answer, Counts, Refusal, Request, NAME, REQUEST};
use shunt_sys::{calls, clock, Errno};

use crate::reading::{self, Networks, Reader};
use crate::requests::Requests;
use crate::table::{Came, Limits, Side, Table};
use crate::turn::{self, Holders};
use crate::{confinement, packets};

/// Connections that are taken in one turn.
const ACCEPTED: usize = 64;
/// Connections that may wait for that: what the kernel lets wait as a rule (net.core.somaxconn).
const BACKLOG: i32 = 4096;
/// The listener among what epoll tells of; requests have numbers below.
const LISTENER: u64 = u64::MAX;
/// How often another one at the name is put away.
const SQUATTERS: usize = 64;
/// Descriptors besides those of requests.
const BESIDES: u64 = 64;

/// A daemon that has begun.
pub struct Daemon {
    path: PathBuf,
    listener: OwnedFd,
    epoll: OwnedFd,
    requests: Requests,
    table: Table,
    reader: Reader,
    counts: Counts,
    holders: Holders,
}

/// What a turn does with a request.
enum Done {
    Waits,
    Over(Option<Refusal>),
    Met(u32),
}

impl Daemon {
    /// Binds the name, takes a network of its own, and gives up all that it does not need. The process is not what it was: it is to run this, and to end.
    ///
    /// Errors: sentences. The limits are as large as the limit of descriptors lets them be.
    pub fn start(directory: &Path, mut limits: Limits, networks: Networks) -> Result<Daemon, String> {
        // SAFETY: takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            return Err("it reads the sequence numbers of sockets of all containers: start it as root of the host".into());
        }
        let path = directory.join(OsStr::from_bytes(NAME));
        let room = descriptors(limits.all as u64 + BESIDES).saturating_sub(BESIDES) as usize;
        limits.all = limits.all.min(room.max(1));
        let listener = listen(&path)?;
        let reader = Reader::new(networks).map_err(|error| format!("/proc/self/ns/user: {error}"))?;
        confinement::leave_network()
            .map_err(|error| format!("a network namespace of its own cannot be made (CAP_SYS_ADMIN): {error}"))?;
        let of = |error: Errno| format!("epoll: {}", io::Error::from_raw_os_error(error.0));
        // SAFETY: the descriptor is new.
        let epoll = unsafe { OwnedFd::from_raw_fd(calls::epoll_create1(libc::EPOLL_CLOEXEC).map_err(of)?) };
        let counts = Counts { in_one: reader.is_in_one().into(), ..Counts::default() };
        let (requests, table) = (Requests::new(limits), Table::new(limits));
        let daemon = Daemon { path, listener, epoll, requests, table, reader, counts, holders: Holders::default() };
        daemon.watch(daemon.listener.as_fd(), LISTENER).map_err(of)?;
        // Signals come while it waits; but for the one that ends a turn.
        // SAFETY: plain calls on a set of this frame.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigdelset(&mut all, libc::SIGALRM);
            libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        }
        turn::is_handled();
        confinement::become_nobody().map_err(|error| format!("privileges cannot be given up: {error}"))?;
        Ok(daemon)
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a kill at any moment leaves sockets as they were.
    pub fn is_in_one(&self) -> bool {
        self.reader.is_in_one()
    }

    /// Runs until a signal.
    ///
    /// Errors: the filter of system calls is refused.
    pub fn run(mut self) -> Result<std::convert::Infallible, String> {
        confinement::filter().map_err(|error| format!("a filter of system calls cannot be set: {error}"))?;
        // SAFETY: all-zero is a valid event, and a set of no signals.
        let (mut events, none) = unsafe { (std::mem::zeroed::<[libc::epoll_event; 64]>(), std::mem::zeroed::<libc::sigset_t>()) };
        loop {
            let now = clock::monotonic_ns();
            let time = self.requests.next(now).map_or(-1, |left| (left / 1_000_000 + 1) as i32);
            let (room, fd) = (events.len() as i32, self.epoll.as_raw_fd());
            let told =
                calls::epoll_pwait(fd, events.as_mut_ptr(), room, time, &raw const none, calls::KERNEL_SIGSET).unwrap_or(0);
            turn::begins();
            for event in &events[..told] {
                match event.u64 {
                    LISTENER => self.accept(),
                    number => self.measured(number as u32, |daemon| daemon.hear(number as u32)),
                }
            }
            self.end_old();
            turn::ends();
        }
    }

    fn watch(&self, fd: BorrowedFd, token: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLRDHUP) as u32, u64: token };
        calls::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
    }

    fn accept(&mut self) {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let none = std::ptr::null_mut();
        for _ in 0..ACCEPTED {
            let Ok(fd) = calls::accept4(self.listener.as_raw_fd(), none, std::ptr::null_mut(), flags) else { return };
            // SAFETY: the descriptor is new.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let Some(user) = user_of(&fd) else { continue };
            let (network, now) = (reading::network(fd.as_raw_fd()), clock::monotonic_ns());
            if self.holders.has(user, network, now) {
                self.counts.quota += 1;
                continue;
            }
            let Some(number) = self.requests.add(fd, user, network, now) else {
                self.counts.quota += 1;
                continue;
            };
            let Some(request) = self.requests.get(number) else { continue };
            let is_watched = self.watch(request.fd.as_fd(), number.into()).is_ok();
            if !is_watched || !packets::send(request.fd.as_fd(), &Answer::Hello.encode(), None) {
                self.requests.take(number);
            }
        }
    }

    /// Does something with a request. One whose sockets hold the turn up is heard no more for a while, nor are others of its user and network.
    fn measured(&mut self, number: u32, work: impl FnOnce(&mut Daemon)) {
        let Some((user, network)) = self.requests.get(number).map(|request| (request.user, request.network)) else { return };
        let before = turn::ticks();
        work(self);
        if turn::ticks() != before {
            self.holders.add(user, network, clock::monotonic_ns());
        }
    }

    fn hear(&mut self, number: u32) {
        let Some(request) = self.requests.get(number) else { return };
        let mut room = [0u8; REQUEST + 1];
        let heard = match packets::receive(request.fd.as_fd(), &mut room) {
            Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
            Err(_) => None,
            Ok((got, socket)) => room.get(..got).and_then(Request::decode).map(|request| (request, socket)),
        };
        let has_claim = request.claim.is_some();
        let done = match heard {
            Some((Request::Client, Some(socket))) if !has_claim => self.claim(number, Side::Client, socket),
            Some((Request::Server, Some(socket))) if !has_claim => self.claim(number, Side::Server, socket),
            Some((Request::Counts, None)) if !has_claim => {
                let waiting = self.table.waiting() as u64;
                packets::send(request.fd.as_fd(), &Counts { waiting, ..self.counts }.encode(), None);
                Done::Over(None)
            }
            // It has given up, or makes no sense.
            _ => {
                self.counts.alone += u64::from(has_claim);
                self.counts.senseless += u64::from(!has_claim);
                Done::Over(None)
            }
        };
        match done {
            Done::Waits => {}
            Done::Met(other) => self.introduce(number, other),
            Done::Over(refusal) => self.end(number, refusal),
        }
    }

    /// The socket is closed before anything else happens.
    fn claim(&mut self, number: u32, side: Side, socket: OwnedFd) -> Done {
        // One that waits no longer goes on to use its socket, which a program may not while it is read.
        if self.requests.get(number).is_none_or(|request| packets::has_gone(request.fd.as_fd())) {
            self.counts.alone += 1;
            return Done::Over(None);
        }
        let connection = self.reader.read(socket.as_fd());
        drop(socket);
        let connection = match connection {
            Ok(connection) => connection,
            Err(refusal) => return Done::Over(Some(refusal)),
        };
        self.requests.claims(number, side, connection, clock::monotonic_ns());
        match self.table.claim(number, side, connection.numbers) {
            Came::Waits => Done::Waits,
            Came::Meets(other) => Done::Met(other),
            Came::Full => Done::Over(Some(Refusal::Quota)),
            Came::Spent => Done::Over(Some(Refusal::Ambiguous)),
            Came::Ambiguous(other) => {
                self.end(other, Some(Refusal::Ambiguous));
                Done::Over(Some(Refusal::Ambiguous))
            }
        }
    }

    /// Gives each an end of a pair, and forgets both.
    fn introduce(&mut self, one: u32, other: u32) {
        let (Some(one), Some(other)) = (self.requests.take(one), self.requests.take(other)) else { return };
        for end in [&one, &other] {
            packets::drain(end.fd.as_fd());
        }
        let mut pair = [-1; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        if calls::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()).is_err() {
            return;
        }
        // SAFETY: both are new.
        let pair = pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let inode = |fd: &OwnedFd| calls::status_of(fd.as_raw_fd()).map_or(0, |status| status.st_ino);
        let tell = |to: &OwnedFd, user: u32, at: usize| {
            let answer = Answer::Met { user, peer: inode(&pair[1 - at]) };
            packets::send(to.as_fd(), &answer.encode(), Some(pair[at].as_fd()))
        };
        match tell(&one.fd, other.user, 0) && tell(&other.fd, one.user, 1) {
            true => self.counts.introduced += 1,
            // One that is told of the other finds that it has gone.
            false => self.counts.alone += 1,
        }
    }

    /// Takes a request out, and says why if there is something to say.
    fn end(&mut self, number: u32, refusal: Option<Refusal>) {
        let Some(request) = self.requests.take(number) else { return };
        packets::drain(request.fd.as_fd());
        if let Some((side, connection)) = request.claim {
            self.table.forget(number, side, connection.numbers);
        }
        let Some(refusal) = refusal else { return };
        packets::send(request.fd.as_fd(), &Answer::Refused(refusal).encode(), None);
        let counts = &mut self.counts;
        *match refusal {
            Refusal::NoConnection => &mut counts.no_connection,
            Refusal::Quota => &mut counts.quota,
            Refusal::Ambiguous => &mut counts.ambiguous,
            Refusal::Forbidden => &mut counts.forbidden,
        } += 1;
    }

    fn end_old(&mut self) {
        let now = clock::monotonic_ns();
        while let Some(number) = self.requests.too_old(now) {
            match self.requests.get(number).is_some_and(|request| request.claim.is_some()) {
                true => self.counts.alone += 1,
                false => self.counts.senseless += 1,
            }
            self.measured(number, |daemon| daemon.end(number, None));
        }
    }
}

/// The user at the other end (SO_PEERCRED).
fn user_of(fd: &OwnedFd) -> Option<u32> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of_val(&who) as u32;
    calls::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut length).ok()?;
    Some(who.uid)
}

/// As many descriptors as are wanted, or as the limit has at most; how many there are.
fn descriptors(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this frame's.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return 1024;
        }
        let more = libc::rlimit { rlim_cur: wanted.max(limit.rlim_cur), rlim_max: wanted.max(limit.rlim_max) };
        let most = libc::rlimit { rlim_cur: limit.rlim_max.min(wanted.max(limit.rlim_cur)), ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &more) != 0 {
            libc::setrlimit(libc::RLIMIT_NOFILE, &most);
        }
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
    }
    limit.rlim_cur
}

/// Listens at the path, in the place of one that has ended.
fn listen(path: &Path) -> Result<OwnedFd, String> {
    let told = |error: Errno, what: &str| format!("{}: {what}: {}", path.display(), io::Error::from_raw_os_error(error.0));
    let (address, length) = crate::client::address(path).ok_or_else(|| format!("{}: the path is too long", path.display()))?;
    let fd = crate::client::socket().map_err(|error| told(error, "no socket"))?;
    let bind = || calls::bind(fd.as_raw_fd(), (&raw const address).cast(), length);
    // The directory decides which users may connect.
    // SAFETY: takes a number.
    let mask = unsafe { libc::umask(0o111) };
    let mut bound = bind();
    // One that is quick may take it again.
    for _ in 0..SQUATTERS {
        if bound != Err(Errno(libc::EADDRINUSE)) || is_of_root(path) || !is_put_away(path) {
            break;
        }
        bound = bind();
    }
    // SAFETY: takes a number.
    unsafe { libc::umask(mask) };
    bound.map_err(|error| match error.0 {
        libc::EADDRINUSE => format!("{}: another one is there, and answers", path.display()),
        libc::ENOENT | libc::ENOTDIR => format!(
            "{}: there is no such directory; make it (install -d -m 1777), and mount it into the containers that may meet",
            path.parent().unwrap_or(path).display()
        ),
        _ => told(error, "cannot be bound"),
    })?;
    calls::listen(fd.as_raw_fd(), BACKLOG).map_err(|error| told(error, "cannot listen"))?;
    Ok(fd)
}

/// Whether a listener of root's is there, and answers or is busy. A user's may be called so, or one that has ended.
fn is_of_root(path: &Path) -> bool {
    let is_its_file = std::fs::symlink_metadata(path).is_ok_and(|file| file.uid() == 0);
    is_its_file
        && match crate::client::connect(path) {
            Ok(connection) => user_of(&connection) == Some(0),
            Err(error) => error.0 != libc::ECONNREFUSED,
        }
}

/// Takes away what has the name, whatever it is: by another name first, which nobody has put anything at. False: it stays.
fn is_put_away(path: &Path) -> bool {
    let mut number = [0u8; 8];
    // SAFETY: the kernel fills the array.
    if unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) } != 8 {
        return false;
    }
    let away = path.with_extension(format!("{:016x}", u64::from_ne_bytes(number)));
    let is_away = std::fs::rename(path, &away).is_ok();
    if is_away && std::fs::remove_file(&away).is_err() {
        let _ = std::fs::remove_dir(&away); // one with something in it stays by that name
    }
    is_away
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not a listener of root's does not keep one from the name.
    #[test]
    fn the_name_is_root_s() {
        // SAFETY: takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let directory = std::env::temp_dir().join(format!("shunt-hostd-name-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let path = directory.join("hostd");
        std::os::unix::fs::chown(&directory, Some(4001), None).expect("it");
        let as_user = |work: &str| {
            let code = format!(
                "import os,socket,sys; p = sys.argv[1]; os.setuid(4001); {work}; print('ready', flush=True); sys.stdin.read()"
            );
            let mut command = std::process::Command::new("python3");
            command.args(["-c", &code]).arg(&path).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = command.spawn().expect("python3");
            let mut ready = [0; 6];
            std::io::Read::read_exact(child.stdout.as_mut().expect("its output"), &mut ready).expect("it is ready");
            child
        };
        let mut squatter = as_user("l = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); l.bind(p); l.listen(9)");
        drop(listen(&path).expect("a user's listener is in the way"));
        drop(listen(&path).expect("one that has ended is in the way"));
        std::fs::remove_file(&path).expect("its name");
        let mut other = as_user("os.mkdir(p)");
        let own = listen(&path).expect("a directory is in the way");
        assert!(listen(&path).is_err_and(|told| told.contains("answers")), "root's own");
        drop(own);
        let left = std::fs::read_dir(&directory).expect("it").count();
        assert_eq!(left, 1, "besides its name");
        std::fs::remove_dir_all(&directory).expect("it");
        for child in [&mut squatter, &mut other] {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
