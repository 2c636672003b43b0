//! The field's own measuring programs. Their figures do not matter here: that they run to their end and count right does.

use shunt_testkit::{in_every_mode, program, Host};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// The number after `"name":` in JSON text; the programs' reports are flat enough for that.
fn json_number(text: &str, section: &str, name: &str) -> f64 {
    let from = text.find(&format!("\"{section}\"")).unwrap_or_else(|| panic!("no {section} in {text}"));
    let rest = &text[from..];
    let at = rest.find(&format!("\"{name}\"")).unwrap_or_else(|| panic!("no {name} in {rest}"));
    let value = rest[at..].split_once(':').expect("a value follows").1;
    let digits: String = value.trim_start().chars().take_while(|c| c.is_ascii_digit() || ".eE+-".contains(*c)).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} is {value:.40}"))
}

fn iperf3_counts_every_byte(host: &Host) {
    const BYTES: f64 = 100_000_000.0;
    for options in [&[][..], &["--parallel", "4"], &["--reverse"], &["--parallel", "4", "--reverse"], &["--bidir"]] {
        let server = host
            .server(program("iperf3", "iperf3"))
            .args(["--server", "--one-off", "--bind", "127.0.0.1", "--port", "5201"])
            .start();
        host.wait_for_listener(&server, 5201);
        let report = host
            .client(program("iperf3", "iperf3"))
            .args(["--client", "127.0.0.1", "--port", "5201", "--json", "--bytes", "100M"])
            .args(options)
            .run(DEADLINE);
        let text = report.text();
        assert!(!text.contains("\"error\""), "{}", report.describe());
        let sent = json_number(&text, "sum_sent", "bytes");
        let received = json_number(&text, "sum_received", "bytes");
        // With both directions at once, the test ends when they have sent so much together.
        let wanted = if options == ["--bidir"] { 1.0 } else { BYTES };
        assert!(sent >= wanted, "{options:?}: sent {sent}");
        // The sender stops counting at the end of the test, and so does the receiver, with bytes under way; these are
        // never more than what the sender's and the receiver's buffers hold.
        assert!(received > 0.0 && received <= sent + 64e6, "{options:?}: sent {sent}, received {received}");
        server.wait(DEADLINE).expect_success();
    }
    host.expect_path(0);
}
in_every_mode!(iperf3_counts_every_byte);

/// sockperf takes seconds to warm up and to wind down, so its servers, one for every way of waiting, work side by side.
fn sockperf_finds_its_own_bytes(host: &Host) {
    let sockperf = || program("sockperf", "sockperf");
    // A server that is given a feed file multiplexes; one that is not blocks in recv, for one client at a time.
    let tests: [(Option<&str>, &[&str]); 6] = [
        (None, &["ping-pong", "-m", "64", "--data-integrity"]),
        (None, &["ping-pong", "-m", "20000", "--full-rtt"]),
        (None, &["throughput", "-m", "1400"]),
        (Some("select"), &["ping-pong", "-m", "64", "--data-integrity"]),
        (Some("poll"), &["ping-pong", "-m", "64", "--data-integrity"]),
        (Some("epoll"), &["ping-pong", "-m", "64", "--data-integrity"]),
    ];
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for ((wait, test), port) in tests.into_iter().zip(11111_u16..) {
        let server = host.server(sockperf()).arg("server");
        let server = match wait {
            None => server.args(["--tcp", "-i", "127.0.0.1", "-p", &port.to_string()]),
            Some(wait) => {
                let feed = host.scratch().write(&format!("feed-{wait}"), format!("T:127.0.0.1:{port}\n"));
                server.arg("-f").arg(feed).args(["-F", wait])
            }
        };
        let server = server.start();
        host.wait_for_listener(&server, port);
        servers.push(server);
        let client = host.client(sockperf()).args(test);
        clients.push(client.args(["--tcp", "-t", "1", "-i", "127.0.0.1", "-p", &port.to_string()]).start());
    }
    for client in clients {
        let output = client.wait(DEADLINE).expect_success().expect_text("Summary:");
        assert!(!output.text().contains("data integrity test failed"), "{}", output.describe());
    }
    host.expect_path(0);
    for server in servers {
        // sockperf's server ends by an interrupt, with status 0.
        server.terminate(libc::SIGINT).expect_success();
    }
}
in_every_mode!(sockperf_finds_its_own_bytes);

fn netperf_runs_its_stream_and_request_tests(host: &Host) {
    // Debian keeps netperf in its section "non-free".
    let server = host.server(program("netserver", "netperf")).args(["-D", "-L", "127.0.0.1", "-p", "12865"]).start();
    host.wait_for_listener(&server, 12865);
    for test in ["TCP_STREAM", "TCP_MAERTS", "TCP_SENDFILE", "TCP_RR", "TCP_CRR"] {
        let file = host.scratch().write("file", vec![7; 1_000_000]);
        let report = host
            .client(program("netperf", "netperf"))
            .args(["-H", "127.0.0.1", "-p", "12865", "-P", "0", "-v", "0", "-l", "1", "-t", test])
            .arg("-F")
            .arg(file)
            .run(DEADLINE);
        // The figure ends the report. Where only the server sends, both ends set an alarm of a second; a client whose own comes
        // between the stream's end and its being stopped says so before the figure, on the kernel as well.
        let figure: f64 = report.text().split_ascii_whitespace().next_back().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        assert!(figure > 0.0, "{test}: {}", report.describe());
    }
    host.expect_path(0);
    // The parent has no handler, so the signal that ends it is the one it is sent.
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
}
in_every_mode!(netperf_runs_its_stream_and_request_tests);
