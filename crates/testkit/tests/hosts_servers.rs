//! Servers that people run, on one host, and their clients on another: threads, a process for each session, sandboxes, data
//! connections.

mod two_hosts;

use shunt_testkit::{program, python_program, script, Random};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use two_hosts::{until, Running, Site};

fn text(path: &Path) -> String {
    path.to_str().expect("text").to_string()
}

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

/// The programs of PostgreSQL, which Debian keeps out of PATH.
fn postgres(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin").join(name)).collect();
    programs.retain(|path| path.is_file());
    programs.sort();
    programs.pop().unwrap_or_else(|| program(name, "postgresql"))
}

/// A process for each session; the balance that its transactions keep; a result and an input larger than any ring.
fn pgbench(site: Site) {
    let address = site.address();
    let parent = site.scratch.join("postgres");
    fs::create_dir(&parent).expect("a directory");
    // The server refuses to be root.
    let setpriv = program("setpriv", "util-linux");
    let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
    site.run(1, &program("chown", "coreutils"), &["postgres", &text(&parent)]);
    let (initdb, data) = (text(&postgres("initdb")), text(&parent.join("data")));
    let initialize = [&initdb, "--no-sync", "--auth=trust", "--no-locale", "--username=postgres", "-D", &data];
    site.run(1, &setpriv, &[&user[..], &initialize].concat());
    fs::write(parent.join("data/pg_hba.conf"), "host all all 10.77.0.0/24 trust\n").expect("a file");
    let (binary, listen) = (text(&postgres("postgres")), format!("listen_addresses={address}"));
    let serve =
        [&binary, "-D", &data, "-c", &listen, "-c", "fsync=off", "-c", "unix_socket_directories=", "-c", "autovacuum=off"];
    let server = site.start(1, "postgres", &setpriv, &[&user[..], &serve].concat());
    site.wait_for_listener(5432);
    let database = ["-h", &address, "-p", "5432", "-U", "postgres"];
    let client = text(&postgres("psql"));
    let ask = |statement: &str| {
        let arguments = [&database[..], &["--no-psqlrc", "-q", "-t", "-A", "-d", "postgres", "-c", statement]].concat();
        String::from_utf8(site.run(0, Path::new(&client), &arguments)).expect("text")
    };
    let bench = |arguments: &[&str]| {
        let said = site.run(0, &postgres("pgbench"), &[arguments, &database[..], &["postgres"]].concat());
        let said = String::from_utf8(said).expect("text");
        assert!(arguments.contains(&"--initialize") || said.contains("number of failed transactions: 0"), "{said}");
    };
    // It listens before it has recovered; until then it answers with an error.
    until("the server to serve", || {
        let mut command = site.hosts[0].command(postgres("pg_isready"));
        let quiet = command.args(database).stdout(std::process::Stdio::null());
        shunt_testkit::spawn(quiet).and_then(|mut child| child.wait()).expect("it runs").success()
    });
    bench(&["--initialize", "--quiet", "--scale=1"]);
    bench(&["--select-only", "--client=4", "--jobs=2", "--transactions=200"]);
    bench(&["--select-only", "--client=2", "--connect", "--transactions=10"]);
    bench(&["--no-vacuum", "--client=4", "--jobs=2", "--transactions=50"]);
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), \
                (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers), \
                (SELECT count(*) FROM pgbench_history)";
    assert_eq!(ask(sums), "t|t|200\n");
    let rows: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(ask("SELECT generate_series(1, 200000)") == rows, "a large result differs");
    ask("CREATE TABLE copied (number integer)");
    let input = text(&site.scratch.write("rows", &rows));
    ask(&format!("\\copy copied FROM '{input}'"));
    assert_eq!(ask("SELECT sum(number) FROM copied"), "20000100000\n");
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
