//! Peers that have only a kernel: their connections are taken (`--inet`), driven by the program, and given back, without a byte lost or doubled.

mod again;
mod capture;
mod datagram_strangers;
mod datagrams;
mod kills;
mod paths;
mod site;
mod strangers;
mod tools;
mod traces;
mod users;

use std::time::Duration;

use shunt_testkit::{program, python_program, script};
use site::{until, Site};

/// redis-benchmark says "ERROR" or nothing where the server misbehaves.
#[test]
fn redis_serves_plain_clients() {
    let Some(site) = Site::new("redis-plain") else { return };
    let address = site.address(0);
    let options = ["--port", "6379", "--bind", &address, "--save", "", "--protected-mode", "no"];
    let server = site.start(0, 6379, "server", &program("redis-server", "redis-server"), &options);
    site.wait_for_listener(0, 6379);
    let benchmark = program("redis-benchmark", "redis-tools");
    for load in [
        &["-t", "set,get", "-n", "4000", "-c", "1"][..],
        &["-t", "set,get", "-n", "20000", "-c", "50"],
        &["-t", "set,get", "-n", "40000", "-c", "50", "-P", "16"],
        &["-t", "set,get", "-n", "1000", "-c", "10", "-d", "100000"],
    ] {
        let all = [&["-h", &address, "-q"][..], load].concat();
        let said = site.run(1, 0, &benchmark, &all);
        assert!(said.contains("requests per second") && !said.to_lowercase().contains("error"), "{said}");
        println!("{load:?}: {said}");
    }
    let taken = site.count(&server, "taken");
    assert!(taken > 100, "{taken} connections were taken: {}", server.text());
}

/// Forks, programs that others start, messages with the descriptor, ends, bulk, at random moments; every byte is compared.
/// Nobody names its port: short connections are left alone but for a few, and as soon as one has had many messages all of the next are taken.
#[test]
fn a_server_is_learned() {
    let Some(site) = Site::new("plain-learned") else { return };
    let address = site.address(0);
    let options = ["--port", "6379", "--bind", &address, "--save", "", "--protected-mode", "no"];
    let server = site.start(0, site::LEARNED, "server", &program("redis-server", "redis-server"), &options);
    site.wait_for_listener(0, 6379);
    let benchmark = program("redis-benchmark", "redis-tools");
    let load = |rest: &[&str]| site.run(1, 0, &benchmark, &[&["-h", &address, "-t", "get", "-q"], rest].concat());
    let taken = || site.count(&server, "taken");
    load(&["-k", "0", "-c", "1", "-n", "200"]);
    assert!(taken() < 100 && site.count(&server, "inet-short") >= 100, "{} taken", taken());
    site::until("one that has paid", || {
        let before = taken();
        load(&["-c", "20", "-n", "20000"]);
        taken() >= before + 20
    });
}

#[test]
fn a_server_that_gives_back_at_random() {
    let Some(site) = Site::new("plain-echo") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let server = site.start(0, 7000, "server", &python, &[&script, "serve", &address, "7000"]);
    site.wait_for_listener(0, 7000);
    assert_eq!(site.run(1, 0, &python, &[&script, "talk", &address, "7000", "60"]), "fine\n", "{}", server.text());
    let counts = ["taken", "given-back"].map(|reason| site.count(&server, reason));
    assert!(counts[0] >= 50 && counts[1] >= 20, "{counts:?}: {}", server.text());
}

/// Connections go back under the calls of other threads: a receive that is late, a send that waits for room.
#[test]
fn threads_that_start_programs() {
    let Some(site) = Site::new("plain-crowd") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let server = site.start(0, 7000, "server", &python, &[&script, "crowd", &address, "7000"]);
    site.wait_for_listener(0, 7000);
    assert_eq!(site.run(1, 0, &python, &[&script, "talks", &address, "7000", "160"]), "fine\n", "{}", server.text());
    let counts = ["taken", "given-back"].map(|reason| site.count(&server, reason));
    assert!(counts[0] >= 100 && counts[1] >= 100, "{counts:?}: {}", server.text());
}

/// Several threads that sleep, each in a set with connections of its own, are the kernel's to wake.
#[test]
fn threads_with_sets_of_their_own_are_a_crowd() {
    let Some(site) = Site::new("plain-sets") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let server = site.start(0, 7000, "server", &python, &[&script, "sets", &address, "7000"]);
    site.wait_for_listener(0, 7000);
    assert_eq!(site.run(1, 0, &python, &[&script, "talks", &address, "7000", "60"]), "fine\n", "{}", server.text());
    let counts = ["taken", "given-back", "inet-crowd"].map(|reason| site.count(&server, reason));
    assert!(counts[0] >= 3 && counts[1] >= 3 && counts[2] >= 1, "{counts:?}: {}", server.text());
    assert!(site.given_back(&server, "crowd") >= 3);
}

/// Both ends see what they see of a server on the kernel.
#[test]
fn ends_and_edges_are_the_kernel_s() {
    let Some(site) = Site::new("plain-edges") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peer_edges.py").display().to_string());
    let mut told = Vec::new();
    for (name, port) in [("kernel", "7001"), ("taken", "7002")] {
        // The option names the second port alone.
        let server = site.start(0, 7002, name, &python, &[&script, "serve", &address, port]);
        site.wait_for_listener(0, port.parse().expect("a number"));
        let asked = site.run(1, 0, &python, &[&script, "ask", &address, port]);
        until("the server's last word", || server.text().contains("bulk") && server.text().ends_with('\n'));
        told.push((asked, server.text()));
        // One whose client has ended already is not taken.
        let taken = site.count(&server, "taken");
        assert!(if name == "taken" { taken >= 8 } else { taken == 0 }, "{name}: {taken}");
    }
    assert_eq!(told[1], told[0]);
}

/// A connect that does not wait, and that nobody accepts.
#[test]
fn a_refusal_is_told_as_the_kernel_tells_it() {
    let Some(site) = Site::new("plain-refused") else { return };
    let address = site.address(1);
    let (python, script) = (python_program(), script("plain_peer_edges.py").display().to_string());
    let told = ["7001", "7002"].map(|port| site.run(0, 7002, &python, &[&script, "refused", &address, port]));
    assert_eq!(told[1], told[0]);
}

/// The program connects.
#[test]
fn a_client_of_a_plain_server() {
    let Some(site) = Site::new("plain-client") else { return };
    let address = site.address(1);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let _server = site.start(1, 0, "server", &python, &[&script, "serve", &address, "7000"]);
    site.wait_for_listener(1, 7000);
    assert_eq!(site.run(0, 7000, &python, &[&script, "talk", &address, "7000", "40"]), "fine\n");
}

/// Whatever a process has been told that it sent arrives, though it is killed; and the peer hears of the end.
#[test]
fn a_killed_server_has_sent_what_it_sent() {
    let Some(site) = Site::new("plain-killed") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let (noted, came) = (site.scratch.join("noted"), site.scratch.join("came"));
    for wait in [20, 150, 600] {
        std::fs::write(&noted, [0; 8]).expect("a file");
        let _ = std::fs::remove_file(&came);
        let mut server =
            site.start(0, 7000, "server", &python, &[&script, "count", &address, "7000", &noted.display().to_string()]);
        site.wait_for_listener(0, 7000);
        let client = site.start(1, 0, "client", &python, &[&script, "sink", &address, "7000", &came.display().to_string()]);
        let sent = || u64::from_le_bytes(std::fs::read(&noted).ok().and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 8]));
        until("some numbers", || sent() > 500);
        std::thread::sleep(Duration::from_millis(wait));
        // The program's own process: `shunt run` has become it.
        server.child.kill().expect("killed");
        server.child.wait().expect("ended");
        until("the client's end", || std::fs::read_to_string(&came).is_ok_and(|text| text.contains(' ')));
        let text = std::fs::read_to_string(&came).expect("a file");
        let count: u64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        assert!(count >= sent(), "{} were sent, {text}: {}", sent(), client.text());
        println!("{} were sent, {text}", sent());
    }
}

/// The agent is killed, or ends, in the middle of a conversation.
#[test]
fn an_agent_that_goes_leaves_conversations_alone() {
    for is_killed in [false, true] {
        let Some(mut site) = Site::new("plain-agent") else { return };
        let address = site.address(0);
        let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
        let server = site.start(0, 7000, "server", &python, &[&script, "serve", &address, "7000"]);
        site.wait_for_listener(0, 7000);
        let mut client = site.start(1, 0, "client", &python, &[&script, "talk", &address, "7000", "60"]);
        until("a connection that is taken", || site.count(&server, "taken") > 3);
        let agent = site.agent.take().expect("an agent");
        match is_killed {
            true => drop(agent),
            false => agent.stop(),
        }
        let status = client.child.wait().expect("a child");
        assert!(status.success() && client.text() == "fine\n", "{status} {}\n{}", client.text(), server.text());
    }
}
