//! System calls that the library makes, and that its program does not, are refused: by a filter for ever, by a kernel that has no memory or no
//! numbers once. The program's conversations are what they are without.
//!
//! `testkit-refuser` refuses them to one side; `programs/refused.c` talks in many ways and writes down what goes wrong.

use shunt_testkit::{in_mode, program, script, Host, SECOND};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PORT: u16 = 7000;
const DEADLINE: Duration = Duration::from_secs(60);

fn talker(host: &Host) -> PathBuf {
    let target = host.scratch().join("refused");
    host.plain(program("gcc", "gcc")).args(["-O1", "-g", "-o"]).arg(&target).arg(script("refused.c")).run(60 * SECOND);
    target
}

/// Whose library is refused calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Client,
    /// One process with a set of connections.
    Server,
    /// Two that block in accept.
    Workers,
}

const VICTIMS: [Victim; 3] = [Victim::Client, Victim::Server, Victim::Workers];

/// One run; what the two sides wrote.
fn talk(host: &Host, talker: &Path, victim: Victim, plan: &[String]) -> String {
    let refuser = PathBuf::from(env!("CARGO_BIN_EXE_testkit-refuser"));
    let (server, client) = match victim {
        Victim::Client => (host.server(talker.into()), host.client(refuser).args(plan).arg(talker)),
        _ => (host.server(refuser).args(plan).arg(talker), host.client(talker.into())),
    };
    let server = server.arg("serve").arg(PORT.to_string());
    let server = if victim == Victim::Workers { server.arg("workers") } else { server };
    let server = server.start();
    host.wait_for_listener(&server, PORT);
    let client = client.arg("ask").arg(PORT.to_string()).start().wait(DEADLINE);
    let said = client.text() + &client.error_text();
    assert!(said.ends_with("done\n"), "{victim:?} {plan:?}: {}", client.describe());
    let server = server.wait(DEADLINE);
    said + &server.text() + &server.error_text()
}

/// Calls that the program does not make itself, and those by which a server is asked nothing by its program.
const OF_THE_LIBRARY: [i64; 22] = [
    libc::SYS_accept4,
    libc::SYS_dup3,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_faccessat2,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_getpeername,
    libc::SYS_ioctl,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_openat,
    libc::SYS_pidfd_open,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_process_vm_readv,
    libc::SYS_readlinkat,
    libc::SYS_recvfrom,
    libc::SYS_rt_sigaction,
    libc::SYS_sendto,
];
const OF_A_SERVERS: [i64; 4] = [libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getsockopt, libc::SYS_recvmsg];

fn refused_for_ever(host: &Host) {
    let talker = talker(host);
    for victim in VICTIMS {
        let of_servers = OF_A_SERVERS.iter().filter(|_| victim != Victim::Client);
        for call in OF_THE_LIBRARY.iter().chain(of_servers) {
            for errno in [libc::EPERM, libc::ENOSYS] {
                let plan = ["always".into(), call.to_string(), errno.to_string()];
                assert_eq!(talk(host, &talker, victim, &plan), "done\n", "{victim:?} {plan:?}");
            }
        }
    }
}
in_mode!(calls_that_a_filter_refuses, Both, crate::refused_for_ever);

/// What a kernel answers that has no memory, no numbers, or no room in its tables.
const SHORT: [(i64, i32); 18] = [
    (libc::SYS_bind, libc::ENOMEM),
    (libc::SYS_connect, libc::EAGAIN),
    (libc::SYS_connect, libc::ENOMEM),
    (libc::SYS_epoll_create1, libc::EMFILE),
    (libc::SYS_epoll_ctl, libc::ENOMEM),
    (libc::SYS_epoll_ctl, libc::ENOSPC),
    (libc::SYS_ftruncate, libc::ENOSPC),
    (libc::SYS_memfd_create, libc::ENFILE),
    (libc::SYS_mmap, libc::ENOMEM),
    (libc::SYS_openat, libc::EMFILE),
    (libc::SYS_pidfd_open, libc::EMFILE),
    (libc::SYS_pipe2, libc::EMFILE),
    (libc::SYS_recvmsg, libc::ENOMEM),
    (libc::SYS_sendmsg, libc::ENOBUFS),
    (libc::SYS_sendmsg, libc::ETOOMANYREFS),
    (libc::SYS_sendto, libc::ENOBUFS),
    (libc::SYS_socket, libc::EMFILE),
    (libc::SYS_socketpair, libc::ENFILE),
];
/// Which of them.
const PLACES: [u64; 7] = [1, 2, 3, 5, 8, 13, 21];

/// The program may be told, of the call that it made, and nothing is lost.
fn refused_once(host: &Host) {
    let talker = talker(host);
    for victim in VICTIMS {
        for (call, errno) in SHORT {
            for place in PLACES {
                let plan = ["once".into(), call.to_string(), place.to_string(), errno.to_string()];
                let said = talk(host, &talker, victim, &plan);
                let name = name(errno);
                let lost = said.lines().find(|line| *line != "done" && !line.ends_with(name));
                assert!(lost.is_none(), "{victim:?} {plan:?}: {said}");
            }
        }
    }
}
in_mode!(calls_that_fail_once, Both, crate::refused_once);

/// As strerrorname_np(3) has it, of the program's calls: those that make a descriptor say EMFILE for ENFILE, too.
fn name(errno: i32) -> &'static str {
    match errno {
        libc::EAGAIN => "EAGAIN",
        libc::EMFILE => "EMFILE",
        libc::ENFILE => "ENFILE",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENOMEM => "ENOMEM",
        libc::ENOSPC => "ENOSPC",
        libc::ETOOMANYREFS => "ETOOMANYREFS",
        other => panic!("{other} has no name here"),
    }
}
