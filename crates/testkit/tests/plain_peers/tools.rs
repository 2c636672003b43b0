//! What tools tell of connections that are taken: which end is the program's, one row and one count for each, and none of what was given back.

use shunt_testkit::python_program;

use crate::site::{until, Site};

/// Under shunt: connects to the peer, accepts from it, and answers at both until one ends.
const PROGRAM: &str = "
import select, socket, sys, time
own, peer = sys.argv[1:]
listener = socket.create_server((own, 7041))
ends = [socket.create_connection((peer, 7041)), listener.accept()[0]]
while True:
    for end in select.select(ends, [], [])[0]:
        got = end.recv(100)
        if not got:
            [end.close() for end in ends]
            print('over', flush=True)
            time.sleep(600)
        end.sendall(got)
";

/// The same two connections, and never idle for long.
const PEER: &str = "
import socket, sys, time
own, peer = sys.argv[1:]
ends = [socket.create_server((own, 7041)).accept()[0], socket.create_connection((peer, 7041))]
while True:
    for end in ends:
        end.sendall(b'said')
        assert end.recv(4, socket.MSG_WAITALL) == b'said'
    print('heard', flush=True)
    time.sleep(0.1)
";

#[test]
fn tools_tell_which_end_is_whose() {
    let Some(site) = Site::new("plain-tools") else { return };
    let (python, here, there) = (python_program(), site.address(0), site.address(1));
    let peer = site.start(1, 0, "peer", &python, &["-c", PEER, &there, &here]);
    site.wait_for_listener(1, 7041);
    let program = site.start(0, 7041, "program", &python, &["-c", PROGRAM, &here, &there]);
    until("both connections", || peer.text().contains("heard"));
    let process = format!("/{}", program.child.id());
    let rows = |text: &str| -> Vec<Vec<String>> {
        // Other tests have such connections in namespaces of their own.
        let ours = |line: &&str| line.contains("user-level") && line.contains(&process) && line.contains(":7041");
        text.lines().filter(ours).map(|line| line.split_whitespace().map(str::to_string).collect()).collect()
    };
    let told = site.tool(&["ss"]);
    let rows_now = rows(&told);
    assert_eq!(rows_now.len(), 2, "{told}");
    for row in &rows_now {
        // STATE CARRIER CLIENT PROGRAM SENT RING WAIT SERVER PROGRAM ...
        let (client, server) = ((&row[2], &row[3]), (&row[7], &row[8]));
        let [own, other] = if client.0.starts_with(&here) { [client, server] } else { [server, client] };
        assert_eq!(row[0], "established", "{told}");
        assert!(server.0.ends_with(":7041") && !client.0.ends_with(":7041"), "{told}");
        assert!(own.0.starts_with(&here) && own.1.ends_with(&process), "{told}");
        assert!(other.0.starts_with(&there) && other.1 == "-", "{told}");
    }
    assert_ne!(rows_now[0][2].starts_with(&here), rows_now[1][2].starts_with(&here), "one of each kind: {told}");

    let told = site.tool(&["metrics"]);
    let series: Vec<&str> =
        told.lines().filter(|line| line.starts_with("shunt_connections{") && line.contains("server_port=\"7041\"")).collect();
    assert_eq!(series.len(), 2, "{told}");
    for role in ["client", "server"] {
        let of_role = |line: &&&str| line.contains(&format!("role=\"{role}\"")) && line.ends_with(" 1");
        assert_eq!(series.iter().filter(of_role).count(), 1, "{series:?}");
    }
    assert_eq!(["taken", "accelerated", "given-back"].map(|reason| site.count(&program, reason)), [2, 0, 0]);

    drop(peer);
    until("the end", || program.text().contains("over"));
    until("both to be the kernel's", || site.given_back(&program, "ended") == 2);
    assert_eq!(rows(&site.tool(&["ss", "--all"])), Vec::<Vec<String>>::new());
    assert!(!site.tool(&["metrics"]).contains("server_port=\"7041\""));
    assert_eq!(site.count(&program, "taken"), 2);
}
