//! Servers that run for long: more connections than there are places, of which many were given back, and agents that are started again.

use shunt_testkit::{program, python_program, script};

use super::site::{until, Running, Site};

/// Places of a process.
const PLACES: u64 = 256;

/// A Redis server on the first host.
fn server(site: &Site) -> Running {
    let address = site.address(0);
    let scratch = site.scratch.join("").display().to_string();
    let options = ["--port", "6379", "--bind", &address, "--save", "", "--protected-mode", "no", "--dir", &scratch];
    let server = site.start(0, 6379, "server", &program("redis-server", "redis-server"), &options);
    site.wait_for_listener(0, 6379);
    server
}

fn client(site: &Site, role: &str) -> Running {
    let file = site.scratch.join(role).display().to_string();
    let arguments = [&script("plain_peers.py").display().to_string(), role, &site.address(0), "6379", &file];
    site.start(1, 0, role, &python_program(), &arguments)
}

fn goes_on(site: &Site, role: &str) {
    std::fs::write(site.scratch.join(role), "").expect("a file");
}

fn ends_well(mut client: Running, server: &Running) {
    let status = client.child.wait().expect("a child");
    assert!(status.success() && client.text() == "fine\n", "{status} {}\n{}", client.text(), server.text());
}

/// The connections behind the last place are the kernel's, by name; each that was given back has no place any more, though it lasts.
#[test]
fn connections_that_were_given_back_have_no_place() {
    let Some(site) = Site::new("plain-places") else { return };
    let server = server(&site);
    let client = client(&site, "many");
    until("as many as there are places", || site.count(&server, "inet-full") >= 300 - PLACES);
    assert_eq!(site.count(&server, "taken"), PLACES);
    until("all given back", || site.given_back(&server, "odd") >= PLACES); // an urgent byte each
    goes_on(&site, "many");
    ends_well(client, &server);
    assert_eq!(site.count(&server, "taken"), PLACES + 100, "{}", site.tool(&["why", &server.child.id().to_string()]));
}

/// Those neither that their program has not looked at since: a new connection has the place of one that is only shown.
#[test]
fn connections_of_an_agent_that_is_gone_have_no_place() {
    let Some(mut site) = Site::new("plain-quiet") else { return };
    let server = server(&site);
    let client = client(&site, "quiet");
    until("as many as there are places", || site.scratch.join("quiet.asked").exists());
    assert_eq!(site.count(&server, "taken"), PLACES);
    drop(site.agent.take());
    site.start_agent();
    goes_on(&site, "quiet");
    ends_well(client, &server);
    // While the first agent's guard gives back, and for a second at most after a look for the next one, connections are the kernel's.
    until("a connection of the second agent's", || {
        ping(&site);
        site.count(&server, "taken") > PLACES
    });
}

/// A few connections that ask for enough.
fn ping(site: &Site) {
    let benchmark = program("redis-benchmark", "redis-tools");
    let said = site.run(1, 0, &benchmark, &["-h", &site.address(0), "-q", "-t", "get", "-n", "2000", "-c", "5"]);
    assert!(said.contains("requests per second") && !said.to_lowercase().contains("error"), "{said}");
}

/// Under load, killed and told to end: no connection is lost, and each new agent takes.
#[test]
fn agents_that_are_started_again_take() {
    let Some(mut site) = Site::new("plain-again") else { return };
    let server = server(&site);
    let steady = client(&site, "steady");
    let benchmark = program("redis-benchmark", "redis-tools");
    for is_killed in [true, false, true] {
        let taken = site.count(&server, "taken");
        until("connections that are taken", || {
            ping(&site);
            site.count(&server, "taken") >= taken + 5
        });
        let address = site.address(0);
        let load = ["-h", &address, "-q", "-t", "set,get", "-n", "100000", "-c", "20"];
        let mut load = site.start(1, 0, "load", &benchmark, &load);
        until("the load", || site.agent_says()["connections"]["taken"].as_u64().is_some_and(|count| count >= 15));
        let agent = site.agent.take().expect("an agent");
        match is_killed {
            true => drop(agent),
            false => agent.stop(),
        }
        ping(&site);
        site.start_agent();
        assert!(load.child.wait().expect("a child").success(), "{}", load.text());
        assert!(load.text().contains("requests per second") && !load.text().to_lowercase().contains("error"), "{}", load.text());
    }
    let taken = site.count(&server, "taken");
    until("connections of the last agent's", || {
        ping(&site);
        site.count(&server, "taken") >= taken + 5
    });
    assert!(site.agent_says()["connections"]["given_back"].as_u64().is_some_and(|count| count >= 5), "{}", site.agent_says());
    assert!(site.given_back(&server, "agent") >= 8);
    goes_on(&site, "steady");
    ends_well(steady, &server);
}

/// A server that writes snapshots has its connections back in the kernel, and its user reads why.
#[test]
fn a_snapshot_gives_back_by_name() {
    let Some(site) = Site::new("plain-snapshot") else { return };
    let server = server(&site);
    let steady = client(&site, "steady");
    until("connections that are taken", || site.count(&server, "taken") >= 8);
    ask(&site, &["bgsave"]);
    until("all given back", || site.given_back(&server, "fork") >= 8);
    let said = site.tool(&["why", &server.child.id().to_string()]);
    let is_told = |line: &&str| {
        line.contains("kernel") && ["given-back-fork: ", "given-back-silent: "].iter().any(|told| line.contains(told))
    };
    assert!(said.lines().filter(is_told).count() >= 8, "{said}");
    goes_on(&site, "steady");
    ends_well(steady, &server);
}

/// One command of Redis's, and the answer.
fn ask(site: &Site, words: &[&str]) -> String {
    let address = site.address(0);
    let all = [&["-h", &address, "-p", "6379"][..], words].concat();
    site.run(1, 0, &program("redis-cli", "redis-tools"), &all)
}

/// A child that lives on has no part in the queue, which the next agent lends.
#[test]
fn a_child_keeps_no_queue() {
    let Some(mut site) = Site::new("plain-child") else { return };
    let server = server(&site);
    ping(&site);
    assert!(site.count(&server, "taken") > 0);
    // Redis's child writes, and waits between what it writes.
    for key in 0..50 {
        ask(&site, &["set", &key.to_string(), "x"]);
    }
    ask(&site, &["config", "set", "rdb-key-save-delay", "10000000"]);
    ask(&site, &["bgsave"]);
    assert!(ask(&site, &["info", "persistence"]).contains("rdb_bgsave_in_progress:1"));
    drop(site.agent.take());
    let taken = site.count(&server, "taken");
    site.start_agent();
    until("connections of the second agent's", || {
        ping(&site);
        site.count(&server, "taken") >= taken + 5
    });
    assert!(ask(&site, &["info", "persistence"]).contains("rdb_bgsave_in_progress:1"), "the child lived");
    ask(&site, &["config", "set", "rdb-key-save-delay", "0"]);
}

/// Several threads, that start programs while the agent goes and another comes.
#[test]
fn threads_find_another_agent() {
    let Some(mut site) = Site::new("plain-threads") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let server = site.start(0, 7000, "server", &python, &[&script, "crowd", &address, "7000"]);
    site.wait_for_listener(0, 7000);
    for _ in 0..3 {
        let taken = site.count(&server, "taken");
        let mut load = site.start(1, 0, "load", &python, &[&script, "talks", &address, "7000", "60"]);
        until("connections that are taken", || {
            let talked = site.run(1, 0, &python, &[&script, "talks", &address, "7000", "5"]);
            assert_eq!(talked, "fine\n", "{}", server.text());
            site.count(&server, "taken") >= taken + 5
        });
        drop(site.agent.take());
        site.start_agent();
        let status = load.child.wait().expect("a child");
        assert!(status.success() && load.text() == "fine\n", "{status} {}\n{}", load.text(), server.text());
    }
}
