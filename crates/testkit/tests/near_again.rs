//! Connections between network namespaces that are made again with what an earlier one left: that they are, and what becomes of them when an end dies, forks, execs,
//! or is one of several. Needs root; skipped with a sentence elsewhere.

mod another_one_s;
mod two_hosts;

use shunt_testkit::{python_program, spawn, Random};
use std::process::Stdio;
use std::time::Duration;
use two_hosts::{stop, text, until, Running, Site, Way};

fn site(label: &str) -> Option<Site> {
    Site::new(&format!("again-{label}"), Way::Near)
}

/// Says each client's bytes back behind its own process's number.
const SERVER: &str = "import os,signal,socket,sys,threading\n\
    l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
    for k in range(int(sys.argv[2])):\n\
    \x20   if os.fork() == 0: break\n\
    print('ready', flush=True)\n\
    def serve(c):\n\
    \x20   try:\n\
    \x20       while True:\n\
    \x20           b = c.recv(1000)\n\
    \x20           if not b: break\n\
    \x20           c.sendall(b)\n\
    \x20   except (ConnectionResetError, BrokenPipeError): pass\n\
    \x20   c.close()\n\
    while True:\n\
    \x20   c = l.accept()[0]\n\
    \x20   if len(sys.argv) > 3: threading.Thread(target=serve, args=(c,)).start()\n\
    \x20   else: serve(c)\n";

/// One connection of a client's.
const ONE: &str = "import os,random,socket,struct,sys,threading,time\n\
    def one(k):\n\
    \x20   s = socket.create_connection((sys.argv[1], 9100))\n\
    \x20   m = struct.pack('QQ', os.getpid(), k) * 20\n\
    \x20   s.sendall(m); b = b''\n\
    \x20   while len(b) < len(m):\n\
    \x20       d = s.recv(1000); b += d\n\
    \x20       if not d: raise ConnectionResetError(k)\n\
    \x20   assert b == m, (b, m)\n\
    \x20   return s\n";

fn start(site: &Site, processes: u32) -> Running {
    let server = site.start(1, "server", &python_program(), &["-c", SERVER, &site.address(), &processes.to_string()]);
    server.wait_for("ready");
    site.wait_for_listener(9100);
    server
}

fn with_threads(site: &Site) -> Running {
    let server = site.start(1, "threads", &python_program(), &["-c", SERVER, &site.address(), "0", "threads"]);
    server.wait_for("ready");
    server
}

fn run(site: &Site, code: &str, more: &[&str]) -> String {
    let code = format!("{ONE}{code}");
    String::from_utf8(site.run(0, &python_program(), &[&["-c", &code, &site.address()], more].concat())).expect("text")
}

/// The directory is away for a moment: no name can be bound or asked at, and connections come about all the same.
#[test]
fn without_names() {
    let Some(site) = site("names") else { return };
    let server = start(&site, 0);
    let directory = text(&site.scratch.join("near"));
    let code = "for k in range(12): one(k).close(); time.sleep(0.01)\n\
        os.rename(sys.argv[2], sys.argv[2] + '-away')\n\
        for k in range(20): one(k).close(); time.sleep(0.002)\n\
        os.rename(sys.argv[2] + '-away', sys.argv[2])\n";
    // Twelve have names.
    until("a connection through shared memory without a name", || {
        let before = site.counted(server.id(), "near");
        run(&site, code, &[&directory]);
        site.counted(server.id(), "near") > before + 12
    });
    stop(server, libc::SIGTERM);
    until("the names to go", || site.names() == 0);
    site.finish();
}

/// Calls that do not wait, connections beside each other, and one end or the other that closes first.
#[test]
fn in_many_ways() {
    let Some(site) = site("ways") else { return };
    let server = with_threads(&site);
    let code = "import select\n\
        def nonblocking(k):\n\
        \x20   s = socket.socket(); s.setblocking(False); e = s.connect_ex((sys.argv[1], 9100)); assert e in (0, 115), e\n\
        \x20   assert select.select([], [s], [], 10)[1] and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0\n\
        \x20   s.setblocking(True); s.sendall(b'hello'); assert s.recv(5, socket.MSG_WAITALL) == b'hello'\n\
        \x20   assert s.getpeername() == (sys.argv[1], 9100) and s.getsockname()[1] != 0\n\
        \x20   s.shutdown(socket.SHUT_WR); assert s.recv(1) == b''; s.close()\n\
        for k in range(60): one(k).close(); nonblocking(k)\n\
        held = [one(k) for k in range(40)]\n\
        assert len({s.getsockname() for s in held}) == 40\n\
        for s in held: s.sendall(b'x'); assert s.recv(1) == b'x'\n\
        for s in held: s.close()\n\
        def many(t):\n\
        \x20   for k in range(50): one(1000 * t + k).close()\n\
        all = [threading.Thread(target=many, args=(t,)) for t in range(4)]\n\
        for t in all: t.start()\n\
        for t in all: t.join()\n\
        print('fine')\n";
    until("connections through shared memory", || {
        assert_eq!(run(&site, code, &[]), "fine\n");
        site.counted(server.id(), "near") > 20
    });
    stop(server, libc::SIGTERM);
    site.finish();
}

/// A thread connects while another one forks and execs, and the client becomes another program that goes on.
#[test]
fn forks_and_execs() {
    let Some(site) = site("forks") else { return };
    let server = with_threads(&site);
    let code = "import subprocess\n\
        over = False\n\
        def forks():\n\
        \x20   while not over:\n\
        \x20       p = os.fork()\n\
        \x20       if p == 0: os.execvp('sleep', ['sleep', '0.05'])\n\
        \x20       os.waitpid(p, 0)\n\
        t = threading.Thread(target=forks); t.start()\n\
        for k in range(150): one(k).close()\n\
        over = True; t.join()\n\
        s = one(1); p = os.fork()\n\
        for k in range(20): one(k).close()\n\
        s.sendall(b'%d' % (p == 0)) if p else None\n\
        if p: os.waitpid(p, 0)\n\
        else: os._exit(0)\n\
        assert s.recv(1) == b'0'; s.close()\n\
        s = one(1); os.set_inheritable(s.fileno(), True); code = \"import socket,sys; s = socket.socket(fileno=int(sys.argv[1])); s.sendall(b'x'); assert s.recv(1) == b'x'; print(s.getsockname(), s.getpeername())\"\n\
        said = subprocess.run([sys.executable, '-c', code, str(s.fileno())], close_fds=False, check=True, stdout=subprocess.PIPE).stdout.decode()\n\
        assert said == '%s %s\\n' % (s.getsockname(), s.getpeername()), said\n\
        s.close()\n\
        n = int(sys.argv[2])\n\
        if n: os.execv(sys.executable, [sys.executable, '-c', sys.argv[3], sys.argv[1], str(n - 1), sys.argv[3]])\n\
        print('fine')\n";
    let whole = format!("{ONE}{code}");
    until("connections through shared memory", || {
        assert_eq!(run(&site, code, &["2", &whole]), "fine\n");
        site.counted(server.id(), "near") > 20
    });
    stop(server, libc::SIGTERM);
    site.finish();
}

/// Two processes accept in turn: what is announced to one of them is the other's. Each connection comes about.
#[test]
fn several_processes_accept() {
    let Some(site) = site("several") else { return };
    let mut server = start(&site, 1);
    assert_eq!(run(&site, "for k in range(300): one(k).close()\nprint('fine')\n", &[]), "fine\n");
    let child = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).expect("its children");
    assert!(!server.has_ended());
    for pid in child.split_ascii_whitespace() {
        // SAFETY: a plain call, about a child of the server that this test has started.
        unsafe { libc::kill(pid.parse().expect("a number"), libc::SIGKILL) };
    }
    drop(server);
    site.finish();
}

/// Either end is killed at any moment of a row of connections: the other one goes on with the next process, and no name is left for long.
#[test]
fn killed() {
    let kills: u64 = std::env::var("SHUNT_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let Some(site) = site("killed") else { return };
    let mut random = Random::for_test();
    let endless = format!("{ONE}k = 0\nwhile True:\n\x20   k += 1; one(k).close()\n\x20   if k == 20: print('on', flush=True)\n");
    let server = start(&site, 0);
    for turn in 0..kills {
        let victim = site.start(0, &format!("victim{turn}"), &python_program(), &["-c", &endless, &site.address()]);
        victim.wait_for("on");
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        victim.kill();
        assert_eq!(run(&site, "for k in range(8): one(k).close()\nprint('fine')\n", &[]), "fine\n");
    }
    assert!(site.counted(server.id(), "near") > 0);
    drop(server);
    // A client whose servers are killed.
    let code = "made = 0\n\
        while made < 3000:\n\
        \x20   try: one(made).close(); made += 1\n\
        \x20   except OSError: time.sleep(0.002)\n\
        \x20   if os.path.exists(sys.argv[2]): break\n\
        print('fine')\n";
    let over = text(&site.scratch.join("over"));
    let mut command = site.command(0, &python_program());
    command.args(["-c", &format!("{ONE}{code}"), &site.address(), &over]).stdout(Stdio::piped());
    let survivor = spawn(&mut command).expect("it runs");
    for turn in 0..kills {
        let name = format!("server{turn}");
        let server = site.start(1, &name, &python_program(), &["-c", SERVER, &site.address(), "0"]);
        server.wait_for("ready");
        std::thread::sleep(Duration::from_micros(20_000 + random.below(50_000)));
        server.kill();
    }
    std::fs::write(&over, "").expect("a file");
    let said = survivor.wait_with_output().expect("a child");
    assert!(said.status.success() && said.stdout == b"fine\n");
    let server = start(&site, 0);
    until("the names to go", || {
        run(&site, "one(1).close()\n", &[]);
        site.names() == 0
    });
    stop(server, libc::SIGTERM);
    site.finish();
}

/// Two networks of equal addresses and ports with one directory, whose clients make rows of connections at the same time: each reaches its own server.
#[test]
fn networks_with_equal_addresses() {
    let (Some(one), Some(other)) = (site("one"), site("two")) else { return };
    let directory = one.scratch.join("near");
    let python = python_program();
    let start = |site: &Site, host: usize, code: &str, more: &[&str]| {
        let mut command = site.command(host, &python);
        command.env("SHUNT_NEAR", &directory).args(["-c", code, &site.address()]).args(more).stdout(Stdio::piped());
        spawn(&mut command).expect("it runs")
    };
    let server = "import socket,sys\n\
        l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
        while True:\n\
        \x20   c = l.accept()[0]; c.sendall(sys.argv[2].encode()); c.recv(1); c.close()\n";
    let client = "import socket,sys\n\
        for k in range(300):\n\
        \x20   s = socket.create_connection((sys.argv[1], 9100)); b = s.recv(100); assert b == sys.argv[2].encode(), b; s.close()\n";
    let sites = [(&one, "one"), (&other, "other")];
    let mut servers: Vec<_> = sites.iter().map(|(site, name)| start(site, 1, server, &[name])).collect();
    sites.iter().for_each(|(site, _)| site.wait_for_listener(9100));
    let clients: Vec<_> = sites.iter().map(|(site, name)| start(site, 0, client, &[name])).collect();
    for mut client in clients {
        assert!(client.wait().expect("a child").success());
    }
    assert!(servers.iter().map(|server| one.counted(server.id(), "near")).sum::<u64>() > 0);
    for server in &mut servers {
        let _ = (server.kill(), server.wait());
    }
    one.finish();
    other.finish();
}

/// What the server keeps for a client: ends of pairs of one that will announce, and none of one that has not come often.
#[test]
fn what_is_kept() {
    let Some(site) = site("kept") else { return };
    let server = with_threads(&site);
    let code = "def sockets(count):\n\
        \x20   for k in range(count): one(k).close()\n\
        \x20   time.sleep(0.1); return len([1 for n in os.listdir(sys.argv[2]) if os.readlink(sys.argv[2] + '/' + n)[:7] == 'socket:'])\n\
        print(sockets(1), sockets(2), sockets(4))\n";
    let descriptors = format!("/proc/{}/fd", server.id());
    let mut said = String::new();
    until("each connection through shared memory", || {
        let before = site.counted(server.id(), "near");
        said = run(&site, code, &[&descriptors]);
        site.counted(server.id(), "near") == before + 7
    });
    let counts: Vec<u32> = said.split_ascii_whitespace().map(|count| count.parse().expect("a number")).collect();
    assert!(counts[1] == counts[0] && counts[2] > counts[0], "{counts:?}");
    stop(server, libc::SIGTERM);
    site.finish();
}

/// A neighbour of the victim's address announces its connection, whose client has nothing of shunt's, as its own. The proof of it tells nobody anything, and the
/// connection it was written into ends.
#[test]
fn another_one_s_connection_is_announced() {
    let Some(site) = site("stolen") else { return };
    let server = with_threads(&site);
    let (to, from) = (site.address(), site.hosts[0].addresses[0].to_string());
    another_one_s::connection_is_announced(
        &site,
        &another_one_s::Ways { to: (&to, 9100), seen: (&from, &to), victim: (0, &from) },
    );
    assert_eq!(run(&site, "for k in range(20): one(k).close()\nprint('fine')\n", &[]), "fine\n");
    stop(server, libc::SIGTERM);
    site.finish();
}
