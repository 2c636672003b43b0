//! Streams to other hosts that send much: they go on by their TCP connections, and no byte of theirs is lost, repeated or in another's place.

mod two_hosts;

use shunt_testkit::python_program;
use std::time::{Duration, Instant};
use two_hosts::Site;

/// What both ends of a conversation do: `say` sends so many bytes that are drawn from a seed, `hear` checks as many. Until they may end one
/// asks, and the other echoes; the end is said by one and answered by the other.
const COMMON: &str = "import os, random, select, socket, sys, threading, time\n\
    def drawn(seed):\n\
    \x20   r = random.Random(seed); block = r.randbytes(1 << 20); at = 0\n\
    \x20   while True:\n\
    \x20       n = r.choice((1, 100, 5000, 65536, 300000)); yield (block[at:] + block)[:n]; at = (at + n) % len(block)\n\
    def say(s, seed, total):\n\
    \x20   for b in drawn(seed):\n\
    \x20       b = b[:total]; s.sendall(b); total -= len(b)\n\
    \x20       if not total: return\n\
    def hear(s, seed, total):\n\
    \x20   wanted, block = b'', drawn(seed)\n\
    \x20   while total:\n\
    \x20       b = s.recv(min(100000, total))\n\
    \x20       assert b, total\n\
    \x20       while len(wanted) < len(b): wanted += next(block)\n\
    \x20       assert wanted.startswith(b), total\n\
    \x20       wanted = wanted[len(b):]; total -= len(b)\n\
    def talk(s):\n\
    \x20   while not os.path.exists('go'): s.sendall(b'?'); assert s.recv(1) == b'?'; time.sleep(0.01)\n\
    \x20   s.shutdown(socket.SHUT_WR); assert s.recv(9) == b'thanks'\n\
    def echo(s):\n\
    \x20   for b in iter(lambda: s.recv(1), b''): s.sendall(b)\n\
    \x20   s.sendall(b'thanks')\n";

/// How often a conversation may be had anew: on a crowded machine a connection may be the kernel's, and packets are sent again, as on a path that
/// loses some, which keeps its streams.
const ATTEMPTS: usize = 10;
/// How long two programs that have sent and heard all have to leave a stream that is to be left: their keepers may get a processor late.
const SOON: Duration = Duration::from_secs(5);

/// One that listens and one that connects, with the code of each behind that; both print `all` when they have it, and go on until they may
/// end. The bytes are right each time; in one of the attempts each of the two has `left` so many streams to TCP.
fn converse(site: Site, server: &str, client: &str, left: u64) {
    let python = python_program();
    let listen = "l = socket.create_server((sys.argv[1], 7001)); print('ready', flush=True)\nc, _ = l.accept()\n";
    let connect = "c = socket.create_connection((sys.argv[1], 7001))\n";
    for attempt in 1..=ATTEMPTS {
        let start = |host, name: &str, code: String| {
            site.start(host, &format!("{name}{attempt}"), &python, &["-c", &code, &site.address()])
        };
        let server = start(1, "server", format!("{COMMON}{listen}{server}"));
        server.wait_for("ready");
        let ends = [start(0, "client", format!("{COMMON}{connect}{client}")), server];
        ends.iter().for_each(|program| program.wait_for("all"));
        let counts = || ends.iter().map(|program| site.counted(program.id(), "bulk"));
        let began = Instant::now();
        while site.way.leaves() && counts().any(|count| count < left) && began.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(10));
        }
        let counts: Vec<u64> = counts().collect();
        site.scratch.write("go", "");
        for program in ends {
            program.end_of_input();
        }
        std::fs::remove_file(site.scratch.join("go")).expect("it was there");
        if !site.way.leaves() {
            assert_eq!(counts, [0, 0]);
            break;
        }
        if counts.iter().all(|count| *count >= left) {
            break;
        }
        assert!(attempt < ATTEMPTS, "{counts:?} of {left} were left");
    }
    site.finish();
}

/// One sends, and the other has it all.
fn upload(site: Site) {
    let server = "hear(c, 1, 40 << 20); print('all', flush=True); echo(c)";
    let client = "say(c, 1, 40 << 20); print('all', flush=True); talk(c)";
    converse(site, server, client, 1);
}

/// Much in both directions at once, and small words behind it.
fn both_ways(site: Site) {
    let side = |own: u32, other: u32, end: &str| {
        format!(
            "t = threading.Thread(target=say, args=(c, {own}, 30 << 20)); t.start(); hear(c, {other}, 30 << 20); t.join()\n\
             for k in range(200): c.sendall(b'%3d' % k); assert c.recv(3, socket.MSG_WAITALL) == b'%3d' % k\n\
             print('all', flush=True); {end}(c)"
        )
    };
    converse(site, &side(1, 2, "echo"), &side(2, 1, "talk"), 1);
}

/// The same by an event loop, edge by edge.
fn by_edges(site: Site) {
    let side = |own: u32, other: u32, end: &str| {
        format!(
            "c.setblocking(False); e = select.epoll(); e.register(c, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)\n\
             block, wanted, heard, out, left = drawn({own}), b'', 30 << 20, b'', 30 << 20; check = drawn({other})\n\
             while heard or left or out:\n\
             \x20   assert e.poll(20), (heard, left, len(out))\n\
             \x20   while left or out:\n\
             \x20       if not out: out = next(block)[:left]; left -= len(out)\n\
             \x20       try: out = out[c.send(out):]\n\
             \x20       except BlockingIOError: break\n\
             \x20   while heard:\n\
             \x20       try: b = c.recv(min(70000, heard))\n\
             \x20       except BlockingIOError: break\n\
             \x20       while len(wanted) < len(b): wanted += next(check)\n\
             \x20       assert b and wanted.startswith(b), heard\n\
             \x20       wanted = wanted[len(b):]; heard -= len(b)\n\
             c.setblocking(True); print('all', flush=True); {end}(c)"
        )
    };
    converse(site, &side(1, 2, "echo"), &side(2, 1, "talk"), 1);
}

/// One hears all by readiness, level by level, stops at short reads and sends nothing: no call of its finds its ring empty.
fn by_levels(site: Site) {
    let server = "p = select.poll(); p.register(c, select.POLLIN); wanted, block, heard, b = b'', drawn(1), 40 << 20, b'.'\n\
        while b:\n\
        \x20   assert p.poll(20000), heard\n\
        \x20   b = c.recv(100000); some, b2 = b[:heard], b[heard:]; assert b2.strip(b'.') == b''\n\
        \x20   while len(wanted) < len(some): wanted += next(block)\n\
        \x20   assert wanted.startswith(some), heard\n\
        \x20   wanted = wanted[len(some):]\n\
        \x20   if heard and heard == len(some): print('all', flush=True)\n\
        \x20   heard -= len(some)\n\
        assert heard == 0; c.sendall(b'thanks')";
    let client = "say(c, 1, 40 << 20); print('all', flush=True)\n\
        while not os.path.exists('go'): c.sendall(b'.'); time.sleep(0.01)\n\
        c.shutdown(socket.SHUT_WR); assert c.recv(9) == b'thanks'";
    converse(site, server, client, 1);
}

/// A child has the connection, too, and speaks by turns with its parent: the keeper carries such a stream, or the path, and nothing is lost.
fn with_a_child(site: Site) {
    let client = "for k in range(8):\n\
        \x20   if os.fork() == 0: say(c, k, 2 << 20); os._exit(0)\n\
        \x20   assert os.wait()[1] == 0\n\
        \x20   say(c, 100 + k, 2 << 20)\n\
        assert c.recv(1) == b'!'; print('all', flush=True); talk(c)";
    let server =
        "for k in range(8): hear(c, k, 2 << 20); hear(c, 100 + k, 2 << 20)\nc.sendall(b'!'); print('all', flush=True); echo(c)";
    converse(site, server, client, 0);
}

/// Keepers that are stopped again and again, some while a program asks for a shadow, others when it was given one: whoever has it has all bytes.
fn keepers_stop(site: Site) {
    let python = python_program();
    let side = |own: u32, other: u32| {
        format!(
            "t = threading.Thread(target=say, args=(c, {own}, 20 << 20)); t.start(); hear(c, {other}, 20 << 20); t.join()\n\
             for k in range(300): c.sendall(b'%3d' % k); assert c.recv(3, socket.MSG_WAITALL) == b'%3d' % k\n\
             print('all', flush=True)\n"
        )
    };
    let server = format!(
        "{COMMON}l = socket.create_server((sys.argv[1], 7001)); print('ready', flush=True)\n\
         for _ in range(3):\n\
         \x20   c, _ = l.accept()\n\
         \x20   exec({:?})\n\
         \x20   assert c.recv(1) == b''; c.close()",
        side(1, 2)
    );
    let client = format!("{COMMON}for _ in range(3):\n\x20   c = socket.create_connection((sys.argv[1], 7001))\n\x20   exec({:?})\n\x20   c.close()", side(2, 1));
    let server = site.start(1, "server", &python, &["-c", &server, &site.address()]);
    server.wait_for("ready");
    let client = site.start(0, "client", &python, &["-c", &client, &site.address()]);
    let keepers = |host: usize, signal: i32| {
        let name = |process: &u32| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        for keeper in site.hosts[host].processes().iter().filter(|process| name(process).contains("keeper")) {
            // SAFETY: takes numbers. The process is of this test's own network namespace; it may have ended.
            unsafe { libc::kill(*keeper as i32, signal) };
        }
    };
    let began = Instant::now();
    for turn in 0.. {
        if [&client, &server].iter().all(|program| program.text().matches("all").count() == 3) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{} {}", client.text(), server.text());
        keepers(turn % 2, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis([3, 20, 70][turn % 3]));
        keepers(turn % 2, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis([1, 10][turn / 2 % 2]));
    }
    client.end_of_input();
    server.end_of_input();
    site.finish();
}

mod large {
    crate::between_hosts!(keepers_stop, keepers_stop_default, Default);
    crate::between_hosts!(keepers_stop, keepers_stop_early, Left);
    crate::between_hosts!(upload, upload_default, Default);
    crate::between_hosts!(upload, upload_early, Left);
    crate::between_hosts!(upload, upload_not, Udp);
    crate::between_hosts!(both_ways, both_ways_default, Default);
    crate::between_hosts!(both_ways, both_ways_early, Left);
    crate::between_hosts!(by_edges, by_edges_default, Default);
    crate::between_hosts!(by_edges, by_edges_early, Left);
    crate::between_hosts!(by_levels, by_levels_default, Default);
    crate::between_hosts!(by_levels, by_levels_early, Left);
    crate::between_hosts!(with_a_child, with_a_child_default, Default);
    crate::between_hosts!(with_a_child, with_a_child_early, Left);
}
