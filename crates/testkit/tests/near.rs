//! Network namespaces of one host that have a directory in common: their connections are accelerated, whatever the programs do, and whoever lies there
//! gains nothing. Needs root; skipped with a sentence elsewhere.

mod two_hosts;

use shunt_testkit::{program, python_program, spawn, Random};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use two_hosts::postgres::{Postgres, SUMS};
use two_hosts::{peer, stop, text, until, Running, Site, Way, PORT};

fn site(label: &str) -> Option<Site> {
    Site::new(&format!("near-{label}"), Way::Near)
}

/// Runs a client until one of its connections was accelerated at the server: on a crowded machine the first ones may rightly be the kernel's.
fn until_near(site: &Site, server: &Running, mut client: impl FnMut()) {
    let before = site.counted(server.id(), "near");
    until("a connection through shared memory", || {
        client();
        site.counted(server.id(), "near") > before
    });
}

fn start_redis(site: &Site, name: &str) -> Running {
    let arguments = ["--port", "6379", "--bind", &site.address(), "--save", "", "--appendonly", "no", "--protected-mode", "no"];
    let server = site.start(1, name, &program("redis-server", "redis-server"), &arguments);
    server.wait_for("Ready to accept connections");
    server
}

#[test]
fn redis_under_load() {
    let Some(site) = site("redis") else { return };
    let server = start_redis(&site, "redis");
    let cli = program("redis-cli", "redis-tools");
    until_near(&site, &server, || assert_eq!(site.run(0, &cli, &["-h", &site.address(), "PING"]), b"PONG\n"));
    let before = site.counted(server.id(), "near");
    let load = ["-h", &site.address(), "-t", "set,get,lrange_100", "-n", "20000", "-c", "50", "-d", "700", "-q"];
    site.run(0, &program("redis-benchmark", "redis-tools"), &load);
    assert!(site.counted(server.id(), "near") > before, "none of the load's connections");
    stop(server, libc::SIGTERM);
    until("the names to go", || site.names() == 0);
    site.finish();
}

/// Two workers, each a process with links of its own; a file larger than any ring.
#[test]
fn nginx_with_workers() {
    let Some(site) = site("nginx") else { return };
    let root = text(site.scratch.path());
    let configuration = format!(
        "daemon off; worker_processes 2; pid {root}/pid; error_log {root}/errors; user root;\nevents {{ worker_connections 64; }}\n\
         http {{ access_log off; sendfile on; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen {}:8080; root {root}; }} }}\n",
        site.address()
    );
    let mut random = Random::for_test();
    let file: Vec<u8> = (0..9 << 20).map(|_| random.below(256) as u8).collect();
    site.scratch.write("file", &file);
    let configuration = text(&site.scratch.write("configuration", configuration));
    let server = site.start(1, "nginx", &program("nginx", "nginx-light"), &["-p", &root, "-c", &configuration]);
    site.wait_for_listener(8080);
    let url = format!("http://{}:8080/file", site.address());
    let curl = program("curl", "curl");
    let workers = || -> Vec<u32> {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).unwrap_or_default();
        children.split_ascii_whitespace().map(|pid| pid.parse().expect("a number")).collect()
    };
    until("connections through shared memory", || {
        assert!(site.run(0, &curl, &["-s", &url]) == file, "another file came");
        workers().iter().map(|pid| site.counted(*pid, "near")).sum::<u64>() > 2
    });
    stop(server, libc::SIGTERM);
    site.finish();
}

/// A process for each session, of another user than the client's.
#[test]
fn postgres() {
    let Some(site) = site("postgres") else { return };
    let postgres = Postgres::new(&site);
    let server = postgres.start(&site);
    until_near(&site, &server, || drop(postgres.ask(&site, "SELECT 1")));
    let bench = |arguments: &[&str]| {
        let said = String::from_utf8(postgres.bench(&site, arguments)).expect("text");
        assert!(arguments.contains(&"--initialize") || said.contains("number of failed transactions: 0"), "{said}");
    };
    bench(&["--initialize", "--quiet", "--scale=1"]);
    bench(&["--select-only", "--client=2", "--connect", "--transactions=10"]);
    bench(&["--no-vacuum", "--client=4", "--jobs=2", "--transactions=100"]);
    assert_eq!(postgres.ask(&site, SUMS), "t|t\n");
    stop(server, libc::SIGINT);
    site.finish();
}

/// A client, a proxy and what is behind it, in three namespaces, none of them with any privilege.
#[test]
fn redis_behind_haproxy() {
    let Some(site) = Site::of("near-proxy", Way::Near, 3) else { return };
    let server = start_redis(&site, "redis");
    let configuration = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         listen redis\n bind {}:6379\n server one {}:6379\n",
        site.hosts[2].addresses[0],
        site.address()
    );
    let configuration = text(&site.scratch.write("configuration", configuration));
    let haproxy = text(&program("haproxy", "haproxy"));
    let unprivileged =
        ["--reuid=4003", "--regid=4003", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"];
    let setpriv = program("setpriv", "util-linux");
    let proxy = site.start(2, "proxy", &setpriv, &[&unprivileged[..], &[&haproxy, "-db", "-f", &configuration]].concat());
    let address = site.hosts[2].addresses[0].to_string();
    let client = |words: &[&str]| {
        let all = [&unprivileged[..], words].concat();
        let mut command = site.command(0, &setpriv);
        command.args(all).stdout(Stdio::piped()).stderr(Stdio::null());
        spawn(&mut command).and_then(std::process::Child::wait_with_output).expect("it runs")
    };
    let cli = text(&program("redis-cli", "redis-tools"));
    until("the proxy to serve", || client(&[&cli, "-h", &address, "PING"]).stdout == b"PONG\n");
    let before = [site.counted(proxy.id(), "near"), site.counted(server.id(), "near")];
    let bench = text(&program("redis-benchmark", "redis-tools"));
    until("both legs through shared memory", || {
        let load = ["-h", &address, "-t", "set,get", "-n", "5000", "-c", "20", "-d", "700", "-q"];
        assert!(client(&[&[bench.as_str()], &load[..]].concat()).status.success());
        // The proxy accepts from the client, and connects to the server.
        site.counted(proxy.id(), "near") > before[0] + 1 && site.counted(server.id(), "near") > before[1]
    });
    stop(proxy, libc::SIGTERM);
    stop(server, libc::SIGTERM);
    site.finish();
}

/// Two networks with equal addresses, and one directory: each client reaches the server of its own network, from the same ports as the
/// other's clients, at the same time.
#[test]
fn networks_with_equal_addresses() {
    let (Some(one), Some(other)) = (site("equal-one"), site("equal-other")) else { return };
    let python = python_program();
    let server = "import socket,sys,threading\n\
        l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
        print('ready', flush=True)\n\
        def serve(c):\n\
        \x20   try:\n\
        \x20       while True:\n\
        \x20           b = c.recv(1000)\n\
        \x20           if not b: break\n\
        \x20           c.sendall(sys.argv[2].encode() + b)\n\
        \x20   except ConnectionResetError: pass\n\
        \x20   c.close()\n\
        while True: threading.Thread(target=serve, args=(l.accept()[0],)).start()\n";
    let client = "import errno,socket,struct,sys,time\n\
        made = 0\n\
        for k in range(300):\n\
        \x20   s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
        \x20   s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n\
        \x20   try: s.bind((sys.argv[2], 20000 + k % 7)); s.connect((sys.argv[1], 9100))\n\
        \x20   except OSError as e:\n\
        \x20       assert e.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL), e\n\
        \x20       s.close(); time.sleep(0.005); continue\n\
        \x20   for i in range(3):\n\
        \x20       m = b'%d.%d' % (k, i)\n\
        \x20       s.sendall(m); w = sys.argv[3].encode() + m\n\
        \x20       b = b''\n\
        \x20       while len(b) < len(w):\n\
        \x20           d = s.recv(1000); assert d, (k, b); b += d\n\
        \x20       assert b == w, (b, w)\n\
        \x20   made += 1; s.close()\n\
        print('made', made)\n";
    let directory = one.scratch.join("near");
    let start = |site: &Site, host: usize, code: &str, arguments: &[&str]| {
        let mut command = site.command(host, &python);
        command.env("SHUNT_NEAR", &directory).args(["-c", code]).args(arguments).stdout(Stdio::piped());
        spawn(&mut command).expect("it runs")
    };
    let address = one.address();
    let sites = [(&one, "one"), (&other, "other")];
    let mut servers: Vec<_> = sites.iter().map(|(site, name)| start(site, 1, server, &[&address, name])).collect();
    sites.iter().for_each(|(site, _)| site.wait_for_listener(9100));
    let own = one.hosts[0].addresses[0].to_string();
    let clients: Vec<_> = sites.iter().map(|(site, name)| start(site, 0, client, &[&address, &own, name])).collect();
    for client in clients {
        let output = client.wait_with_output().expect("a child");
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let made: u32 = said.trim().strip_prefix("made ").and_then(|number| number.parse().ok()).expect("a number");
        assert!(made > 100, "{said}");
    }
    let near: u64 = servers.iter().map(|server| one.counted(server.id(), "near")).sum();
    assert!(near > 0, "none went through shared memory");
    for server in &mut servers {
        let _ = (server.kill(), server.wait());
    }
    one.finish();
    other.finish();
}

/// A server that forks for each connection, and whose children exec: what they inherit is the stream.
#[test]
fn forks_and_execs() {
    let Some(site) = site("forks") else { return };
    let python = python_program();
    let server = "import os,socket,sys\n\
        l = socket.create_server((sys.argv[1], 9100))\n\
        while True:\n\
        \x20   c, a = l.accept()\n\
        \x20   if os.fork() == 0:\n\
        \x20       os.dup2(c.fileno(), 0); os.dup2(c.fileno(), 1)\n\
        \x20       os.execvp('cat', ['cat'])\n\
        \x20   c.close()\n\
        \x20   try:\n\
        \x20       while os.waitpid(-1, os.WNOHANG)[0]: pass\n\
        \x20   except ChildProcessError: pass\n";
    let client = "import os,socket,sys\n\
        s = socket.create_connection((sys.argv[1], 9100))\n\
        m = os.urandom(300000)\n\
        if os.fork() == 0:\n\
        \x20   s.sendall(m); s.shutdown(socket.SHUT_WR); os._exit(0)\n\
        r = b''\n\
        while True:\n\
        \x20   b = s.recv(65536)\n\
        \x20   if not b: break\n\
        \x20   r += b\n\
        os.wait()\n\
        assert r == m, (len(r), len(m))\n";
    let server = site.start(1, "server", &python, &["-c", server, &site.address()]);
    site.wait_for_listener(9100);
    until_near(&site, &server, || drop(site.run(0, &python, &["-c", client, &site.address()])));
    for _ in 0..5 {
        site.run(0, &python, &["-c", client, &site.address()]);
    }
    drop(server);
    site.finish();
}

/// Either side is killed at random points: the other sees what the kernel would show it, others go on, and no name stays once somebody has looked.
/// SHUNT_TEST_KILLS=1000 for more, of which two thirds are clients.
#[test]
fn killed() {
    let kills: u64 = std::env::var("SHUNT_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(18);
    let Some(site) = site("killed") else { return };
    let server = site.serve("server");
    until_near(&site, &server, || drop(site.start(0, "first", &peer(), &["bystander", &PORT.to_string()]).end_of_input()));
    let bystander = site.bystander(&server);
    let mut random = Random::for_test();
    for turn in 0..kills - kills / 3 {
        let seed = (1000 * (turn + 1)).to_string();
        let letters = ["vse", "q", "u", "vu", "e"][random.below(5) as usize];
        let victim = site.start(0, "victim", &peer(), &["connect", &PORT.to_string(), letters, &seed]);
        // Some of them before they have connected.
        if turn % 3 != 0 {
            victim.wait_for(&format!("connected {seed}"));
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        victim.kill();
        if turn % 3 != 0 {
            let ended = |line: &str| line.starts_with("close ") && line.split(' ').any(|word| word == seed);
            until("the server to see the end", || server.text().lines().any(ended));
        }
    }
    assert!(bystander.end_of_input().contains("fine "));
    drop(server);
    for turn in 0..kills / 3 {
        let server = site.serve(&format!("server{turn}"));
        let arguments = ["outlive", &PORT.to_string(), ["v", "s", "e"][turn as usize % 3], &(turn + 1).to_string()];
        let client = site.start(0, &format!("survivor{turn}"), &peer(), &arguments);
        client.wait_for("connected");
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        server.kill();
        assert!(client.end_of_input().contains("close "));
    }
    // Whoever connects next removes what the killed have left, when that is a second old.
    let server = site.serve("last");
    until("the names to go", || {
        drop(site.start(0, "looks", &peer(), &["bystander", &PORT.to_string()]).end_of_input());
        site.names() == 0
    });
    drop(server);
    site.finish();
}

/// What a server without shunt hears, and a client: nothing but each other's bytes, also where somebody in the directory claims each connection.
#[test]
fn plain_programs_get_no_byte() {
    let Some(site) = site("plain") else { return };
    let python = python_program();
    let plain_server = "import socket,sys\n\
        l = socket.create_server((sys.argv[1], 9100))\n\
        print('ready', flush=True)\n\
        while True:\n\
        \x20   c, a = l.accept()\n\
        \x20   b = b''\n\
        \x20   while len(b) < 5:\n\
        \x20       d = c.recv(100)\n\
        \x20       if not d: break\n\
        \x20       b += d\n\
        \x20   if b: assert b == b'hello', b; c.sendall(b'world')\n\
        \x20   print('served', len(b), flush=True)\n";
    // Claims whatever name it sees, as the server that it is not: the version is this one's, since it comes from a claim of shunt's own layout.
    let liar = "import os,socket,struct,sys,time\n\
        d, server, version = sys.argv[1], socket.inet_aton(sys.argv[2]), int(sys.argv[3])\n\
        print('ready', flush=True)\n\
        v4 = b'\\0' * 10 + b'\\xff\\xff'\n\
        claims = answers = 0\n\
        held = []\n\
        shown = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); shown.bind('%s/serv-%s-%04x' % (d, (v4 + server).hex(), 9100))\n\
        while True:\n\
        \x20   for n in os.listdir(d):\n\
        \x20       ip, port = bytes.fromhex(n[5:37]), int(n[38:], 16)\n\
        \x20       for mark in range(1269, 1333, 2):\n\
        \x20           try:\n\
        \x20               u = socket.socket(socket.AF_UNIX); u.settimeout(0.02); u.connect(d + '/' + n)\n\
        \x20               u.send(b'shunt-n2' + struct.pack('<IHQ', version, mark, 77) + ip + struct.pack('<H', port) + v4 + server + struct.pack('<H', 9100))\n\
        \x20               claims += 1\n\
        \x20               m, fds, _, _ = socket.recv_fds(u, 100, 4)\n\
        \x20               if m: answers += 1; held.append((u, fds)); print('answer', answers, [os.readlink('/proc/self/fd/%d' % f).split(':')[0] for f in fds], flush=True)\n\
        \x20           except OSError: pass\n";
    let ask = "import socket,sys\n\
        s = socket.create_connection((sys.argv[1], 9100)); s.sendall(b'hello')\n\
        b = b''\n\
        while len(b) < 5:\n\
        \x20   d = s.recv(100)\n\
        \x20   assert d, b\n\
        \x20   b += d\n\
        assert b == b'world', b\n\
        s.settimeout(0.3)\n\
        try: assert s.recv(1) == b''\n\
        except TimeoutError: pass\n";
    let mut command = site.hosts[1].command(&python);
    command.args(["-c", plain_server, &site.address()]).stdout(Stdio::piped());
    let mut plain = spawn(&mut command).expect("it runs");
    site.wait_for_listener(9100);
    let version = shunt_segment::VERSION.to_string();
    let directory = text(&site.scratch.join("near"));
    let mut command = site.hosts[0].command(&python);
    command.args(["-c", liar, &directory, &site.address(), &version]).stdout(Stdio::null());
    let mut liar = spawn(&mut command).expect("it runs");
    for _ in 0..20 {
        site.run(0, &python, &["-c", ask, &site.address()]);
    }
    assert!(plain.try_wait().expect("a child").is_none(), "a plain server got other bytes");
    let _ = (plain.kill(), plain.wait(), liar.kill(), liar.wait());
    // A client without shunt, with the very marks, and its name held by a stranger that answers nothing: the server goes on. It asks at the names of marks alone
    // that say that there is one: others' clients bind none, and anybody might have.
    let server = start_redis(&site, "redis");
    let marked = "import socket,sys\n\
        held = []\n\
        named = [m for m in range(1269, 1333, 2) if m % 4 == 3]; others = [m for m in range(1269, 1333, 2) if m % 4 == 1]\n\
        for has_name, mark in [(False, m) for m in named] + [(True, m) for m in named[:2] + others]:\n\
        \x20   s = socket.socket(); s.bind(('', 0)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mark)\n\
        \x20   if has_name:\n\
        \x20       u = socket.socket(socket.AF_UNIX)\n\
        \x20       u.bind('%s/near-%s%s-%04x' % (sys.argv[2], '0' * 20 + 'ffff', socket.inet_aton(sys.argv[3]).hex(), s.getsockname()[1])); u.listen(1); u.setblocking(False); held.append(u)\n\
        \x20   s.connect((sys.argv[1], 6379)); s.sendall(b'PING\\r\\n')\n\
        \x20   b = s.recv(100)\n\
        \x20   assert b == b'+PONG\\r\\n', b\n\
        \x20   try: asked = has_name and u.accept()\n\
        \x20   except BlockingIOError: asked = None\n\
        \x20   assert not asked or mark in named, mark\n";
    let client = site.hosts[0].addresses[0].to_string();
    let mut command = site.hosts[0].command(&python);
    command.args(["-c", marked, &site.address(), &directory, &client]);
    let status = spawn(&mut command).expect("it runs").wait().expect("a child");
    assert!(status.success(), "a plain client got other bytes");
    assert_eq!(site.counted(server.id(), "near"), 0);
    // 16 without a name, 8 of hostd's; one with it that was silent, as all of its address are from then on. On a crowded machine some are too old.
    let (unknown, refused) = (site.counted(server.id(), "near-unknown"), site.counted(server.id(), "near-refused"));
    assert!((12..=24).contains(&unknown) && refused <= 1, "marks that were seen: {unknown}, {refused}");
    stop(server, libc::SIGTERM);
    site.finish();
}

/// Names that others hold: the connection is the kernel's, and says why.
#[test]
fn names_that_are_taken() {
    let Some(site) = site("taken") else { return };
    let server = start_redis(&site, "redis");
    let squat = "import os,socket,sys\n\
        d, ip = sys.argv[2], socket.inet_aton(sys.argv[3]).hex()\n\
        for port in range(32768, 61000): os.link(d + '/near-squatter', '%s/near-%s%s-%04x' % (d, '0' * 20 + 'ffff', ip, port))\n";
    let directory = site.scratch.join("near");
    std::fs::write(directory.join("near-squatter"), "").expect("a file");
    let client = site.hosts[0].addresses[0].to_string();
    let mut command = site.hosts[0].command(python_program());
    command.args(["-c", squat, &site.address(), &text(&directory), &client]);
    assert!(spawn(&mut command).expect("it runs").wait().expect("a child").success());
    let cli = program("redis-cli", "redis-tools");
    let mut command = site.command(0, &cli);
    command.args(["-h", &site.address(), "PING"]).env("SHUNT_LOG", "fallbacks").stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn(&mut command).and_then(std::process::Child::wait_with_output).expect("it runs");
    assert_eq!(output.stdout, b"PONG\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("near-taken"), "{said}");
    assert_eq!(site.counted(server.id(), "near"), 0);
    stop(server, libc::SIGTERM);
    site.finish();
}

/// Other users at either end, a directory that lets in both, and one that lets in neither.
#[test]
fn users_whom_the_directory_lets_in() {
    let Some(site) = site("users") else { return };
    let python = python_program();
    let server = "import os,socket,sys\n\
        os.setgid(4001); os.setuid(4001)\n\
        l = socket.create_server((sys.argv[1], 9100))\n\
        print('ready', flush=True)\n\
        while True:\n\
        \x20   c, a = l.accept(); c.sendall(b'hi'); c.close()\n";
    let client = "import os,socket,sys\n\
        os.setgid(4002); os.setuid(4002)\n\
        s = socket.create_connection((sys.argv[1], 9100)); assert s.recv(2) == b'hi'; assert s.recv(1) == b''\n";
    let server = site.start(1, "server", &python, &["-c", server, &site.address()]);
    server.wait_for("ready");
    until_near(&site, &server, || drop(site.run(0, &python, &["-c", client, &site.address()])));
    until("the names to go", || site.names() == 0);
    let directory = site.scratch.join("near");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).expect("its mode");
    let before = site.counted(server.id(), "near");
    for _ in 0..3 {
        site.run(0, &python, &["-c", client, &site.address()]);
    }
    assert_eq!((site.counted(server.id(), "near"), site.names()), (before, 0));
    drop(server);
    site.finish();
}

/// What a server has said is heard, however soon it has ended the connection.
#[test]
fn a_server_that_ends_at_once() {
    let Some(site) = site("ends") else { return };
    let python = python_program();
    let server = "import socket,sys\n\
        l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
        print('ready', flush=True)\n\
        while True:\n\
        \x20   c, a = l.accept(); c.sendall(b'hi'); c.close()\n";
    let client = "import socket,sys\n\
        for k in range(200):\n\
        \x20   s = socket.create_connection((sys.argv[1], 9100)); s.settimeout(20)\n\
        \x20   assert s.recv(2) == b'hi' and s.recv(1) == b'', k\n\
        \x20   s.close()\n";
    let server = site.start(1, "server", &python, &["-c", server, &site.address()]);
    server.wait_for("ready");
    until_near(&site, &server, || drop(site.run(0, &python, &["-c", client, &site.address()])));
    drop(server);
    site.finish();
}

/// No /proc, a file system that cannot be written, and little memory: as in a hardened container.
#[test]
fn in_a_container_s_confines() {
    let Some(site) = site("confines") else { return };
    let server = start_redis(&site, "redis");
    let run = |shell: &str| {
        let mut command = site.hosts[0].command(Path::new("/usr/bin/unshare"));
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", shell]);
        command
            .env("SHUNT", text(&site.shunt_path()))
            .env("NEAR", text(&site.scratch.join("near")))
            .env("SERVER", site.address());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawn(&mut command).and_then(std::process::Child::wait_with_output).expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{shell}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ping = "$SHUNT run --hosts none --near $NEAR -- redis-cli -h $SERVER PING";
    for before in [
        "mount -t tmpfs none /proc;",
        "mount -o bind / / && mount -o remount,ro,bind / && mount -o bind $NEAR $NEAR && mount -o remount,rw,bind $NEAR;",
        "ulimit -v 1000000; ulimit -n 64;",
    ] {
        until_near(&site, &server, || assert_eq!(run(&format!("{before} {ping}")), "PONG\n", "{before}"));
    }
    stop(server, libc::SIGTERM);
    site.finish();
}

/// 64 MiB for the client and all that it makes, as a limit of memory has it: two hundred connections, each used.
#[test]
fn under_a_limit_of_memory() {
    let Some(site) = site("memory") else { return };
    let (v1, v2) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
    let (root, limit) = if v1.is_dir() { (v1, "memory.limit_in_bytes") } else { (v2, "memory.max") };
    let group = root.join(format!("shunt-near-{}", std::process::id()));
    if std::fs::create_dir(&group).is_err() || std::fs::write(group.join(limit), "64M").is_err() {
        let _ = std::fs::remove_dir(&group);
        let _ = writeln!(std::io::stderr(), "skipped: no limit of memory can be set here");
        return;
    }
    let server = start_redis(&site, "redis");
    let code = "import os,socket,sys\n\
        open(sys.argv[2] + '/cgroup.procs', 'w').write(str(os.getpid()))\n\
        held = []\n\
        for k in range(200):\n\
        \x20   s = socket.create_connection((sys.argv[1], 6379)); held.append(s)\n\
        for s in held: s.sendall(b'PING\\r\\n')\n\
        for s in held: assert s.recv(100) == b'+PONG\\r\\n'\n";
    until_near(&site, &server, || drop(site.run(0, &python_program(), &["-c", code, &site.address(), &text(&group)])));
    stop(server, libc::SIGTERM);
    std::fs::remove_dir(&group).expect("nobody is in it");
    site.finish();
}
