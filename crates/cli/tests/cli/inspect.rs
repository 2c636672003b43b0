//! `shunt ss` and `shunt why` read what a process left in shared memory, also when it is stopped or its memory is
//! nonsense. The process here is a plain one that was given memory files with the contents of a program under shunt.

use std::fs::File;
use std::io::Write;
use std::mem::{offset_of, size_of};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::common::{plain, quiet_output, SHUNT};
use serde_json::Value;
use shunt_segment::address::Address;
use shunt_segment::area::{CHANNEL_PAGES, LINK_SIZE, PAGE};
use shunt_segment::channel::{life, style, taken, word, ChannelPage, Head, Receive, Side, Wait};
use shunt_segment::link::{LinkHeader, MAGIC, PLAIN_PEERS};
use shunt_segment::name::Hello;
use shunt_segment::process::{kind, row, ProcessHeader, ProcessState, MAGIC as PROCESS_MAGIC, SIZE};
use shunt_segment::reason::Reason;
use shunt_segment::{CHANNELS, VERSION};

/// A memory file of `size` bytes.
struct Memory {
    file: File,
}

impl Memory {
    fn new(name: &std::ffi::CStr, size: usize) -> Memory {
        // SAFETY: memfd_create takes a C string, and the descriptor it gives belongs to nobody else.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(size as u64).unwrap();
        Memory { file }
    }

    fn put(&self, offset: usize, value: &[u8]) {
        std::os::unix::fs::FileExt::write_all_at(&self.file, value, offset as u64).unwrap();
    }
}

/// A program that holds descriptors and does nothing until it is dropped.
struct Holder {
    child: Child,
}

impl Holder {
    /// The descriptors keep their numbers in the holder, so they must be above the standard ones.
    fn of(descriptors: &[&dyn AsRawFd]) -> Holder {
        let numbers: Vec<i32> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null());
        // SAFETY: fcntl is async-signal-safe, and the vector was made before the fork.
        unsafe {
            command.pre_exec(move || {
                for number in &numbers {
                    libc::fcntl(*number, libc::F_SETFD, 0);
                }
                Ok(())
            });
        }
        Holder { child: command.spawn().unwrap() }
    }

    fn stop(&self) {
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGSTOP) }, 0);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&quiet_output(plain(SHUNT).args(arguments).arg("--json"))).unwrap()
}

/// The connections in which process `pid` has a part as a server.
fn connections_served_by(pid: u32) -> Vec<Value> {
    let report = json(&["ss"]);
    let connections = report["connections"].as_array().unwrap();
    let served = |server: &Value| server["pid"] == pid || server["pids"].as_array().unwrap().contains(&pid.into());
    connections.iter().filter(|connection| served(&connection["server"])).cloned().collect()
}

/// A link whose channel 5 carries a connection from `client` to `server`, accepted by process `pid`.
fn link(nonce: u64, client: &Address, server: &Address, pid: u32) -> Memory {
    let link = Memory::new(c"shunt-link", LINK_SIZE);
    link.put(offset_of!(LinkHeader, magic), &MAGIC.to_ne_bytes());
    link.put(offset_of!(LinkHeader, version), &VERSION.to_ne_bytes());
    link.put(offset_of!(LinkHeader, nonce), &nonce.to_ne_bytes());
    let page = CHANNEL_PAGES + 5 * PAGE;
    link.put(page + offset_of!(Head, state), &life::ACCEPTED.to_ne_bytes());
    link.put(page + offset_of!(Head, pair), &3u32.to_ne_bytes());
    for (offset, address) in [(offset_of!(Head, client), client), (offset_of!(Head, server), server)] {
        link.put(page + offset, &address.words()[0].to_ne_bytes());
        link.put(page + offset + 8, &address.words()[1].to_ne_bytes());
    }
    let ports = u32::from(client.port) | u32::from(server.port) << 16;
    link.put(page + offset_of!(Head, ports), &ports.to_ne_bytes());
    let client_side = page + offset_of!(ChannelPage, sides);
    let server_side = client_side + size_of::<Side>();
    link.put(client_side, &(5_000u64 | word::FIN).to_ne_bytes());
    link.put(server_side, &(1u64 << 20 | 2 << word::CLASS_SHIFT).to_ne_bytes());
    link.put(server_side + offset_of!(Side, receive) + offset_of!(Receive, position), &4_990u64.to_ne_bytes());
    link.put(client_side + offset_of!(Side, receive) + offset_of!(Receive, position), &(1u64 << 20).to_ne_bytes());
    link.put(server_side + offset_of!(Side, pid), &pid.to_ne_bytes());
    link.put(server_side + offset_of!(Side, wait) + offset_of!(Wait, style), &style::SLEEP.to_ne_bytes());
    link
}

fn endpoints() -> (Address, Address) {
    (Address::v4([127, 0, 0, 1], 40_001), Address::v6(std::net::Ipv6Addr::LOCALHOST.octets(), 6379))
}

#[test]
fn ss_shows_a_connection_of_a_stopped_process() {
    let (client, server) = endpoints();
    // The holder must be named in the link before it holds it; what counts is what is there when `ss` looks.
    let link = link(1, &client, &server, 0);
    let holder = Holder::of(&[&link.file]);
    let pid = holder.child.id();
    let server_side = CHANNEL_PAGES + 5 * PAGE + offset_of!(ChannelPage, sides) + size_of::<Side>();
    link.put(server_side + offset_of!(Side, pid), &pid.to_ne_bytes());
    drop(link);
    holder.stop();

    let [connection] = &connections_served_by(pid)[..] else { panic!("not exactly one connection") };
    assert_eq!(connection["state"], "client-finished");
    assert_eq!(connection["carrier"], "shared-memory");
    let (client, server) = (&connection["client"], &connection["server"]);
    assert_eq!((&client["address"], &client["port"]), (&"127.0.0.1".into(), &40_001.into()));
    assert_eq!((&server["address"], &server["port"]), (&"::1".into(), &6379.into()));
    assert_eq!(
        (&client["sent_bytes"], &client["in_flight_bytes"], &client["ring_bytes"]),
        (&5000.into(), &10.into(), &1024.into())
    );
    assert_eq!(
        (&server["sent_bytes"], &server["in_flight_bytes"], &server["ring_bytes"]),
        (&(1 << 20).into(), &0.into(), &65536.into())
    );
    assert_eq!((&server["program"], &server["waits"], &client["waits"]), (&"sleep".into(), &"sleeps".into(), &"not-yet".into()));

    let text = quiet_output(plain(SHUNT).arg("ss"));
    let line = text.lines().find(|line| line.contains(&format!("sleep/{pid}"))).unwrap();
    for part in ["client-finished", "127.0.0.1:40001", "[::1]:6379", "10/1K", "4.9K", "1M"] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }

    let shown = |words: &str| {
        let text = quiet_output(plain(SHUNT).arg("ss").args(words.split_whitespace()));
        text.contains(&format!("sleep/{pid}"))
    };
    assert!(shown("--sort sent dport = :6379 and state client-finished"));
    assert!(shown(&format!("server [::1]:6379 pid {pid}")));
    assert!(!shown("sport = :6379") && !shown("not dport = :6379"));
    let mistaken = plain(SHUNT).args(["ss", "colour", "red"]).output().unwrap();
    let told = String::from_utf8_lossy(&mistaken.stderr).into_owned();
    assert!(mistaken.status.code() == Some(2) && told.contains("\"colour\" is no term"), "{told}");
}

/// Of a connection with a peer that has only a kernel one end is the program's, and which of them is the server the channel says.
#[test]
fn a_plain_peer_is_no_process_here() {
    let (own, peer) = (Address::v4([127, 0, 0, 1], 6382), Address::v4([127, 0, 0, 2], 40_004));
    let link = link(4, &own, &peer, 0);
    link.put(offset_of!(LinkHeader, lent), &PLAIN_PEERS.to_ne_bytes());
    let set = |taken: u32| link.put(CHANNEL_PAGES + 5 * PAGE + offset_of!(Head, taken), &taken.to_ne_bytes());
    let holder = Holder::of(&[&link.file]);
    let pid = holder.child.id();
    link.put(CHANNEL_PAGES + 5 * PAGE + offset_of!(ChannelPage, sides) + offset_of!(Side, pid), &pid.to_ne_bytes());
    set(taken::SERVER);
    let [connection] = &connections_served_by(pid)[..] else { panic!("not exactly one connection") };
    let (client, server) = (&connection["client"], &connection["server"]);
    assert_eq!((&client["port"], &client["pid"], &client["program"]), (&40_004.into(), &Value::Null, &"".into()));
    assert_eq!((&server["port"], &server["program"], &server["sent_bytes"]), (&6382.into(), &"sleep".into(), &5_000.into()));
    let line = || {
        let text = quiet_output(plain(SHUNT).arg("ss"));
        text.lines()
            .find(|line| line.contains("127.0.0.2:40004"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let shown = line().unwrap();
    assert!(
        shown.contains("user-level 127.0.0.2:40004 - 1M ") && shown.contains(&format!(" 127.0.0.1:6382 sleep/{pid} 4.9K ")),
        "{shown}"
    );
    let series = quiet_output(plain(SHUNT).arg("metrics"));
    let series: Vec<&str> = series.lines().filter(|line| line.contains("user-level") && line.contains("6382")).collect();
    assert!(series.iter().all(|line| line.contains("role=\"server\"") && line.contains("program=\"sleep\"")), "{series:?}");
    assert_eq!(
        series.iter().filter(|line| line.starts_with("shunt_connections{") && line.ends_with(" 1")).count(),
        1,
        "{series:?}"
    );
    assert!(!quiet_output(plain(SHUNT).arg("metrics")).contains("40004"));
    set(taken::NOT);
    assert_eq!(line(), None, "it was given back");
}

/// A program in a container knows itself by a number that another program has here.
#[test]
fn ss_names_no_program_by_a_number_of_another_namespace() {
    let stranger = Holder::of(&[]);
    let (client, server) = (Address::v4([127, 0, 0, 1], 40_002), Address::v4([127, 0, 0, 1], 6380));
    let link = link(2, &client, &server, stranger.child.id());
    link.put(offset_of!(LinkHeader, server) + offset_of!(shunt_segment::link::Party, program), b"redis-server\0");
    let _holder = Holder::of(&[&link.file]);
    drop(link);

    let report = json(&["ss"]);
    let found = report["connections"].as_array().unwrap().iter().find(|connection| connection["server"]["port"] == 6380);
    let server = &found.unwrap()["server"];
    assert_eq!((&server["program"], &server["pid"]), (&"redis-server".into(), &Value::Null));
    assert_eq!(server["own_pid"], stranger.child.id());
    let text = quiet_output(plain(SHUNT).arg("ss"));
    let line = text.lines().find(|line| line.contains("127.0.0.1:6380")).unwrap();
    assert!(line.contains(" redis-server/? "), "{line}");
}

#[test]
fn ss_hides_what_has_ended() {
    let (client, server) = (Address::v4([127, 0, 0, 1], 40_003), Address::v4([127, 0, 0, 1], 6381));
    let link = link(3, &client, &server, 0);
    let holder = Holder::of(&[&link.file]);
    let closed = |side: usize| {
        let at = CHANNEL_PAGES + 5 * PAGE + offset_of!(ChannelPage, sides) + side * size_of::<Side>();
        link.put(at, &(5_000u64 | word::FIN | word::CLOSED).to_ne_bytes());
    };
    let listed = |arguments: &[&str]| {
        let listed = quiet_output(plain(SHUNT).args(arguments)).contains("127.0.0.1:6381");
        let report = json(arguments);
        let known = report["connections"].as_array().unwrap().iter().find(|connection| connection["server"]["port"] == 6381);
        assert_eq!(known.is_some(), listed);
        (listed, known.is_some_and(|connection| connection["ended"] == true), report["ended"].as_u64().unwrap())
    };
    closed(0);
    assert!(matches!(listed(&["ss"]), (true, false, _)), "the server has it");
    closed(1);
    let (is, _, ended) = listed(&["ss"]);
    assert!(!is && ended >= 1);
    assert!(quiet_output(plain(SHUNT).arg("ss")).lines().any(|line| line.starts_with("and memory kept of ")));
    assert!(matches!(listed(&["ss", "--all"]), (true, true, 1..)));
    drop(holder);
}

/// Random words everywhere but in the magic and the version, and files that end too early.
#[test]
fn ss_survives_nonsense() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut links = Vec::new();
    for length in [16, PAGE, CHANNEL_PAGES + 10 * PAGE, LINK_SIZE] {
        let link = Memory::new(c"shunt-link", 0);
        link.put(0, &MAGIC.to_ne_bytes());
        link.put(8, &VERSION.to_ne_bytes());
        let mut words = Vec::new();
        for _ in 0..(length.min(CHANNEL_PAGES + 2 * CHANNELS * PAGE) - 16) / 8 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            words.extend(seed.to_ne_bytes());
        }
        link.put(16, &words);
        for channel in 0..(length.saturating_sub(CHANNEL_PAGES) / PAGE).min(CHANNELS) {
            link.put(CHANNEL_PAGES + channel * PAGE, &life::ACCEPTED.to_ne_bytes());
        }
        link.file.set_len(length as u64).unwrap();
        links.push(link);
    }
    let holder = Holder::of(&[&links[0].file, &links[1].file, &links[2].file, &links[3].file]);
    // Many of the channels seem to have ended.
    let report = json(&["ss", "--all"]);
    assert!(report["connections"].as_array().unwrap().len() >= CHANNELS / 2);
    let text = quiet_output(plain(SHUNT).args(["ss", "--all"]));
    assert!(text.lines().count() >= CHANNELS / 2 && !text.contains('\x1b'));
    json(&["why", &holder.child.id().to_string()]);
}

/// The row that a process notes for a descriptor.
fn note(state: &Memory, descriptor: &dyn AsRawFd, kind: u8, reason: Reason) {
    let word = row::pack(reason as u8, kind, 0);
    state.put(offset_of!(ProcessState, rows) + descriptor.as_raw_fd() as usize * 4, &word.to_ne_bytes());
}

/// Both ends of an AF_UNIX connection, the client's bound to the name that tells `hello`.
fn companions(hello: &Hello) -> (OwnedFd, OwnedFd) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let name = format!("shunt-inspect-test-{}", hello.nonce);
    let listening = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let target = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::bind(&listening, &target).unwrap();
    rustix::net::listen(&listening, 1).unwrap();
    // Programs that are started get those alone that are meant for them.
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let client = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    rustix::net::bind(&client, &SocketAddrUnix::new_abstract_name(hello.encode().as_slice()).unwrap()).unwrap();
    rustix::net::connect(&client, &target).unwrap();
    let server = rustix::net::accept_with(&listening, flags).unwrap();
    (client, server)
}

#[test]
fn why_tells_the_reason_for_every_socket_of_a_stopped_process() {
    let (client, server) = endpoints();
    let nonce = u64::from(std::process::id()) << 32 | 7;
    let hello = Hello { version: VERSION, nonce, sequence: 0, channel: 5, link_follows: 0, generation: 3, client, server };
    let (companion, accepted) = companions(&hello);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain_client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let link = link(nonce, &client, &server, 0);

    let state = Memory::new(c"shunt-process", SIZE);
    state.put(offset_of!(ProcessHeader, magic), &PROCESS_MAGIC.to_ne_bytes());
    state.put(offset_of!(ProcessHeader, version), &VERSION.to_ne_bytes());
    let counter = offset_of!(ProcessHeader, counters) + Reason::PeerPlain as usize * 8;
    state.put(counter, &9u64.to_ne_bytes());
    note(&state, &accepted, kind::STREAM, Reason::Accelerated);
    note(&state, &listener, kind::LISTENER, Reason::Listening);
    note(&state, &plain_client, kind::TCP, Reason::PeerPlain);

    let holder = Holder::of(&[&state.file, &link.file, &accepted, &listener, &plain_client, &datagrams]);
    state.put(offset_of!(ProcessHeader, pid), &holder.child.id().to_ne_bytes());
    holder.stop();
    let pid = holder.child.id().to_string();
    let report = json(&["why", &pid]);
    assert_eq!((&report["program"], &report["under_shunt"]), (&"sleep".into(), &true.into()));
    assert_eq!(report["counters"]["peer-plain"], 9);
    assert_eq!(report["looks_at_kernel_sockets"], true);

    let of = |descriptor: &dyn AsRawFd| {
        let sockets = report["sockets"].as_array().unwrap();
        let number = descriptor.as_raw_fd();
        sockets.iter().find(|socket| socket["descriptor"] == number).unwrap_or_else(|| panic!("{number}: {report}")).clone()
    };
    let accelerated = of(&accepted);
    assert_eq!((&accelerated["reason"], &accelerated["carrier"]), (&"accelerated".into(), &"shared-memory".into()));
    assert_eq!((&accelerated["local"], &accelerated["remote"]), (&"[::1]:6379".into(), &"127.0.0.1:40001".into()));
    let listening = of(&listener);
    assert_eq!((&listening["kind"], &listening["local"]), (&"tcp-listener".into(), &format!("127.0.0.1:{port}").into()));
    assert_eq!((&listening["reason"], &listening["remote"]), (&"listening".into(), &Value::Null));
    let fallen_back = of(&plain_client);
    assert_eq!((&fallen_back["reason"], &fallen_back["carrier"]), (&"peer-plain".into(), &"kernel".into()));
    assert_eq!(fallen_back["remote"], format!("127.0.0.1:{port}"));
    assert_eq!(of(&datagrams)["reason"], "not-tcp");

    let text = quiet_output(plain(SHUNT).args(["why", &pid]));
    assert!(text.starts_with(&format!("sleep (process {pid}) runs under shunt\n")), "{text}");
    assert!(text.contains("before they sleep on them, where that pays (--spin-on-kernel)\n"), "{text}");
    assert!(text.contains(Reason::PeerPlain.text()) && text.ends_with("since it started: peer-plain 9\n"), "{text}");

    let filtered = |filter: &str| {
        let report = json(&["why", &pid, filter]);
        let descriptor = |socket: &Value| socket["descriptor"].as_i64().unwrap() as i32;
        report["sockets"].as_array().unwrap().iter().map(descriptor).collect::<Vec<_>>()
    };
    assert_eq!(filtered("reason = peer-plain"), [plain_client.as_raw_fd()]);
    assert_eq!(filtered(&format!("dport = :{port} and not state listening")), [plain_client.as_raw_fd()]);
    assert!(filtered("dport = :6379 and state established").contains(&accepted.as_raw_fd()));
    assert_eq!(filtered("sport = :6379"), Vec::<i32>::new());
    // Of all processes that have loaded the library; this one has only its files.
    let all = json(&["why", "reason = no-such-reason"]);
    assert_eq!((&all["schema"], &all["processes"]), (&"shunt.why.list/1".into(), &Value::Array(vec![])));

    // Another process's records say nothing of this one, and what the kernel tells is still true.
    state.put(offset_of!(ProcessHeader, pid), &1u32.to_ne_bytes());
    let report = json(&["why", &pid]);
    assert_eq!(report["counters"], serde_json::json!({}));
    let reasons: Vec<&str> =
        report["sockets"].as_array().unwrap().iter().filter_map(|socket| socket["reason"].as_str()).collect();
    assert!(reasons.contains(&"accelerated") && reasons.contains(&"forked"), "{reasons:?}");
    assert!(!reasons.contains(&"peer-plain"), "{reasons:?}");

    // The companion's owner is who really uses the end, whatever the link says.
    let [connection] = &connections_served_by(holder.child.id())[..] else { panic!("not exactly one connection") };
    assert_eq!(connection["server"]["port"], 6379);

    // A copy under the same name in a process that has no end of it is nobody's.
    let forged = self::link(nonce, &client, &server, 0);
    let _forger = Holder::of(&[&forged.file]);
    drop(forged);
    assert_eq!(connections_served_by(holder.child.id()).len(), 1);
    drop(companion);
}

#[test]
fn why_says_what_is_wrong_with_the_question() {
    let output = plain(SHUNT).args(["why", "4194305"]).output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(1), &b"shunt: there is no process 4194305\n"[..]));
    for question in [&["why", "0"][..], &["why", "-3"], &["why", "99999999999"], &["why", ""]] {
        assert_eq!(plain(SHUNT).args(question).output().unwrap().status.code(), Some(2), "{question:?}");
    }
    let output = plain(SHUNT).args(["why", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = crate::common::standard_error(&output);
    assert!(
        errors.starts_with("shunt: no process runs a program of the name \"no-such-program\"; a process number is "),
        "{errors}"
    );
}

#[test]
fn why_takes_the_name_of_a_program() {
    let stage = crate::common::Stage::new();
    // The kernel's name of a process has 15 bytes; the name of its file is whole.
    let name = format!("unlike-others-{}", std::process::id());
    let program = stage.compile(&name, "#include <unistd.h>\nint main(void) { return pause(); }\n", &[]);
    let start = || Holder { child: Command::new(&program).spawn().unwrap() };
    let first = start();
    assert_eq!(json(&["why", &name])["pid"], first.child.id());
    assert_eq!(json(&["why", &name[..15]])["pid"], first.child.id());
    let second = start();
    let output = plain(SHUNT).args(["why", &name]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let mut numbers = [first.child.id(), second.child.id()];
    numbers.sort_unstable();
    let [one, other] = numbers;
    let said = format!("shunt: 2 processes run {name:?}: {one}, {other}; name one by its number: shunt why {one}\n");
    assert_eq!(crate::common::standard_error(&output), said);
}

/// A user who may do so hides /proc from a shell of his own, and asks there.
#[test]
fn without_proc_nothing_is_said_of_processes() {
    for question in ["ss", "why 1"] {
        let script = format!("mount -t tmpfs none /proc || exit 99; exec {SHUNT} {question}");
        let output = plain("unshare").args(["--mount", "--map-root-user", "sh", "-c", &script]).output().unwrap();
        match output.status.code() {
            Some(1) if String::from_utf8_lossy(&output.stderr).starts_with("unshare: ") => return,
            Some(99) => return,
            status => {
                assert_eq!(status, Some(1));
                assert!(output.stderr.starts_with(b"shunt: cannot look at processes: /proc is not mounted"), "{output:?}");
            }
        }
    }
}

#[test]
fn why_explains_a_process_without_shunt() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let holder = Holder::of(&[&listener]);
    let report = json(&["why", &holder.child.id().to_string()]);
    assert_eq!((&report["under_shunt"], &report["looks_at_kernel_sockets"]), (&false.into(), &false.into()));
    assert_eq!(report["sockets"][0]["reason"], "no-shunt");

    let stage = crate::common::Stage::new();
    let program = stage.compile("static", "#include <unistd.h>\nint main(void) { return pause(); }\n", &["-static"]);
    let child = Command::new(&program).spawn().unwrap();
    let holder = Holder { child };
    let text = quiet_output(plain(SHUNT).args(["why", &holder.child.id().to_string()]));
    assert!(text.contains("does not run under shunt: ") && text.contains("is statically linked"), "{text}");
}

/// As root of a container is: it may list a stranger's descriptors, and not see what they are.
#[test]
fn why_says_that_it_may_not_look() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let mut command = Command::new("sleep");
    let holder = Holder { child: command.arg("1000").uid(65534).spawn().unwrap() };
    let process = holder.child.id();
    let output = plain("setpriv")
        .args(["--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", SHUNT, "why", &process.to_string()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said =
        format!("shunt: process {process} (sleep) cannot be inspected: Permission denied (os error 13); only its own user");
    assert!(crate::common::standard_error(&output).starts_with(&said), "{output:?}");
}

/// A reader that goes away early ends the command without a complaint.
#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = plain(SHUNT).args(["man"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    std::io::stdout().flush().unwrap();
    assert_eq!(output.stderr, b"");
}

#[test]
fn why_tells_which_layers_of_sunrpc_are_collapsed_and_why_others_are_not() {
    use shunt_tirpc::reason::Reason as Case;
    use shunt_tirpc::told::{role, Told, MAGIC as TOLD_MAGIC};
    let told = Memory::new(c"shunt-sunrpc", size_of::<Told>());
    told.put(offset_of!(Told, magic), &TOLD_MAGIC.to_ne_bytes());
    told.put(offset_of!(Told, reasons), &(Case::ALL.len() as u32).to_ne_bytes());
    told.put(offset_of!(Told, counts) + Case::Limited as usize * 8, &3u64.to_ne_bytes());
    told.put(offset_of!(Told, last) + Case::Limited as usize * 4, &8u32.to_ne_bytes());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    told.put(offset_of!(Told, rows) + client.as_raw_fd() as usize, &[role::CLIENT]);
    // A descriptor that is no socket any more.
    told.put(offset_of!(Told, rows) + told.file.as_raw_fd() as usize, &[role::SERVER]);
    let holder = Holder::of(&[&told.file, &client]);
    told.put(offset_of!(Told, pid), &holder.child.id().to_ne_bytes());
    let pid = holder.child.id().to_string();

    let report = json(&["why", &pid]);
    assert_eq!(report["schema"], "shunt.why/1");
    let collapsed = serde_json::json!([{ "descriptor": client.as_raw_fd(), "role": "client" }]);
    assert_eq!(report["sunrpc"]["collapsed"], collapsed, "{report}");
    let [given] = &report["sunrpc"]["reasons"].as_array().unwrap()[..] else { panic!("{report}") };
    let expected = (&"rpc-limited".into(), &Case::Limited.text().into(), &3.into(), &7.into());
    assert_eq!((&given["reason"], &given["explanation"], &given["count"], &given["last_descriptor"]), expected);
    let text = quiet_output(plain(SHUNT).args(["why", &pid]));
    assert!(text.contains(&format!("sunrpc: layers are collapsed of {} (client)\n", client.as_raw_fd())), "{text}");
    assert!(text.contains(&format!("  rpc-limited (3, last of descriptor 7): {}\n", Case::Limited.text())), "{text}");

    // What it tells is of another process: a parent's.
    told.put(offset_of!(Told, pid), &1u32.to_ne_bytes());
    assert_eq!(json(&["why", &pid])["sunrpc"], Value::Null);
}

#[test]
fn why_tells_that_a_program_of_libtirpc_was_started_without_the_option() {
    let mut command = Command::new("sleep");
    command.arg("1000").env("LD_PRELOAD", "libtirpc.so.3").stdin(Stdio::null());
    let holder = Holder { child: command.spawn().unwrap() };
    let pid = holder.child.id().to_string();
    // Once the loader is through.
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let report = loop {
        let report = json(&["why", &pid]);
        if report["sunrpc"] != Value::Null || std::time::Instant::now() > ends {
            break report;
        }
    };
    assert_eq!(report["sunrpc"]["loaded"], false, "{report}");
    assert_eq!(report["sunrpc"]["reasons"][0]["reason"], "rpc-off");
    let text = quiet_output(plain(SHUNT).args(["why", &pid]));
    assert!(
        text.contains(
            "sunrpc: layers are not collapsed\n  rpc-off: The program has libtirpc, and was started without --rpc on.\n"
        ),
        "{text}"
    );
}
