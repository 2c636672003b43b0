//! A peer writes random words over the memory it shares: whoever talks to it neither crashes nor hangs, and nobody
//! else's bytes change. `SHUNT_TEST_SCRIBBLE_SECONDS` makes each scenario longer than its ten seconds.

use shunt_testkit::conversation::Pattern;
use shunt_testkit::{in_mode, program, wait_until, Follower, Host, Inspection, Process, Random};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PORT: u16 = 7000;
const HOSTILE_PORT: u16 = 7001;
const DEADLINE: Duration = Duration::from_secs(30);

/// How long one hostile process lives; short, so that many segments are met in every state.
const MILLISECONDS: u64 = 300;

/// Idle links, and descriptors of them, that a process may keep in hope of the next connection.
const KEPT: usize = 12;

fn peer() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testkit-peer"))
}

fn scenario_end() -> Instant {
    let seconds = match std::env::var("SHUNT_TEST_SCRIBBLE_SECONDS") {
        Ok(text) => text.parse().expect("SHUNT_TEST_SCRIBBLE_SECONDS is a number"),
        Err(_) => 10,
    };
    Instant::now() + Duration::from_secs(seconds)
}

fn scribbler<'host>(host: &'host Host, role: &str, port: u16, random: &mut Random) -> Process<'host> {
    let scribbler = PathBuf::from(env!("CARGO_BIN_EXE_testkit-scribbler"));
    let seed = random.word() >> 1;
    // Both parts of the pair are under shunt, so which side it is said to be on makes no difference.
    host.client(scribbler).args([role, &port.to_string(), &seed.to_string(), &MILLISECONDS.to_string()]).start()
}

/// Waits until a hostile process is done or dead; returns whether it got to write anything.
fn outlast(mut hostile: Process<'_>) -> bool {
    wait_until(DEADLINE, || (!hostile.is_running()).then_some(()));
    let scribbled = hostile.output_so_far().contains("scribbling");
    if hostile.is_running() {
        // It hangs in its own library, which it has itself to blame for.
        hostile.kill();
    }
    scribbled
}

/// How many connections a server of conversations has open.
struct Open {
    follower: Follower,
    count: i64,
}

impl Open {
    fn update(&mut self) -> i64 {
        for line in self.follower.new_lines() {
            self.count += i64::from(line.starts_with("open ")) - i64::from(line.starts_with("close "));
        }
        self.count
    }
}

fn expect_fine(mut bystander: Process<'_>) {
    bystander.close_input();
    let output = bystander.wait(DEADLINE).expect_success();
    let rounds = output.text().lines().find_map(|line| line.strip_prefix("fine ")?.parse().ok()).unwrap_or(0_u64);
    assert!(rounds > 100, "{}", output.describe());
}

fn server_of_a_scribbling_client(host: &Host) {
    let mut random = Random::for_test();
    let server = host.server(peer()).arg("serve").arg(PORT.to_string()).start();
    host.wait_for_listener(&server, PORT);
    let mut bystander = host.client(peer()).arg("bystander").arg(PORT.to_string()).interactive().start();
    bystander.wait_for_output("connected", DEADLINE);
    let mut open = Open { follower: server.follow(), count: 0 };
    host.wait_until("the bystander's connection", DEADLINE, || open.update() == 1);
    let (before, names) = (Inspection::of_process(server.pid()), host.abstract_names());

    let (end, mut scribbled) = (scenario_end(), 0);
    while Instant::now() < end {
        scribbled += u32::from(outlast(scribbler(host, "conversations", PORT, &mut random)));
        host.wait_until("the server to close the hostile connections", DEADLINE, || open.update() == 1);
    }
    assert!(scribbled > 0, "no hostile process found a link segment");
    // An address that is not of loopback is looked up, and the socket for such questions stays. So does the one eventfd by
    // which threads that wait for space hear of one another. And a thread that sleeps in accept holds the number that it will
    // give, which it may not have done yet when it was looked at first.
    const QUESTIONS: usize = 1;
    const CLAIMED: usize = 1;
    let others = |seen: &Inspection| seen.descriptors - seen.eventfds;
    host.wait_until(&format!("the server to hold {before:?} again"), DEADLINE, || {
        let now = Inspection::of_process(server.pid());
        now.link_mappings == before.link_mappings
            && now.link_descriptors == before.link_descriptors
            && others(&now) <= others(&before) + QUESTIONS + CLAIMED
            && now.eventfds <= 1
            && host.abstract_names() == names
    });
    expect_fine(bystander);
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_mode!(a_server_survives_a_scribbling_client, Both, server_of_a_scribbling_client);

/// Redis serves all clients in one thread, so a hang on one connection would be a hang for all.
fn redis_with_a_scribbling_client(host: &Host) {
    let mut random = Random::for_test();
    let server = host
        .server(program("redis-server", "redis-server"))
        .args(["--port", &PORT.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(host.scratch().path())
        .start();
    host.wait_for_listener(&server, PORT);
    let cli = |words: &[&str]| {
        let cli = host.client(program("redis-cli", "redis-tools"));
        cli.args(["-p", &PORT.to_string()]).args(words).run(DEADLINE).text()
    };
    let value = "0123456789".repeat(5000);
    let (end, mut scribbled) = (scenario_end(), 0);
    while Instant::now() < end {
        let hostile = scribbler(host, "redis", PORT, &mut random);
        assert_eq!(cli(&["SET", "key", &value]), "OK\n");
        host.client(program("redis-benchmark", "redis-tools"))
            .args(["-q", "-p", &PORT.to_string(), "-t", "set,get", "-n", "2000", "-c", "5"])
            .run(DEADLINE)
            .expect_text("requests per second");
        scribbled += u32::from(outlast(hostile));
        assert!(cli(&["GET", "key"]) == value.clone() + "\n", "the value changed");
        host.wait_until("the server to close the hostile connections", DEADLINE, || {
            cli(&["INFO", "clients"]).contains("connected_clients:1\r")
        });
    }
    assert!(scribbled > 0, "no hostile process found a link segment");
    let output = server.terminate(libc::SIGTERM).expect_success();
    assert!(!output.text().contains("crashed by signal"), "{}", output.describe());
}
in_mode!(redis_survives_a_scribbling_client, Both, redis_with_a_scribbling_client);

/// One thread as well, which gathers (TCP_CORK), sends files and waits for room.
fn nginx_with_a_scribbling_client(host: &Host) {
    let mut random = Random::for_test();
    let directory = host.scratch().path().display().to_string();
    std::fs::create_dir(host.scratch().join("www")).expect("the scratch directory can be written");
    let file = random.bytes(3_000_000);
    for (name, length) in [("0", 100), ("1", 50_000), ("2", file.len())] {
        host.scratch().write(&format!("www/{name}"), &file[..length]);
    }
    let configuration = host.scratch().write(
        "nginx.conf",
        format!(
            "daemon off; worker_processes 1; user root; pid {directory}/nginx.pid; error_log {directory}/error.log;\n\
             events {{}}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; server {{ listen 127.0.0.1:{PORT}; root {directory}/www; }} }}\n"
        ),
    );
    let server = host.server(program("nginx", "nginx-light")).arg("-c").arg(configuration).start();
    host.wait_for_listener(&server, PORT);
    let (end, mut scribbled) = (scenario_end(), 0);
    while Instant::now() < end {
        let hostile = scribbler(host, "http", PORT, &mut random);
        for (name, length) in [("0", 100), ("1", 50_000), ("2", file.len())] {
            let curl = host.client(program("curl", "curl")).args(["--silent", "--show-error", "--fail"]);
            let fetched = curl.arg(format!("http://127.0.0.1:{PORT}/{name}")).run(DEADLINE).stdout;
            assert!(fetched == file[..length], "file {name} changed");
        }
        scribbled += u32::from(outlast(hostile));
    }
    assert!(scribbled > 0, "no hostile process found a link segment");
    server.terminate(libc::SIGQUIT).expect_success();
    // It quotes requests, and some are what the hostile process wrote.
    let log = std::fs::read(host.scratch().join("error.log")).expect("nginx writes its log");
    let log = String::from_utf8_lossy(&log);
    assert!(!log.contains("exited on signal"), "{log}");
}
in_mode!(nginx_survives_a_scribbling_client, Both, nginx_with_a_scribbling_client);

fn client_of_a_scribbling_server(host: &Host) {
    let mut random = Random::for_test();
    let honest = host.server(peer()).arg("serve").arg(PORT.to_string()).start();
    host.wait_for_listener(&honest, PORT);
    let mut client = host.client(peer()).arg("survive").arg(PORT.to_string()).interactive().start();
    client.wait_for_output("connected", DEADLINE);
    let before = Inspection::of_process(client.pid());
    let mut reports = client.follow();
    let (mut asked, mut closed) = (0_u64, 0_u64);

    let (end, mut scribbled) = (scenario_end(), 0);
    while Instant::now() < end {
        let hostile = scribbler(host, "serve", HOSTILE_PORT, &mut random);
        host.wait_for_listener(&hostile, HOSTILE_PORT);
        for pattern in Pattern::ALL {
            asked += 1;
            client.write_line(&format!("{HOSTILE_PORT} {} {asked}", pattern.letter()));
        }
        scribbled += u32::from(outlast(hostile));
        host.wait_until("the client's hostile connections to end", DEADLINE, || {
            closed += reports.new_lines().iter().filter(|line| line.starts_with("close ")).count() as u64;
            closed == asked
        });
    }
    assert!(scribbled > 0, "no hostile process found a link segment");
    // A connection that the client itself ended may leave it a link for the next one, but not one for every server.
    host.wait_until(&format!("the client to hold little more than {before:?}"), DEADLINE, || {
        let now = Inspection::of_process(client.pid());
        now.link_mappings <= before.link_mappings + KEPT && now.descriptors <= before.descriptors + KEPT
    });
    expect_fine(client);
    honest.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_mode!(a_client_survives_a_scribbling_server, Both, client_of_a_scribbling_server);
