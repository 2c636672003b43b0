//! Strangers that stand in hostd's place or in an end's, and ones that keep it busy.

use super::*;

/// What a stranger is asked and given at hostd's name, as user 4001.
const SQUATTER: &str = "import os,socket,sys\n\
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

/// One of the program's own number is another container's user as well: only root is given a socket.
#[test]
fn a_stranger_of_the_program_s_own_number() {
    let Some(scene) = Scene::new("same-user", Translated::Both) else { return };
    let output = scene.site.scratch.join("squatter");
    let mut command = scene.site.hosts[1].command(python_program());
    command.args(["-c", SQUATTER, &text(&scene.directory())]).stdout(std::fs::File::create(&output).expect("a file"));
    let squatter = Killed(spawn(&mut command).expect("it runs"));
    let said = || std::fs::read_to_string(&output).unwrap_or_default();
    until("the stranger", || said().contains("ready"));
    let server = scene.serve();
    let client = format!("import os; os.setgid(4001); os.setuid(4001)\n{CLIENT}");
    until("it to be asked", || {
        scene.site.run(0, &python_program(), &["-c", &client, SERVICE, PUBLISHED, "3"]);
        said().contains("asked")
    });
    assert!(!said().contains("given"), "{}", said());
    drop(squatter);
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// What strangers do: the numbers of a socket (TCP_REPAIR), a false one with given numbers, and a claim at hostd.
const TOOLS: &str = "import os,socket,struct,sys,time\n\
    REPAIR, QUEUE, SEQ = 19, 20, 21\n\
    def numbers(s):\n\
    \x20   s.setsockopt(6, REPAIR, 1); got = []\n\
    \x20   for queue in (2, 1): s.setsockopt(6, QUEUE, queue); got.append(struct.unpack('I', s.getsockopt(6, SEQ, 4))[0])\n\
    \x20   s.setsockopt(6, REPAIR, -1)\n\
    \x20   return got\n\
    def false(sends, expects):\n\
    \x20   s = socket.socket(); s.setsockopt(6, REPAIR, 1); s.bind(('127.0.0.1', 0))\n\
    \x20   for queue, seq in ((2, sends), (1, expects)): s.setsockopt(6, QUEUE, queue); s.setsockopt(6, SEQ, struct.pack('I', seq))\n\
    \x20   s.connect(('127.0.0.1', 9)); s.setsockopt(6, REPAIR, -1)\n\
    \x20   return s\n\
    def claim(s, side):\n\
    \x20   u = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); u.settimeout(5); u.connect(sys.argv[1] + '/hostd')\n\
    \x20   assert u.recv(100)[8:9] == b'H'\n\
    \x20   socket.send_fds(u, [b'shunt-h1' + side], [s.fileno()])\n\
    \x20   m, fds, _, _ = socket.recv_fds(u, 100, 4)\n\
    \x20   return m, (socket.socket(fileno=fds[0]) if fds else None)\n";

/// A false client is claimed before or behind the true one, and a proof comes that is meant for it: the program reads none of it.
#[test]
fn a_proof_for_a_false_client_reaches_no_program() {
    let Some(scene) = Scene::new("false-client", Translated::Both) else { return };
    let _hostd = scene.hostd(&[]);
    let code = format!(
        "{TOOLS}\
        l = socket.create_server((sys.argv[2], 9100), backlog=200); print('ready', flush=True)\n\
        PROOF = bytes.fromhex('00d79c1fe45ba3087ec631fb924db865') + os.urandom(40)\n\
        while True:\n\
        \x20   c, _ = l.accept()\n\
        \x20   sends, expects = numbers(c)\n\
        \x20   twin = false(expects, sends)\n\
        \x20   m, _ = claim(twin, b'C')\n\
        \x20   if m[8:10] == b'R' + bytes([3]):\n\
        \x20       print('both', flush=True)\n\
        \x20       try: c.send(PROOF); c.settimeout(5); assert not c.recv(5), 'it went on'\n\
        \x20       except ConnectionError: pass\n\
        \x20       except AssertionError as e: print('astray', e, flush=True)\n\
        \x20       c.close(); continue\n\
        \x20   while c.recv(5): c.send(b'world')\n"
    );
    let output = scene.site.scratch.join("plain");
    let mut command = scene.site.hosts[1].command(python_program());
    command.args(["-c", &code, &text(&scene.directory()), &scene.site.address()]);
    let plain = Killed(spawn(command.stdout(std::fs::File::create(&output).expect("a file"))).expect("it runs"));
    let said = || std::fs::read_to_string(&output).unwrap_or_default();
    until("the plain server", || said().contains("ready"));
    until("ten that were claimed twice", || {
        scene.client(1);
        said().matches("both").count() >= 10
    });
    assert!(!said().contains("astray"), "{}", said());
    drop(plain);
    scene.site.finish();
}

/// A false client reads no proof: the server, which has written it, ends the connection by a reset, and its program hears nothing on it.
#[test]
fn a_handshake_that_fails_behind_the_proof_is_a_reset() {
    let Some(scene) = Scene::new("false-end", Translated::Both) else { return };
    let _hostd = scene.hostd(&[]);
    let server = scene.serve();
    let code = format!(
        "{TOOLS}\
        proofs = 0\n\
        for mark in list(range(1269, 1333, 2)) * 5:\n\
        \x20   s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mark)\n\
        \x20   s.settimeout(5); s.connect((sys.argv[2], int(sys.argv[3])))\n\
        \x20   try: m, u = claim(s, b'C')\n\
        \x20   except ConnectionError: continue\n\
        \x20   if not u: time.sleep(0.1); continue\n\
        \x20   u.setblocking(True); u.settimeout(5)\n\
        \x20   if len(u.recv(100)) != 58: continue\n\
        \x20   u.send(b'shunt-n2' + os.urandom(16) + struct.pack('<QIHIB', 7, 7, 1, 7, 1))\n\
        \x20   if u.recv(100) != b'C': continue\n\
        \x20   assert len(s.recv(56, socket.MSG_WAITALL)) == 56\n\
        \x20   u.close(); proofs += 1\n\
        \x20   try: assert False, s.recv(1)\n\
        \x20   except ConnectionResetError: pass\n\
        \x20   if proofs == 3: break\n\
        print(proofs)\n"
    );
    until("a proof", || {
        let mut command = scene.site.hosts[0].command(python_program());
        command.args(["-c", &code, &text(&scene.directory()), SERVICE, PUBLISHED]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs");
        assert!(
            output.status.success(),
            "a connection went on with a proof in it, or: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim() != "0"
    });
    assert!(!server.text().contains("astray"), "{}", server.text());
    stop(server, libc::SIGKILL);
    scene.site.finish();
}

/// Sockets that linger when they are closed, behind a packet without sense, as one that is received, and in a connection that says no more: hostd stays, and
/// introduces others.
#[test]
fn sockets_that_linger_do_not_end_it() {
    let Some(scene) = Scene::new("linger", Translated::Both) else { return };
    let mut hostd = scene.hostd(&[]);
    let server = scene.serve();
    scene.until_near(&server);
    // Where hostd was the first to close one, the stranger's own close waits, and is interrupted.
    let code = "import os,signal,socket,struct,sys,time\n\
        signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)\n\
        l = socket.create_server(('127.0.0.1', 0), backlog=1000); l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)\n\
        os.setgid(4001); os.setuid(4001)\n\
        def full():\n\
        \x20   s = socket.create_connection(l.getsockname()); s.setblocking(False)\n\
        \x20   try:\n\
        \x20       while True: s.send(bytes(65536))\n\
        \x20   except BlockingIOError: pass\n\
        \x20   s.setblocking(True); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 30))\n\
        \x20   return s\n\
        done = 0\n\
        for turn in range(int(sys.argv[2])):\n\
        \x20   u = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); u.connect(sys.argv[1] + '/hostd')\n\
        \x20   try:\n\
        \x20       for packet in ((b'x', b'', b'', b'x'), (b'shunt-h1C', b'x'), (b'',) * 12 + (b'x',), (b'x', b'x'))[turn % 4]:\n\
        \x20           s = full(); n = 1 + turn % 3\n\
        \x20           fds = [full() for _ in range(n)] if turn % 4 == 3 else [s]\n\
        \x20           socket.send_fds(u, [packet], [f.fileno() for f in fds])\n\
        \x20           for f in fds: os.close(f.detach())\n\
        \x20       done += 1\n\
        \x20   except OSError: pass\n\
        \x20   u.close(); time.sleep(0.05)\n\
        print(done)\n";
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh"]).arg(python_program());
    command.args(["-c", code, &text(&scene.directory()), "40"]).stdout(Stdio::piped());
    let mut stranger = spawn(&mut command).expect("it runs");
    while stranger.try_wait().expect("a child").is_none() {
        assert!(hostd.is_there(), "it has ended: {:?}", hostd.0.try_wait());
        std::thread::sleep(Duration::from_millis(100));
    }
    let output = stranger.wait_with_output().expect("it ran");
    let done: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
    assert!(done > 0, "it passed none");
    scene.until_near(&server);
    assert!(hostd.is_there());
    stop(server, libc::SIGKILL);
    scene.site.finish();
}
