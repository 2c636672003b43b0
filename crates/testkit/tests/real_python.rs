//! CPython's own network modules: http.server, asyncio, threads, multiprocessing.

use shunt_testkit::{in_every_mode, program, python_program, script, Host, Random, SECOND};
use std::time::Duration;

const PORT: u16 = 9000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `server_script PORT` and `client_script PORT` against it; the client checks every byte and says that it is
/// fine, and the server ends with status 0 on SIGTERM.
fn converse(host: &Host, server_script: &str, client_script: &str) {
    let port = PORT.to_string();
    let server = host.server(python_program()).arg(script(server_script)).arg(&port).start();
    host.wait_for_listener(&server, PORT);
    let client = host.client(python_program()).arg(script(client_script)).arg(&port).run(DEADLINE);
    assert!(client.text().ends_with("fine\n"), "{}", client.describe());
    host.expect_path(0);
    let ended = server.terminate(libc::SIGTERM).expect_success();
    assert!(!ended.error_text().contains("Traceback"), "{}", ended.describe());
}

fn asyncio_echoes_over_a_hundred_connections(host: &Host) {
    converse(host, "asyncio_echo_server.py", "asyncio_echo_client.py");
}
in_every_mode!(asyncio_echoes_over_a_hundred_connections);

fn threads_share_blocking_sockets(host: &Host) {
    converse(host, "threads_server.py", "threads_client.py");
}
in_every_mode!(threads_share_blocking_sockets);

fn multiprocessing_managers_share_objects(host: &Host) {
    converse(host, "manager_server.py", "manager_client.py");
}
in_every_mode!(multiprocessing_managers_share_objects);

/// Forked children, several accepting processes, executed programs: `part` is what the client asks for.
fn converse_with_processes(host: &Host, part: &str) {
    let port = PORT.to_string();
    let server = host.server(python_program()).arg(script("processes_server.py")).arg(&port).start();
    host.wait_for_listener(&server, PORT);
    let client = host.client(python_program()).arg(script("processes_client.py")).args([&port, part]).run(DEADLINE);
    assert!(client.text().ends_with("fine\n"), "{}", client.describe());
    server.terminate(libc::SIGTERM).expect_success();
}

fn children_serve_connections(host: &Host) {
    converse_with_processes(host, "children");
    host.expect_path(0);
}
in_every_mode!(children_serve_connections);

fn executed_programs_serve_connections(host: &Host) {
    converse_with_processes(host, "executed");
}
in_every_mode!(executed_programs_serve_connections);

fn http_client_reads_from_http_server(host: &Host) {
    converse(host, "http_echo.py", "http_client.py");
}
in_every_mode!(http_client_reads_from_http_server);

fn http_server_module_serves_a_directory(host: &Host) {
    let mut random = Random::for_test();
    let file = random.bytes(5_000_000);
    host.scratch().write("file", &file);
    let server = host.server(python_program()).args(["-m", "http.server", "--bind", "127.0.0.1", &PORT.to_string()]).start();
    host.wait_for_listener(&server, PORT);
    let curl = || host.client(program("curl", "curl")).args(["--silent", "--show-error", "--fail"]);
    for _ in 0..3 {
        assert!(curl().arg("http://127.0.0.1:9000/file").run(DEADLINE).stdout == file, "the file differs");
    }
    curl().arg("http://127.0.0.1:9000/").run(DEADLINE).expect_text("<a href=\"file\">file</a>");
    host.expect_path(0);
    // The module catches an interrupt, says so, and ends with status 0.
    server.signal(libc::SIGINT);
    server.wait(30 * SECOND).expect_success().expect_text("Keyboard interrupt received");
}
in_every_mode!(http_server_module_serves_a_directory);
