//! `shunt cut`: connections between network namespaces go back to their TCP connections at any moment, whatever the programs do, and no byte is lost, doubled or
//! out of order. Needs root; skipped with a sentence elsewhere.

mod two_hosts;

use shunt_segment::area::{CHANNEL_PAGES, PAGE};
use shunt_segment::channel::cut::FROZEN;
use shunt_segment::channel::{ChannelPage, Head};
use shunt_segment::CHANNELS;
use shunt_testkit::{python_program, spawn, Random};
use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use two_hosts::{stop, until, Running, Site, Way};

const PORT: &str = "9200";

fn site(label: &str) -> Option<Site> {
    Site::new(&format!("cut-{label}"), Way::Near)
}

/// One test at a time: the command sees the connections of all of them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What both programs have: bytes that tell their place in the stream.
const COMMON: &str = "import fcntl,hashlib,os,random,select,socket,struct,sys,termios,threading,time\n\
    N = 1000003\n\
    PATTERN = random.Random(7).randbytes(N) * 2\n\
    def at(place, count): place %= N; return PATTERN[place:place + count]\n\
    def some(): return random.choice((1, 7, 100, 3000, 20000, 65536))\n\
    def turns(c, edge, source, sink):\n\
    \x20   # Calls that do not wait: source(room) gives bytes, None when it has no more; sink(bytes) takes them, b'' at the end.\n\
    \x20   c.setblocking(False); e = select.epoll(); known = select.EPOLLIN | select.EPOLLOUT | (select.EPOLLET if edge else 0)\n\
    \x20   e.register(c, known); out = bytearray(); over = shut = False\n\
    \x20   while True:\n\
    \x20       moves = False\n\
    \x20       while not over:\n\
    \x20           try: b = c.recv(some())\n\
    \x20           except BlockingIOError: break\n\
    \x20           sink(b); over = not b; moves = True\n\
    \x20           if len(b) > 3000: break\n\
    \x20       if not shut and len(out) < 65536:\n\
    \x20           b = source(over)\n\
    \x20           if b is None and not out: c.shutdown(socket.SHUT_WR); shut = True\n\
    \x20           elif b: out += b; moves = True\n\
    \x20       while out:\n\
    \x20           try: n = c.send(out[:some()])\n\
    \x20           except BlockingIOError: break\n\
    \x20           del out[:n]; moves = True\n\
    \x20       if over and shut: return e.close()\n\
    \x20       if not edge: e.modify(c, (0 if over else select.EPOLLIN) | (select.EPOLLOUT if out else 0))\n\
    \x20       if not moves: e.poll(1)\n";

/// Says back what it gets, in the way that its argument names; `sink` says at the end what it was.
const SERVER: &str = "l = socket.create_server((sys.argv[1], 9200), backlog=50); print('ready', flush=True)\n\
    def echo(c):\n\
    \x20   while True:\n\
    \x20       b = c.recv(some())\n\
    \x20       if not b: return\n\
    \x20       c.sendall(b)\n\
    def sink(c):\n\
    \x20   h = hashlib.sha256(); n = 0\n\
    \x20   while True:\n\
    \x20       b = c.recv(65536)\n\
    \x20       if not b: break\n\
    \x20       h.update(b); n += len(b)\n\
    \x20   c.sendall(h.hexdigest().encode())\n\
    def events(c, edge):\n\
    \x20   held = []; ended = []\n\
    \x20   def take(b):\n\
    \x20       held.append(b) if b else ended.append(1)\n\
    \x20   def give(over):\n\
    \x20       if held: b = b''.join(held); held.clear(); return b\n\
    \x20       return None if ended else b''\n\
    \x20   turns(c, edge, give, take)\n\
    def push(c):\n\
    \x20   p = select.poll(); p.register(c, select.POLLIN); place = 0\n\
    \x20   while not p.poll(random.randrange(20)): m = at(place, random.randrange(1, 3000)); c.sendall(m); place += len(m)\n\
    def serve(c):\n\
    \x20   try: {'echo': echo, 'sink': sink, 'push': push, 'level': lambda c: events(c, False), 'edge': lambda c: events(c, True)}[sys.argv[2]](c)\n\
    \x20   except (ConnectionResetError, BrokenPipeError, TimeoutError): print('reset', flush=True)\n\
    \x20   c.close()\n\
    while True: threading.Thread(target=serve, args=(l.accept()[0],)).start()\n";

/// Makes one connection after another, each until a line comes; looks at each byte.
const CLIENT: &str = "stop = threading.Event(); lines = iter(sys.stdin)\n\
    def ask(c):\n\
    \x20   place = 0\n\
    \x20   while not stop.is_set():\n\
    \x20       m = at(place, random.choice((1, 50, 1000, 30000))); c.sendall(m); b = b''\n\
    \x20       while len(b) < len(m):\n\
    \x20           d = c.recv(len(m) - len(b)); assert d, 'ended'; b += d\n\
    \x20       assert b == m, (place, len(m)); place += len(m)\n\
    \x20       if random.random() < 0.1: time.sleep(random.random() / 1000)\n\
    \x20   c.shutdown(socket.SHUT_WR); assert c.recv(1) == b''; return place\n\
    def both(c):\n\
    \x20   sent = [0]\n\
    \x20   def send():\n\
    \x20       while not stop.is_set(): m = at(sent[0], some()); c.sendall(m); sent[0] += len(m)\n\
    \x20       c.shutdown(socket.SHUT_WR)\n\
    \x20   t = threading.Thread(target=send); t.start(); place = 0\n\
    \x20   while True:\n\
    \x20       b = c.recv(some())\n\
    \x20       if not b: break\n\
    \x20       assert b == at(place, len(b)), place\n\
    \x20       place += len(b)\n\
    \x20   t.join(); assert place == sent[0], (place, sent[0]); return place\n\
    def events(c, edge):\n\
    \x20   count = [0, 0]\n\
    \x20   def give(over):\n\
    \x20       if stop.is_set(): return None\n\
    \x20       m = at(count[0], some()); count[0] += len(m); return m\n\
    \x20   def take(b):\n\
    \x20       assert b == at(count[1], len(b)), count\n\
    \x20       count[1] += len(b)\n\
    \x20   turns(c, edge, give, take); assert count[0] == count[1], count; return count[0]\n\
    def bulk(c):\n\
    \x20   h = hashlib.sha256(); place = 0\n\
    \x20   while not stop.is_set(): m = at(place, 65536); c.sendall(m); h.update(m); place += len(m)\n\
    \x20   c.shutdown(socket.SHUT_WR); assert c.makefile('rb').read().decode() == h.hexdigest(); return place\n\
    def count(c):\n\
    \x20   place = 0\n\
    \x20   while True:\n\
    \x20       n = struct.unpack('i', fcntl.ioctl(c, termios.FIONREAD, bytes(4)))[0]\n\
    \x20       if n == 0: time.sleep(0.001); continue\n\
    \x20       b = c.recv(n); assert b == at(place, n), place; place += n\n\
    \x20       if stop.is_set(): break\n\
    \x20   c.shutdown(socket.SHUT_WR)\n\
    \x20   while (b := c.recv(65536)): assert b == at(place, len(b)), place; place += len(b)\n\
    \x20   return place\n\
    def quiet(c):\n\
    \x20   c.sendall(b'x'); assert c.recv(1) == b'x'; p = select.poll(); p.register(c, select.POLLIN)\n\
    \x20   while not stop.is_set(): p.poll(300)\n\
    \x20   return ask(c)\n\
    ways = {'ask': ask, 'both': both, 'bulk': bulk, 'count': count, 'quiet': quiet, 'level': lambda c: events(c, False), 'edge': lambda c: events(c, True)}\n\
    while True:\n\
    \x20   c = socket.create_connection((sys.argv[1], 9200)); stop.clear(); print('connected', flush=True)\n\
    \x20   said = []\n\
    \x20   def run():\n\
    \x20       try: said.append('moved %d' % ways[sys.argv[2]](c))\n\
    \x20       except (ConnectionResetError, BrokenPipeError): said.append('reset')\n\
    \x20       except BaseException as error: said.append('wrong %r' % error)\n\
    \x20   t = threading.Thread(target=run); t.start()\n\
    \x20   if not next(lines, ''): stop.set(); break\n\
    \x20   stop.set(); t.join(); c.close(); print(said[0], flush=True)\n\
    \x20   if said[0][:5] == 'wrong': sys.exit(1)\n";

fn start(site: &Site, host: usize, name: &str, code: &str, way: &str) -> Running {
    let code = format!("{COMMON}{code}");
    site.start(host, name, &python_program(), &["-c", &code, &site.address(), way])
}

struct Pair {
    server: Running,
    client: Running,
    rounds: usize,
}

impl Pair {
    fn new(site: &Site, serves: &str, asks: &str) -> Pair {
        let server = start(site, 1, &format!("server-{serves}-{asks}"), SERVER, serves);
        server.wait_for("ready");
        site.wait_for_listener(PORT.parse().expect("a number"));
        let client = start(site, 0, &format!("client-{serves}-{asks}"), CLIENT, asks);
        Pair { server, client, rounds: 0 }
    }

    /// Waits until the next connection is there.
    fn connected(&mut self) {
        self.rounds += 1;
        let (client, rounds) = (&self.client, self.rounds);
        until("a connection", || client.text().matches("connected").count() >= rounds);
    }

    /// Ends it, and waits for what its client says.
    fn next(&mut self) -> String {
        let rounds = self.rounds;
        let input = self.client.child.stdin.as_mut().expect("an input");
        input.write_all(b"next\n").expect("it reads");
        let said = |text: String| text.lines().filter(|line| *line != "connected").nth(rounds - 1).map(str::to_owned);
        let client = &self.client;
        until("the client's word", || said(client.text()).is_some());
        said(self.client.text()).expect("it was there")
    }

    fn stop(mut self) {
        drop(self.client.child.stdin.take());
        self.client.signal(libc::SIGKILL);
        stop(self.client, libc::SIGKILL);
        stop(self.server, libc::SIGKILL);
    }
}

/// What `shunt cut` says of the only connection: its result, and why.
fn cut(site: &Site, more: &[&str]) -> (String, String) {
    let said = site.shunt(0, &[&["cut", "--json"], more, &["port", "=", &format!(":{PORT}")]].concat());
    let word = |key: &str| {
        let rest = said.split_once(&format!("\"{key}\":")).map_or("", |(_, rest)| rest.trim_start());
        rest.trim_start_matches('"').split(['"', ',', '\n']).next().unwrap_or_default().to_owned()
    };
    (word("result"), word("why"))
}

/// Bytes that have come in at the server's interfaces.
fn received(site: &Site) -> u64 {
    let table = site.hosts[1].enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").expect("the table"));
    let other = table.lines().filter(|line| line.contains(':') && !line.trim_start().starts_with("lo:"));
    other.filter_map(|line| line.split_once(':')?.1.split_ascii_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Connections that are cut, one after another, each at a random moment of its life.
fn at_random_moments(serves: &str, asks: &str, wanted: usize) {
    let _alone = alone();
    let Some(site) = site(&format!("{serves}-{asks}")) else { return };
    let mut random = Random::for_test();
    let mut pair = Pair::new(&site, serves, asks);
    let (mut done, mut kept) = (0, Vec::new());
    for _ in 0..10 * wanted {
        pair.connected();
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let (result, why) = cut(&site, &[]);
        match result.as_str() {
            "cut" | "moving" => done += 1,
            // The kernel's from the beginning, which happens on a crowded machine; the server is left alone for a while then.
            "" => std::thread::sleep(Duration::from_millis(500)),
            _ => kept.push(why),
        }
        let before = received(&site);
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        let said = pair.next();
        assert!(said.starts_with("moved "), "{said} behind {result}\n{}", pair.client.said_by_all());
        if result == "cut" && asks != "quiet" {
            assert!(received(&site) > before, "nothing passed the interface");
        }
        if done == wanted {
            break;
        }
    }
    assert_eq!(done, wanted, "kept: {kept:?}");
    assert!(site.counted(pair.client.id(), "cut") >= wanted as u64 && site.counted(pair.server.id(), "cut") >= wanted as u64);
    pair.stop();
    site.finish();
}

#[test]
fn requests_and_replies() {
    at_random_moments("echo", "ask", 15);
}

#[test]
fn a_stream_in_each_direction_by_threads() {
    at_random_moments("echo", "both", 15);
}

#[test]
fn a_stream_in_one_direction() {
    at_random_moments("sink", "bulk", 6);
}

#[test]
fn sets_by_level() {
    at_random_moments("level", "level", 10);
}

#[test]
fn sets_by_edges() {
    at_random_moments("edge", "edge", 10);
}

#[test]
fn a_set_asked_by_blocking_calls() {
    at_random_moments("edge", "ask", 10);
}

/// Both ends sleep, and nobody says anything until the connection is the kernel's.
#[test]
fn a_quiet_connection() {
    at_random_moments("level", "quiet", 5);
}

/// A program that asks how many bytes there are, and sleeps past the library, makes no other call until there are some.
#[test]
fn a_program_that_asks_for_a_count() {
    at_random_moments("push", "count", 10);
}

/// One end is killed at any moment around the move: the other hears of its end, and what it had got was right.
#[test]
fn an_end_is_killed() {
    let _alone = alone();
    let Some(site) = site("killed") else { return };
    let mut random = Random::for_test();
    for round in 0..12 {
        let mut pair = Pair::new(&site, "echo", ["ask", "both", "edge"][round % 3]);
        pair.connected();
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        std::thread::scope(|scope| {
            let cutting = scope.spawn(|| cut(&site, &["--wait", "1"]));
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            if round % 2 == 0 {
                pair.server.signal(libc::SIGKILL);
                let said = pair.next();
                // One that had nothing under way, and is asked to end before it sends more, has moved all.
                let is_end = said == "reset" || said.contains("ended") || said.starts_with("wrong AssertionError((");
                // What shutdown(2) says behind a reset, on the kernel, too.
                let is_end = is_end || said.starts_with("wrong OSError(107,");
                assert!(is_end || said.starts_with("moved "), "{said}");
            } else {
                pair.client.signal(libc::SIGKILL);
                until("the client's end", || pair.client.has_ended());
            }
            cutting.join().expect("the command");
        });
        if round % 2 == 1 {
            // Whatever the server had on its way, it serves the next one.
            let next = start(&site, 0, &format!("next{round}"), CLIENT, "ask");
            next.wait_for("connected");
            stop(next, libc::SIGKILL);
        }
        let Pair { server, client, .. } = pair;
        drop((server, client));
        until("the port to be free", || {
            site.hosts[1].enter(|| {
                let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
                !table.contains(":23F0 00000000:0000 0A")
            })
        });
    }
    site.finish();
}

/// Somebody writes what it likes into the word: both programs go on or are reset, and end when they are asked to.
#[test]
fn a_word_that_anybody_writes() {
    let _alone = alone();
    let Some(site) = site("hostile") else { return };
    let mut random = Random::for_test();
    for asks in ["ask", "both", "edge"] {
        let mut pair = Pair::new(&site, "echo", asks);
        for _ in 0..5 {
            pair.connected();
            let links = links_of(pair.client.id());
            for _ in 0..400 {
                for link in &links {
                    let place = CHANNEL_PAGES + random.below(CHANNELS as u64) as usize % 2 * PAGE;
                    let word = (random.below(1 << 32) as u32 & random.below(1 << 32) as u32 | 1).to_le_bytes();
                    let cuts = random.below(1 << 32) as u32;
                    link.write_all_at(&word, (place + offset_of!(ChannelPage, head) + offset_of!(Head, cut)) as u64)
                        .expect("memory");
                    let at = offset_of!(shunt_segment::link::LinkHeader, cuts) as u64;
                    link.write_all_at(&cuts.to_le_bytes(), at).expect("memory");
                }
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
            // Bytes of this connection may be gone: its ends wait for them then, and are killed, which they have to be able to be.
            if pair.is_stuck() {
                break;
            }
        }
        // Another connection of the same programs is as whole as any.
        let next = start(&site, 0, &format!("next-{asks}"), CLIENT, "ask");
        next.wait_for("connected");
        let mut next = Pair { server: pair.server, client: next, rounds: 1 };
        let said = next.next();
        assert!(said.starts_with("moved "), "{said}");
        stop(pair.client, libc::SIGKILL);
        next.stop();
    }
    site.finish();
}

impl Pair {
    /// Asks for the end of the connection, and gives its ends time for it.
    fn is_stuck(&mut self) -> bool {
        let input = self.client.child.stdin.as_mut().expect("an input");
        let _ = input.write_all(b"next\n");
        let rounds = self.rounds;
        for _ in 0..100 {
            let text = self.client.text();
            if text.lines().filter(|line| *line != "connected").count() >= rounds {
                return text.contains("wrong");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// The memory that a process shares with others, for writing.
fn links_of(pid: u32) -> Vec<std::fs::File> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_link = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:shunt-link"))
    };
    let paths = entries.map(|entry| entry.path()).filter(is_link);
    paths.filter_map(|path| std::fs::OpenOptions::new().read(true).write(true).open(path).ok()).collect()
}

/// The words of a process's channels.
fn words_of(pid: u32) -> Vec<u32> {
    let place = |channel: usize| (CHANNEL_PAGES + channel * PAGE + offset_of!(ChannelPage, head) + offset_of!(Head, cut)) as u64;
    let read = |link: &std::fs::File, channel| {
        let mut word = [0; 4];
        link.read_exact_at(&mut word, place(channel)).map_or(0, |()| u32::from_le_bytes(word))
    };
    links_of(pid).iter().flat_map(|link| (0..CHANNELS).map(move |channel| read(link, channel))).collect()
}

/// A command that is killed while one end is stopped takes nothing back: the other end does.
#[test]
fn a_request_is_forgotten() {
    let _alone = alone();
    let Some(site) = site("forgotten") else { return };
    let mut pair = Pair::new(&site, "push", "count");
    pair.connected();
    let is_frozen = || words_of(pair.client.id()).iter().any(|word| word & (FROZEN[0] | FROZEN[1]) != 0);
    pair.server.signal(libc::SIGSTOP);
    let mut asking = Command::new(site.shunt_path());
    asking.args(["cut", "--wait", "3600", "port", "=", &format!(":{PORT}")]).stdout(std::process::Stdio::null());
    let mut asking = spawn(&mut asking).expect("the command");
    until("the client to be at rest", is_frozen);
    asking.kill().expect("it is killed");
    asking.wait().expect("it ends");
    until("the client to forget", || !is_frozen());
    pair.server.signal(libc::SIGCONT);
    let said = pair.next();
    assert!(said.starts_with("moved "), "{said}");
    pair.stop();
    site.finish();
}

/// What cannot go back says so, and is what it was.
#[test]
fn what_is_kept_is_named() {
    let _alone = alone();
    let Some(site) = site("kept") else { return };
    let server = start(&site, 1, "server", SERVER, "echo");
    server.wait_for("ready");
    for (name, prepare, check) in [
        ("half-closed", "c.shutdown(socket.SHUT_WR)", "pass"),
        ("shared", "p = os.fork()\nif p == 0: time.sleep(1000)", "c.sendall(b'y'); assert c.recv(1) == b'y'; os.kill(p, 9)"),
        ("urgent", "c.send(b'o', socket.MSG_OOB)", "pass"),
    ] {
        let code = format!(
            "while True:\n\
             \x20   c = socket.create_connection((sys.argv[1], 9200)); c.sendall(b'x'); assert c.recv(1) == b'x'\n\
             \x20   print('connected', flush=True)\n\
             \x20   if next(sys.stdin, '') == 'go\\n': break\n\
             \x20   c.close()\n\
             {prepare}\n\
             print('prepared', flush=True)\n\
             next(sys.stdin)\n\
             {check}\n\
             print('fine', flush=True)\n"
        );
        let before = site.counted(server.id(), "near");
        let mut client = start(&site, 0, name, &code, "-");
        let mut rounds = 0;
        until("a connection through shared memory", || {
            rounds += 1;
            until("a connection", || client.text().matches("connected").count() >= rounds);
            let is_near = site.counted(server.id(), "near") > before;
            let word: &[u8] = if is_near { b"go\n" } else { b"again\n" };
            client.child.stdin.as_mut().expect("an input").write_all(word).expect("it reads");
            is_near
        });
        client.wait_for("prepared");
        let (result, why) = cut(&site, &["--wait", "20"]);
        // What has ended at one end may have at the other by now: then there is nothing to be kept.
        assert!(
            (result.as_str(), why.as_str()) == ("kept", name) || (name == "half-closed" && result.is_empty()),
            "{name}: {result} {why}"
        );
        client.child.stdin.as_mut().expect("an input").write_all(b"end\n").expect("it reads");
        client.wait_for("fine");
        stop(client, libc::SIGKILL);
    }
    stop(server, libc::SIGKILL);
    site.finish();
}
