//! Before an exec or a spawn: what the next program keeps of ours is made ready for it.

use super::counted::Counted;
use super::ends;
use super::text::Text;
use core::ptr;
use core::sync::atomic::Ordering;
use shunt_inbox::datagram::{adopt, Datagram};
use shunt_link as link;
use shunt_rendezvous::listen::{forward, promise};
use shunt_stream::socket::Socket;
use shunt_sys::calls;
use shunt_sys::libc::{self, FD_CLOEXEC, F_GETFD, F_SETFD};
use shunt_table::global::SETUP;
use shunt_table::table::Kind;
use shunt_table::{private, table};

/// How the next program comes about.
pub enum Way<'a> {
    /// In the place of this one, by execve(2): what is not closed on exec stays open.
    Exec,
    /// As a child that shares this process's memory until then: file actions of posix_spawn(3) decide what it keeps.
    Spawn(&'a dyn Fn(i32) -> bool),
}

/// Whether `fd` is not closed on exec.
pub fn kept_over_exec(fd: i32) -> bool {
    calls::fcntl(fd, F_GETFD, 0).is_ok_and(|flags| flags & FD_CLOEXEC == 0)
}

impl Way<'_> {
    /// Whether the next program has what this one has at `fd`.
    pub fn keeps(&self, fd: i32) -> bool {
        match self {
            Way::Exec => kept_over_exec(fd),
            Way::Spawn(keeps) => keeps(fd),
        }
    }

    /// Whether it keeps a stream whose link cannot be handed on: this process became another user
    /// ([`shunt_table::process::user`]).
    pub fn keeps_narrowed(&self) -> bool {
        table::numbers().any(|fd| {
            let narrowed =
                |socket: &Socket| link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize) < 0;
            shunt_stream::socket::stream(fd).is_some_and(narrowed) && self.keeps(fd)
        })
    }

    /// Whether it keeps a stream, a listener, or a socket in whose inbox something waits.
    pub fn concerns_us(&self) -> bool {
        table::numbers().any(|fd| {
            let word = table::get(fd);
            let concerns = match word.kind() {
                Kind::Stream | Kind::Listener => true,
                Kind::Tcp => word.object::<Socket>().is_some_and(|socket| promise::may_listen(fd, socket)),
                Kind::Datagram => word.object::<Datagram>().is_some_and(|socket| adopt::needed(socket).is_some()),
                _ => false,
            };
            concerns && self.keeps(fd)
        })
    }
}

/// What was made ready. It stays until this is dropped, whatever other threads close: what is named must be open.
pub struct Handed {
    /// What the next program is told.
    pub text: Text,
    counted: Counted,
    links: [u16; NAMED],
    link_count: usize,
    /// Duplicates of rendezvous and inboxes; -1: none.
    copies: [i32; NAMED],
}

/// Links, and listeners, that are held for one next program; further ones are named all the same.
const NAMED: usize = 128;

impl Drop for Handed {
    fn drop(&mut self) {
        self.copies.iter().for_each(|fd| private::close(*fd));
        if let Some(_setup) = SETUP.lock() {
            self.links[..self.link_count].iter().for_each(|index| link::let_go(*index as usize));
        }
    }
}

impl Handed {
    /// With nothing in it. Made where it stays: a second one beside it would be as large.
    #[inline(always)]
    pub fn empty() -> Handed {
        Handed { text: Text::new(), counted: Counted::new(), links: [0; NAMED], link_count: 0, copies: [-1; NAMED] }
    }

    /// Names a listener's rendezvous, or an inbox, by a duplicate.
    fn name_copy(&mut self, letter: char, descriptor: i32) {
        let place = self.copies.iter_mut().find(|place| **place < 0);
        let copy = calls::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, private::lowest() as usize);
        match (place, copy) {
            (Some(place), Ok(copy)) => {
                table::set_private(copy);
                *place = copy;
                self.text.name(letter, copy);
            }
            (None, Ok(copy)) => {
                let _ = calls::close(copy);
                self.text.name(letter, descriptor);
            }
            _ => self.text.name(letter, descriptor),
        }
    }

    /// Names a stream's link. False: the stream was closed meanwhile.
    fn name_link(&mut self, socket: &Socket) -> bool {
        let index = socket.connected.link_index.load(Ordering::Relaxed) as usize;
        let Some(_setup) = SETUP.lock() else { return false };
        let descriptor = link::descriptor(index);
        if descriptor < 0 {
            return false;
        }
        let known = self.links[..self.link_count].contains(&(index as u16));
        if !known && self.link_count < NAMED {
            self.links[self.link_count] = index as u16;
            self.link_count += 1;
            link::enter(index);
        }
        self.text.name('L', descriptor);
        true
    }

    /// The child did not come about.
    pub fn take_back(&mut self) {
        self.counted.take_back();
    }
}

/// Leaves to the kernel what any next program may find.
pub fn prepare(way: &Way) {
    shunt_rendezvous::carriers::sharing::<true>();
    shunt_inbox::datagram::before_exec(&|fd| way.keeps(fd));
    if matches!(way, Way::Exec) {
        shunt_inbox::local::owners::before_exec();
    }
    shunt_epoll::before_exec(&|fd| way.keeps(fd));
    if let Some(_setup) = SETUP.lock() {
        shunt_rendezvous::socket_cache::spoil_all();
    }
}

/// Makes streams and listeners ready for a next program that takes the library: counts it as an owner, and names what else
/// it needs: links, and rendezvous; all of that into `handed`, an empty one. `ends`: it is to say what an exec ends. The caller lets the named
/// descriptors through.
pub fn hand(way: &Way, ends: bool, handed: &mut Handed) {
    let exec = matches!(way, Way::Exec);
    let _stay = shunt_lifeline::to_share().or_else(shunt_rendezvous::exchange::before_fork); // until the streams among them are shared
    for fd in table::numbers() {
        let word = table::get(fd);
        if let Some(socket) = word.object::<Datagram>() {
            let same = |other: i32| shunt_table::table::find::<Datagram>(other).is_some_and(|known| ptr::eq(known, socket));
            let named = |fd: i32| (0..fd).any(|other| same(other) && way.keeps(other));
            if let Some(inbox) = adopt::needed(socket).filter(|_| way.keeps(fd) && !named(fd)) {
                handed.name_copy('I', inbox);
            }
            continue;
        }
        let Some(socket) = word.object::<Socket>() else { continue };
        if let Some(rendezvous) = (word.kind() == Kind::Tcp && way.keeps(fd)).then(|| promise::hand(fd, socket)).flatten() {
            handed.name_copy('R', rendezvous);
            continue;
        }
        if !matches!(word.kind(), Kind::Stream | Kind::Listener) || !way.keeps(fd) {
            continue;
        }
        if word.kind() == Kind::Listener {
            let rendezvous = socket.private_fd.load(Ordering::Relaxed);
            if rendezvous >= 0 {
                handed.name_copy('R', rendezvous);
                forward::before_handing(socket);
            }
            continue;
        }
        if !handed.name_link(socket) {
            continue;
        }
        socket.share();
        shunt_stream::references::keep::on_sharing(socket);
        // Once for all descriptors of the stream, as the next program will count them.
        let again = socket.references.load(Ordering::Relaxed) > 1
            && (0..fd).any(|other| shunt_stream::socket::is_of(other, socket) && way.keeps(other));
        if !exec && !again {
            handed.counted.count(socket);
        }
    }
    if exec && ends {
        ends::name(&mut handed.text);
    }
}

/// Before an exec: lets through what is named. It happens in the one table that all threads share, but they end with it.
pub fn let_through(text: &Text) {
    for fd in text.descriptors() {
        let _ = calls::fcntl(fd, F_SETFD, 0);
    }
}

/// The exec failed: private descriptors are private again.
pub fn failed() {
    let Some(_setup) = SETUP.lock() else { return };
    for fd in table::numbers() {
        if table::get(fd).kind() == Kind::Private {
            let _ = calls::fcntl(fd, F_SETFD, FD_CLOEXEC as usize);
        }
    }
}
