//! The kernel's TCP sockets, from /proc/PID/net/tcp and tcp6: the tables of the network namespace of that process.
use std::collections::HashMap;

use shunt_segment::address::Address;

use super::processes;

/// A TCP socket of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelSocket {
    /// Its own address.
    pub local: Address,
    /// Its peer's address; unspecified for listeners.
    pub remote: Address,
    /// Its state, in the words of ss(8).
    pub state: &'static str,
}

/// The TCP sockets that process `pid` could have, by inode.
pub fn sockets(pid: u32) -> HashMap<u64, KernelSocket> {
    ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(processes::path(pid, name)).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(line).collect::<Vec<_>>())
        .collect()
}

/// One line: number, local, remote, state, four columns of queues and timers, uid, timeout, inode.
fn line(text: &str) -> Option<(u64, KernelSocket)> {
    let mut columns = text.split_ascii_whitespace().skip(1);
    let local = address(columns.next()?)?;
    let remote = address(columns.next()?)?;
    let state = state(u8::from_str_radix(columns.next()?, 16).ok()?);
    let inode = columns.nth(5)?.parse().ok()?;
    Some((inode, KernelSocket { local, remote, state }))
}

/// `0100007F:1A2B`: words of the address as this machine's integers, the port as a number.
fn address(text: &str) -> Option<Address> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| Some(u32::from_str_radix(ip.get(index * 8..index * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match ip.len() {
        8 => Some(Address::v4(word(0)?, port)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Some(Address::v6(bytes, port))
        }
        _ => None,
    }
}

/// The numbers of include/net/tcp_states.h.
pub fn state(number: u8) -> &'static str {
    match number {
        1 => "established",
        2 => "syn-sent",
        3 => "syn-received",
        4 => "fin-wait-1",
        5 => "fin-wait-2",
        6 => "time-wait",
        7 => "closed",
        8 => "close-wait",
        9 => "last-ack",
        10 => "listening",
        11 => "closing",
        12 => "new-syn-received",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    fn inode(socket: &impl AsRawFd) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino()
    }

    #[test]
    fn the_tables_show_this_process_of_both_families() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let table = sockets(std::process::id());
            let (listening, connected) = (table[&inode(&listener)], table[&inode(&client)]);
            assert_eq!((listening.state, connected.state), ("listening", "established"));
            assert_eq!(connected.remote, listening.local);
            assert_eq!(connected.local.port, client.local_addr().unwrap().port());
            assert!(listening.local.is_loopback() && listening.remote.is_unspecified());
        }
    }

    #[test]
    fn other_lines_are_passed_over() {
        for text in ["", "0: 1", "0: 0100007F:1A2B", "0: 0100007F:XX 0:0 01 a b c d e", "0: é100007:0 0 0"] {
            assert_eq!(line(text), None, "{text:?}");
        }
    }
}
