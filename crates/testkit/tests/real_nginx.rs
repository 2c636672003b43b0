//! nginx, a master and two workers: files by sendfile, load with and without keep-alive, a backend, reload in mid-load.

use shunt_testkit::{in_every_mode, program, python_program, script, Host, Output, Process, Random, SECOND};
use std::fs;
use std::time::Duration;

const PORT: u16 = 8080;
const BACKEND_PORT: u16 = 8081;
const DEADLINE: Duration = Duration::from_secs(60);
const CONNECTIONS: u64 = 16;

/// Writes the configuration and starts the master. As root, nginx runs its workers as another user, which is part of
/// what is tested: the workers accept on sockets that the master, with other credentials, bound.
fn start<'host>(host: &'host Host, http_options: &str) -> Process<'host> {
    let root = host.scratch().join("www");
    fs::create_dir(&root).expect("the scratch directory can be written");
    let directory = host.scratch().path().display();
    let configuration = host.scratch().write(
        "nginx.conf",
        format!(
            "daemon off; worker_processes 2; pid {directory}/nginx.pid; error_log {directory}/error.log info;\n\
             worker_shutdown_timeout 20s;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
               access_log off; sendfile on; tcp_nopush on; client_max_body_size 64m; client_body_buffer_size 64k;\n\
               client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;\n\
               fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;\n\
               upstream backend {{ server 127.0.0.1:{BACKEND_PORT}; keepalive 4; }}\n\
               {http_options}\n\
               server {{\n\
                 listen 127.0.0.1:{PORT}; root {root};\n\
                 location /hello {{ return 200 hello; }}\n\
                 location /backend/ {{\n\
                   proxy_pass http://backend/; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
                 }}\n\
               }}\n\
             }}\n",
            root = root.display()
        ),
    );
    let server = host
        .server(program("nginx", "nginx-light"))
        .args(["-e".as_ref(), host.scratch().join("error.log").as_os_str()])
        .arg("-c")
        .arg(configuration)
        .start();
    host.wait_for_listener(&server, PORT);
    server
}

fn stop(host: &Host, server: Process<'_>) {
    server.terminate(libc::SIGQUIT).expect_success();
    let log = fs::read_to_string(host.scratch().join("error.log")).expect("nginx writes its log");
    let crash = log.lines().find(|line| line.contains("exited on signal") || line.contains("[alert]"));
    assert!(crash.is_none(), "{}", crash.unwrap_or_default());
}

fn curl(host: &Host, arguments: &[&str]) -> Output {
    host.client(program("curl", "curl")).args(["--silent", "--show-error", "--fail"]).args(arguments).run(DEADLINE)
}

fn wrk(host: &Host, arguments: &[&str]) -> String {
    let output = host
        .client(program("wrk", "wrk"))
        .args(["-t2", &format!("-c{CONNECTIONS}"), "-d1s"])
        .args(arguments)
        .arg("http://127.0.0.1:8080/hello")
        .run(DEADLINE);
    assert!(requests(&output.text()) > 100, "{}", output.describe());
    output.text()
}

/// The number in wrk's line "  12345 requests in 1.00s, 2.00MB read".
fn requests(report: &str) -> u64 {
    let line = report.lines().find(|line| line.contains(" requests in "));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The numbers in wrk's line "Socket errors: connect 0, read 3, write 0, timeout 0", which it leaves out when all are 0.
fn socket_errors(report: &str) -> [u64; 4] {
    let Some(line) = report.lines().find(|line| line.contains("Socket errors:")) else { return [0; 4] };
    let mut numbers = line.split([' ', ',']).filter_map(|word| word.parse().ok());
    std::array::from_fn(|_| numbers.next().expect("wrk reports four numbers"))
}

fn sends_files_of_every_size(host: &Host) {
    let server = start(host, "");
    let mut random = Random::for_test();
    let sizes = [1, 2, 1000, 16_384, 65_536, 1_000_001, 10 * 1024 * 1024];
    let files: Vec<Vec<u8>> = sizes.iter().map(|size| random.bytes(*size)).collect();
    for (index, file) in files.iter().enumerate() {
        host.scratch().write(&format!("www/{index}"), file);
    }
    let url = |index: usize| format!("http://127.0.0.1:8080/{index}");
    // One connection each.
    for (index, file) in files.iter().enumerate() {
        assert!(curl(host, &[&url(index)]).stdout == *file, "file {index} of {} bytes differs", file.len());
    }
    // All over one connection.
    let urls: Vec<String> = (0..files.len()).map(url).collect();
    let all = curl(host, &urls.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(all.stdout == files.concat(), "the files over one connection differ");
    // All at once.
    let pattern = host.scratch().join("fetched-#1");
    let range = format!("http://127.0.0.1:8080/[0-{}]", files.len() - 1);
    curl(host, &["--parallel", "--output", pattern.to_str().expect("a plain path"), &range]);
    for (index, file) in files.iter().enumerate() {
        let fetched = fs::read(host.scratch().join(format!("fetched-{index}"))).expect("curl wrote it");
        assert!(fetched == *file, "file {index} of {} bytes differs in parallel", file.len());
    }
    // A part of a file, and a file that is not there.
    assert!(curl(host, &["--range", "500000-599999", &url(5)]).stdout == files[5][500_000..600_000]);
    let missing = host.client(program("curl", "curl")).args(["-s", "--fail", &url(99)]).run_to_any_end(DEADLINE);
    missing.expect_status(22);
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(sends_files_of_every_size);

fn serves_load(host: &Host) {
    let server = start(host, "keepalive_requests 1000000;");
    for arguments in [&[][..], &["-H", "Connection: close"]] {
        let report = wrk(host, arguments);
        assert_eq!(socket_errors(&report), [0; 4], "{report}");
        assert!(!report.contains("Non-2xx"), "{report}");
    }
    assert_eq!(curl(host, &["http://127.0.0.1:8080/hello"]).text(), "hello");
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(serves_load);

fn reloads_under_load(host: &Host) {
    const RELOADS: u64 = 3;
    const WORKERS: u64 = 2;
    let server = start(host, "keepalive_requests 1000000;");
    let load = host
        .client(program("wrk", "wrk"))
        .args(["-t2", &format!("-c{CONNECTIONS}"), "-d3s", "http://127.0.0.1:8080/hello"])
        .start();
    host.wait_until("nginx to serve the load", 10 * SECOND, || established(host) >= 3);
    for _ in 0..RELOADS {
        let before = host.processes();
        server.signal(libc::SIGHUP);
        // The reload is complete when two processes are there that were not there before: the new workers.
        host.wait_until("two new workers", 20 * SECOND, || {
            host.processes().iter().filter(|pid| !before.contains(pid)).count() >= 2
        });
    }
    let report = load.wait(DEADLINE).expect_success().text();
    assert!(requests(&report) > 100, "{report}");
    assert!(!report.contains("Non-2xx"), "{report}");
    // An old worker closes its idle connections. A request that crosses such a close fails on the kernel too. The client connects
    // again, perhaps to the other old worker, which has not heard of the reload yet: at most two for every connection and reload.
    // No connection may be refused and no request be left without an answer.
    let [connect, read, write, timeout] = socket_errors(&report);
    assert_eq!((connect, timeout), (0, 0), "{report}");
    assert!(read + write <= CONNECTIONS * RELOADS * WORKERS, "{report}");
    // Old workers go away; the master and two workers stay.
    host.wait_until("the old workers to end", 30 * SECOND, || host.processes().len() == 3);
    assert_eq!(curl(host, &["http://127.0.0.1:8080/hello"]).text(), "hello");
    stop(host, server);
}
in_every_mode!(reloads_under_load);

/// How many processes of the test there are: master, workers, and the load's own.
fn established(host: &Host) -> usize {
    host.processes().len()
}

fn passes_requests_to_a_backend(host: &Host) {
    let backend = host.server(python_program()).arg(script("http_echo.py")).arg(BACKEND_PORT.to_string()).start();
    host.wait_for_listener(&backend, BACKEND_PORT);
    let server = start(host, "");
    let body = Random::for_test().bytes(3_000_000);
    let upload = host.scratch().write("upload", &body);
    let data = format!("@{}", upload.display());
    for _ in 0..3 {
        let echoed = curl(host, &["--data-binary", &data, "http://127.0.0.1:8080/backend/echo"]);
        assert!(echoed.stdout == body, "the body came back with {} bytes, changed", echoed.stdout.len());
    }
    let many = curl(host, &["http://127.0.0.1:8080/backend/count/[1-50]"]);
    let expected: String = (1..=50).map(|number| format!("/count/{number}\n")).collect();
    assert_eq!(many.text(), expected);
    host.expect_path(0);
    stop(host, server);
    backend.terminate(libc::SIGTERM).expect_success();
}
in_every_mode!(passes_requests_to_a_backend);
