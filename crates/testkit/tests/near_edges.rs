//! What happens at the edges of a handshake between network namespaces: the same programs on the kernel, and with a directory in common. Needs root; skipped with
//! a sentence elsewhere.

mod two_hosts;

use shunt_testkit::{program, python_program, spawn};
use std::process::{Child, Stdio};
use two_hosts::{text, until, Running, Site, Way};

/// Greets, and sends back what comes until its end.
const ECHO: &str = "import socket,sys,threading\n\
    l = socket.create_server((sys.argv[1], 9100), backlog=100)\n\
    def serve(c):\n\
    \x20   c.sendall(b'hi')\n\
    \x20   while True:\n\
    \x20       b = c.recv(1000)\n\
    \x20       if not b: break\n\
    \x20       c.sendall(b)\n\
    \x20   c.close()\n\
    while True: threading.Thread(target=serve, args=(l.accept()[0],)).start()\n";

fn site(label: &str, way: Way) -> Option<Site> {
    Site::new(&format!("near-{label}-{way:?}"), way)
}

fn serve(site: &Site, code: &str) -> Running {
    let server = site.start(1, "server", &python_program(), &["-c", code, &site.address()]);
    site.wait_for_listener(9100);
    server
}

fn is_near(site: &Site, server: &Running) -> u64 {
    if site.way == Way::Near {
        site.counted(server.id(), "near")
    } else {
        0
    }
}

/// Runs a client twice, and with the directory until one of its connections went through shared memory.
fn run(site: &Site, server: &Running, code: &str, arguments: &[&str]) {
    let address = site.address();
    let all = [&["-c", code, address.as_str()], arguments].concat();
    let before = is_near(site, server);
    site.run(0, &python_program(), &all);
    until("a connection through shared memory", || {
        site.run(0, &python_program(), &all);
        site.way != Way::Near || is_near(site, server) > before
    });
}

/// At each of the last numbers that a program may have, at either end: what connects is whole.
#[test]
fn the_last_numbers() {
    for way in [Way::Kernel, Way::Near] {
        let Some(site) = site("numbers", way) else { return };
        // So many numbers are left, of a few hundred.
        let few = "import errno,os,resource,socket,sys\n\
            def leave(count):\n\
            \x20   resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n\
            \x20   held = []\n\
            \x20   try:\n\
            \x20       while True: held.append(os.open('/dev/null', os.O_RDONLY))\n\
            \x20   except OSError as e: assert e.errno == errno.EMFILE\n\
            \x20   for fd in held[:count]: os.close(fd)\n\
            \x20   return held[count:]\n";
        let server = serve(&site, ECHO);
        let client = format!(
            "{few}\
             s = socket.socket()\n\
             held = leave(int(sys.argv[2]))\n\
             s.connect((sys.argv[1], 9100))\n\
             assert s.recv(2, socket.MSG_WAITALL) == b'hi'\n\
             for fd in held: os.close(fd)\n\
             import time; time.sleep(0.12)\n\
             s.sendall(b'late'); assert s.recv(4, socket.MSG_WAITALL) == b'late'\n\
             s.shutdown(1); assert s.recv(1) == b''\n"
        );
        for left in 0..8 {
            site.run(0, &python_program(), &["-c", &client, &site.address(), &left.to_string()]);
        }
        drop(server);
        let scarce = format!(
            "{few}\
             import time\n\
             l = socket.create_server((sys.argv[1], 9100))\n\
             for left in range(1, 9):\n\
             \x20   l.accept()[0].close()\n\
             \x20   held = leave(left)\n\
             \x20   c, a = l.accept()\n\
             \x20   for fd in held: os.close(fd)\n\
             \x20   time.sleep(0.12)\n\
             \x20   c.sendall(b'hi'); assert c.recv(4, socket.MSG_WAITALL) == b'late'; c.close()\n"
        );
        let server = serve(&site, &scarce);
        let client = "import socket,sys\n\
            s = socket.create_connection((sys.argv[1], 9100)); assert s.recv(1) == b''; s.close()\n\
            s = socket.create_connection((sys.argv[1], 9100))\n\
            assert s.recv(2, socket.MSG_WAITALL) == b'hi'; s.sendall(b'late'); assert s.recv(1) == b''\n";
        for _ in 1..9 {
            site.run(0, &python_program(), &["-c", client, &site.address()]);
        }
        drop(server);
        site.finish();
    }
}

/// A thread that waits for the connection in an epoll set, and writes and reads as soon as it is told of it, while another thread is in connect: what it wrote
/// arrives, and nothing that the ends say to each other is read.
#[test]
fn written_while_it_connects() {
    for way in [Way::Kernel, Way::Near] {
        let Some(site) = site("written", way) else { return };
        let server = serve(&site, ECHO);
        let client = "import os,select,socket,sys,threading\n\
            for k in range(150):\n\
            \x20   s = socket.socket(); s.setblocking(False)\n\
            \x20   p = select.epoll(); got = []\n\
            \x20   def write():\n\
            \x20       while True:\n\
            \x20           e = p.poll()\n\
            \x20           if any(m & select.EPOLLHUP for f, m in e): continue\n\
            \x20           break\n\
            \x20       try:\n\
            \x20           if k % 3: os.write(s.fileno(), b'early%03d' % k)\n\
            \x20           got.append(os.read(s.fileno(), 10))\n\
            \x20           if not k % 3: os.write(s.fileno(), b'early%03d' % k)\n\
            \x20       except BlockingIOError:\n\
            \x20           if not k % 3: os.write(s.fileno(), b'early%03d' % k)\n\
            \x20   t = threading.Thread(target=write)\n\
            \x20   if k % 2: p.register(s, select.EPOLLOUT); t.start()\n\
            \x20   r = s.connect_ex((sys.argv[1], 9100))\n\
            \x20   if not k % 2: p.register(s, select.EPOLLOUT); t.start()\n\
            \x20   t.join(); s.setblocking(True); s.settimeout(20)\n\
            \x20   b = b''.join(got)\n\
            \x20   while len(b) < 10: d = s.recv(10 - len(b)); assert d, (k, b); b += d\n\
            \x20   assert b == b'hiearly%03d' % k, (k, b)\n\
            \x20   s.close(); p.close()\n";
        run(&site, &server, client, &[]);
        drop(server);
        site.finish();
    }
}

/// The TCP connection beside a stream is idle however busy that is: the kernel does not ask for its peer, though the program's option says so.
#[test]
fn the_connection_beside_is_not_kept_alive() {
    let Some(site) = site("alive", Way::Near) else { return };
    let server = serve(&site, ECHO);
    let client = "import os,socket,sys\n\
        s = socket.socket()\n\
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 50)\n\
        s.connect((sys.argv[1], 9100)); assert s.recv(2, socket.MSG_WAITALL) == b'hi'\n\
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1\n\
        print('connected', flush=True); s.recv(1)\n";
    let ss = program("ss", "iproute2");
    until("a stream", || {
        let before = is_near(&site, &server);
        let client = site.start(0, "client", &python_program(), &["-c", client, &site.address()]);
        client.wait_for("connected");
        let mut command = site.hosts[0].command(&ss);
        command.args(["-Htno", "state", "established"]).stdout(Stdio::piped());
        let said = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(":9100"), "{said}");
        let near = is_near(&site, &server) > before;
        assert_eq!(said.contains("keepalive"), !near, "{said}");
        near
    });
    drop(server);
    site.finish();
}

/// Carries frames between two interfaces, each 20 ms late, in the place of a bridge.
const LATE: &str = "import collections,select,socket,sys,time\n\
    ends = []\n\
    for name in sys.argv[1:3]:\n\
    \x20   s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n\
    \x20   s.setsockopt(263, 15, 1)\n\
    \x20   s.bind((name, 3)); s.setblocking(False); ends.append(s)\n\
    print('ready', flush=True)\n\
    due = collections.deque()\n\
    while True:\n\
    \x20   select.select(ends, [], [], 0.001)\n\
    \x20   for n, s in enumerate(ends):\n\
    \x20       try:\n\
    \x20           while True:\n\
    \x20               b, a = s.recvfrom(70000)\n\
    \x20               if a[2] != 4: due.append((time.monotonic() + 0.02, ends[1 - n], b))\n\
    \x20       except BlockingIOError: pass\n\
    \x20   while due and due[0][0] <= time.monotonic():\n\
    \x20       try: due[0][1].send(due[0][2])\n\
    \x20       except OSError: pass\n\
    \x20       due.popleft()\n";

/// A server that is further away than a connection waits for, though a name in the directory is like its own: no port that the program chose has a second SYN
/// meet the first.
#[test]
fn a_server_that_is_far() {
    for way in [Way::Kernel, Way::Near] {
        let Some(site) = site("far", way) else { return };
        let server = serve(&site, ECHO);
        for port in ["port1", "port2"] {
            site.switch.ip(&format!("link set {port} nomaster"));
        }
        let late = site.scratch.join("late.out");
        let mut command = site.switch.command(python_program());
        command.args(["-c", LATE, "port1", "port2"]).stdout(std::fs::File::create(&late).expect("a file"));
        let mut carrier = spawn(&mut command).expect("it runs");
        until("the frames' carrier", || std::fs::read_to_string(&late).is_ok_and(|said| said.contains("ready")));
        let client = "import errno,select,socket,sys\n\
            own = sys.argv[2]\n\
            for k in range(3):\n\
            \x20   s = socket.socket()\n\
            \x20   if own != '-': s.bind((own, 0))\n\
            \x20   s.setblocking(False)\n\
            \x20   r = s.connect_ex((sys.argv[1], 9100)); assert r in (0, errno.EINPROGRESS), r\n\
            \x20   p = s.getsockname()\n\
            \x20   select.select([], [s], [], 20)\n\
            \x20   e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR); assert e == 0, e\n\
            \x20   s.setblocking(True); s.settimeout(20); assert own == '-' or s.getsockname() == p\n\
            \x20   assert s.recv(2, socket.MSG_WAITALL) == b'hi'; s.sendall(b'x'); assert s.recv(1) == b'x'; s.close()\n";
        let own = site.hosts[0].addresses[0].to_string();
        // Each client is a process that knows nothing of the server.
        for own in ["-", &own, "-", &own] {
            site.run(0, &python_program(), &["-c", client, &site.address(), own]);
        }
        let _ = (carrier.kill(), carrier.wait());
        drop(server);
        site.finish();
    }
}

/// Nothing is asked for: the usual directory is there, mounted into both namespaces; and a mode that lets others take names keeps programs away from it.
#[test]
fn the_usual_directory() {
    let Some(site) = site("usual", Way::Near) else { return };
    let directory = site.scratch.join("near");
    let mounted = |host: usize, code: &str| {
        let mut command = site.hosts[host].command(program("unshare", "util-linux"));
        let line = "mount -t tmpfs none /run && mkdir /run/shunt && mount --bind $NEAR /run/shunt && exec $SHUNT run --hosts none -- python3 -c \"$CODE\" $SERVER";
        command.args(["--mount", "sh", "-c", line]).env_remove("SHUNT_NEAR").env("NEAR", text(&directory));
        command.env("SHUNT", text(&site.shunt_path())).env("CODE", code).env("SERVER", site.address());
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        spawn(&mut command).expect("it runs")
    };
    let client =
        "import socket,sys; s = socket.create_connection((sys.argv[1], 9100)); assert s.recv(2, socket.MSG_WAITALL) == b'hi'";
    let mut server = mounted(1, ECHO);
    site.wait_for_listener(9100);
    until("a connection through shared memory", || {
        assert!(mounted(0, client).wait().expect("a child").success());
        site.counted(server.id(), "near") > 0
    });
    assert!(site.all_names().iter().any(|name| name.starts_with("serv-")), "{:?}", site.all_names());
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("its mode");
    let before = site.counted(server.id(), "near");
    for _ in 0..3 {
        assert!(mounted(0, client).wait().expect("a child").success());
    }
    assert_eq!(site.counted(server.id(), "near"), before);
    let _ = (server.kill(), server.wait());
    site.finish();
}

/// A server that ends takes its name along; one that is killed leaves it to whoever looks.
#[test]
fn where_servers_listen() {
    let Some(site) = site("served", Way::Near) else { return };
    let served = || site.all_names().iter().filter(|name| name.starts_with("serv-")).count();
    let code = "import signal,socket,sys,time\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n\
        l = socket.create_server((sys.argv[1], 9100)); print('here', flush=True); signal.sigwait({signal.SIGUSR1}); l.close()\n\
        l = socket.create_server(('', 9100)); print('anywhere', flush=True); time.sleep(1000)\n";
    let server = site.start(1, "server", &python_program(), &["-c", code, &site.address()]);
    server.wait_for("here");
    assert_eq!(served(), 1, "{:?}", site.all_names());
    server.signal(libc::SIGUSR1);
    server.wait_for("anywhere");
    assert_eq!(served(), 1, "of its IPv4 addresses only one is no loopback address: {:?}", site.all_names());
    server.kill();
    let looks = serve(&site, ECHO);
    until("the name that was left to be another's", || {
        site.run(
            0,
            &python_program(),
            &["-c", "import socket,sys; socket.create_connection((sys.argv[1], 9100))", &site.address()],
        );
        is_near(&site, &looks) > 0
    });
    drop(looks);
    site.finish();
}

/// A server that becomes another user while connections are made: each is served to its end, whichever way it went.
#[test]
fn a_server_that_becomes_another_user() {
    let server = "import os,socket,sys,threading,time\n\
        l = socket.create_server((sys.argv[1], 9100), backlog=100)\n\
        first = threading.Event()\n\
        def echo(c):\n\
        \x20   while True:\n\
        \x20       b = c.recv(100)\n\
        \x20       if not b: break\n\
        \x20       c.sendall(b)\n\
        \x20   c.close()\n\
        def accepts():\n\
        \x20   while True: c, _ = l.accept(); first.set(); threading.Thread(target=echo, args=(c,), daemon=True).start()\n\
        threading.Thread(target=accepts, daemon=True).start(); print('ready', flush=True)\n\
        first.wait(); time.sleep(float(sys.argv[2])); os.setresuid(4001, 4001, 4001); print('another', flush=True)\n\
        sys.stdin.read()\n";
    let client = "import socket,sys\n\
        for k in range(150):\n\
        \x20   s = socket.create_connection((sys.argv[1], 9100))\n\
        \x20   for i in range(2): s.sendall(b'hello'); b = s.recv(5, socket.MSG_WAITALL); assert b == b'hello', (k, i, b)\n\
        \x20   s.close()\n";
    for way in [Way::Kernel, Way::Near] {
        let Some(site) = site("user", way) else { return };
        let mut near = 0;
        for turn in 0..20 {
            let wait = format!("0.{:03}", 4 * turn);
            let server = site.start(1, "server", &python_program(), &["-c", server, &site.address(), &wait]);
            site.wait_for_listener(9100);
            site.run(0, &python_program(), &["-c", client, &site.address()]);
            server.wait_for("another");
            near += is_near(&site, &server);
            two_hosts::stop(server, libc::SIGKILL);
        }
        assert!(way != Way::Near || near > 0, "none went through shared memory");
        site.finish();
    }
}
