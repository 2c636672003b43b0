//! `kill -9` of either side: the other sees what the kernel would have shown, soon, and nothing is left.
//!
//! Every scenario has a bystander whose own connection, to the same process, goes on through all of it.

use shunt_testkit::conversation::{End, Pattern};
use shunt_testkit::{in_every_mode, Follower, Host, Inspection, Mode, Process, Random};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 7000;
const VICTIMS_PORT: u16 = 7001;

/// Tells a hang from slowness on a loaded machine; measured times are below a millisecond.
const NOTICED: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(30);

/// How often a side is killed at a random point; both sides together make a thousand where both are under shunt.
/// `SHUNT_TEST_KILLS` asks for another number.
fn kills(host: &Host) -> u64 {
    if let Ok(number) = std::env::var("SHUNT_TEST_KILLS") {
        number.parse().expect("SHUNT_TEST_KILLS is a number")
    } else if host.mode() == Mode::Both {
        500
    } else {
        40
    }
}

fn peer() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testkit-peer"))
}

fn serve(host: &Host, port: u16) -> Process<'_> {
    let server = host.server(peer()).arg("serve").arg(port.to_string()).start();
    host.wait_for_listener(&server, port);
    server
}

/// What the survivor has told so far.
struct Reports {
    follower: Follower,
    opened: u64,
    at_rest: Vec<u64>,
    suffering: Vec<u64>,
    closed: HashMap<u64, (char, u64, End)>,
    closes: u64,
}

impl Reports {
    fn of(process: &Process<'_>) -> Reports {
        Reports {
            follower: process.follow(),
            opened: 0,
            at_rest: Vec::new(),
            suffering: Vec::new(),
            closed: HashMap::new(),
            closes: 0,
        }
    }

    /// Reads the news and checks that every end is one that the kernel could have shown.
    fn update(&mut self) {
        for line in self.follower.new_lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| words[index].parse::<u64>().expect("a number");
            match words[0] {
                "open" => self.opened += 1,
                "rest" => self.at_rest.push(number(1)),
                "suffers" => self.suffering.push(number(1)),
                "close" => {
                    let letter = words[3].chars().next().expect("a letter");
                    let (bytes, end) = (number(4), words[5].parse().expect("an end"));
                    if let Some(pattern) = Pattern::from_letter(letter) {
                        assert!(pattern.allows(end, bytes), "{pattern:?}: {end:?} after {bytes} bytes");
                    }
                    self.closed.insert(number(2), (letter, bytes, end));
                    self.closes += 1;
                }
                _ => {}
            }
        }
    }
}

fn random_pattern(random: &mut Random) -> Pattern {
    Pattern::ALL[random.below(Pattern::ALL.len() as u64) as usize]
}

/// A pause that chooses the point at which the victim dies. Nothing depends on its length.
fn until_a_random_point(random: &mut Random, most_microseconds: u64) {
    std::thread::sleep(Duration::from_micros(random.below(most_microseconds)));
}

/// Spare TCP sockets that a process may keep or have let go meanwhile, whoever it was connected with.
const SPARES: usize = 8;

/// Nothing of the dead is left with a survivor: no mapping, no descriptor, no name.
fn expect_nothing_left(host: &Host, survivor: &Process<'_>, before: Inspection, names_before: usize) {
    host.wait_until(&format!("the survivor to hold no more than {before:?} again"), DEADLINE, || {
        let now = Inspection::of_process(survivor.pid());
        now.link_mappings == before.link_mappings
            && now.link_descriptors == before.link_descriptors
            && now.descriptors <= before.descriptors + SPARES
    });
    host.wait_until(&format!("{names_before} abstract names again"), DEADLINE, || host.abstract_names() == names_before);
}

fn expect_fine(mut bystander: Process<'_>) {
    bystander.close_input();
    let output = bystander.wait(DEADLINE).expect_success();
    let rounds = output.text().lines().find_map(|line| line.strip_prefix("fine ")?.parse().ok()).unwrap_or(0_u64);
    assert!(rounds > 0, "{}", output.describe());
}

fn a_server_outlives_its_clients(host: &Host) {
    let mut random = Random::for_test();
    let server = serve(host, PORT);
    let mut bystander = host.client(peer()).arg("bystander").arg(PORT.to_string()).interactive().start();
    bystander.wait_for_output("connected", DEADLINE);
    let mut reports = Reports::of(&server);
    host.wait_until("the bystander's connection", DEADLINE, || {
        reports.update();
        reports.opened == 1
    });
    let (before, names_before) = (Inspection::of_process(server.pid()), host.abstract_names());

    for round in 1..=kills(host) {
        let letters: String = (0..1 + random.below(3)).map(|_| random_pattern(&mut random).letter()).collect();
        let client = host.client(peer());
        let mut client = client.arg("connect").arg(PORT.to_string()).arg(&letters).arg((round * 10).to_string()).start();
        if random.below(2) == 0 {
            // Anywhere between the first instruction and the transfer.
            until_a_random_point(&mut random, 8000);
        } else {
            client.wait_for_output("connected", DEADLINE);
            until_a_random_point(&mut random, 2000);
        }
        client.kill().expect_signal(libc::SIGKILL);
        host.wait_until(&format!("the server to close {letters}, round {round}"), NOTICED, || {
            reports.update();
            reports.opened == reports.closes + 1
        });
    }
    expect_nothing_left(host, &server, before, names_before);
    expect_fine(bystander);
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_server_outlives_its_clients);

fn a_client_outlives_its_servers(host: &Host) {
    let mut random = Random::for_test();
    let honest = serve(host, PORT);
    let mut client = host.client(peer()).arg("survive").arg(PORT.to_string()).interactive().start();
    client.wait_for_output("connected", DEADLINE);
    let mut reports = Reports::of(&client);
    let (before, names_before) = (Inspection::of_process(client.pid()), host.abstract_names());

    for round in 1..=kills(host) {
        let victim = host.server(peer()).arg("serve").arg(VICTIMS_PORT.to_string()).start();
        if random.below(4) != 0 {
            host.wait_for_listener(&victim, VICTIMS_PORT);
        }
        let seeds = round * 10..round * 10 + 1 + random.below(3);
        for seed in seeds.clone() {
            client.write_line(&format!("{VICTIMS_PORT} {} {seed}", random_pattern(&mut random).letter()));
        }
        until_a_random_point(&mut random, 4000);
        victim.kill().expect_signal(libc::SIGKILL);
        host.wait_until(&format!("the client to report {seeds:?}"), NOTICED, || {
            reports.update();
            seeds.clone().all(|seed| reports.closed.contains_key(&seed))
        });
    }
    expect_nothing_left(host, &client, before, names_before);
    expect_fine(client);
    honest.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_client_outlives_its_servers);

/// At rest, what the kernel shows depends on nothing but unread data: with none the stream ends, with some it is reset.
fn a_server_sees_the_right_end(host: &Host) {
    let server = serve(host, PORT);
    let mut reports = Reports::of(&server);
    for seed in 1..=20 {
        for pattern in [Pattern::Quiet, Pattern::Unread] {
            let seed = seed * 10 + pattern as u64;
            let client = host.client(peer()).arg("connect").arg(PORT.to_string());
            let client = client.arg(pattern.letter().to_string()).arg(seed.to_string()).start();
            host.wait_until("the conversation to rest", DEADLINE, || {
                reports.update();
                reports.at_rest.contains(&seed)
            });
            client.kill();
            host.wait_until("the server to close", NOTICED, || {
                reports.update();
                reports.closed.contains_key(&seed)
            });
            assert_eq!(Some(reports.closed[&seed].2), pattern.end_at_rest(), "{pattern:?}");
        }
    }
    host.expect_path(0);
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_server_sees_the_right_end);

fn a_client_sees_the_right_end(host: &Host) {
    let honest = serve(host, PORT);
    let mut client = host.client(peer()).arg("survive").arg(PORT.to_string()).interactive().start();
    let mut reports = Reports::of(&client);
    for seed in 1..=20 {
        for pattern in [Pattern::Quiet, Pattern::Unread] {
            let seed = seed * 10 + pattern as u64;
            let victim = serve(host, VICTIMS_PORT);
            let mut victims_reports = Reports::of(&victim);
            client.write_line(&format!("{VICTIMS_PORT} {} {seed}", pattern.letter()));
            host.wait_until("the conversation to rest", DEADLINE, || {
                reports.update();
                victims_reports.update();
                reports.at_rest.contains(&seed) && victims_reports.suffering.contains(&seed)
            });
            victim.kill();
            host.wait_until("the client to report", NOTICED, || {
                reports.update();
                reports.closed.contains_key(&seed)
            });
            assert_eq!(Some(reports.closed[&seed].2), pattern.end_at_rest(), "{pattern:?}");
        }
    }
    host.expect_path(0);
    expect_fine(client);
    honest.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_client_sees_the_right_end);
