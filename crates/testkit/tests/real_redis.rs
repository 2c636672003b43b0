//! Redis: values of every size, pipelines, subscribers, MONITOR, threads for input and output, a fork under load.

use shunt_testkit::{in_every_mode, program, Host, Process, Random, SECOND};
use std::fs;
use std::time::Duration;

const PORT: u16 = 6379;
const DEADLINE: Duration = Duration::from_secs(60);

fn start<'host>(host: &'host Host, options: &[&str]) -> Process<'host> {
    let server = host
        .server(program("redis-server", "redis-server"))
        .args(["--port", "6379", "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(host.scratch().path())
        .args(options)
        .start();
    host.wait_for_listener(&server, PORT);
    server
}

/// SHUTDOWN answers nothing, so the client ends with the server.
fn stop(host: &Host, server: Process<'_>) {
    host.client(program("redis-cli", "redis-tools")).args(["SHUTDOWN", "NOSAVE"]).run_to_any_end(DEADLINE);
    let output = server.wait(DEADLINE).expect_success();
    assert!(!output.text().contains("crashed by signal"), "{}", output.describe());
}

fn ask(host: &Host, words: &[&str]) -> String {
    host.client(program("redis-cli", "redis-tools")).args(words).run(DEADLINE).text()
}

/// redis-benchmark prints one line a test in its quiet form, and "ERROR" or nothing where the server misbehaves.
fn benchmark(host: &Host, options: &[&str]) {
    let output = host.client(program("redis-benchmark", "redis-tools")).arg("-q").args(options).run(DEADLINE);
    assert!(output.text().contains("requests per second"), "{}", output.describe());
    assert!(!output.text().to_lowercase().contains("error"), "{}", output.describe());
}

fn returns_every_value_it_was_given(host: &Host) {
    let server = start(host, &[]);
    let mut random = Random::for_test();
    for size in [0, 1, 2, 63, 64, 65, 4096, 16_383, 65_536, 1_000_000, 8 * 1024 * 1024] {
        let value = random.bytes(size);
        let path = host.scratch().write("value", &value);
        let cli = || host.client(program("redis-cli", "redis-tools"));
        assert_eq!(cli().args(["-x", "SET", "key"]).input_file(&path).run(DEADLINE).text(), "OK\n");
        let mut returned = cli().args(["--raw", "GET", "key"]).run(DEADLINE).stdout;
        assert_eq!(returned.pop(), Some(b'\n'), "redis-cli ends every reply with a line feed");
        assert!(returned == value, "a value of {size} bytes came back as {} other bytes", returned.len());
    }
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(returns_every_value_it_was_given);

fn serves_load_and_pipelines(host: &Host) {
    let server = start(host, &[]);
    benchmark(host, &["-t", "set,get", "-n", "4000", "-c", "1"]);
    benchmark(host, &["-t", "set,get,lrange_100", "-n", "8000", "-c", "50", "-d", "100"]);
    benchmark(host, &["-t", "set,get", "-n", "40000", "-c", "50", "-P", "16"]);
    benchmark(host, &["-t", "set,get", "-n", "1000", "-c", "10", "-d", "100000"]);
    // redis-cli sends all of these before it reads an answer.
    let commands: String = (0..20_000).map(|number| format!("SET pipe:{number} {number}\r\nINCR sum\r\n")).collect();
    let path = host.scratch().write("commands", commands);
    host.client(program("redis-cli", "redis-tools"))
        .arg("--pipe")
        .input_file(path)
        .run(DEADLINE)
        .expect_text("errors: 0, replies: 40000");
    assert_eq!(ask(host, &["GET", "sum"]), "20000\n");
    assert_eq!(ask(host, &["GET", "pipe:19999"]), "19999\n");
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(serves_load_and_pipelines);

fn serves_load_with_threads_for_input_and_output(host: &Host) {
    let server = start(host, &["--io-threads", "2", "--io-threads-do-reads", "yes"]);
    benchmark(host, &["-t", "set,get", "-n", "8000", "-c", "50"]);
    benchmark(host, &["-t", "set,get", "-n", "20000", "-c", "50", "-P", "16", "--threads", "2"]);
    benchmark(host, &["-t", "get", "-n", "1000", "-c", "20", "-d", "20000"]);
    assert_eq!(ask(host, &["SET", "key", "value"]), "OK\n");
    assert_eq!(ask(host, &["GET", "key"]), "value\n");
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(serves_load_with_threads_for_input_and_output);

fn reaches_subscribers_and_monitors(host: &Host) {
    const MESSAGES: usize = 2000;
    let server = start(host, &[]);
    let cli = || host.client(program("redis-cli", "redis-tools"));
    let mut subscribers: Vec<_> = (0..3).map(|_| cli().args(["SUBSCRIBE", "news"]).start()).collect();
    host.wait_until("three subscribers", DEADLINE, || ask(host, &["PUBSUB", "NUMSUB", "news"]) == "news\n3\n");
    let mut monitor = cli().arg("MONITOR").start();
    monitor.wait_for_output("OK", DEADLINE);

    let commands: String = (0..MESSAGES).map(|number| format!("PUBLISH news message-{number}\r\n")).collect();
    let path = host.scratch().write("commands", commands);
    cli().arg("--pipe").input_file(path).run(DEADLINE).expect_text("errors: 0, replies: 2000");

    let last = format!("message-{}", MESSAGES - 1);
    for subscriber in &mut subscribers {
        subscriber.wait_for_output(&last, DEADLINE);
        let text = subscriber.output_so_far();
        let heard: Vec<&str> = text.lines().filter(|line| line.starts_with("message-")).collect();
        let wanted: Vec<String> = (0..MESSAGES).map(|number| format!("message-{number}")).collect();
        assert_eq!(heard, wanted);
    }
    monitor.wait_for_output(&last, DEADLINE);
    assert_eq!(monitor.output_so_far().matches("\"PUBLISH\"").count(), MESSAGES);
    host.expect_path(0);
    for client in subscribers.into_iter().chain([monitor]) {
        client.kill();
    }
    // The server notices that they are gone.
    host.wait_until("no subscriber", DEADLINE, || ask(host, &["PUBSUB", "NUMSUB", "news"]) == "news\n0\n");
    stop(host, server);
}
in_every_mode!(reaches_subscribers_and_monitors);

fn saves_in_a_forked_child_under_load(host: &Host) {
    let server = start(host, &["--enable-debug-command", "local", "--rdbcompression", "no"]);
    assert_eq!(ask(host, &["DEBUG", "POPULATE", "50000", "key", "100"]), "OK\n");
    let mut load = host
        .client(program("redis-benchmark", "redis-tools"))
        .args(["-q", "-t", "set", "-n", "100000000", "-c", "20", "-r", "1000", "-d", "1000"])
        .start();
    for round in 1..=3 {
        assert_eq!(ask(host, &["BGSAVE"]), "Background saving started\n");
        host.wait_until("the end of a save", DEADLINE, || {
            ask(host, &["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0")
        });
        let state = ask(host, &["INFO", "persistence"]);
        assert!(state.contains("rdb_last_bgsave_status:ok") && state.contains(&format!("rdb_saves:{round}")), "{state}");
        assert!(load.is_running(), "{}", load.errors_so_far());
    }
    load.kill();
    assert_eq!(ask(host, &["PING"]), "PONG\n");
    assert!(fs::metadata(host.scratch().join("dump.rdb")).expect("a dump is written").len() > 5_000_000);
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(saves_in_a_forked_child_under_load);

fn closes_when_told_by_a_signal(host: &Host) {
    let server = start(host, &[]);
    let waiting = host.client(program("redis-cli", "redis-tools")).args(["BLPOP", "nothing", "0"]).start();
    host.wait_until("a waiting client", DEADLINE, || ask(host, &["INFO", "clients"]).contains("blocked_clients:1"));
    server.terminate(libc::SIGTERM).expect_success();
    // redis-cli reports the lost connection, on either path, and ends.
    let output = waiting.wait(10 * SECOND);
    assert!(
        output.error_text().contains("closed the connection") || output.error_text().contains("reset"),
        "{}",
        output.describe()
    );
}
in_every_mode!(closes_when_told_by_a_signal);
