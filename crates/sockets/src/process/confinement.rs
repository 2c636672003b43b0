//! Programs that confine themselves: sshd's half that talks to strangers gives up files and descriptors by limits, and
//! then has a filter kill it for every system call but the few that it names. Bells and barriers are not among those, and
//! where no descriptor can be made any more, no connection can become the kernel's. So its connections do before.
//!
//! Dovecot's login processes forbid themselves to fork, accept, and pass each connection on to a program that may be without
//! shunt: Dovecot starts most with an environment of its own. No relay could be made for it. So their listeners become the
//! kernel's while one still can be, for the clients that wait. So do those of a program that leaves itself fewer descriptors than
//! the taking in of a new client's process needs: that client would be reset.
//!
//! Filters are asked before they are installed, call by call, what they answer to those that the library makes and the program
//! perhaps does not: streams and listeners that could not go on are the kernel's by then.

use shunt_handover::convert_to_kernel;
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_segment::reason::Reason;
use shunt_stream::socket::Socket;
use shunt_sys::filter::{self, Answer, Filter};
use shunt_sys::libc::{self, rlimit};
use shunt_sys::{calls, clock, user};
use shunt_table::process::kernel_only;
use shunt_table::table::Kind;
use shunt_table::{private, table};

/// What sshd leaves itself: one descriptor below the limit, for poll's sake.
const FEW: u64 = 1;

/// Before `setrlimit(resource, limit)`: connections become a relay's if the limit takes descriptors away from a program
/// that may write no files either, listeners the kernel's if no process can be made any more. A connection for which no relay
/// can be made stays what it is.
///
/// # Safety
/// `limit` may be any address that is not ours.
pub unsafe fn before_limit(resource: i32, limit: *const rlimit) {
    let forks = resource == libc::RLIMIT_NPROC as i32;
    if !forks && resource != libc::RLIMIT_NOFILE as i32 {
        return;
    }
    // SAFETY: the caller's limits, which may fault: that is the kernel's to say.
    let Ok(wanted) = (unsafe { user::read(limit) }) else { return };
    if forks {
        // The limit does not hold for root (setrlimit(2)). Below it one process counts: this one.
        if wanted.rlim_max <= 1 && calls::geteuid() != 0 {
            leave_listeners();
        }
        return;
    }
    if wanted.rlim_cur > FEW && wanted.rlim_cur < private::ENOUGH {
        leave_listeners();
    }
    let mut files = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    if wanted.rlim_max > FEW
        || calls::prlimit(0, libc::RLIMIT_FSIZE, core::ptr::null(), &mut files).is_err()
        || files.rlim_max != 0
    {
        return;
    }
    for fd in table::numbers() {
        if let Some(socket) = shunt_stream::socket::stream(fd) {
            let _ = convert_to_kernel::carry(fd, socket);
        }
    }
}

fn leave_listeners() {
    for fd in table::numbers() {
        let word = table::get(fd);
        if let (Kind::Listener, Some(listener)) = (word.kind(), word.object::<Socket>()) {
            let _ = convert_to_kernel::leave_listener(fd, listener);
        }
    }
}

/// A system call with arguments by which filters tell apart what they allow.
type Call = (i64, [u64; 6]);

/// A descriptor like those that filters cannot know.
const SOME: u64 = 20;

const fn plain(number: i64) -> Call {
    (number, [SOME, 0, 0, 0, 0, 0])
}

const fn with(number: i64, second: u64, third: u64) -> Call {
    (number, [SOME, second, third, 0, 0, 0])
}

/// What a stream needs: bells, barriers and the sleep.
const STREAM: [Call; 6] = [
    (libc::SYS_sendto, [SOME, 0, 1, (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64, 0, 0]),
    (libc::SYS_recvfrom, [SOME, 0, 64, (libc::MSG_DONTWAIT | libc::MSG_PEEK) as u64, 0, 0]),
    (libc::SYS_membarrier, [MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0, 0, 0, 0]),
    plain(libc::SYS_sched_yield),
    plain(libc::SYS_futex),
    plain(libc::SYS_close),
];

const MEMBARRIER_CMD_GLOBAL_EXPEDITED: u64 = 2;

/// What connections need that come to be in memory, or become large. Where one of them fails, a connection goes another way.
const OPENING: [Call; 20] = [
    (libc::SYS_socket, [libc::AF_UNIX as u64, (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64, 0, 0, 0, 0]),
    plain(libc::SYS_bind),
    plain(libc::SYS_listen),
    plain(libc::SYS_recvmsg),
    plain(libc::SYS_sendmsg),
    with(libc::SYS_getsockopt, libc::SOL_SOCKET as u64, libc::SO_PEERCRED as u64),
    with(libc::SYS_setsockopt, libc::SOL_SOCKET as u64, libc::SO_RCVLOWAT as u64),
    plain(libc::SYS_getsockname),
    plain(libc::SYS_memfd_create),
    plain(libc::SYS_ftruncate),
    (libc::SYS_mmap, [0, 22 << 20, (libc::PROT_READ | libc::PROT_WRITE) as u64, libc::MAP_SHARED as u64, SOME, 0]),
    plain(libc::SYS_munmap),
    plain(libc::SYS_fstat),
    plain(libc::SYS_pread64),
    with(libc::SYS_fcntl, libc::F_DUPFD_CLOEXEC as u64, 900),
    with(libc::SYS_fcntl, libc::F_ADD_SEALS as u64, 0),
    plain(libc::SYS_epoll_create1),
    with(libc::SYS_epoll_ctl, libc::EPOLL_CTL_ADD as u64, SOME),
    (libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as u64, 0, 0, 0, 0]),
    plain(libc::SYS_getpid),
];

/// What the change of a stream to another host needs that is left to TCP, beside the others: it may stay as well.
const LEAVING: [Call; 9] = [
    (libc::SYS_socketpair, [libc::AF_UNIX as u64, (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64, 0, 0, 0, 0]),
    plain(libc::SYS_sendmsg),
    plain(libc::SYS_recvmsg),
    plain(libc::SYS_dup3),
    plain(libc::SYS_nanosleep),
    plain(libc::SYS_openat),
    plain(libc::SYS_shutdown),
    with(libc::SYS_setsockopt, libc::IPPROTO_TCP as u64, libc::TCP_NODELAY as u64),
    with(libc::SYS_fcntl, libc::F_SETFL as u64, libc::O_RDWR as u64),
];

/// What a connection to another network namespace needs beside: without one of them it is TCP's.
const NEAR: [Call; 6] = [
    (libc::SYS_socketpair, [libc::AF_UNIX as u64, (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64, 0, 0, 0, 0]),
    plain(libc::SYS_openat),
    plain(libc::SYS_getdents64),
    plain(libc::SYS_newfstatat),
    plain(libc::SYS_fchmodat),
    plain(libc::SYS_unlinkat),
];

/// Before the program installs a filter of system calls: what could not go on under it becomes the kernel's while it still can.
/// A stream is the kernel's if one of its calls is refused, or a connection could cost the process its life; a listener from which
/// the program may accept, if what a client needs is refused.
pub fn before_filter(wanted: &Filter) {
    let answer = |&(number, arguments): &Call| wanted.answer(number, arguments);
    let allowed = |number: i64| answer(&plain(number)) == Answer::Allowed;
    let sleeps = allowed(libc::SYS_ppoll) || allowed(libc::SYS_poll);
    let opening = OPENING.iter().map(answer).fold(Answer::Allowed, worse);
    let reads = shunt_stream::pools::reading().iter().all(|call| allowed(*call));
    let streams = !sleeps || !reads || STREAM.iter().any(|call| answer(call) != Answer::Allowed) || opening == Answer::Fatal;
    if LEAVING.iter().any(|call| answer(call) != Answer::Allowed) || opening != Answer::Allowed {
        let _alone = shunt_lifeline::to_share().or_else(shunt_rendezvous::exchange::alone);
        shunt_rendezvous::exchange::stay();
    }
    if NEAR.iter().chain(&LEAVING).any(|call| answer(call) != Answer::Allowed) {
        shunt_near::stop();
    }
    let accepts = allowed(libc::SYS_accept) || allowed(libc::SYS_accept4);
    let concerned = if streams { kernel_only::begin(Reason::SystemCallFilter) } else { opening != Answer::Allowed };
    if concerned {
        settle(streams, accepts);
    }
    // The relays have not inherited that.
    let unless = |call: u32, number: i64| if allowed(number) { 0 } else { call };
    if !allowed(libc::SYS_clock_gettime) {
        clock::leave_kernel();
    }
    filter::avoid(
        unless(filter::PPOLL, libc::SYS_ppoll)
            | unless(filter::ACCEPT4, libc::SYS_accept4)
            | unless(filter::EPOLL_PWAIT2, libc::SYS_epoll_pwait2)
            | unless(filter::EPOLL_WAIT, libc::SYS_epoll_wait)
            | unless(filter::SCHED_YIELD, libc::SYS_sched_yield)
            | unless(filter::CLOCK_GETTIME, libc::SYS_clock_gettime),
    );
}

/// Makes the listeners the kernel's, and the `streams`, too.
fn settle(streams: bool, accepts: bool) {
    for fd in table::numbers() {
        match table::get(fd).kind() {
            // Other processes may accept from what this one can do nothing with.
            Kind::Listener if accepts => kernel_only::settle(fd),
            Kind::Listener | Kind::Epoll => {}
            _ if streams => {
                kernel_only::settle(fd);
                if let Some(socket) = shunt_table::table::find::<Datagram>(fd) {
                    datagram::let_go(fd, socket);
                }
            }
            _ => {}
        }
    }
}

fn worse(one: Answer, other: Answer) -> Answer {
    match (one, other) {
        (Answer::Fatal, _) | (_, Answer::Fatal) => Answer::Fatal,
        (Answer::Allowed, other) => other,
        (one, _) => one,
    }
}
