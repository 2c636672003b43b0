//! What of the host and of its network declines a connection, each by its name: and no longer when it is gone, within the second for which answers are kept.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use shunt_sys::{calls, Errno};
use shunt_testkit::hosts::{self, Host, Joint};
use shunt_xdp::protocol::Decline;

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue};
use crate::refusals::{echo, rules};

const PATIENCE: Duration = Duration::from_secs(20);

/// What becomes of a new connection, once it is as expected.
fn becomes(queue: &mut Queue, server: SocketAddr, expected: Result<(), Decline>, what: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut line = Line::connect(server);
        let found = queue.take(&mut line);
        let lines = std::slice::from_mut(&mut line);
        echo(queue, lines, b"as ever");
        queue.give(&mut lines[0]);
        if found == expected {
            return;
        }
        assert!(Instant::now() < until, "{what}: {found:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command of several words on the host; false: it is not there, or refuses.
pub fn does(host: &Host, words: &str) -> bool {
    let mut words = words.split(' ');
    let mut command = host.command(words.next().expect("a command"));
    command.args(words).output().is_ok_and(|output| output.status.success())
}

pub fn says(sentence: &str) {
    // The test harness captures `eprintln`.
    let _ = writeln!(std::io::stderr(), "skipped: {sentence}");
}

#[test]
fn where_rules_count_or_limit_nothing_is_taken() {
    let Some(hosts) = pair() else { return };
    if !rules(&hosts[0], "flush ruleset\n") {
        return;
    }
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    let chain = |hook: &str, rule: &str| {
        format!("flush ruleset\ntable inet f {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}\n}}\n")
    };
    let device = &hosts[0].interface;
    let counting = [
        chain("input", "tcp dport 9 counter"),
        chain("output", "limit rate 100000/second burst 100000 packets accept"),
        chain("prerouting", "quota over 1000 mbytes drop"),
        chain("postrouting", "ct state established counter accept"),
        chain("input", "ct state established meta mark & 1 != 0 counter"),
        "flush ruleset\ntable ip f { set s { type ipv4_addr; counter; elements = { 192.0.2.1 } }
            chain c { type filter hook input priority 0; ip saddr @s accept; }
        }\n"
            .to_string(),
        "flush ruleset\ntable ip f { set s { type ipv4_addr; flags dynamic; }
            chain c { type filter hook input priority 0; update @s { ip saddr counter }; }
        }\n"
            .to_string(),
        "flush ruleset\ntable ip6 f { counter n { }
            chain other { counter name n; }
            chain c { type filter hook input priority 0; tcp dport vmap { 7: jump other }; }
        }\n"
            .to_string(),
        format!(
            "flush ruleset\ntable netdev f {{ chain c {{ type filter hook ingress device \"{device}\" priority 0; counter; }}\n}}\n"
        ),
    ];
    let harmless = [
        "flush ruleset\n".to_string(),
        chain("forward", "counter"),
        chain("input", "ct state invalid counter drop; ct state established,related accept; counter"),
        "flush ruleset\ntable ip n { chain c { type nat hook output priority -100; counter; }\nchain unused { counter; }\n}\n"
            .to_string(),
        chain("input", "tcp dport { 9, 11 } drop"),
    ];
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        for turn in 0..counting.len().max(harmless.len()) {
            let (harmless, counting) = (&harmless[turn % harmless.len()], &counting[turn]);
            assert!(rules(&hosts[0], harmless));
            becomes(&mut queue, server, Ok(()), harmless);
            assert!(rules(&hosts[0], counting));
            becomes(&mut queue, server, Err(Decline::Counted), counting);
        }
    });
}

/// The older tables, of which each rule counts.
#[test]
fn where_older_tables_have_rules_nothing_is_taken() {
    let Some(hosts) = pair() else { return };
    let command = |rest: &str| does(&hosts[0], &format!("iptables-legacy -w {rest}"));
    if !command("-A FORWARD -p tcp") {
        return says("iptables-legacy is not to be had");
    }
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        becomes(&mut queue, server, Ok(()), "a rule for what is forwarded");
        assert!(command("-A OUTPUT -p tcp"));
        becomes(&mut queue, server, Err(Decline::Counted), "a rule for what leaves");
        assert!(command("-F OUTPUT"));
        becomes(&mut queue, server, Ok(()), "no rule");
    });
}

/// Connection tracking counts where it is told to, and an administrator can say that this does not matter.
#[test]
fn accounts_are_kept_unless_they_do_not_matter() {
    const RULES: &str =
        "flush ruleset\ntable ip t { chain c { type filter hook input priority 0; ct state established accept; }\n}\n";
    let Some(hosts) = pair() else { return };
    if !rules(&hosts[0], RULES) {
        return;
    }
    hosts[0].enter(|| std::fs::write("/proc/sys/net/netfilter/nf_conntrack_acct", "1")).expect("a setting");
    let server = crate::peer::serve(&hosts[1], false);
    let tries = |agent: Agent, expected| {
        hosts[0].enter(|| becomes(&mut Queue::new(&hosts[0]), server, expected, "an account"));
        drop(agent);
    };
    tries(Agent::start(&hosts[0]), Err(Decline::Counted));
    tries(Agent::despite_rules(&hosts[0]), Ok(()));
    assert!(rules(&hosts[0], "table ip u { chain c { type filter hook input priority 0; counter; }\n}\n"));
    tries(Agent::despite_rules(&hosts[0]), Ok(()));
}

/// Whether a program was attached for what comes by the interface (tcx), for as long as the descriptor is kept. It passes all.
fn sees_what_comes(interface: u32) -> Result<OwnedFd, Errno> {
    /// `union bpf_attr`, of which these calls read as much as they are told.
    #[repr(C, align(8))]
    struct Attributes([u32; 32]);
    let call = |command: i32, attributes: &Attributes| {
        // SAFETY: a structure of the size said; the kernel reads it.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<Attributes>()) };
        match fd {
            // SAFETY: made by the kernel for us just now.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
            _ => Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))),
        }
    };
    let split = |address: u64| [address as u32, (address >> 32) as u32];
    // r0 = TCX_NEXT (-1); exit.
    let instructions: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
    let mut load = Attributes([0; 32]);
    // BPF_PROG_TYPE_SCHED_CLS.
    (load.0[0], load.0[1]) = (3, 2);
    load.0[2..4].copy_from_slice(&split(instructions.as_ptr() as u64));
    load.0[4..6].copy_from_slice(&split(c"GPL".as_ptr() as u64));
    let program = call(5, &load)?;
    let mut link = Attributes([0; 32]);
    // BPF_TCX_INGRESS.
    (link.0[0], link.0[1], link.0[2]) = (program.as_raw_fd() as u32, interface, 46);
    call(28, &link)
}

#[test]
fn where_traffic_is_controlled_nothing_is_taken() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    let device = hosts[0].interface.clone();
    let discipline = |rest: &str| does(&hosts[0], &format!("tc qdisc {}", rest.replace("DEVICE", &device)));
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        becomes(&mut queue, server, Ok(()), "nothing");
        for (add, delete) in [
            ("add dev DEVICE clsact", "del dev DEVICE clsact"),
            ("add dev DEVICE ingress", "del dev DEVICE ingress"),
            ("add dev DEVICE root tbf rate 1gbit burst 100kb latency 50ms", "del dev DEVICE root"),
            ("add dev DEVICE root prio", "del dev DEVICE root"),
        ] {
            if !discipline(add) {
                says(&format!("this kernel refuses: tc qdisc {add}"));
                continue;
            }
            becomes(&mut queue, server, Err(Decline::Discipline), add);
            assert!(discipline(delete), "{delete}");
            becomes(&mut queue, server, Ok(()), delete);
        }
        let name = std::ffi::CString::new(device.as_str()).expect("a name");
        // SAFETY: a string.
        match sees_what_comes(unsafe { libc::if_nametoindex(name.as_ptr()) }) {
            Ok(link) => {
                becomes(&mut queue, server, Err(Decline::Discipline), "a program");
                drop(link);
                becomes(&mut queue, server, Ok(()), "no program");
            }
            Err(errno) => says(&format!("this kernel refuses a program of tcx: {errno:?}")),
        }
    });
}

/// Segments would have to be signed: the key of an address is enough for that.
#[test]
fn signed_connections_are_not_taken() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut line = Line::connect(server);
        let sign = |stream: &TcpStream, length: u8| {
            // `struct tcp_md5sig`: an address, flags, prefix, length of the key, interface, key.
            let mut option = [0u8; 128 + 8 + 80];
            option[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            let std::net::IpAddr::V4(ip) = server.ip() else { panic!("an address") };
            option[4..8].copy_from_slice(&ip.octets());
            option[128 + 2] = length;
            let value = option.as_ptr().cast();
            calls::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MD5SIG, value, option.len() as u32)
        };
        if let Err(errno) = sign(&line.stream, 6) {
            return says(&format!("this kernel signs no segments: {errno:?}"));
        }
        assert_eq!(queue.take(&mut line), Err(Decline::Signed));
        sign(&line.stream, 0).expect("a key less");
        echo(&mut queue, std::slice::from_mut(&mut line), b"as before");
    });
}

#[test]
fn multipath_connections_are_not_taken() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let Ok(fd) = calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP) else {
            return says("this kernel has no Multipath TCP");
        };
        // SAFETY: made above, ours.
        let stream = unsafe { TcpStream::from_raw_fd(fd) };
        let address = shunt_xdp::address::encode(&server, 0);
        let bytes = address.bytes();
        calls::connect(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len() as u32).expect("a connection");
        stream.set_nonblocking(true).expect("a flag");
        let tuple = shunt_xdp::tcp::Tuple { ours: stream.local_addr().expect("an address"), theirs: server };
        let mut line = Line { stream, tuple, taken: None, ended: None };
        assert_eq!(queue.take(&mut line), Err(Decline::Multipath));
        echo(&mut queue, std::slice::from_mut(&mut line), b"as before");
    });
}

/// A route can have time stamps count in microseconds (Linux 6.7), which iproute2 learned later.
#[test]
fn time_stamps_in_microseconds_are_not_known() {
    const ROUTE: &str = "
import socket, struct, sys
index, there = socket.if_nametoindex(sys.argv[1]), socket.inet_aton(sys.argv[2])
def attribute(kind, value): return struct.pack('HH', 4 + len(value), kind) + value + bytes(-len(value) % 4)
RTM_NEWROUTE, REQUEST_ACK_CREATE, MAIN, STATIC, LINK, UNICAST = 24, 0x405, 254, 4, 253, 1
FEATURES, MICROSECONDS = 12, 1 << 4
body = struct.pack('BBBBBBBBI', socket.AF_INET, 32, 0, 0, MAIN, STATIC, LINK, UNICAST, 0)
body += attribute(1, there) + attribute(4, struct.pack('I', index))
body += attribute(8, attribute(FEATURES, struct.pack('I', MICROSECONDS)))
asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
asked.send(struct.pack('IHHII', 16 + len(body), RTM_NEWROUTE, REQUEST_ACK_CREATE, 1, 0) + body)
sys.exit(struct.unpack_from('i', asked.recv(1000), 16)[0] != 0)
";
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    let (device, there) = (hosts[0].interface.clone(), hosts[1].addresses[0].to_string());
    let made = hosts[0].command("python3").args(["-c", ROUTE, &device, &there]).status();
    if !made.is_ok_and(|status| status.success()) {
        return says("this kernel has no time stamps in microseconds");
    }
    hosts[0].enter(|| becomes(&mut Queue::new(&hosts[0]), server, Err(Decline::Microseconds), "a route"));
}

#[test]
fn a_next_hop_that_is_not_known_declines() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut line = Line::connect(server);
        echo(&mut queue, std::slice::from_mut(&mut line), b"before");
        // The acknowledgement of the answer may be late, and would have the kernel ask again.
        let until = Instant::now() + PATIENCE;
        let found = loop {
            let forgotten = format!("ip neigh flush to {} dev {}", server.ip(), hosts[0].interface);
            assert!(does(&hosts[0], &forgotten));
            match queue.take(&mut line) {
                Ok(()) => queue.give(&mut line),
                Err(decline) => break decline,
            }
            assert!(Instant::now() < until);
        };
        assert_eq!(found, Decline::Neighbour);
        echo(&mut queue, std::slice::from_mut(&mut line), b"as before");
    });
}

#[test]
fn of_several_queues_none_can_be_chosen() {
    // SAFETY: takes nothing.
    let made = if unsafe { libc::geteuid() } == 0 { hosts::pair(Joint { queues: 2, ..Joint::default() }) } else { return };
    let Ok(hosts) = made else { return says("an interface of two queues") };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| becomes(&mut Queue::new(&hosts[0]), server, Err(Decline::Steering), "two queues"));
}

/// Without the process that gives back behind a killed agent nothing is taken.
#[test]
fn without_a_guard_nothing_is_taken() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        becomes(&mut queue, server, Ok(()), "a guard");
        let report = shunt_agent::report::ask(&hosts[0].interface).expect("a report");
        let guard = report.connections.guard.expect("it takes connections");
        // SAFETY: the agent of this test has forked it.
        assert_eq!(unsafe { libc::kill(guard as i32, libc::SIGKILL) }, 0);
        becomes(&mut queue, server, Err(Decline::Guard), "none");
    });
}
