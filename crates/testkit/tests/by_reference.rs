//! Bytes that go by reference over a plain connection arrive as others do, whatever becomes of the two programs: received in pieces, looked
//! at, spliced; their sender killed, the receiver forked, replaced by exec, or another process that is passed the connection.
//!
//! The programs are in Python (`by_reference/`), and the sender makes its pool by hand. What the kernel does with them is the measure.

use shunt_testkit::{in_every_mode, Host, Mode};
use std::path::PathBuf;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

fn pass(host: &Host, what: &str) {
    let python = || PathBuf::from("/usr/bin/python3");
    let script = |name: &str| format!("{}/tests/by_reference/{name}.py", env!("CARGO_MANIFEST_DIR"));
    let server = host.server(python()).args(["-B", &script("receiver"), what, "7000"]).start();
    host.wait_for_listener(&server, 7000);
    let client = host.client(python()).args(["-B", &script("sender"), what, "7000"]).start().wait(DEADLINE);
    let said = if what == "killed" { client.expect_signal(libc::SIGKILL) } else { client.expect_success() }.text();
    server.wait(DEADLINE).expect_success();
    let expected = if host.mode() == Mode::Both { "by reference" } else { "copied" };
    assert!(said.starts_with(expected), "{what}: {said}");
}

fn in_pieces(host: &Host) {
    pass(host, "stream");
}
in_every_mode!(in_pieces);

fn of_a_killed_sender(host: &Host) {
    pass(host, "killed");
}
in_every_mode!(of_a_killed_sender);

fn by_a_child(host: &Host) {
    pass(host, "forked");
}
in_every_mode!(by_a_child);

fn by_another_image(host: &Host) {
    pass(host, "replaced");
}
in_every_mode!(by_another_image);

fn by_another_process(host: &Host) {
    pass(host, "passed");
}
in_every_mode!(by_another_process);
