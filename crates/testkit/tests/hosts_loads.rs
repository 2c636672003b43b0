//! Real servers under load on one host, real clients on another, and what may happen to either: a process is killed, asked to end, a
//! cable is pulled, agents end and come again. Who is left goes on, or is told what the kernel would tell; nothing stays behind.

mod two_hosts;

use shunt_testkit::program;
use std::path::Path;
use std::time::Duration;
use two_hosts::postgres::{Postgres, SUMS};
use two_hosts::{stop, text, until, Running, Site};

/// Two workers that serve the files of the scratch directory at port 8080, as `further` says.
fn start_nginx(site: &Site, further: &str) -> Running {
    let root = text(site.scratch.path());
    let configuration = format!(
        "daemon off; worker_processes 2; pid {root}/pid; error_log {root}/errors; user root;\nevents {{ worker_connections 64; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen {}:8080; root {root}; {further} }} }}\n",
        site.address()
    );
    let configuration = text(&site.scratch.write("configuration", configuration));
    site.start(1, "nginx", &program("nginx", "nginx-light"), &["-p", &root, "-c", &configuration])
}

fn start_redis(site: &Site) -> Running {
    let address = site.address();
    let arguments = ["--port", "6379", "--bind", &address, "--save", "", "--appendonly", "no", "--protected-mode", "no"];
    let server = site.start(1, "redis", &program("redis-server", "redis-server"), &arguments);
    server.wait_for("Ready to accept connections");
    server
}

/// A load that does not end by itself.
fn start_redis_load(site: &Site, name: &str) -> Running {
    let arguments = ["-h", &site.address(), "-t", "set,get", "-n", "100000000", "-c", "20", "-P", "2", "-d", "700", "-q"];
    site.start(0, name, &program("redis-benchmark", "redis-tools"), &arguments)
}

/// The number behind `field` in what the server tells of itself.
fn redis_number(site: &Site, field: &str) -> u64 {
    let said = site.run(0, &program("redis-cli", "redis-tools"), &["-h", &site.address(), "INFO"]);
    let said = String::from_utf8(said).expect("text");
    let line = said.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{field} in {said}"))
}

fn wait_for_redis_load(site: &Site) {
    let before = redis_number(site, "total_commands_processed");
    until("commands", || redis_number(site, "total_commands_processed") > before + 3000);
}

/// A server that is killed, and one that is asked to end: its clients hear of it, and the next server has their port. A client that is
/// killed: the server forgets it, and serves the others.
fn redis_ends(site: Site) {
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let server = start_redis(&site);
        let mut load = start_redis_load(&site, "load");
        wait_for_redis_load(&site);
        stop(server, signal);
        until("the end of the load", || load.has_ended());
    }
    let server = start_redis(&site);
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let (load, other) = (start_redis_load(&site, "load"), start_redis_load(&site, "other"));
        wait_for_redis_load(&site);
        stop(load, signal);
        // Its own question is a client, too.
        until("the server to notice", || redis_number(&site, "connected_clients") <= 21);
        wait_for_redis_load(&site);
        stop(other, signal);
        until("the server to notice", || redis_number(&site, "connected_clients") == 1);
    }
    drop(server);
    site.finish();
}
between_hosts!(redis_ends);

/// One worker of two is killed with transfers under way, and then all with their master: what the other one sends is whole.
fn nginx_worker_killed(site: Site) {
    let bytes: Vec<u8> = (0..12u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
    site.scratch.write("large", &bytes);
    let server = start_nginx(&site, "limit_rate 8m; limit_rate_after 1m; add_header worker $pid;");
    site.wait_for_listener(8080);
    let curl = program("curl", "curl");
    let url = format!("http://{}:8080/large", site.address());
    for turn in 0..3 {
        let name = |number: usize, what: &str| text(&site.scratch.join(format!("{turn}-{number}.{what}")));
        let mut transfers: Vec<Running> = (0..8)
            .map(|number| {
                let (to, head) = (name(number, "body"), name(number, "head"));
                site.start(0, &format!("curl{turn}-{number}"), &curl, &["-sS", "--max-time", "25", "-o", &to, "-D", &head, &url])
            })
            .collect();
        let worker = |number: usize| {
            let head = std::fs::read_to_string(name(number, "head")).unwrap_or_default();
            head.lines().find_map(|line| line.strip_prefix("worker: ")?.trim().parse::<i32>().ok())
        };
        until("all transfers to begin", || (0..8).all(|number| worker(number).is_some()));
        let killed = worker(turn).expect("it has begun");
        // SAFETY: a process of this test's server.
        unsafe { libc::kill(killed, libc::SIGKILL) };
        until("all transfers to end", || transfers.iter_mut().all(Running::has_ended));
        for (number, transfer) in transfers.iter_mut().enumerate() {
            let got = std::fs::read(name(number, "body")).unwrap_or_default();
            let whole = got == bytes;
            assert!(whole || bytes.starts_with(&got), "transfer {number} has a wrong byte");
            let success = transfer.child.wait().expect("a child").success();
            assert_eq!(success, whole, "transfer {number} is believed to be whole, and has {} bytes", got.len());
            assert!(whole || worker(number) == Some(killed), "transfer {number} was another worker's");
        }
    }
    let small = ["-sS", "--max-time", "25", "-r", "0-9", &url];
    assert_eq!(site.run(0, &curl, &small), bytes[..10]);
    stop(server, libc::SIGTERM);
    site.finish();
}
between_hosts!(nginx_worker_killed);

/// Transfers and commands while the cable is pulled for some time, and then, each time by new connections, while agents end and
/// come again: nobody sees an error, and what is sent is whole.
fn web_and_redis_in_trouble(mut site: Site) {
    let bytes: Vec<u8> = (0..9u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 11) as u8).collect();
    site.scratch.write("large", &bytes);
    let slow = format!("location /slow/ {{ alias {}/; limit_rate 4m; }}", text(site.scratch.path()));
    let nginx = start_nginx(&site, &slow);
    let redis = start_redis(&site);
    site.wait_for_listener(8080);
    let (address, curl, load) =
        (site.address(), text(&program("curl", "curl")), text(&program("redis-benchmark", "redis-tools")));
    // A connect that does not block may time out where it cannot be learnt in a second who took the stream: whoever made it tries again.
    let loops = |site: &Site, name: &str, what: String| {
        let script = format!("while [ -e goes-on ]; do {what} echo once; done");
        site.start(0, name, Path::new("/bin/sh"), &["-c", &script])
    };
    let mut commands = site.start(
        0,
        "commands",
        Path::new(&load),
        // One sort of command: for the next it would connect anew, perhaps while there is no way.
        &["-h", &address, "-t", "set", "-n", "100000000", "-c", "10", "-d", "700", "-q"],
    );
    wait_for_redis_load(&site);
    let workers = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", nginx.id())).expect("its workers");
    let workers: Vec<u32> = workers.split_ascii_whitespace().map(|pid| pid.parse().expect("a number")).collect();
    let is_fast = || site.accelerated(redis.id()) > 0 && workers.iter().any(|pid| site.accelerated(*pid) > 0);
    let ask_both = || {
        redis_number(&site, "connected_clients");
        site.run(0, Path::new(&curl), &["-sS", "--max-time", "25", "-r", "0-9", &format!("http://{address}:8080/large")]);
    };
    ask_both();
    if site.way.begins() {
        // The first connections may be the kernel's on a crowded machine.
        until("fast streams", || {
            ask_both();
            is_fast()
        });
    } else {
        assert!(!is_fast());
    }

    let url = format!("http://{address}:8080/slow/large");
    let slow: Vec<Running> = (0..4)
        .map(|number| {
            let words = ["-sS", "--max-time", "25", "-o", &format!("{number}.slow"), &url];
            site.start(0, &format!("slow{number}"), Path::new(&curl), &words)
        })
        .collect();
    until("transfers", || (0..4).all(|number| site.scratch.join(format!("{number}.slow")).exists()));
    for pause in [60, 500] {
        site.hosts[0].ip("link set left0 down");
        std::thread::sleep(Duration::from_millis(pause));
        site.hosts[0].ip("link set left0 up");
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_for_redis_load(&site);
    assert!(!commands.has_ended(), "{}", commands.said_by_all());
    stop(commands, libc::SIGTERM);
    slow.into_iter().for_each(|one| drop(one.end_of_input()));
    for number in 0..4 {
        assert!(std::fs::read(site.scratch.join(format!("{number}.slow"))).is_ok_and(|got| got == bytes), "transfer {number}");
    }

    site.scratch.write("goes-on", "");
    let mut all: Vec<Running> = (0..2)
        .map(|number| {
            let transfer = format!(
                "took=$({curl} -sS --max-time 25 -w '%{{time_connect}}' -o {number}.fast http://{address}:8080/large); \
                 case $?:$took in 28:0.000000) continue;; 0:*) cmp {number}.fast large || exit 1;; *) exit 1;; esac;"
            );
            loops(&site, &format!("fast{number}"), transfer)
        })
        .collect();
    let sets = format!(
        "{load} -h {address} -t set,get -n 2000 -c 5 -d 700 -q 2>errors-of-load || \
         {{ cat errors-of-load; grep -q 'Connection timed out' errors-of-load && continue; exit 1; }};"
    );
    all.push(loops(&site, "sets", sets));
    for turn in 0..2 * site.agents.len() {
        let agent = site.agents.remove(0);
        if turn < 2 {
            drop(agent);
        } else {
            agent.stop();
        }
        std::thread::sleep(Duration::from_millis(300));
        let agent = site.start_agent(turn % 2);
        site.agents.push(agent);
    }
    let before: Vec<usize> = all.iter().map(|one| one.text().matches("once").count()).collect();
    until("all to go on", || {
        all.iter_mut().zip(&before).all(|(one, before)| {
            assert!(!one.has_ended(), "{}", one.said_by_all());
            one.text().matches("once").count() > before + 1
        })
    });
    std::fs::remove_file(site.scratch.join("goes-on")).expect("a file");
    all.into_iter().for_each(|one| drop(one.end_of_input()));
    stop(nginx, libc::SIGTERM);
    drop(redis);
    site.finish();
}
between_hosts!(web_and_redis_in_trouble);

/// Sessions under load, while the cable is pulled for some time and agents end and come again: no transaction fails, and the balances are
/// right. Then one session's process is killed, with which the server ends all: those of the clients are told, and it recovers.
fn postgres_in_trouble(mut site: Site) {
    let postgres = Postgres::new(&site);
    let server = postgres.start(&site);
    postgres.bench(&site, &["--initialize", "--quiet", "--scale=1"]);
    let load = ["--no-vacuum", "--client=6", "--jobs=2", "--protocol=prepared", "--transactions=1500"];
    let mut bench = postgres.start_bench(&site, "bench", &load);
    let count = |site: &Site| postgres.ask(site, "SELECT count(*) FROM pgbench_history").trim().parse::<u64>().expect("a number");
    until("transactions", || count(&site) > 100);
    assert_eq!(site.accelerated(server.child.id()) > 0, site.way.begins());
    for pause in [60, 500] {
        site.hosts[0].ip("link set left0 down");
        std::thread::sleep(Duration::from_millis(pause));
        site.hosts[0].ip("link set left0 up");
    }
    for turn in 0..site.agents.len() {
        drop(site.agents.remove(0));
        let agent = site.start_agent(turn);
        site.agents.push(agent);
    }
    // On a crowded machine all of them take long; the next one may not.
    while !bench.has_ended() {
        let before = count(&site);
        until("the next transaction", || bench.has_ended() || count(&site) > before);
        std::thread::sleep(Duration::from_millis(500)); // the question is a load, too
    }
    let said = bench.end_of_input();
    assert!(said.contains("number of failed transactions: 0"), "{said}");
    assert_eq!((count(&site), postgres.ask(&site, SUMS).as_str()), (9000, "t|t\n"));

    let mut bench = postgres.start_bench(&site, "second", &["--no-vacuum", "--client=6", "--jobs=2", "--transactions=1000000"]);
    until("transactions", || count(&site) > 9100);
    let session = postgres.ask(&site, "SELECT max(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'");
    // SAFETY: a process of this test's server.
    unsafe { libc::kill(session.trim().parse().expect("a number"), libc::SIGKILL) };
    until("the end of the load", || bench.has_ended());
    let errors = std::fs::read_to_string(site.scratch.join("second.err")).unwrap_or_default();
    assert!(errors.contains("aborted"), "{errors}");
    postgres.wait_until_ready(&site);
    assert_eq!(postgres.ask(&site, SUMS), "t|t\n");
    stop(server, libc::SIGINT);
    site.finish();
}
between_hosts!(postgres_in_trouble);
