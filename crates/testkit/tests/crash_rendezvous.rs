//! Strangers at the rendezvous: a listener outlives every kind of wrong guest, and nobody is talked into another
//! user's socket.

use shunt_testkit::{in_every_mode, in_mode, program, python_program, script, tcp_segments_sent, Host, Inspection, Mode, Random};
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 7000;
const DEADLINE: Duration = Duration::from_secs(30);
const KNOCKING_MILLISECONDS: u64 = 3000;

fn intruder() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testkit-intruder"))
}

/// Redis serves everybody in one thread: one guest that makes it wait makes all others wait.
fn redis_with_strangers(host: &Host) {
    let port = PORT.to_string();
    let server = host
        .server(program("redis-server", "redis-server"))
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(host.scratch().path())
        .start();
    host.wait_for_listener(&server, PORT);
    let cli =
        |words: &[&str]| host.client(program("redis-cli", "redis-tools")).args(["-p", &port]).args(words).run(DEADLINE).text();
    let benchmark = || {
        host.client(program("redis-benchmark", "redis-tools"))
            .args(["-q", "-p", &port, "-t", "set,get", "-n", "1000", "-c", "5"])
            .run(DEADLINE)
            .expect_text("requests per second");
    };
    benchmark();
    let before = Inspection::of_process(server.pid());

    let seed = (Random::for_test().word() >> 1).to_string();
    let mut stranger = host.plain(intruder()).args(["knock", &port, &seed, &KNOCKING_MILLISECONDS.to_string()]).start();
    assert_eq!(cli(&["SET", "key", "value"]), "OK\n");
    while stranger.is_running() {
        benchmark();
        assert_eq!(cli(&["GET", "key"]), "value\n");
    }
    let knocks = stranger.wait(DEADLINE).expect_success();
    let knocks: u64 = knocks.text().trim().strip_prefix("done ").expect("a number of knocks").parse().expect("a number");
    assert!(knocks > 100, "only {knocks} knocks");

    benchmark();
    // Wrong guests are sent away with all they brought; links of honest clients may be kept for a while.
    host.wait_until(&format!("the server to hold little more than {before:?}"), DEADLINE, || {
        assert_eq!(cli(&["PING"]), "PONG\n");
        Inspection::of_process(server.pid()).descriptors <= before.descriptors + 12
    });
    let output = server.terminate(libc::SIGTERM).expect_success();
    assert!(!output.text().contains("crashed by signal"), "{}", output.describe());
}
in_mode!(a_listener_sends_strangers_away, Both, redis_with_strangers);

/// One thread that is told of a stranger, and then calls an accept that may block, goes on serving others.
fn select_with_strangers(host: &Host) {
    let port = PORT.to_string();
    let seed = (Random::for_test().word() >> 1).to_string();
    for way in ["select", "epoll"] {
        let server = host.server(python_program()).arg(script("select_echo.py")).args([&port, way]).start();
        host.wait_for_listener(&server, PORT);
        let guest = "import socket, sys, time\n\
            fd = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
            end, turns = time.monotonic() + float(sys.argv[2]), 0\n\
            while time.monotonic() < end:\n    \
                fd.sendall(b'ping'); assert fd.recv(4, socket.MSG_WAITALL) == b'ping'; turns += 1; time.sleep(0.001)\n\
            print('turns', turns)";
        let seconds = (KNOCKING_MILLISECONDS / 1000 + 1).to_string();
        let honest = host.client(python_program()).args(["-c", guest, &port, &seconds]).start();
        let stranger = host.plain(intruder()).args(["knock", &port, &seed, &KNOCKING_MILLISECONDS.to_string()]).start();
        honest.wait(DEADLINE).expect_success().expect_text("turns");
        stranger.wait(DEADLINE).expect_success();
        server.terminate(libc::SIGTERM).expect_success();
    }
}
in_mode!(a_stranger_blocks_nobody, Both, select_with_strangers);

/// A plain server of one user listens; another user takes the abstract name that shunt clients would look for.
fn client_of_a_hijacked_port(host: &Host) {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("without root there is no second user to play the hijacker");
        return;
    }
    let port = PORT.to_string();
    let server = host.plain(python_program()).arg(script("http_echo.py")).arg(&port).start();
    host.wait_for_listener(&server, PORT);
    let copy = host.scratch().copy_program(&intruder(), "intruder");
    let mut hijacker = host.plain(copy).args(["squat", &port]).as_user("nobody").start();
    hijacker.wait_for_output("squatting", DEADLINE);

    let body = "secret".repeat(1000);
    // In a user namespace that does not map them the port's owner and the hijacker have one number, which may be the client's, too.
    let outside: &[&str] = &[];
    for inside in [outside, &["--user", "--map-root-user"], &["--user", "--map-user=65534"], &["--user"]] {
        for _ in 0..5 {
            let client = match inside {
                [] => host.client(program("curl", "curl")),
                words => host.client(program("unshare", "util-linux")).args(words).arg(program("curl", "curl")),
            };
            let answer = client
                .args(["--silent", "--show-error", "--fail", "--data-binary", &body])
                .arg(format!("http://127.0.0.1:{PORT}/"))
                .run(DEADLINE);
            assert!(answer.text() == body, "{inside:?}: {}", answer.describe());
        }
    }
    assert!(tcp_segments_sent(host.namespace()) > 0, "the requests did not go to the port's owner");
    server.terminate(libc::SIGTERM).expect_success();
    let heard = hijacker.kill().text();
    let leaked = heard.lines().find(|line| line.starts_with("heard ") && *line != "heard 0");
    assert!(leaked.is_none(), "the hijacker {}", leaked.unwrap_or_default());
}
in_every_mode!(client_of_a_hijacked_port);

/// A server in namespaces of its own that sees neither the process nor the user of its clients. Two strangers look alike there: each
/// connection brings its link's memory, and nobody is reset.
fn clients_that_have_no_name_at_the_server(host: &Host) {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("without root there is no second user");
        return;
    }
    let port = PORT.to_string();
    let server = host
        .server(program("unshare", "util-linux"))
        .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"])
        .arg(python_program())
        .arg(script("http_echo.py"))
        .arg(&port)
        .start();
    host.wait_for_listener(&server, PORT);
    for user in ["nobody", "daemon", "root", "nobody", "daemon"] {
        let before = tcp_segments_sent(host.namespace());
        // Several connections of one process: the later ones could do without the link.
        let ask = "import sys, urllib.request\n\
            for turn in range(5):\n    \
                body = (sys.argv[2] + str(turn)).encode() * 1000\n    \
                assert urllib.request.urlopen('http://127.0.0.1:' + sys.argv[1], body, 20).read() == body";
        host.client(python_program()).args(["-c", ask, &port, user]).as_user(user).run(DEADLINE);
        if host.mode() == Mode::Both {
            assert_eq!(tcp_segments_sent(host.namespace()) - before, 0, "{user}'s connections went through the kernel");
        }
    }
    server.kill();
}
in_every_mode!(clients_that_have_no_name_at_the_server);
