//! Whether something listens, as sock_diag(7) tells it: the kernel looks through its listeners alone, some 30 us. For `/proc/net/tcp` it goes through its
//! table of all connections, which takes the processor 1.6 ms at each look.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `TCP_LISTEN` of `net/tcp_states.h`, as a bit.
const LISTEN: u32 = 1 << 10;
/// Bytes of `struct nlmsghdr`, and of `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const REQUEST: usize = 56;

/// Whether any socket listens on TCP port `port`, IPv4 or IPv6, in the network namespace that the calling thread is in.
pub fn has_listener(port: u16) -> bool {
    let seen = listens(libc::AF_INET, port).and_then(|seen| Ok(seen || listens(libc::AF_INET6, port)?));
    // Where the kernel is without that module.
    seen.unwrap_or_else(|_| is_in_tables("/proc/thread-self/net", port))
}

/// The same by the tables in a directory of `/proc`.
pub(crate) fn is_in_tables(directory: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let rows = fs::read_to_string(format!("{directory}/{table}")).unwrap_or_default();
        // sl local_address rem_address st ...; 0A is TCP_LISTEN of net/tcp_states.h.
        rows.lines().skip(1).any(|row| {
            let mut fields = row.split_whitespace().skip(1);
            let local = fields.next().unwrap_or("");
            local.ends_with(&suffix) && fields.nth(1) == Some("0A")
        })
    })
}

fn listens(family: libc::c_int, port: u16) -> io::Result<bool> {
    // SAFETY: takes numbers.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG) };
    if socket == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above, nobody else's.
    let mut socket = unsafe { File::from_raw_fd(socket) };
    let mut request = Vec::with_capacity(HEADER + REQUEST);
    request.extend_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    request.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request.resize(HEADER, 0);
    request.extend_from_slice(&[family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    request.extend_from_slice(&LISTEN.to_ne_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    // Any other port, addresses, interface and cookie.
    request.resize(HEADER + REQUEST, 0);
    socket.write_all(&request)?;
    // Sockets come before the answer's end, and the first one is enough.
    let mut answer = [0; 1 << 15];
    let length = socket.read(&mut answer)?;
    let kind = answer[..length].get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]])).unwrap_or_default();
    match i32::from(kind) {
        libc::NLMSG_DONE => Ok(false),
        libc::NLMSG_ERROR => {
            let code = answer.get(HEADER..HEADER + 4).map_or(0, |code| i32::from_ne_bytes([code[0], code[1], code[2], code[3]]));
            Err(io::Error::from_raw_os_error(-code))
        }
        _ => Ok(kind == BY_FAMILY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn looks(port: u16) -> [bool; 3] {
        let asked = listens(libc::AF_INET, port).unwrap() || listens(libc::AF_INET6, port).unwrap();
        [has_listener(port), asked, is_in_tables("/proc/self/net", port)]
    }

    #[test]
    fn listeners_of_both_families_are_seen_while_they_listen() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            // A connection's port is no listener's.
            let connected = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(looks(port), [true; 3], "{address}");
            assert_eq!(looks(connected.local_addr().unwrap().port()), [false; 3], "{address}");
            drop(listener);
            assert_eq!(looks(port), [false; 3], "{address}");
        }
    }
}
