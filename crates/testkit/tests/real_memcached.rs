//! memcached, a server of several threads: values of every size, counters, the protocol's own conformance suite, load.

use shunt_testkit::{in_every_mode, program, python_program, script, Host, Process, SECOND};
use std::time::Duration;

const PORT: u16 = 11211;
const DEADLINE: Duration = Duration::from_secs(60);

fn start(host: &Host) -> Process<'_> {
    let server = host
        .server(program("memcached", "memcached"))
        .args(["-l", "127.0.0.1", "-p", "11211", "-U", "0", "-t", "4", "-m", "64", "-I", "2m"])
        .as_user("nobody")
        .start();
    host.wait_for_listener(&server, PORT);
    server
}

/// memcached ends with status 0 on an interrupt ("Signal handled: Interrupt.").
fn stop(server: Process<'_>) {
    server.terminate(libc::SIGINT).expect_success();
}

fn keeps_values_of_many_threads_apart(host: &Host) {
    let server = start(host);
    host.client(python_program())
        .arg(script("memcached_client.py"))
        .arg(PORT.to_string())
        .run(DEADLINE)
        .expect_text("memcached client: fine");
    host.expect_path(0);
    stop(server);
}
in_every_mode!(keeps_values_of_many_threads_apart);

fn passes_the_protocol_conformance_suite(host: &Host) {
    let server = start(host);
    // Some of the suite's expectations are older than this server; what counts is that shunt changes nothing, so the
    // verdicts are compared with those of plain programs on a second port.
    let plain_server = host
        .plain(program("memcached", "memcached"))
        .args(["-l", "127.0.0.1", "-p", "11212", "-U", "0", "-m", "64", "-I", "2m"])
        .as_user("nobody")
        .start();
    host.wait_for_listener(&plain_server, 11212);
    for protocol in ["-a", "-b"] {
        let suite = program("memccapable", "libmemcached-tools");
        let arguments = ["-h", "127.0.0.1", "-t", "20", protocol, "-p"];
        let expected = host.plain(suite.clone()).args(arguments).arg("11212").start();
        let seen = host.client(suite).args(arguments).arg("11211").run_to_any_end(DEADLINE);
        let expected = expected.wait(DEADLINE);
        assert!(expected.text().matches("[pass]").count() > 10, "{}", expected.describe());
        assert_eq!(seen.text(), expected.text(), "\n{}", seen.describe());
    }
    stop(plain_server);
    stop(server);
}
in_every_mode!(passes_the_protocol_conformance_suite);

fn serves_load(host: &Host) {
    let server = start(host);
    for test in ["set", "get", "mget"] {
        host.client(program("memcslap", "libmemcached-tools"))
            .args(["--servers=127.0.0.1:11211", "--concurrency=8", "--execute-number=1000", "--initial-load=1000"])
            .arg(format!("--test={test}"))
            .run(DEADLINE);
    }
    let statistics =
        host.client(program("memcstat", "libmemcached-tools")).arg("--servers=127.0.0.1:11211").run(10 * SECOND).text();
    let count = |name: &str| -> u64 {
        statistics
            .lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
            .unwrap_or_else(|| panic!("{name} is not in {statistics}"))
    };
    assert!(count("cmd_set") >= 8000, "{statistics}");
    assert!(count("cmd_get") >= 8000, "{statistics}");
    host.expect_path(0);
    stop(server);
}
in_every_mode!(serves_load);
