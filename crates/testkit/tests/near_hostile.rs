//! Processes that may write into the directory of several network namespaces, and lie: names replaced, claims between two ends, queues kept full, and what resets
//! a connection from outside. Programs see each other's bytes and no others, and end as on Linux. Needs root; skipped with a sentence elsewhere.

mod two_hosts;

use shunt_testkit::{program, python_program, spawn};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use two_hosts::{text, until, Running, Site, Way};

/// One at a time: strangers that look for names all the time leave others no processor.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A site whose directory lets each replace the names of others.
fn site(label: &str) -> Option<Site> {
    let site = Site::new(&format!("near-{label}"), Way::Near)?;
    std::fs::set_permissions(site.scratch.join("near"), std::fs::Permissions::from_mode(0o777)).expect("its mode");
    Some(site)
}

/// Says "world" to each "hello". It accepts some milliseconds late, so that strangers have time for what they do to names.
const SERVER: &str = "import select,socket,sys,threading,time\n\
    l = socket.create_server((sys.argv[1], 9100), backlog=200)\n\
    print('ready', flush=True)\n\
    def serve(c):\n\
    \x20   try:\n\
    \x20       while True:\n\
    \x20           b = b''\n\
    \x20           while len(b) < 5:\n\
    \x20               d = c.recv(5 - len(b))\n\
    \x20               if not d: return\n\
    \x20               b += d\n\
    \x20           assert b == b'hello', b\n\
    \x20           c.sendall(b'world')\n\
    \x20   except OSError as e: print('ended', e.errno, flush=True)\n\
    \x20   except AssertionError as e: print('astray', e, flush=True)\n\
    \x20   finally: c.close()\n\
    while True:\n\
    \x20   select.select([l], [], []); time.sleep(0.006)\n\
    \x20   threading.Thread(target=serve, args=(l.accept()[0],)).start()\n";

/// Says "hello" five times on each of so many connections.
const CLIENT: &str = "import socket,sys,time\n\
    for k in range(int(sys.argv[2])):\n\
    \x20   s = socket.create_connection((sys.argv[1], 9100))\n\
    \x20   for i in range(5):\n\
    \x20       s.sendall(b'hello')\n\
    \x20       b = b''\n\
    \x20       while len(b) < 5:\n\
    \x20           d = s.recv(5 - len(b)); assert d, (k, i, b); b += d\n\
    \x20       assert b == b'world', (k, i, b)\n\
    \x20   s.close()\n";

/// What those have in common that take the place of names.
const THIEF: &str = "import os,socket,struct,sys,threading,time\n\
    d = sys.argv[1]\n\
    mine = set()\n\
    def steal(n):\n\
    \x20   u = socket.socket(socket.AF_UNIX)\n\
    \x20   u.bind(d + '/new-' + n); os.chmod(d + '/new-' + n, 0o666); u.listen(8)\n\
    \x20   os.rename(d + '/' + n, d + '/old-' + n); os.rename(d + '/new-' + n, d + '/' + n)\n\
    \x20   mine.add(os.stat(d + '/' + n).st_ino)\n\
    \x20   return u\n\
    def names():\n\
    \x20   while True:\n\
    \x20       for n in os.listdir(d):\n\
    \x20           try:\n\
    \x20               if n.startswith('near-') and os.lstat(d + '/' + n).st_ino not in mine: yield n\n\
    \x20           except OSError: pass\n\
    print('ready', flush=True)\n";

/// A program without shunt, killed when dropped.
struct Stranger(Child);

impl Stranger {
    fn start(site: &Site, host: usize, code: &str, arguments: &[&str]) -> Stranger {
        let mut command: Command = site.hosts[host].command(python_program());
        command.args(["-c", code]).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        Stranger(spawn(&mut command).expect("it runs"))
    }

    fn is_there(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn serve(site: &Site) -> Running {
    let server = site.start(1, "server", &python_program(), &["-c", SERVER, &site.address()]);
    site.wait_for_listener(9100);
    server
}

/// Clients, until a stranger has had its chance; what it has seen.
fn clients_until(site: &Site, stranger: Stranger, done: &dyn Fn(&str) -> bool) -> String {
    let seen = || std::fs::read_to_string(site.scratch.join("seen")).unwrap_or_default();
    until("the stranger to have its chance", || {
        site.run(0, &python_program(), &["-c", CLIENT, &site.address(), "1"]);
        done(&seen())
    });
    drop(stranger);
    seen()
}

/// Answers the server's claim in the client's place: the server writes its proof into a connection whose client waits for none, and neither program reads it.
#[test]
fn a_name_that_is_replaced() {
    let _alone = alone();
    let Some(site) = site("replaced") else { return };
    let server = serve(&site);
    let code = format!(
        "{THIEF}\
         def answer(n, u):\n\
         \x20   u.settimeout(1)\n\
         \x20   try:\n\
         \x20       c, _ = u.accept(); c.settimeout(1)\n\
         \x20       m = c.recv(200)\n\
         \x20       c.send(b'shunt-n2' + b'T' * 16 + struct.pack('<QIHIB', 77, 1, 0, 1, 1))\n\
         \x20       w = c.recv(1)\n\
         \x20       if w == b'C': open(sys.argv[2], 'a').write('committed\\n')\n\
         \x20       m, fds, _, _ = socket.recv_fds(c, 100, 4)\n\
         \x20       if fds: open(sys.argv[2], 'a').write('descriptors\\n')\n\
         \x20   except OSError: pass\n\
         for n in names():\n\
         \x20   try: threading.Thread(target=answer, args=(n, steal(n))).start()\n\
         \x20   except OSError: pass\n"
    );
    let stranger = Stranger::start(&site, 1, &code, &[&text(&site.scratch.join("near")), &text(&site.scratch.join("seen"))]);
    let seen = clients_until(&site, stranger, &|seen| seen.contains("committed"));
    assert!(!seen.contains("descriptors"), "{seen}");
    assert!(!server.text().contains("astray"), "{}", server.text());
    drop(server);
    site.finish();
}

/// Stands between the two: what each says reaches the other, and no descriptor is ever among it.
#[test]
fn a_process_between_the_two() {
    let _alone = alone();
    let Some(site) = site("between") else { return };
    let server = serve(&site);
    let code = format!(
        "{THIEF}\
         def carry(a, b, what):\n\
         \x20   try:\n\
         \x20       while True:\n\
         \x20           m, fds, _, _ = socket.recv_fds(a, 1000, 4)\n\
         \x20           if not m: break\n\
         \x20           if fds: open(sys.argv[2], 'a').write('descriptors\\n')\n\
         \x20           if m == b'C': open(sys.argv[2], 'a').write('committed\\n')\n\
         \x20           socket.send_fds(b, [m], fds)\n\
         \x20   except OSError: pass\n\
         \x20   for s in (a, b):\n\
         \x20       try: s.shutdown(2)\n\
         \x20       except OSError: pass\n\
         def relay(n, u):\n\
         \x20   u.settimeout(1)\n\
         \x20   try:\n\
         \x20       c, _ = u.accept(); c.settimeout(None)\n\
         \x20       o = socket.socket(socket.AF_UNIX); o.connect(d + '/old-' + n)\n\
         \x20       threading.Thread(target=carry, args=(o, c, 'client')).start()\n\
         \x20       carry(c, o, 'server')\n\
         \x20   except OSError: pass\n\
         for n in names():\n\
         \x20   try: threading.Thread(target=relay, args=(n, steal(n))).start()\n\
         \x20   except OSError: pass\n"
    );
    let stranger = Stranger::start(&site, 1, &code, &[&text(&site.scratch.join("near")), &text(&site.scratch.join("seen"))]);
    let seen = clients_until(&site, stranger, &|seen| seen.contains("committed"));
    assert!(!seen.contains("descriptors"), "{seen}");
    assert!(!server.text().contains("astray"), "{}", server.text());
    drop(server);
    site.finish();
}

/// Strangers that connect to each name, as often as it takes them: connect ends, also where it does not wait.
#[test]
fn a_queue_that_is_kept_full() {
    let _alone = alone();
    let Some(site) = site("full") else { return };
    let server = serve(&site);
    let code = "import os,socket,sys,threading\n\
        d = sys.argv[1]\n\
        def fill():\n\
        \x20   held = []\n\
        \x20   while True:\n\
        \x20       for n in os.listdir(d):\n\
        \x20           try:\n\
        \x20               u = socket.socket(socket.AF_UNIX); u.setblocking(False); u.connect(d + '/' + n); held.append(u)\n\
        \x20               open(sys.argv[2], 'a').write('in\\n')\n\
        \x20           except OSError: pass\n\
        \x20       del held[:-50]\n\
        for _ in range(3): threading.Thread(target=fill).start()\n";
    let stranger = Stranger::start(&site, 1, code, &[&text(&site.scratch.join("near")), &text(&site.scratch.join("seen"))]);
    let began = Instant::now();
    let seen = clients_until(&site, stranger, &|seen| seen.lines().count() > 40);
    assert!(seen.lines().count() > 40 && began.elapsed() < Duration::from_secs(80));
    assert!(!server.text().contains("astray"), "{}", server.text());
    drop(server);
    site.finish();
}

/// A server claims the connection, says that its proof comes, and is silent: the connection is made again, from the port that the program knows.
#[test]
fn a_port_that_the_program_knows_stays() {
    let _alone = alone();
    let Some(site) = site("port") else { return };
    let liar = "import os,socket,struct,sys,threading,time\n\
        d, version = sys.argv[2], int(sys.argv[3])\n\
        l = socket.create_server((sys.argv[1], 9100))\n\
        def v6(a): return b'\\0' * 10 + b'\\xff\\xff' + socket.inet_aton(a[0]) + struct.pack('<H', a[1])\n\
        shown = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); shown.bind('%s/serv-%s-238c' % (d, v6(l.getsockname())[:16].hex()))\n\
        held = []\n\
        while True:\n\
        \x20   c, a = l.accept(); held.append(c)\n\
        \x20   info = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)\n\
        \x20   mark = struct.unpack_from('I', info, 16)[0] + (12 if info[5] & 1 else 0)\n\
        \x20   try:\n\
        \x20       u = socket.socket(socket.AF_UNIX); u.connect('%s/near-%s-%04x' % (d, v6(a)[:16].hex(), a[1])); held.append(u)\n\
        \x20       u.send(b'shunt-n2' + struct.pack('<IHQ', version, mark, 77) + v6(a) + v6(c.getsockname()))\n\
        \x20       m, fds, _, _ = socket.recv_fds(u, 100, 4); u.send(b'C')\n\
        \x20       open(sys.argv[4], 'a').write('answer %d\\n' % len(fds))\n\
        \x20   except OSError: c.sendall(b'plain')\n";
    let version = shunt_segment::VERSION.to_string();
    let seen = site.scratch.join("seen");
    let [address, directory, place] = [site.address(), text(&site.scratch.join("near")), text(&seen)];
    let mut stranger = Stranger::start(&site, 1, liar, &[&address, &directory, &version, &place]);
    site.wait_for_listener(9100);
    let client = "import socket,sys\n\
        s = socket.socket(); s.bind(('', 0)); port = s.getsockname()[1]\n\
        s.connect((sys.argv[1], 9100))\n\
        assert s.getsockname()[1] == port, (s.getsockname(), port)\n\
        assert s.recv(5, socket.MSG_WAITALL) == b'plain'\n";
    let lines = || std::fs::read_to_string(&seen).unwrap_or_default();
    until("claims that came to nothing", || {
        site.run(0, &python_program(), &["-c", client, &site.address()]);
        lines().lines().count() > 2
    });
    assert!(lines().lines().all(|line| line == "answer 0"), "no descriptor for who has not proved itself: {}", lines());
    assert!(stranger.is_there());
    drop(stranger);
    site.finish();
}

/// ss -K, at either end: both programs see the connection reset, one of them asleep in recv, the other in poll.
#[test]
fn a_reset_from_outside() {
    let _alone = alone();
    let Some(site) = site("reset") else { return };
    let ss = program("ss", "iproute2");
    let server = "import select,socket,sys\n\
        l = socket.create_server((sys.argv[1], 9100))\n\
        while True:\n\
        \x20   c, a = l.accept(); c.sendall(b'hi')\n\
        \x20   p = select.poll(); p.register(c, select.POLLIN); p.poll()\n\
        \x20   try: print('end', c.recv(1), flush=True)\n\
        \x20   except OSError as e: print('server', e.errno, flush=True)\n\
        \x20   c.close()\n";
    let client = "import errno,socket,sys\n\
        s = socket.create_connection((sys.argv[1], 9100)); assert s.recv(2) == b'hi'\n\
        print('connected', flush=True)\n\
        try: print('end', s.recv(1), flush=True)\n\
        except OSError as e: print('client', e.errno, flush=True)\n\
        try: s.sendall(b'x'); s.sendall(b'x')\n\
        except OSError as e: print('then', e.errno, flush=True)\n";
    let server = site.start(1, "server", &python_program(), &["-c", server, &site.address()]);
    site.wait_for_listener(9100);
    for host in [0, 1] {
        let mut turn = 0;
        until("a stream that is reset", || {
            turn += 1;
            let (before, ends) = (site.counted(server.id(), "near"), server.text().lines().count());
            let client = site.start(0, &format!("client{host}.{turn}"), &python_program(), &["-c", client, &site.address()]);
            client.wait_for("connected");
            let is_near = site.counted(server.id(), "near") > before;
            let mut command = site.hosts[host].command(&ss);
            let killed = spawn(command.args(["-K", "state", "established"]).stdout(Stdio::null()).stderr(Stdio::null()));
            assert!(killed.and_then(|mut child| child.wait()).expect("it runs").success());
            let said = client.end_of_input();
            until("the server's end", || server.text().lines().count() > ends);
            let all = server.text();
            let last = all.lines().last().unwrap_or_default();
            let (aborted, reset, pipe) = (libc::ECONNABORTED, libc::ECONNRESET, libc::EPIPE);
            let is_reset = |line: &str, who: &str| line == format!("{who} {reset}") || line == format!("{who} {aborted}");
            assert!(said.lines().any(|line| is_reset(line, "client")), "{said}");
            assert!(said.contains(&format!("then {pipe}")), "{said}");
            assert!(is_reset(last, "server"), "{last}");
            is_near
        });
    }
    drop(server);
    site.finish();
}
