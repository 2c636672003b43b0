//! Connections behind a translation that are made again with what an earlier one left, which hostd had introduced.

use super::*;
use crate::another_one_s::{connection_is_announced, Ways};
use shunt_testkit::hosts::Host;

impl Scene {
    /// A second host of clients behind the same translated address.
    fn with_neighbour(label: &str) -> Option<Scene> {
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let site = Site::of(&format!("hostd-{label}"), Way::Near, 3)?;
        let hosts: [&Host; 2] = [&site.hosts[0], &site.hosts[1]];
        if let Err(why) = translate(hosts, &site.switch, PUBLISHED, Some(9100), true) {
            let _ = writeln!(std::io::stderr(), "skipped: {label}: {why}");
            return None;
        }
        site.hosts[2].ip(&format!("route add {SERVICE}/32 via {BETWEEN}"));
        Some(Scene { site, _alone: alone })
    }

    fn nft(&self, rules: &str) {
        let mut command = self.site.switch.command(program("nft", "nftables"));
        assert!(spawn(command.arg(rules)).expect("nft").wait().expect("a child").success(), "{rules}");
    }
}

/// Address of the switch, from which masqueraded connections come.
const BETWEEN: &str = "10.77.0.254";

/// hostd ends in the middle of a client's row: the rest of it goes through shared memory as before.
#[test]
fn hostd_is_not_needed_again() {
    let Some(scene) = Scene::new("again", Translated::Both) else { return };
    let server = scene.serve();
    let code = "import sys\n\
        exec(sys.argv[4]); print('on', flush=True); sys.stdin.read()\n\
        sys.argv[3] = 40; exec(sys.argv[4]); print('fine', flush=True)\n";
    until("connections without hostd", || {
        let hostd = scene.hostd(&[]);
        let client = scene.site.start(0, "client", &python_program(), &["-c", code, SERVICE, PUBLISHED, "12", CLIENT]);
        client.wait_for("on");
        drop(hostd);
        let before = scene.site.counted(server.id(), "near");
        assert_eq!(client.end_of_input(), "on\nfine\n");
        scene.site.counted(server.id(), "near") >= before + 20
    });
    assert!(!server.text().contains("astray"));
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// A translation that draws ports of its own: nobody can tell what the next connection looks like to its server, and hostd introduces each.
#[test]
fn ports_that_are_drawn() {
    let Some(scene) = Scene::new("drawn", Translated::Both) else { return };
    scene.nft("flush chain ip n post");
    scene.nft(&format!("add rule ip n post ip daddr {} masquerade fully-random", scene.site.address()));
    let server = scene.serve();
    let _hostd = scene.hostd(&[]);
    until("thirty through shared memory", || {
        let before = scene.site.counted(server.id(), "near");
        scene.client(40);
        let near = scene.site.counted(server.id(), "near");
        assert!(scene.counted("introduced") >= near, "each of them was introduced");
        near > before + 30
    });
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// Clients of two networks that look like one to the server, and whose ports are so few that the translation keeps those of one of them at most: one announces what the other
/// one's connection looks like. Each reaches its server, and hears its own bytes.
#[test]
fn two_networks_behind_one_address() {
    let Some(scene) = Scene::with_neighbour("two") else { return };
    for host in [0, 2] {
        let ports = scene.site.hosts[host].enter(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40015"));
        ports.expect("a setting of the network");
    }
    let server = scene.site.start(1, "server", &python_program(), &["-c", ECHO, &scene.site.address()]);
    scene.site.wait_for_listener(9100);
    let _hostd = scene.hostd(&[]);
    let start =
        |host: usize, name: &str| scene.site.start(host, name, &python_program(), &["-c", NAMED, SERVICE, PUBLISHED, name]);
    let before = scene.site.counted(server.id(), "near");
    until("connections through shared memory", || {
        let mut clients = [start(0, "left"), start(2, "right"), start(0, "third"), start(2, "fourth")];
        for client in &mut clients {
            until("a client's end", || client.has_ended());
            assert!(client.text().ends_with("fine\n"), "{}\n{}", client.text(), client.said_by_all());
        }
        scene.site.counted(server.id(), "near") > before + 100
    });
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// Says each client's bytes back.
const ECHO: &str = "import socket,sys,threading\n\
    l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
    def serve(c):\n\
    \x20   try:\n\
    \x20       while b := c.recv(1000): c.sendall(b)\n\
    \x20   except OSError: pass\n\
    \x20   c.close()\n\
    while True: threading.Thread(target=serve, args=(l.accept()[0],)).start()\n";

/// Makes 200 connections, says its name on each, and hears it. Ports are few, so none is left waiting for its peer's last words.
const NAMED: &str = "import socket,struct,sys,time\n\
    for k in range(200):\n\
    \x20   while True:\n\
    \x20       try: s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30); break\n\
    \x20       except OSError as e:\n\
    \x20           assert e.errno == 99, e\n\
    \x20           time.sleep(0.01)\n\
    \x20   m = (sys.argv[3] + ' ' + str(k) + '.').encode() * 9; s.sendall(m); b = b''\n\
    \x20   while len(b) < len(m):\n\
    \x20       d = s.recv(1000); assert d, (k, b); b += d\n\
    \x20   assert b == m, (b, m)\n\
    \x20   s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()\n\
    print('fine', flush=True)\n";

/// A neighbour behind the same translated address, in a network of its own.
#[test]
fn a_neighbour_announces_another_one_s() {
    let Some(scene) = Scene::with_neighbour("stolen") else { return };
    let server = scene.site.start(1, "server", &python_program(), &["-c", ECHO, &scene.site.address()]);
    scene.site.wait_for_listener(9100);
    let _hostd = scene.hostd(&[]);
    let (server_address, victim) = (scene.site.address(), scene.site.hosts[2].addresses[0].to_string());
    let published = PUBLISHED.parse().expect("a port");
    let ways = Ways { to: (SERVICE, published), seen: (BETWEEN, &server_address), victim: (2, &victim) };
    connection_is_announced(&scene.site, &ways);
    scene.site.run(0, &python_program(), &["-c", NAMED, SERVICE, PUBLISHED, "own"]);
    stop(server, libc::SIGKILL);
    scene.site.finish();
}
