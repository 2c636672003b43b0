//! `shunt hostd`: connections whose addresses are translated on the way go through shared memory, plain programs hear nothing of it, and neither its death nor strangers
//! cost anybody more than that. Needs root and nft; skipped with a sentence elsewhere.

mod another_one_s;
mod hostd_again;
mod hostd_strangers;
mod two_hosts;

use shunt_testkit::hosts::{translate, SERVICE};
use shunt_testkit::{program, python_program, spawn, Random};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use two_hosts::{stop, text, until, Running, Site, Way};

/// One at a time: floods leave others no processor.
static ONE: Mutex<()> = Mutex::new(());

/// Clients find the server's port 9100 as this one of the service.
const PUBLISHED: &str = "8080";

/// What is translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Translated {
    /// The server's address: a service.
    Server,
    /// Both: a published port.
    Both,
}

struct Scene {
    site: Site,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    /// A site between whose hosts addresses are translated.
    fn new(label: &str, translated: Translated) -> Option<Scene> {
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let site = Site::new(&format!("hostd-{label}"), Way::Near)?;
        let (hosts, masqueraded) = ([&site.hosts[0], &site.hosts[1]], translated == Translated::Both);
        if let Err(why) = translate(hosts, &site.switch, PUBLISHED, Some(9100), masqueraded) {
            let _ = writeln!(std::io::stderr(), "skipped: {label}: {why}");
            return None;
        }
        Some(Scene { site, _alone: alone })
    }

    fn directory(&self) -> PathBuf {
        self.site.scratch.join("near")
    }

    fn hostd(&self, arguments: &[&str]) -> Killed {
        let hostd = self.hostd_at_once(arguments);
        until("hostd", || self.status().is_some());
        hostd
    }

    fn hostd_at_once(&self, arguments: &[&str]) -> Killed {
        let mut command = Command::new(self.site.shunt_path());
        command.args(["hostd", "--directory", &text(&self.directory())]).args(arguments).stdout(Stdio::null());
        Killed(spawn(&mut command).expect("it runs"))
    }

    /// What hostd has counted; `None`: it does not answer.
    fn status(&self) -> Option<String> {
        let mut command = Command::new(self.site.shunt_path());
        command.args(["hostd", "status", "--json", "--directory", &text(&self.directory())]);
        let output =
            spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).and_then(Child::wait_with_output).expect("it runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn counted(&self, name: &str) -> u64 {
        let mut status = None;
        // In a flood there may be no room for a question.
        until("hostd to answer", || {
            status = self.status();
            status.is_some()
        });
        let status = status.unwrap_or_default();
        let (_, rest) = status.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {status}"));
        rest.trim_start().chars().map_while(|digit| digit.to_digit(10)).fold(0, |sum, digit| 10 * sum + u64::from(digit))
    }

    /// A server without end, under shunt.
    fn serve(&self) -> Running {
        let server = self.site.start(1, "server", &python_program(), &["-c", SERVER, &self.site.address()]);
        self.site.wait_for_listener(9100);
        server
    }

    fn client(&self, count: u32) {
        self.site.run(0, &python_program(), &["-c", CLIENT, SERVICE, PUBLISHED, &count.to_string()]);
    }

    /// Runs clients until one of their connections was accelerated at the server: on a crowded machine the first ones may rightly be the kernel's.
    fn until_near(&self, server: &Running) {
        let before = self.site.counted(server.id(), "near");
        until("a connection through shared memory", || {
            self.client(3);
            self.site.counted(server.id(), "near") > before
        });
    }
}

/// hostd, or a stranger: killed when dropped.
struct Killed(Child);

impl Killed {
    fn is_there(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }

    /// Kibibytes that it has in memory.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.split_ascii_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Says "world" to each "hello", and where each connection came from.
const SERVER: &str = "import socket,sys,threading\n\
    l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
    print('ready', flush=True)\n\
    def serve(c, a):\n\
    \x20   try:\n\
    \x20       while True:\n\
    \x20           b = b''\n\
    \x20           while len(b) < 5:\n\
    \x20               d = c.recv(5 - len(b))\n\
    \x20               if not d: return\n\
    \x20               b += d\n\
    \x20           assert b == b'hello' and c.getpeername() == a, (b, a)\n\
    \x20           c.sendall(b'world')\n\
    \x20   except OSError as e: print('ended', e.errno, flush=True)\n\
    \x20   except AssertionError as e: print('astray', e, flush=True)\n\
    \x20   finally: c.close()\n\
    while True:\n\
    \x20   c, a = l.accept(); print('from', *a, 'at', *c.getsockname(), flush=True)\n\
    \x20   threading.Thread(target=serve, args=(c, a)).start()\n";

/// Says "hello" five times on each of so many connections.
const CLIENT: &str = "import socket,sys\n\
    for k in range(int(sys.argv[3])):\n\
    \x20   s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n\
    \x20   assert s.getpeername() == (sys.argv[1], int(sys.argv[2])) and s.getsockname()[0] == '10.77.0.1', s\n\
    \x20   for i in range(5):\n\
    \x20       s.sendall(b'hello')\n\
    \x20       b = b''\n\
    \x20       while len(b) < 5:\n\
    \x20           d = s.recv(5 - len(b)); assert d, (k, i, b); b += d\n\
    \x20       assert b == b'world', (k, i, b)\n\
    \x20   s.close()\n";

/// Each end sees the addresses that the kernel shows it, and bytes go through memory.
#[test]
fn services_and_published_ports() {
    for translated in [Translated::Server, Translated::Both] {
        let Some(scene) = Scene::new("translated", translated) else { return };
        let server = scene.serve();
        // Without hostd it is the kernel's.
        scene.client(3);
        assert_eq!(scene.site.counted(server.id(), "near"), 0);
        let hostd = scene.hostd(&[]);
        scene.until_near(&server);
        until("a hundred through shared memory, most of them without hostd", || {
            let before = (scene.site.counted(server.id(), "near"), scene.counted("introduced"));
            scene.client(100);
            let [near, introduced] = [scene.site.counted(server.id(), "near") - before.0, scene.counted("introduced") - before.1];
            near > 90 && introduced < 30
        });
        let from = match translated {
            Translated::Server => "from 10.77.0.1 ",
            Translated::Both => "from 10.77.0.254 ",
        };
        let said = server.text();
        let wrong = |line: &&str| !(line.starts_with(from) && line.ends_with("at 10.77.0.2 9100"));
        assert_eq!(said.lines().skip(1).filter(wrong).collect::<Vec<_>>(), [""; 0]);
        drop(hostd);
        stop(server, libc::SIGKILL);
        scene.site.finish();
    }
}

/// Load of many connections, some that stay while hostd ends.
#[test]
fn redis_behind_a_published_port() {
    let Some(scene) = Scene::new("redis", Translated::Both) else { return };
    let arguments =
        ["--port", "9100", "--bind", &scene.site.address(), "--save", "", "--appendonly", "no", "--protected-mode", "no"];
    let server = scene.site.start(1, "redis", &program("redis-server", "redis-server"), &arguments);
    server.wait_for("Ready to accept connections");
    let hostd = scene.hostd(&[]);
    let ask = |more: &[&str]| {
        let words = [&["-h", SERVICE, "-p", PUBLISHED], more].concat();
        scene.site.run(0, &program("redis-cli", "redis-tools"), &words)
    };
    until("a connection through shared memory", || {
        assert_eq!(ask(&["PING"]), b"PONG\n");
        scene.site.counted(server.id(), "near") > 0
    });
    let load = ["-h", SERVICE, "-p", PUBLISHED, "-t", "set,get,lrange_100", "-n", "20000", "-c", "50", "-d", "700", "-q"];
    let before = scene.site.counted(server.id(), "near");
    // On a crowded machine accept has no time for most of them.
    until("twenty-five of the load's through shared memory", || {
        scene.site.run(0, &program("redis-benchmark", "redis-tools"), &load);
        scene.site.counted(server.id(), "near") > before + 25
    });
    // What is there stays as it is without it.
    let code = "import socket,sys\n\
        s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n\
        print('connected', flush=True); sys.stdin.read()\n\
        for k in range(1000): s.sendall(b'PING\\r\\n'); assert s.recv(100) == b'+PONG\\r\\n'\n";
    let stays = scene.site.start(0, "stays", &python_program(), &["-c", code, SERVICE, PUBLISHED]);
    stays.wait_for("connected");
    drop(hostd);
    stays.end_of_input();
    let before = scene.site.counted(server.id(), "near");
    assert_eq!(ask(&["PING"]), b"PONG\n");
    assert_eq!(scene.site.counted(server.id(), "near"), before);
    stop(server, libc::SIGTERM);
    scene.site.finish();
}

/// What a client is after an exec goes on; it is told no address, since what the channel says may be the peer's word.
#[test]
fn a_client_that_execs() {
    let Some(scene) = Scene::new("exec", Translated::Both) else { return };
    let server = scene.serve();
    let _hostd = scene.hostd(&[]);
    let first = "import os,socket,sys\n\
        s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); os.dup2(s.fileno(), 0)\n\
        os.execvp(sys.executable, ['python3', '-c', sys.argv[3]])\n";
    let second = "import socket\n\
        s = socket.socket(fileno=0)\n\
        for k in range(100): s.sendall(b'hello'); assert s.recv(5, socket.MSG_WAITALL) == b'world'\n\
        print(s.getpeername()[0])\n";
    let mut seen = std::collections::HashSet::new();
    until("one through shared memory", || {
        let said = scene.site.run(0, &python_program(), &["-c", first, SERVICE, PUBLISHED, second]);
        seen.insert(String::from_utf8_lossy(&said).trim().to_string());
        seen.contains("0.0.0.0")
    });
    assert!(seen.iter().all(|address| address == "0.0.0.0" || address == SERVICE), "{seen:?}");
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// A client that may write nothing there, and translates nothing, meets by hostd.
#[test]
fn a_directory_that_is_read_only() {
    let Some(scene) = Scene::new("read-only", Translated::Server) else { return };
    let server = scene.serve();
    let _hostd = scene.hostd(&[]);
    let shell = "mount -o bind $NEAR $NEAR && mount -o remount,ro,bind $NEAR && ! touch $NEAR/x 2>/dev/null && \
        exec $SHUNT run --hosts none --near $NEAR -- python3 -c \"$CODE\" $SERVER 9100 3";
    until("a connection through shared memory", || {
        let mut command = scene.site.hosts[0].command(Path::new("/usr/bin/unshare"));
        command.args(["--mount", "sh", "-c", shell]).env("SHUNT", text(&scene.site.shunt_path())).env("CODE", CLIENT);
        command.env("NEAR", text(&scene.directory())).env("SERVER", scene.site.address()).stderr(Stdio::piped());
        let output = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        scene.site.counted(server.id(), "near") > 0
    });
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// Neither a server without shunt nor a client without it hears a byte that is not its peer's.
#[test]
fn plain_programs_get_no_byte() {
    let Some(scene) = Scene::new("plain", Translated::Both) else { return };
    let _hostd = scene.hostd(&[]);
    let python = python_program();
    let mut command = scene.site.hosts[1].command(&python);
    command.args(["-c", SERVER, &scene.site.address()]).stdout(Stdio::piped());
    let mut plain = Killed(spawn(&mut command).expect("it runs"));
    let mut said = plain.0.stdout.take().expect("its output");
    scene.site.wait_for_listener(9100);
    for _ in 0..5 {
        scene.client(20);
    }
    drop(plain);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut said, &mut text).expect("text");
    let said = text;
    assert!(said.contains("from") && !said.contains("astray"), "{said}");
    // Clients that show the very marks, and are not under shunt.
    let server = scene.serve();
    let marked = "import socket,sys\n\
        for mark in range(1269, 1333, 2):\n\
        \x20   s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mark)\n\
        \x20   s.connect((sys.argv[1], int(sys.argv[2]))); s.settimeout(0.05)\n\
        \x20   try: assert False, s.recv(100)\n\
        \x20   except TimeoutError: pass\n\
        \x20   s.settimeout(10); s.sendall(b'hello'); b = s.recv(100)\n\
        \x20   assert b == b'world', b\n";
    let mut command = scene.site.hosts[0].command(&python);
    command.args(["-c", marked, SERVICE, PUBLISHED]);
    assert!(spawn(&mut command).expect("it runs").wait().expect("a child").success(), "a plain client got other bytes");
    assert_eq!(scene.site.counted(server.id(), "near"), 0);
    assert!(scene.site.counted(server.id(), "near-unknown") > 0, "none was asked for");
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// Killed at random moments under load, as often as SHUNT_TEST_KILLS says: each connection is served, whatever carries it.
#[test]
fn killed_at_any_moment() {
    let Some(scene) = Scene::new("killed", Translated::Both) else { return };
    let kills: u32 = std::env::var("SHUNT_TEST_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    let server = scene.serve();
    let mut hostd = scene.hostd(&[]);
    scene.until_near(&server);
    // Each connection is its process's first: what one knows of a hostd that was killed would keep the next one idle.
    let fresh = "import os,sys\n\
        code = sys.argv.pop(1); over = sys.argv[3]; sys.argv[3] = '1'\n\
        while not os.path.exists(over):\n\
        \x20   child = os.fork()\n\
        \x20   if child == 0:\n\
        \x20       exec(code); sys.stdout.flush(); os._exit(0)\n\
        \x20   assert os.waitpid(child, 0)[1] == 0\n";
    let over = scene.site.scratch.join("over");
    let start = |number: usize| {
        let arguments = ["-c", fresh, CLIENT, SERVICE, PUBLISHED, &text(&over)];
        scene.site.start(0, &format!("client{number}"), &python_program(), &arguments)
    };
    let clients: Vec<Running> = (0..3).map(start).collect();
    let mut random = Random::for_test();
    let (mut introduced, mut loaded) = (0, 0);
    for turn in 0..kills {
        // Every tenth lives long enough to be asked what it has done, and for ends that left it alone to come back.
        let is_asked = turn % 10 == 9;
        let time = if is_asked { 2_000_000 } else { random.below(60_000) };
        std::thread::sleep(Duration::from_micros(time));
        assert!(hostd.is_there(), "it ended of itself");
        if is_asked {
            let now = scene.counted("introduced");
            introduced += now;
            loaded += u32::from(now > 0);
        }
        drop(hostd);
        hostd = scene.hostd_at_once(&[]);
    }
    assert!(loaded * 2 >= kills / 10, "{loaded} of those that were asked had introduced any");
    std::fs::write(&over, "").expect("a file");
    clients.into_iter().for_each(|client| _ = client.end_of_input());
    let said = server.text();
    assert!(!said.contains("astray"), "{said}");
    let (near, all) = (scene.site.counted(server.id(), "near"), said.matches("from").count());
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills: {all} connections, {near} through shared memory; {introduced} seen introduced"
    );
    scene.until_near(&server);
    drop(hostd);
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// False sockets, replays, sockets that are none, other messages, and connections that say nothing: ten thousand half-open ones at a time, of another user and network.
#[test]
fn floods_of_claims() {
    let Some(scene) = Scene::new("floods", Translated::Both) else { return };
    let server = scene.serve();
    let mut hostd = scene.hostd(&["--claims", "18000", "--per-user", "16000", "--per-network", "8000", "--patience", "20000"]);
    scene.until_near(&server);
    let flood = "import os,random,resource,socket,struct,sys,time\n\
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
        REPAIR, QUEUE, SEQ = 19, 20, 21\n\
        path = sys.argv[1] + '/hostd'\n\
        def false(a, b):\n\
        \x20   s = socket.socket(); s.setsockopt(6, REPAIR, 1); s.bind(('127.0.0.1', 0))\n\
        \x20   for queue, seq in ((2, a), (1, b)): s.setsockopt(6, QUEUE, queue); s.setsockopt(6, SEQ, struct.pack('I', seq))\n\
        \x20   s.connect(('127.0.0.1', random.randrange(1, 60000))); s.setsockopt(6, REPAIR, -1)\n\
        \x20   return s\n\
        def claim(s, side, message=None):\n\
        \x20   u = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); u.settimeout(5)\n\
        \x20   while True:\n\
        \x20       try: u.connect(path); break\n\
        \x20       except BlockingIOError: time.sleep(0.002)\n\
        \x20   if s is not None: socket.send_fds(u, [message or b'shunt-h1' + side], s if isinstance(s, list) else [s.fileno()])\n\
        \x20   elif message: u.send(message)\n\
        \x20   return u\n\
        base = random.randrange(2 ** 30)\n\
        sockets = [false(base + k, 2 ** 31 + base + k) for k in range(6000)]\n\
        # A pair of one's own making is introduced to itself.\n\
        x, y = base + 2 ** 30, base + 2 ** 30 + 1; a, b = claim(false(x, y), b'C'), claim(false(y, x), b'S')\n\
        for u in (a, b):\n\
        \x20   m, fds, _, _ = socket.recv_fds(u, 100, 4); assert m[8:9] == b'H', m\n\
        \x20   m, fds, _, _ = socket.recv_fds(u, 100, 4); assert m[8:9] == b'M' and len(fds) == 1, (m, fds)\n\
        \x20   assert os.readlink('/proc/self/fd/%d' % fds[0]).startswith('socket:')\n\
        \x20   try: e = socket.socket(fileno=fds[0]); e.connect(path); assert False\n\
        \x20   except OSError: pass\n\
        os.setgid(4001); os.setuid(4001)\n\
        print('ready', flush=True)\n\
        most = 0\n\
        while not os.path.exists(sys.argv[2]):\n\
        \x20   held = []\n\
        \x20   try:\n\
        \x20       for k, s in enumerate(sockets):\n\
        \x20           held.append(claim(s, b'CS'[k % 2:k % 2 + 1]))\n\
        \x20           if k % 7 == 0: held.append(claim(s, b'CS'[k % 2:k % 2 + 1]))\n\
        \x20           if k % 50 == 0: held.append(claim(random.choice([[0], [1, 2], [s.fileno()] * 40, []]), b'C', random.choice([None, b'', b'x', b'shunt-h1', b'shunt-h1C' * 9])))\n\
        \x20           if k % 30 == 0: held.append(claim(None, b'', random.choice([None, os.urandom(9), b'shunt-h1C', b'shunt-h1?'])))\n\
        \x20           most = max(most, len(held))\n\
        \x20   except OSError: pass\n\
        \x20   print('held', most, flush=True)\n\
        \x20   until = time.time() + 15\n\
        \x20   while time.time() < until and not os.path.exists(sys.argv[2]): time.sleep(0.05)\n\
        \x20   for u in held: u.close()\n";
    let directory = text(&scene.directory());
    let over = scene.site.scratch.join("over");
    let mut strangers = Vec::new();
    for number in 0..2 {
        let output = std::fs::File::create(scene.site.scratch.join(format!("flood{number}"))).expect("a file");
        let mut command = Command::new("/usr/bin/unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh"]).arg(python_program());
        command.args(["-c", flood, &directory, &text(&over)]).stdout(output);
        strangers.push(Killed(spawn(&mut command).expect("it runs")));
    }
    let said = |number: usize| std::fs::read_to_string(scene.site.scratch.join(format!("flood{number}"))).unwrap_or_default();
    until("the floods", || (0..2).all(|number| said(number).contains("held")));
    let before = scene.site.counted(server.id(), "near");
    let (began, mut most) = (Instant::now(), 0);
    let mut waiting = 0;
    while began.elapsed() < Duration::from_secs(10) || waiting < 10_000 {
        assert!(began.elapsed() < two_hosts::PATIENCE, "{waiting} at a time");
        assert!(hostd.is_there(), "it ended of itself: {:?}", hostd.0.try_wait());
        scene.client(10);
        most = most.max(hostd.memory());
        waiting = waiting.max(scene.counted("waiting"));
    }
    assert!(hostd.is_there() && most < 16 * 1024, "{most} KiB");
    let near = scene.site.counted(server.id(), "near") - before;
    std::fs::write(&over, "").expect("a file");
    for mut stranger in strangers {
        assert!(stranger.0.wait().expect("a child").success());
    }
    let (refused, ambiguous) = (scene.counted("no_connection"), scene.counted("ambiguous"));
    assert!(refused > 0 && ambiguous > 100, "{}", scene.status().unwrap_or_default());
    let _ = writeln!(
        std::io::stderr(),
        "{near} near, {most} KiB, {waiting} at a time, {}\n{}",
        said(0).lines().last().unwrap_or(""),
        scene.status().unwrap_or_default()
    );
    scene.until_near(&server);
    assert!(!server.text().contains("astray"));
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// One that listens in hostd's place, and is neither root nor the program's user, is given no socket.
#[test]
fn a_stranger_in_its_place() {
    let Some(scene) = Scene::new("squatter", Translated::Both) else { return };
    let server = scene.serve();
    let code = "import os,socket,sys\n\
        os.setgid(4001); os.setuid(4001)\n\
        l = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); l.bind(sys.argv[1] + '/hostd'); os.chmod(sys.argv[1] + '/hostd', 0o666); l.listen(100)\n\
        print('ready', flush=True)\n\
        while True:\n\
        \x20   c, _ = l.accept(); c.settimeout(1); print('asked', flush=True)\n\
        \x20   try:\n\
        \x20       c.send(b'shunt-h1H' + bytes(13))\n\
        \x20       m, fds, _, _ = socket.recv_fds(c, 100, 4)\n\
        \x20       if m or fds: print('given', m, fds, flush=True)\n\
        \x20   except OSError: pass\n";
    let output = scene.site.scratch.join("squatter");
    let mut command = scene.site.hosts[1].command(python_program());
    command.args(["-c", code, &text(&scene.directory())]).stdout(std::fs::File::create(&output).expect("a file"));
    let squatter = Killed(spawn(&mut command).expect("it runs"));
    let said = || std::fs::read_to_string(&output).unwrap_or_default();
    until("the stranger", || said().contains("ready"));
    until("it to be asked", || {
        scene.client(3);
        said().contains("asked")
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1100));
        scene.client(3);
    }
    assert!(!said().contains("given"), "{}", said());
    assert_eq!(scene.site.counted(server.id(), "near"), 0);
    drop(squatter);
    stop(server, libc::SIGKILL);
    scene.site.finish();
}
