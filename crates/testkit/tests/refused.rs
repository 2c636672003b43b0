//! System calls that the library makes, and that its program does not, are refused: by a filter for ever, by a kernel that has no memory or no
//! numbers once. The program's conversations are what they are without.
//!
//! `testkit-refuser` refuses them to one side; `programs/refused.c` talks in many ways and writes down what goes wrong.

use shunt_testkit::{in_mode, program, script, wait_until, Host, SECOND};
use std::fs;
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
    /// One with a set, which a program with the listener has executed.
    Heir,
}

const VICTIMS: [Victim; 4] = [Victim::Client, Victim::Server, Victim::Workers, Victim::Heir];

/// One run.
struct Talk {
    /// What the two sides wrote.
    said: String,
    /// What was refused, a line each: number, which of them, and where in the library.
    refused: String,
}

fn talk(host: &Host, talker: &Path, victim: Victim, plan: &[String]) -> Talk {
    let refuser = PathBuf::from(env!("CARGO_BIN_EXE_testkit-refuser"));
    let refusals = host.scratch().join("refusals");
    fs::write(&refusals, "").expect("the scratch directory can be written");
    let (server, client) = match victim {
        Victim::Client => (host.server(talker.into()), host.client(refuser).args(plan).arg(talker)),
        _ => (host.server(refuser).args(plan).arg(talker), host.client(talker.into())),
    };
    let server = server.env("TESTKIT_REFUSALS", &refusals).arg("serve").arg(PORT.to_string());
    let server = match victim {
        Victim::Workers => server.arg("workers"),
        Victim::Heir => server.arg("heir"),
        _ => server,
    };
    let mut server = server.start();
    host.wait_for_listener(&server, PORT);
    let mut client = client.env("TESTKIT_REFUSALS", &refusals).arg("ask").arg(PORT.to_string()).start();
    let ended = wait_until(DEADLINE, || (!client.is_running() && !server.is_running()).then_some(()));
    let refused = fs::read_to_string(&refusals).expect("it was written");
    if ended.is_none() {
        let wrote = server.output_so_far() + &server.errors_so_far();
        client.fail(&format!("{victim:?} {plan:?}, refused {refused:?}; the server wrote {wrote:?}; not at an end"));
    }
    let (client, server) = (client.wait(DEADLINE), server.wait(DEADLINE));
    let said = client.text() + &client.error_text();
    let all = said.clone() + &server.text() + &server.error_text();
    assert!(said.ends_with("done\n"), "{victim:?} {plan:?}, refused {refused:?}: {all}{}", client.describe());
    Talk { said: all, refused }
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
                assert_eq!(talk(host, &talker, victim, &plan).said, "done\n", "{victim:?} {plan:?}");
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
/// Which of them: each of the first, as calls of one kind come in another order from run to run, and some of those behind.
fn places() -> impl Iterator<Item = u64> {
    (1..=24).chain([34, 55, 89])
}

/// The program may be told, of the call that it made, and nothing is lost.
fn refused_once(host: &Host) {
    let talker = talker(host);
    for victim in VICTIMS {
        for (call, errno) in SHORT {
            for place in places() {
                let plan = ["once".into(), call.to_string(), place.to_string(), errno.to_string()];
                let Talk { said, refused } = talk(host, &talker, victim, &plan);
                let name = name(errno);
                let lost = said.lines().find(|line| *line != "done" && !line.ends_with(name));
                assert!(lost.is_none(), "{victim:?} {plan:?}, refused {refused:?}: {said}");
                if refused.is_empty() {
                    break; // there are no more calls of this kind
                }
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
