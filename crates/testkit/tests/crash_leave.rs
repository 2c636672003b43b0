//! Peers that come and go in good order: who stays keeps nothing of them.
//!
//! A process may keep a few idle links for the next connection, but their number must not grow with the number of
//! peers it has met.

use shunt_testkit::{in_every_mode, Host, Inspection, Process};
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 7000;
const VISITED_PORT: u16 = 7001;
const DEADLINE: Duration = Duration::from_secs(30);
const PEERS: u64 = 40;

/// Idle links, and descriptors of them, that a process may keep in hope of the next connection.
const KEPT: usize = 12;

fn peer() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testkit-peer"))
}

fn serve(host: &Host, port: u16) -> Process<'_> {
    let server = host.server(peer()).arg("serve").arg(port.to_string()).start();
    host.wait_for_listener(&server, port);
    server
}

fn expect_little_kept(host: &Host, process: &Process<'_>, before: Inspection) {
    let held = || Inspection::of_process(process.pid());
    host.wait_until(&format!("no more than {KEPT} links above {before:?}, held {:?}", held()), DEADLINE, || {
        let now = held();
        now.link_mappings <= before.link_mappings + KEPT && now.descriptors <= before.descriptors + KEPT
    });
}

fn a_server_keeps_nothing_of_clients_that_are_gone(host: &Host) {
    let server = serve(host, PORT);
    let before = Inspection::of_process(server.pid());
    for _ in 0..PEERS {
        host.client(peer()).arg("visit").arg(PORT.to_string()).run(DEADLINE);
    }
    expect_little_kept(host, &server, before);
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_server_keeps_nothing_of_clients_that_are_gone);

fn a_client_keeps_nothing_of_servers_that_are_gone(host: &Host) {
    let honest = serve(host, PORT);
    let mut client = host.client(peer()).arg("survive").arg(PORT.to_string()).interactive().start();
    client.wait_for_output("connected", DEADLINE);
    let before = Inspection::of_process(client.pid());
    for seed in 1..=PEERS {
        let visited = serve(host, VISITED_PORT);
        client.write_line(&format!("{VISITED_PORT} visit {seed}"));
        client.wait_for_output(&format!("close 0 {seed} -"), DEADLINE);
        visited.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
    }
    expect_little_kept(host, &client, before);
    client.close_input();
    client.wait(DEADLINE).expect_success();
    honest.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_client_keeps_nothing_of_servers_that_are_gone);

/// A client that came several times in a row, and ended with a connection: that was the last anybody heard of it.
fn a_server_whose_listener_is_shared_keeps_no_link_of_a_client_that_ended(host: &Host) {
    let server = host.server(peer()).arg("serve-shared").arg(PORT.to_string()).start();
    host.wait_for_listener(&server, PORT);
    let links = || Inspection::of_process(server.pid()).link_mappings;
    let before = links();
    host.client(peer()).arg("visit-in-a-row").arg(PORT.to_string()).run(DEADLINE);
    host.wait_until(&format!("no more than {before} links, held {}", links()), DEADLINE, || links() <= before);
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(a_server_whose_listener_is_shared_keeps_no_link_of_a_client_that_ended);
