//! A network namespace of our own, with the congestion control that is best for the kernel.
//!
//! Some systems pace loopback (bbr does), which would flatter every other carrier. The namespace
//! is left when the process ends, and nothing outside it is touched.

use std::fs;
use std::io;

use nix::sched::{unshare, CloneFlags};
use nix::unistd::{getgid, getuid};
use serde::Serialize;

/// Loss-based and unpaced: nothing between the two ends holds a segment back.
const CONGESTION_CONTROL: &str = "reno";
const CONGESTION_CONTROL_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Where the contenders meet.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Whether this is a namespace that only this run uses.
    pub private: bool,
    /// TCP congestion control in force.
    pub congestion_control: String,
    /// Why the namespace is not what it should be.
    pub warning: Option<String>,
}

impl Network {
    /// Moves the calling process, which must have one thread only, into a namespace of its own.
    ///
    /// Tries as it is (root), then in a user namespace in which it keeps its user, and else stays
    /// where it is and says so.
    pub fn enter() -> Self {
        let entered = unshare(CloneFlags::CLONE_NEWNET).or_else(|_| enter_user_namespace());
        let mut warning = None;
        if let Err(error) = entered {
            warning = Some(format!("no network namespace of our own ({error}): the host's congestion control applies"));
        } else if let Err(error) = set_up() {
            warning = Some(format!("the network namespace could not be set up: {error}"));
        }
        let congestion_control =
            fs::read_to_string(CONGESTION_CONTROL_FILE).map(|text| text.trim().to_string()).unwrap_or_default();
        Self { private: entered.is_ok(), congestion_control, warning }
    }

    /// One line for the head of the report.
    pub fn describe(&self) -> String {
        let place = if self.private { "a network namespace of its own" } else { "the host's network namespace" };
        format!("kernel TCP over loopback in {place}, congestion control {}", self.congestion_control)
    }
}

/// A user namespace in which our user is itself: enough to own a network namespace, and programs
/// that refuse to run as root still run.
fn enter_user_namespace() -> nix::Result<()> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EPERM)))
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn set_up() -> io::Result<()> {
    bring_loopback_up()?;
    add_address()?;
    fs::write(CONGESTION_CONTROL_FILE, CONGESTION_CONTROL)?;
    // A connection per request uses up the default range within seconds. The ports below it are
    // for our listeners (see `Ports`).
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", "16384 65535")
}

/// A new namespace has a loopback device that is down: netdevice(7), SIOCSIFFLAGS.
fn bring_loopback_up() -> io::Result<()> {
    let flags = libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short };
    set_up_device(b"lo", libc::SIOCSIFFLAGS, flags)
}

/// An address beside 127.0.0.1 (TEST-NET-1, RFC 5737), by an alias of the loopback device: programs that resolve names with
/// AI_ADDRCONFIG, such as netperf, refuse even numeric addresses on a machine that has only loopback ones.
fn add_address() -> io::Result<()> {
    // The beginning of a sockaddr_in: family, port, address.
    let mut address = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: [0; 14] };
    for (to, from) in address.sa_data[2..].iter_mut().zip([192_u8, 0, 2, 1]) {
        *to = from as libc::c_char;
    }
    set_up_device(b"lo:1", libc::SIOCSIFADDR, libc::__c_anonymous_ifr_ifru { ifru_addr: address })
}

/// One request of netdevice(7) about the device `name`, of less than IFNAMSIZ bytes.
fn set_up_device(name: &[u8], request: libc::c_ulong, value: libc::__c_anonymous_ifr_ifru) -> io::Result<()> {
    let mut device = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: value };
    for (to, from) in device.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the name stays terminated; the descriptor is ours and closed once.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let result = match libc::ioctl(fd, request as _, &device) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        libc::close(fd);
        result
    }
}

/// Hands out ports to listen on, none twice, so that no run meets what an earlier one left in
/// TIME_WAIT.
#[derive(Debug)]
pub struct Ports {
    next: u16,
}

impl Default for Ports {
    /// Ports below the range from which this namespace takes those of clients.
    fn default() -> Self {
        Self { next: 5000 }
    }
}

impl Ports {
    /// The next port without a listener now.
    pub fn take(&mut self) -> io::Result<u16> {
        while self.next < 16384 {
            let port = self.next;
            self.next += 1;
            if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return Ok(port);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no port left below 16384"))
    }
}

/// Whether a socket listens on this TCP port of 127.0.0.1 or of every address: read from the
/// kernel's table, because a connection to find out would be a connection to measure.
pub fn is_listening(port: u16) -> bool {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    lists_listener(&table, port)
}

/// proc_pid_net(5): the second field is the local address and port in hexadecimal, the fourth the
/// state, 0A for LISTEN.
fn lists_listener(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1).and_then(|address| address.rsplit_once(':'));
        let state = fields.nth(1);
        local.is_some_and(|(_, text)| u16::from_str_radix(text, 16) == Ok(port)) && state == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_and_a_connection_is_not_one() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     0: 0100007F:1388 00000000:0000 0A 00000000\n\
                     1: 0100007F:1389 0100007F:C001 01 00000000\n";
        assert!(lists_listener(table, 0x1388));
        assert!(!lists_listener(table, 0x1389));
        assert!(!lists_listener(table, 0xC001));
    }
}
