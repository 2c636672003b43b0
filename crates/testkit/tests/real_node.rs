//! Node.js: its http server and client, keep-alive and not, and raw sockets with back-pressure.

use shunt_testkit::{in_every_mode, program, script, Host};
use std::time::Duration;

const PORT: u16 = 3000;
const DEADLINE: Duration = Duration::from_secs(60);

fn server_and_client_agree(host: &Host) {
    let server = host.server(program("node", "nodejs")).arg(script("node_server.js")).arg(PORT.to_string()).start();
    host.wait_for_listener(&server, PORT);
    host.wait_for_listener(&server, PORT + 1);
    host.client(program("node", "nodejs"))
        .arg(script("node_client.js"))
        .arg(PORT.to_string())
        .run(DEADLINE)
        .expect_text("fine\n");
    host.expect_path(0);
    server.terminate(libc::SIGTERM).expect_success();
}
in_every_mode!(server_and_client_agree);
