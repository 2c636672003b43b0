//! Two hosts: network namespaces joined by a pair of virtual Ethernets.
//!
//! The namespaces have no name, so they and the pair between them are gone with the last descriptor and process that has
//! them, however a test ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// One of them.
pub struct Host {
    namespace: OwnedFd,
    /// The interface's name.
    pub interface: String,
    /// The interface's addresses, of both families.
    pub addresses: [IpAddr; 2],
}

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
    let ip = |host: &Host, line: String| -> Result<(), String> {
        let output = host
            .command("ip")
            .args(line.split(' '))
            .output()
            .map_err(|error| format!("two hosts need the command ip: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or(format!("ip {line}: {}", said.trim()))
    };
    // A path of ours, that `ip` (a child of this process) can open.
    let other = format!("/proc/{}/fd/{}", std::process::id(), hosts[1].namespace.as_raw_fd());
    let Joint { queues, mtu } = joint;
    let count = format!("numtxqueues {queues} numrxqueues {queues}");
    ip(&hosts[0], format!("link add left0 {count} type veth peer name right0 {count} netns {other}"))?;
    for host in &hosts {
        let name = &host.interface;
        ip(host, "link set lo up".to_string())?;
        ip(host, format!("link set {name} mtu {mtu}"))?;
        ip(host, format!("addr add {}/24 dev {name}", host.addresses[0]))?;
        ip(host, format!("addr add {}/64 dev {name} nodad", host.addresses[1]))?;
        ip(host, format!("link set {name} up"))?;
        // Some systems pace what they send (bbr), which would flatter whatever TCP is compared with.
        let _ = host.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno"));
    }
    Ok(hosts)
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

    /// Runs `ip` with the words of `line` on this host.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, line: &str) {
        let output = self.command("ip").args(line.split(' ')).output().expect("ip runs");
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
