//! Which processes may receive a message on an AF_UNIX socket: only programs under shunt can take an accelerated descriptor up, and only those of
//! the same user may have what lies beside it.
//!
//! The kernel tells the other end's inode (sock_diag) and, in /proc, which processes have it open. All of them must run
//! under shunt for sure: a state (`shunt-process`) of theirs says that they have received on this socket by our hooks. A
//! child between fork and exec says nothing of the kind, and may become anything. A socket that this process alone has
//! open is one on which it passes descriptors to itself. Processes of one family, which may have
//! become other users and may not look at each other, tell it in memory that forks share.
//!
//! No call tells the receiver's user: SO_PEERCRED names the socket's maker. So the processes that have it open are asked for theirs
//! (proc(5)). Where a member of the family has become another user, its word about receivers may be a lie, and all
//! processes that could have the socket must be seen.

use crate::diag;
use crate::global::LockedCell;
use crate::process::identity::numbers_are_strange;
use crate::process::{split_fd_tables, status_page, user, users};
use crate::procfs::{numbers, started, target, text, Path};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use shunt_segment::process::{self as state, MAGIC};
use shunt_sys::libc::{self, AT_FDCWD, O_CLOEXEC, O_RDONLY};
use shunt_sys::{calls, clock, mapping, thread, Errno, Result};

/// How long it is believed that a receiver is another user's, in ns: a program that passes many descriptors asks once in a while. That
/// no other process can receive is asked each time, as a moment later one may.
const BELIEVE_NS: u64 = 50_000_000;

#[derive(Clone, Copy)]
struct Answer {
    inode: u32,
    until: u64,
}

/// What is known of receivers.
struct Receivers {
    /// The last socket of another user's. Under the set-up lock.
    last: LockedCell<Answer>,
    /// A page that forks share, with receivers of the whole family.
    family: AtomicPtr<AtomicU64>,
}

static RECEIVERS: Receivers =
    Receivers { last: LockedCell::new(Answer { inode: 0, until: 0 }), family: AtomicPtr::new(core::ptr::null_mut()) };

/// Which processes can receive from a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// Processes under shunt, all of this user, or root's.
    Own,
    /// Processes under shunt, perhaps another user's.
    Other,
    /// Perhaps one without shunt.
    Plain,
}

const PLACES: usize = 512;

/// Bit of an entry: the process has its number in another PID namespace.
const STRANGE: u64 = 1 << 63;

/// The first process of a family makes the page; without it, its members look in /proc.
pub fn start() {
    if let Ok(page) = mapping::reserve_for_children(PLACES * 8) {
        RECEIVERS.family.store(page.cast(), Ordering::Release);
    }
}

fn family() -> &'static [AtomicU64] {
    let page = RECEIVERS.family.load(Ordering::Acquire);
    if page.is_null() {
        return &[];
    }
    // SAFETY: never unmapped; PLACES zeroed words.
    unsafe { core::slice::from_raw_parts(page, PLACES) }
}

/// This process is about to receive on the socket `fd` by our hooks: a process that passes it a descriptor must know.
pub fn declare(fd: i32) {
    if split_fd_tables::are_split() {
        return;
    }
    let Ok(status) = calls::status_of(fd) else { return };
    let entry = state::receiver(thread::process(), status.st_ino as u32);
    enter(family(), if numbers_are_strange() { entry | STRANGE } else { entry });
    enter(status_page::receivers(), entry);
}

fn enter(places: &[AtomicU64], entry: u64) {
    let mut free = None;
    for place in places {
        match place.load(Ordering::Relaxed) {
            known if known == entry => return,
            0 => {
                free = Some(place);
                break;
            }
            _ => {}
        }
    }
    // When all are taken the newer one is the likelier to be asked for.
    let random = || places.get(thread::random() as usize % places.len().max(1));
    if let Some(place) = free.or_else(random) {
        place.store(entry, Ordering::Release);
    }
}

/// The processes of this family that live and have received on the socket `inode`: whether there is one, and whether one
/// may be another user's.
fn in_family(inode: u32) -> (bool, bool) {
    let (mut any, mut strange) = (false, false);
    for place in family() {
        let entry = place.load(Ordering::Acquire);
        let process = (entry >> 32) as i32;
        if entry as u32 != inode || inode == 0 {
            continue;
        }
        if entry & STRANGE != 0 {
            (any, strange) = (true, true);
        } else if calls::kill(process, 0) != Err(Errno(libc::ESRCH)) {
            any = true;
            strange |= !may_have_links(process as u32);
        }
    }
    (any, strange)
}

/// Whether `process` may have all that lies in the links of this one: one of its users is the same, or root.
fn may_have_links(process: u32) -> bool {
    process == calls::getpid()
        || users(process).is_some_and(|users| users.into_iter().any(|user| user == 0 || user::is_own(user)))
}

/// The real, effective and saved user of a process (proc(5): "Uid:" in /proc/PID/status).
fn users(process: u32) -> Option<[u32; 3]> {
    let mut room = [0u8; 512];
    let text = text(&Path::new(format_args!("/proc/{process}/status\0")), &mut room).ok()?;
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut numbers = core::str::from_utf8(line).ok()?.split_ascii_whitespace().map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// Which processes can receive from the other end of the AF_UNIX socket `fd`. Called under the set-up lock.
pub fn of(fd: i32) -> Receiver {
    let Ok(inode) = diag::unix_peer(fd) else { return Receiver::Plain };
    let now = clock::monotonic_ns();
    // SAFETY: the set-up lock is held.
    let last = unsafe { &mut *RECEIVERS.last.get() };
    if last.inode == inode && now <= last.until {
        return Receiver::Other;
    }
    let receiver = decided(inode);
    if receiver == Receiver::Other {
        *last = Answer { inode, until: now + BELIEVE_NS };
    }
    receiver
}

/// How long a receiver that may be about to receive, or about to exec, is waited for, in looks and ns between them.
const LOOKS: u32 = 60;
const PAUSE_NS: i64 = 500_000;

fn decided(inode: u32) -> Receiver {
    for look in 0..LOOKS {
        match in_family(inode) {
            (true, true) => return Receiver::Other,
            (true, false) if users::changes() == 0 => return Receiver::Own,
            (true, false) => {
                return match holders(inode) {
                    Ok(Holders::Ours { strange: false, hidden: false }) => Receiver::Own,
                    _ => Receiver::Other,
                }
            }
            (false, _) => {}
        }
        // The kernel is asked at the beginning, and when all patience is spent.
        if look == 0 || look + 1 == LOOKS {
            match holders(inode).unwrap_or(Holders::Unknown) {
                Holders::Ours { strange, hidden } if strange || (hidden && users::changes() > 0) => return Receiver::Other,
                Holders::Ours { .. } => return Receiver::Own,
                Holders::Plain => return Receiver::Plain,
                Holders::Unknown => {}
            }
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
        let _ = calls::nanosleep(&pause, core::ptr::null_mut());
    }
    Receiver::Plain
}

/// Which processes have a socket open, as far as this one may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holders {
    /// Processes that have received on it by our hooks, and no others. `strange`: one of them is another user's. `hidden`: there are
    /// processes that cannot be seen, and might have it.
    Ours { strange: bool, hidden: bool },
    /// A process without shunt among them.
    Plain,
    /// None that can be seen, or a process with shunt that has not received yet: it may be a child before its exec.
    Unknown,
}

/// Another process that has the socket open, if one can be seen.
pub fn holder(inode: u32) -> Option<u32> {
    let wanted = Path::new(format_args!("socket:[{inode}]"));
    let wanted = wanted.said();
    let me = calls::getpid();
    let mut found = None;
    let _ = numbers(&Path::new(format_args!("/proc\0")), |process| {
        if process != me {
            let _ = numbers(&Path::new(format_args!("/proc/{process}/fd\0")), |fd| {
                let mut room = [0u8; 64];
                let holds = target(&Path::new(format_args!("/proc/{process}/fd/{fd}\0")), &mut room) == wanted;
                if holds {
                    found = Some(process);
                }
                holds
            });
        }
        found.is_some()
    });
    found
}

fn holders(inode: u32) -> Result<Holders> {
    let wanted = Path::new(format_args!("socket:[{inode}]"));
    let wanted = wanted.said();
    let (mut any, mut all, mut plain) = (false, true, false);
    let me = calls::getpid();
    let since = started(me).ok_or(Errno(libc::ENOENT))?;
    // All processes can be seen, and of those that were not there before this one no other has it.
    let mut alone = started(1).is_some();
    let (mut strange, mut hidden) = (false, !alone);
    numbers(&Path::new(format_args!("/proc\0")), |process| {
        let (mut holds, mut ours, mut shunt) = (false, false, false);
        // A process that may not be looked at is another user's; it can have the socket only if it was passed on, or if
        // it is a child of ours that gained rights.
        let seen = numbers(&Path::new(format_args!("/proc/{process}/fd\0")), |fd| {
            let link = Path::new(format_args!("/proc/{process}/fd/{fd}\0"));
            let mut room = [0u8; 64];
            let target = target(&link, &mut room);
            holds |= target == wanted;
            if target.starts_with(b"/memfd:shunt-process") {
                shunt = true;
                ours |= says_so(&link, state::receiver(process, inode));
            }
            false
        });
        any |= holds;
        let may_hide = seen.is_err() && started(process).is_some_and(|start| start >= since);
        hidden |= may_hide;
        alone &= if seen.is_ok() { !holds || process == me } else { !may_hide };
        strange |= holds && !may_have_links(process);
        all &= !holds || ours;
        plain |= holds && !shunt && process != me;
        plain
    })?;
    Ok(match (plain, any && (all || alone)) {
        (true, _) => Holders::Plain,
        (_, true) => Holders::Ours { strange, hidden },
        _ => Holders::Unknown,
    })
}

/// Whether the state behind `link` holds the receiver.
fn says_so(link: &Path, receiver: u64) -> bool {
    let Ok(fd) = calls::openat(AT_FDCWD, link.pointer(), O_RDONLY | O_CLOEXEC, 0) else { return false };
    let mut head = [0u32; 3];
    let mut receivers = [0u64; state::RECEIVERS];
    let at = core::mem::offset_of!(state::ProcessHeader, receivers) as i64;
    let size = core::mem::size_of_val(&receivers);
    let got = calls::pread(fd, head.as_mut_ptr().cast(), 12, 0) == Ok(12)
        && calls::pread(fd, receivers.as_mut_ptr().cast(), size, at) == Ok(size);
    let _ = calls::close(fd);
    let magic = head[0] as u64 | (head[1] as u64) << 32;
    const _: () = assert!(core::mem::offset_of!(state::ProcessHeader, version) == 8);
    got && magic == MAGIC && head[2] == shunt_segment::VERSION && receivers.contains(&receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_found_and_a_process_without_state_is_none_of_ours() {
        let (near, far) = UnixStream::pair().unwrap();
        let status = calls::status_of(far.as_raw_fd()).unwrap();
        let _setup = crate::global::SETUP.lock().unwrap(); // for questions to the kernel
        assert_eq!(diag::unix_peer(near.as_raw_fd()), Ok(status.st_ino as u32));
        // This process alone has both ends: it would pass a descriptor to itself, and is taken for one under shunt.
        assert!(matches!(holders(status.st_ino as u32), Ok(Holders::Ours { strange: false, .. })));
        // A child that has it, too, has no state. It ends with its standard input.
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::os::fd::OwnedFd::from(far.try_clone().unwrap()))
            .spawn()
            .unwrap();
        assert_eq!(holders(status.st_ino as u32), Ok(Holders::Plain));
        assert_eq!(of(near.as_raw_fd()), Receiver::Plain);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn links_are_for_the_same_user_and_for_root() {
        assert_eq!(users(calls::getpid()), Some([calls::geteuid(); 3]));
        assert_eq!(users(u32::MAX), None);
        assert!(may_have_links(calls::getpid()) && may_have_links(1));
        assert!(!may_have_links(u32::MAX));
    }

    #[test]
    fn a_process_begins_no_earlier_than_the_first_one() {
        assert!(started(1).unwrap() <= started(calls::getpid()).unwrap());
        assert_eq!(started(u32::MAX), None);
    }
}
