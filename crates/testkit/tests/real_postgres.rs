//! PostgreSQL, a process for every connection, with pgbench over TCP.

use shunt_testkit::{in_every_mode, program, Host, Launch, Process};
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 5432;
const DEADLINE: Duration = Duration::from_secs(90);

/// The server refuses to be root; Debian's package makes this user.
const USER: &str = "postgres";

/// Debian keeps the server's programs out of PATH, one directory a version; what it has in PATH are wrappers in Perl.
fn server_program(name: &str) -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin").join(name))
        .filter(|path| path.is_file())
        .collect();
    versions.sort();
    versions.pop().unwrap_or_else(|| program(name, "postgresql"))
}

fn start(host: &Host) -> Process<'_> {
    let parent = host.scratch().join("postgres");
    std::fs::create_dir(&parent).expect("the scratch directory can be written");
    host.plain(program("chown", "coreutils")).arg(owner()).arg(&parent).run(DEADLINE);
    let data = parent.join("data");
    host.plain(server_program("initdb"))
        .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--no-locale", "--username=postgres", "-D"])
        .arg(&data)
        .directory(&parent)
        .as_user(USER)
        .run(DEADLINE);
    let server = host
        .server(server_program("postgres"))
        .arg("-D")
        .arg(&data)
        .args(["-h", "127.0.0.1", "-p", "5432", "-c", "fsync=off", "-c", "unix_socket_directories="])
        .args(["-c", "shared_buffers=32MB", "-c", "max_connections=30", "-c", "autovacuum=off"])
        .directory(&parent)
        .as_user(USER)
        .start();
    host.wait_for_listener(&server, PORT);
    // It listens before it has recovered; until then it answers with an error.
    host.wait_until("the server to answer", DEADLINE, || psql(host, "SELECT 1").run_to_any_end(DEADLINE).text() == "1\n");
    server
}

/// The user that the server will run as: postgres if the test is root, else whoever runs the test.
fn owner() -> String {
    // SAFETY: takes no arguments and cannot fail.
    match unsafe { libc::geteuid() } {
        0 => USER.to_string(),
        other => other.to_string(),
    }
}

fn stop(server: Process<'_>) {
    // A fast shutdown (SIGINT) ends with status 0; a crashed child would have made the server restart and say so.
    let output = server.terminate(libc::SIGINT).expect_success();
    assert!(!output.error_text().contains("terminated by signal"), "{}", output.describe());
    assert!(!output.error_text().contains("PANIC"), "{}", output.describe());
}

fn connection(launch: Launch<'_>) -> Launch<'_> {
    launch.env("PGHOST", "127.0.0.1").env("PGPORT", "5432").env("PGUSER", "postgres").env("PGDATABASE", "postgres")
}

fn psql<'host>(host: &'host Host, statement: &str) -> Launch<'host> {
    let psql = host.client(server_program("psql"));
    connection(psql).args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command", statement])
}

fn ask(host: &Host, statement: &str) -> String {
    psql(host, statement).run(DEADLINE).text()
}

fn pgbench(host: &Host, arguments: &[&str]) {
    let pgbench = connection(host.client(server_program("pgbench"))).args(arguments).run(DEADLINE);
    let text = pgbench.text();
    if !arguments.contains(&"--initialize") {
        assert!(text.contains("number of failed transactions: 0"), "{}", pgbench.describe());
        let processed = text.lines().find_map(|line| line.strip_prefix("number of transactions actually processed: "));
        let (done, asked) = processed.and_then(|numbers| numbers.split_once('/')).unwrap_or_default();
        assert!(done == asked && !done.is_empty(), "{}", pgbench.describe());
    }
}

fn serves_pgbench_and_large_results(host: &Host) {
    let server = start(host);
    pgbench(host, &["--initialize", "--quiet", "--scale=1"]);
    assert_eq!(ask(host, "SELECT count(*) FROM pgbench_accounts"), "100000\n");

    pgbench(host, &["--select-only", "--client=1", "--transactions=2000"]);
    pgbench(host, &["--select-only", "--client=8", "--jobs=2", "--transactions=500"]);
    pgbench(host, &["--select-only", "--client=4", "--connect", "--transactions=20"]);
    pgbench(host, &["--select-only", "--client=4", "--protocol=prepared", "--transactions=500"]);
    pgbench(host, &["--no-vacuum", "--client=1", "--transactions=200"]);
    pgbench(host, &["--no-vacuum", "--client=8", "--jobs=2", "--transactions=50"]);
    // TPC-B's own consistency condition: every transaction adds one delta to an account, a teller and a branch.
    let sums = ask(
        host,
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), \
         (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers), \
         (SELECT count(*) FROM pgbench_history)",
    );
    assert_eq!(sums, "t|t|600\n");

    // A large result, and a large input through COPY.
    let rows: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(ask(host, "SELECT generate_series(1, 200000)") == rows, "a large result differs");
    ask(host, "CREATE TABLE copied (number integer)");
    let input = host.scratch().write("rows", &rows);
    psql(host, "COPY copied FROM STDIN").input_file(input).run(DEADLINE);
    assert_eq!(ask(host, "SELECT sum(number) FROM copied"), "20000100000\n");

    // A client that is interrupted cancels its query over a second connection.
    let slow = psql(host, "SELECT pg_sleep(600)").start();
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    host.wait_until("the query to run", DEADLINE, || ask(host, sleeping) == "1\n");
    let cancelled = slow.terminate(libc::SIGINT);
    assert!(cancelled.error_text().contains("canceling statement due to user request"), "{}", cancelled.describe());
    // No backend is left of all these clients, but for the one that asks.
    let backends = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    host.wait_until("the backends to end", DEADLINE, || ask(host, backends) == "1\n");
    host.expect_path(0);
    stop(server);
}
in_every_mode!(serves_pgbench_and_large_results);

fn survives_a_backend_that_is_told_to_end(host: &Host) {
    let server = start(host);
    let waiting = psql(host, "SELECT pg_sleep(600)").start();
    let sleeping = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    host.wait_until("the query to run", DEADLINE, || ask(host, sleeping).lines().count() == 1);
    assert_eq!(ask(host, &format!("SELECT pg_terminate_backend({})", ask(host, sleeping).trim())), "t\n");
    let ended = waiting.wait(DEADLINE);
    assert!(ended.error_text().contains("terminating connection due to administrator command"), "{}", ended.describe());
    assert_eq!(ask(host, "SELECT 2 + 2"), "4\n");
    stop(server);
}
in_every_mode!(survives_a_backend_that_is_told_to_end);
