//! Servers that people run, on one host, and their clients on another: threads, a process for each session, sandboxes, data
//! connections.

mod two_hosts;

use shunt_testkit::{program, python_program, script, Random};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use two_hosts::postgres::{Postgres, SUMS};
use two_hosts::{text, until, Running, Site};

/// Asks a server to end, and waits until it has.
fn stop(mut server: Running, signal: i32) {
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(server.child.id() as i32, signal) };
    until("the server's end", || server.child.try_wait().expect("a child").is_some());
}

/// Threads that share one station; values of every size, from many connections.
fn memcached(site: Site) {
    let address = site.address();
    let arguments = ["-l", &address, "-p", "11211", "-U", "0", "-t", "4", "-m", "64", "-I", "2m", "-u", "root"];
    let server = site.start(1, "memcached", &program("memcached", "memcached"), &arguments);
    site.wait_for_listener(11211);
    let said = site.run(0, &python_program(), &[&text(&script("memcached_client.py")), "11211", &address]);
    assert!(String::from_utf8_lossy(&said).contains("memcached client: fine"));
    for test in ["--test=set", "--test=get", "--test=mget"] {
        let servers = format!("--servers={address}:11211");
        let load = [&servers, "--concurrency=4", "--execute-number=500", "--initial-load=500", test];
        site.run(0, &program("memcslap", "libmemcached-tools"), &load);
    }
    stop(server, libc::SIGINT);
    site.finish();
}
between_hosts!(memcached);

/// A process for each session; the balance that its transactions keep; a result and an input larger than any ring.
fn pgbench(site: Site) {
    let postgres = Postgres::new(&site);
    let server = postgres.start(&site);
    let bench = |arguments: &[&str]| {
        let said = String::from_utf8(postgres.bench(&site, arguments)).expect("text");
        assert!(arguments.contains(&"--initialize") || said.contains("number of failed transactions: 0"), "{said}");
    };
    bench(&["--initialize", "--quiet", "--scale=1"]);
    bench(&["--select-only", "--client=4", "--jobs=2", "--transactions=200"]);
    bench(&["--select-only", "--client=2", "--connect", "--transactions=10"]);
    bench(&["--no-vacuum", "--client=4", "--jobs=2", "--transactions=50"]);
    assert_eq!(postgres.ask(&site, SUMS), "t|t\n");
    assert_eq!(postgres.ask(&site, "SELECT count(*) FROM pgbench_history"), "200\n");
    let rows: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(postgres.ask(&site, "SELECT generate_series(1, 200000)") == rows, "a large result differs");
    postgres.ask(&site, "CREATE TABLE copied (number integer)");
    let input = text(&site.scratch.write("rows", &rows));
    postgres.ask(&site, &format!("\\copy copied FROM '{input}'"));
    assert_eq!(postgres.ask(&site, "SELECT sum(number) FROM copied"), "20000100000\n");
    stop(server, libc::SIGINT);
    site.finish();
}
between_hosts!(pgbench);

/// A process for each session, in a sandbox; a connection for each file, made by the client and by the server.
fn ftp(site: Site) {
    let (address, root, empty) = (site.address(), site.scratch.join("ftp"), site.scratch.join("empty"));
    fs::create_dir_all(root.join("incoming")).expect("a directory");
    fs::create_dir(&empty).expect("a directory");
    let mut random = Random::for_test();
    let files: Vec<Vec<u8>> = [0, 1, 1000, 300_000, 20_000_000].iter().map(|size| random.bytes(*size)).collect();
    for (index, file) in files.iter().enumerate() {
        site.scratch.write(&format!("ftp/offered-{index}"), file);
        site.scratch.write(&format!("mine-{index}"), file);
    }
    // The server refuses a directory that its user may write.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o555)).expect("its mode");
    fs::set_permissions(root.join("incoming"), fs::Permissions::from_mode(0o777)).expect("its mode");
    let configuration = site.scratch.write(
        "vsftpd.conf",
        format!(
            "listen=YES\nlisten_address={address}\nlisten_port=2121\nbackground=NO\nanonymous_enable=YES\nlocal_enable=NO\n\
             no_anon_password=YES\nanon_root={}\nwrite_enable=YES\nanon_upload_enable=YES\nanon_umask=022\npasv_enable=YES\n\
             port_enable=YES\nconnect_from_port_20=NO\nsecure_chroot_dir={}\nvsftpd_log_file={}\n",
            root.display(),
            empty.display(),
            site.scratch.join("log").display()
        ),
    );
    let server = site.start(1, "vsftpd", &program("vsftpd", "vsftpd"), &[&text(&configuration)]);
    site.wait_for_listener(2121);
    for passive in ["on", "off"] {
        let transfers: String = (0..files.len())
            .map(|index| {
                let [offered, mine] = ["offered", "mine"].map(|name| text(&site.scratch.join(format!("{name}-{index}"))));
                let got = text(&site.scratch.join(format!("{passive}-{index}")));
                let offered = offered.rsplit('/').next().unwrap_or_default();
                format!("get {offered} -o {got}; put -O incoming {mine} -o {passive}-{index};\n")
            })
            .collect();
        let script = format!(
            "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; set ftp:passive-mode {passive};\n\
             open -p 2121 {address};\n{transfers}cls -1 incoming;\nbye;\n"
        );
        let script = site.scratch.write("transfers", script);
        site.run(0, &program("lftp", "lftp"), &["--norc", "-f", &text(&script)]);
        for (index, file) in files.iter().enumerate() {
            for name in [format!("{passive}-{index}"), format!("ftp/incoming/{passive}-{index}")] {
                assert!(fs::read(site.scratch.join(&name)).expect(&name) == *file, "{name}");
            }
        }
    }
    stop(server, libc::SIGTERM);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("its mode");
    site.finish();
}
between_hosts!(ftp);

/// HTTP with and without keep-alive, and sockets with back-pressure.
fn node(site: Site) {
    let (address, node) = (site.address(), program("node", "nodejs"));
    let server = site.start(1, "node", &node, &[&text(&script("node_server.js")), "3000", &address]);
    site.wait_for_listener(3000);
    site.wait_for_listener(3001);
    assert_eq!(site.run(0, &node, &[&text(&script("node_client.js")), "3000", &address]), b"fine\n");
    stop(server, libc::SIGTERM);
    site.finish();
}
between_hosts!(node);

/// Each way of waiting; the client compares what comes back.
fn sockperf(site: Site) {
    let (address, sockperf) = (site.address(), program("sockperf", "sockperf"));
    for (wait, port) in ["recv", "select", "poll", "epoll"].into_iter().zip(11111..) {
        let number = port.to_string();
        let feed = text(&site.scratch.write(wait, format!("T:{address}:{port}\n")));
        let server = match wait {
            "recv" => site.start(1, wait, &sockperf, &["server", "--tcp", "-i", &address, "-p", &number]),
            _ => site.start(1, wait, &sockperf, &["server", "-f", &feed, "-F", wait]),
        };
        site.wait_for_listener(port);
        let ask = ["ping-pong", "-m", "64", "--data-integrity", "--tcp", "-t", "1", "-i", &address, "-p", &number];
        let said = String::from_utf8(site.run(0, &sockperf, &ask)).expect("text");
        // On a crowded machine it may find none of its messages worth an observation.
        let answers =
            said.split_once("ReceivedMessages=").and_then(|(_, rest)| rest.split(['\n', ' ', ';']).next()?.parse::<u64>().ok());
        assert!(answers.is_some_and(|answers| answers > 10) && !said.contains("integrity test failed"), "{said}");
        stop(server, libc::SIGINT);
    }
    site.finish();
}
between_hosts!(sockperf);
