//! UDP of peers that have only a kernel: a receiver that looks before it sleeps gets what the kernel would have given, whole, in order, and once.

use shunt_testkit::{python_program, script};

use crate::site::{until, Running, Site};

const PORT: &str = "9000";

fn serve(site: &Site, name: &str, address: &str, port: &str, rest: &[&str]) -> Running {
    let script = script("plain_datagrams.py").display().to_string();
    let arguments = [&[script.as_str(), "serve", address, port], rest].concat();
    // The option names one port alone.
    let server = site.start(0, 9000, name, &python_program(), &arguments);
    until("a server", || server.text().contains("ready"));
    server
}

fn ask(site: &Site, role: &str, address: &str, port: &str, rest: &[&str]) -> String {
    let script = script("plain_datagrams.py").display().to_string();
    let arguments = [&[script.as_str(), role, address, port], rest].concat();
    site.run(1, 0, &python_program(), &arguments)
}

/// Whether a server has got all in order, once, and whole, but for what was lost on the way.
fn all_right(server: &Running) -> bool {
    server.text().lines().all(|line| line == "ready" || line.ends_with("wrong 0"))
}

/// Each way of waiting, with clients that are connected and that are not, one datagram at a time and several.
#[test]
fn every_datagram_comes_once_and_in_order() {
    let Some(site) = Site::new("datagrams") else { return };
    let [address, address_6] = [site.address(0), site.hosts[0].addresses[1].to_string()];
    for (mode, address) in [
        ("block", &address),
        ("timeout", &address_6),
        ("poll", &address),
        ("select", &address_6),
        ("epoll", &address_6),
        ("edge", &address),
        ("connected", &address),
        ("connected", &address_6),
    ] {
        let server = serve(&site, mode, address, PORT, &[mode]);
        for how in [&["3000"][..], &["3000", "connected", "ahead"], &["3000", "short", "ahead"]] {
            assert_eq!(ask(&site, "talk", address, PORT, how), "fine\n", "{mode}: {}", server.text());
        }
        assert!(all_right(&server), "{mode}: {}", server.text());
    }
}

/// Forks, programs that it starts, sleeps and work in between.
#[test]
fn a_server_of_datagrams_that_does_other_things() {
    let Some(site) = Site::new("datagrams-odd") else { return };
    let address = site.address(0);
    for mode in ["block", "epoll"] {
        let server = serve(&site, mode, &address, PORT, &[mode, "odd"]);
        for how in [&["600"][..], &["600", "connected"]] {
            assert_eq!(ask(&site, "talk", &address, PORT, how), "fine\n", "{mode}: {}", server.text());
        }
        assert!(all_right(&server), "{mode}: {}", server.text());
    }
}

/// Whether a receiver of the process has an inbox, beside which it looks before it sleeps.
fn looks(server: &Running) -> bool {
    let numbers = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).expect("a process");
    let names = numbers.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    names.into_iter().any(|name| name.to_string_lossy().contains("shunt-inbox"))
}

/// No agent is needed; and at other ports UDP is the kernel's alone.
#[test]
fn receivers_look_at_the_ports_that_are_named() {
    let Some(mut site) = Site::new("datagrams-ports") else { return };
    drop(site.agent.take());
    let address = site.address(0);
    let (named, other) = (serve(&site, "named", &address, PORT, &["block"]), serve(&site, "other", &address, "9001", &["block"]));
    until("looks", || {
        for (server, port) in [(&named, PORT), (&other, "9001")] {
            assert_eq!(ask(&site, "talk", &address, port, &["200"]), "fine\n", "{}", server.text());
        }
        looks(&named)
    });
    assert!(!looks(&other));
}
