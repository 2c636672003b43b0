//! Programs of libtirpc print the same with and without the library, at either end, over the kernel's sockets and over shunt's.

mod common;

use common::{gcc, library};
use std::process::Command;

/// Server and client of one row; `$1` programs, `$2` the server's libraries, `$3` the client's, `$4` the server's loop. Each row has a network of its own.
const ROW: &str = r#"
ip link set lo up
LD_PRELOAD="$2" timeout 30 "$1" server port "$4" 2>server.err & server=$!
for i in $(seq 500); do [ -s port ] && break; sleep 0.02; done
LD_PRELOAD="$3" timeout 30 "$1" client "$(cat port)" "$4" 2>client.err
status=$?
kill $server 2>/dev/null
wait $server
exit $status
"#;

/// What is printed with a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Printed {
    Usual,
    /// Connections with it stay libtirpc's.
    Limited,
    Datagrams,
}

/// Each loop, and what is printed with it.
const LOOPS: [(&str, Printed); 5] = [
    ("run", Printed::Usual),
    ("poll", Printed::Usual),
    ("select", Printed::Usual),
    ("limit", Printed::Limited),
    ("udp", Printed::Datagrams),
];

#[test]
fn programs_print_the_same_with_and_without() {
    let scratch = tempfile::tempdir().unwrap();
    let programs = scratch.path().join("programs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.c");
    gcc(&["-O1", "-o", programs.to_str().unwrap(), source, "-ltirpc", "-lpthread"]);
    let (ours, shunt) = (library("libshunt_tirpc.so"), library("libshunt.so"));
    let mut printed_first = std::collections::HashMap::<Printed, String>::new();
    for under in [None, Some(&shunt)] {
        for (number, (server, client)) in [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate() {
            for (name, prints) in LOOPS {
                // The loop is the server's affair: both clients for its own, too, where it is collapsed.
                if prints != Printed::Datagrams && name != "run" && number == 1 {
                    continue;
                }
                let row = format!("shunt {}, server {server}, client {client}, loop {name}", under.is_some());
                let folder = tempfile::tempdir().unwrap();
                let preload = |collapsed: bool| {
                    let libraries = under.into_iter().chain(collapsed.then_some(&ours));
                    libraries.map(|path| path.to_str().unwrap()).collect::<Vec<_>>().join(":")
                };
                let done = Command::new("unshare")
                    .args(["-n", "sh", "-c", ROW, "row"])
                    .arg(&programs)
                    .args([preload(server), preload(client), name.to_owned()])
                    .current_dir(folder.path())
                    .output()
                    .unwrap();
                let told = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
                assert!(done.status.success(), "{row}: {done:?} {}", told("client.err"));
                // A transport of datagrams answers by libtirpc's function, and looks for the next call by ours.
                let replies = ("server.err", "reply in", server && prints == Printed::Usual);
                for (name, what, collapsed) in [replies, ("client.err", "call in", client)] {
                    let text = told(name);
                    let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{row}: {text}"));
                    assert_eq!(line.ends_with("libshunt_tirpc.so"), collapsed, "{row}: {line}");
                }
                let printed = String::from_utf8(done.stdout).unwrap();
                assert!(printed.ends_with("end\n"), "{row}: {printed}");
                assert_eq!(printed_first.entry(prints).or_insert_with(|| printed.clone()), &printed, "{row}");
            }
        }
    }
}
