//! Two hosts: network namespaces joined by a pair of virtual Ethernets.
//!
//! The namespaces have no name, so they and the pair between them are gone with the last descriptor and process that has
//! them, however a test ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// One of them.
pub struct Host {
    namespace: OwnedFd,
    /// The interface's name.
    pub interface: String,
    /// The interface's addresses, of both families.
    pub addresses: [IpAddr; 2],
}

/// What an interface can do for the kernel (`include/uapi/linux/ethtool.h`).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Offload {
    /// Checksums of what leaves.
    Sums = 0x17,
    /// Cutting what leaves into segments: the interface.
    Segments = 0x1f,
    /// The same: the kernel, before the interface.
    Cutting = 0x24,
    /// Joining what arrives.
    Joining = 0x2c,
}

/// A pointer for the thread that [`Host::enter`] makes, which ends before the call does.
struct SendPointer<T>(*mut T);
// SAFETY: as said: one thread has it at a time.
unsafe impl<T> Send for SendPointer<T> {}

/// How the pair is made.
#[derive(Clone, Copy)]
pub struct Joint {
    /// Receive queues, and transmit queues, of either end.
    pub queues: u32,
    /// Bytes of the largest packet.
    pub mtu: u32,
}

impl Default for Joint {
    fn default() -> Joint {
        Joint { queues: 1, mtu: 1500 }
    }
}

/// Makes two hosts, or says why not (a sentence for a test that is skipped): it needs root and `ip`.
///
/// # Errors
/// The sentence.
pub fn pair(joint: Joint) -> Result<[Host; 2], String> {
    let hosts = [host("left0", 1)?, host("right0", 2)?];
    // A path of ours, that `ip` (a child of this process) can open.
    let other = format!("/proc/{}/fd/{}", std::process::id(), hosts[1].namespace.as_raw_fd());
    let Joint { queues, mtu } = joint;
    let count = format!("numtxqueues {queues} numrxqueues {queues}");
    hosts[0].batch(&[format!("link add left0 {count} type veth peer name right0 {count} netns {other}")])?;
    for host in &hosts {
        host.configure(mtu)?;
    }
    Ok(hosts)
}

/// Several hosts on one Ethernet.
pub struct Segment {
    /// The hosts, the first with the address 10.77.0.1.
    pub hosts: Vec<Host>,
    /// What lies between them: a host with a bridge, whose ports are called `port1`, `port2` and so on.
    pub switch: Host,
}

/// Makes `count` hosts (at most 8) that a bridge joins, so that a third one can listen in, and so that frames can be dropped or
/// held up at a place that no host's own device passes by.
///
/// # Errors
/// As [`pair`].
pub fn segment(count: u8, joint: Joint) -> Result<Segment, String> {
    let switch = host("bridge0", 0)?;
    switch.batch(&["link add bridge0 type bridge stp_state 0 forward_delay 0".to_string(), "link set bridge0 up".to_string()])?;
    let mut hosts = Vec::new();
    for number in 1..=count.min(8) {
        let host = host("left0", number)?;
        plug(&host, &switch, number, joint)?;
        hosts.push(host);
    }
    Ok(Segment { hosts, switch })
}

/// Gives a host its interface, and plugs that into the switch; again, if it was removed (`ip link del`).
///
/// # Errors
/// As [`pair`].
pub fn plug(host: &Host, switch: &Host, number: u8, joint: Joint) -> Result<(), String> {
    let other = format!("/proc/{}/fd/{}", std::process::id(), switch.namespace.as_raw_fd());
    let Joint { queues, mtu } = joint;
    let count = format!("numtxqueues {queues} numrxqueues {queues}");
    host.batch(&[format!("link add {} {count} type veth peer name port{number} {count} netns {other}", host.interface)])?;
    switch.batch(&[
        format!("link set port{number} mtu {mtu}"),
        format!("link set port{number} master bridge0"),
        format!("link set port{number} up"),
    ])?;
    host.configure(mtu)
}

fn host(interface: &str, number: u8) -> Result<Host, String> {
    let made = std::thread::spawn(|| {
        // SAFETY: concerns this thread alone, which ends.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } == -1 {
            return Err(io::Error::last_os_error());
        }
        File::open("/proc/thread-self/ns/net")
    });
    let namespace = made.join().expect("the thread does not panic");
    let namespace = namespace.map_err(|error| format!("network namespaces are not allowed here ({error}): needs root"))?.into();
    let addresses =
        [IpAddr::V4(Ipv4Addr::new(10, 77, 0, number)), IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()))];
    Ok(Host { namespace, interface: interface.to_string(), addresses })
}

impl Host {
    /// Runs `work` on this host, in a thread of its own.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let entered = scope.spawn(|| {
                // SAFETY: concerns this thread alone; the descriptor is open.
                let status = unsafe { libc::setns(self.namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(status, 0, "setns: {}", io::Error::last_os_error());
                work()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The namespace's descriptor, open for as long as this host is there.
    pub fn namespace(&self) -> RawFd {
        self.namespace.as_raw_fd()
    }

    /// A command that will run on this host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let namespace = self.namespace.as_raw_fd();
        let mut command = Command::new(program);
        // SAFETY: one system call between fork and exec. The descriptor is close-on-exec, so it is open there still.
        unsafe {
            command.pre_exec(move || match libc::setns(namespace, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        command
    }

    /// Processes on this host, by the namespace that `/proc` tells; this process's own threads count by its leader.
    pub fn processes(&self) -> Vec<u32> {
        let identity = |path: &str| std::fs::metadata(path).map(|status| (status.dev(), status.ino())).ok();
        let ours = identity(&format!("/proc/self/fd/{}", self.namespace.as_raw_fd()));
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|number: &u32| ours.is_some() && identity(&format!("/proc/{number}/ns/net")) == ours).collect()
    }

    /// Addresses, and everything up.
    fn configure(&self, mtu: u32) -> Result<(), String> {
        let name = &self.interface;
        let mut lines = vec![
            "link set lo up".to_string(),
            format!("link set {name} mtu {mtu}"),
            format!("addr add {}/24 dev {name}", self.addresses[0]),
        ];
        // RFC 8200, section 5: there is no IPv6 on a link with less.
        if mtu >= 1280 {
            lines.push(format!("addr add {}/64 dev {name} nodad", self.addresses[1]));
        }
        lines.push(format!("link set {name} up"));
        self.batch(&lines)?;
        // Some systems pace what they send (bbr), which would flatter whatever TCP is compared with.
        let _ = self.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno"));
        Ok(())
    }

    /// Runs several lines of `ip` on this host, in one process.
    fn batch(&self, lines: &[String]) -> Result<(), String> {
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = crate::launch::spawn(&mut command).map_err(|error| format!("two hosts need the command ip: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            // If ip ends early, what it said tells why.
            let _ = input.write_all(format!("{}\n", lines.join("\n")).as_bytes());
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or(format!("ip {}: {}", lines.join("; "), said.trim()))
    }

    /// Writes a setting of this host's, as in `net/ipv4/tcp_sack`.
    ///
    /// # Errors
    /// What the system answers, as where a congestion control may not be chosen.
    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        self.enter(|| std::fs::write(format!("/proc/sys/{name}"), value))
    }

    /// Has the interface do something for the kernel, or not (ethtool(8), without the command).
    ///
    /// # Errors
    /// What the system answers.
    pub fn offload(&self, what: Offload, on: bool) -> io::Result<()> {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        let mut asked = [what as u32, u32::from(on)];
        // SAFETY: integers and a pointer; zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.interface.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = asked.as_mut_ptr().cast();
        let pointer = SendPointer(&raw mut request);
        self.enter(move || {
            let SendPointer(request) = { pointer };
            // SAFETY: takes numbers.
            let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: made above, nobody else's.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: a request and what it points to, both there until `enter` returns.
            match unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, request) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }

    /// Runs `ip` with the words of `line` on this host.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, line: &str) {
        let output = crate::launch::spawn(self.command("ip").args(line.split(' ')).stderr(Stdio::piped()))
            .and_then(std::process::Child::wait_with_output)
            .expect("ip runs");
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The address that a service has at the client of [`translate`].
pub const SERVICE: &str = "10.99.0.1";
/// The switch's address between the hosts, which clients have at the server where they are masqueraded.
const BETWEEN: &str = "10.77.0.254";

/// Lets the switch of a segment translate addresses: what the first host sends to `ports` (of nft: a number, or a range) of [`SERVICE`] comes to the
/// second, at `port` if there is one, from the first's own address or, `masqueraded`, from the switch's address.
///
/// # Errors
/// In words: nft (nftables) is not here, or does not take it.
///
/// # Panics
/// If `ip` fails.
pub fn translate(
    [client, server]: [&Host; 2],
    switch: &Host,
    ports: &str,
    port: Option<u16>,
    masqueraded: bool,
) -> Result<(), String> {
    let nft = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"].into_iter().find(|path| Path::new(path).exists());
    let nft = nft.ok_or("needs nft (nftables)")?;
    switch.ip(&format!("addr add {BETWEEN}/24 dev bridge0"));
    switch
        .enter(|| {
            let settings = [("ip_forward", "1"), ("conf/all/send_redirects", "0"), ("conf/bridge0/send_redirects", "0")];
            settings.into_iter().try_for_each(|(name, value)| std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value))
        })
        .map_err(|error| format!("a setting of the network: {error}"))?;
    client.ip(&format!("route add {SERVICE}/32 via {BETWEEN}"));
    if !masqueraded {
        server.ip(&format!("route add {}/32 via {BETWEEN}", client.addresses[0]));
    }
    let (server, port) = (server.addresses[0], port.map_or(String::new(), |port| format!(":{port}")));
    let back = if masqueraded { "masquerade" } else { "accept" };
    let rules = format!(
        "table ip n {{ chain pre {{ type nat hook prerouting priority -100; ip daddr {SERVICE} tcp dport {ports} dnat to {server}{port}; }}\n\
         chain post {{ type nat hook postrouting priority 100; ip daddr {server} {back}; }}\n}}\n"
    );
    let mut command = switch.command(nft);
    let mut child = crate::launch::spawn(command.args(["-f", "-"]).stdin(Stdio::piped())).map_err(|error| error.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(rules.as_bytes());
    }
    let taken = child.wait().is_ok_and(|status| status.success());
    taken.then_some(()).ok_or_else(|| format!("nft does not take {rules}"))
}

/// Whether process `pid` has a TCP socket of the kernel that is connected from `port`: then it is the kernel that carries it.
pub fn kernel_carries(pid: u32, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    // proc_pid_net(5): the second field is the local address and port in hexadecimal, the fourth the state, 01 for an established
    // connection, the tenth the inode.
    let connected = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        (local == port && *fields.get(3)? == "01").then(|| format!("socket:[{}]", fields.get(9).unwrap_or(&"0")))
    };
    let inodes: Vec<String> = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(connected).collect();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()))
}
