//! A storm of forks with live connections: no byte lost or torn, and nothing left; and connections between two users.

use shunt_testkit::{in_every_mode, program, python_program, script, Host, Inspection};
use std::time::Duration;

const PORT: u16 = 7000;
const DEADLINE: Duration = Duration::from_secs(600);

/// `SHUNT_TEST_FORKS` asks for another number.
fn forks() -> String {
    std::env::var("SHUNT_TEST_FORKS").unwrap_or_else(|_| "300".into())
}

fn a_storm_of_forks(host: &Host) {
    let port = PORT.to_string();
    let server = host.server(python_program()).arg(script("fork_storm.py")).args(["serve", &port]).start();
    host.wait_for_listener(&server, PORT);
    let storm = || host.client(python_program()).arg(script("fork_storm.py")).args(["storm", &port, &forks()]).run(DEADLINE);
    assert_eq!(storm().text(), format!("{} forks\n", forks()));
    let once = Inspection::of_process(server.pid());
    // A second client of the same kind finds nothing that the first one left: its links take the places of those.
    assert_eq!(storm().text(), format!("{} forks\n", forks()));
    host.wait_until(&format!("the server to hold no more than {once:?} and a link"), Duration::from_secs(30), || {
        let now = Inspection::of_process(server.pid());
        now.descriptors <= once.descriptors + 3 && now.link_mappings <= once.link_mappings + 1
    });
    let output = server.terminate(libc::SIGTERM);
    assert!(!output.describe().contains("torn"), "{}", output.describe());
}
in_every_mode!(a_storm_of_forks);

/// A server of one user, clients of another: everything works, and the other user sees nothing of it in /proc.
fn two_users(host: &Host) {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("without root there are no two users to connect");
        return;
    }
    let port = PORT.to_string();
    let server = host.server(python_program()).arg(script("http_echo.py")).arg(&port).start();
    host.wait_for_listener(&server, PORT);
    let body = "between two users ".repeat(2000);
    for _ in 0..20 {
        let answer = host
            .client(program("curl", "curl"))
            .args(["--silent", "--show-error", "--fail", "--data-binary", &body])
            .arg(format!("http://127.0.0.1:{PORT}/"))
            .as_user("nobody")
            .run(DEADLINE);
        assert!(answer.text() == body, "{}", answer.describe());
    }
    let look = format!(
        "import os\nfor what in ('fd', 'maps', 'mem'):\n    path = '/proc/{}/' + what\n    try:\n        \
         os.listdir(path) if what == 'fd' else open(path).read(1)\n        print('seen', what)\n    \
         except PermissionError:\n        print('hidden', what)",
        server.pid()
    );
    let looked = host.plain(python_program()).args(["-c", &look]).as_user("nobody").run(DEADLINE);
    assert_eq!(looked.text(), "hidden fd\nhidden maps\nhidden mem\n");
    server.terminate(libc::SIGTERM);
}
in_every_mode!(two_users);
