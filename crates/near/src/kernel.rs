//! What the kernel tells of a handshake's TCP connection: looks that take nothing off, the connection's error neither, which is the program's to hear.

use shunt_sys::{calls, libc};

/// Places in TCP_INFO (`struct tcp_info` in linux/tcp.h, as of Linux 4.6).
const STATE: usize = 0;
const ROUND_TRIP: usize = 68; // tcpi_rtt, of microseconds
const NOT_SENT: usize = 144; // tcpi_notsent_bytes
const SEGMENTS_OUT: usize = 156; // tcpi_data_segs_out
const ESTABLISHED: u8 = 1; // TCP_ESTABLISHED
const CLOSED: u8 = 7; // TCP_CLOSE

fn told(fd: i32) -> Option<[u8; SEGMENTS_OUT + 4]> {
    let mut bytes = [0u8; SEGMENTS_OUT + 4];
    let mut length = bytes.len() as libc::socklen_t;
    calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut length).ok()?;
    (length as usize == bytes.len()).then_some(bytes)
}

fn word(told: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([told[at], told[at + 1], told[at + 2], told[at + 3]])
}

/// How long the kernel's handshake took (ns).
pub fn round_trip(fd: i32) -> Option<u64> {
    told(fd).map(|told| u64::from(word(&told, ROUND_TRIP)) * 1000)
}

/// Whether nobody has written into the TCP connection at this end, nor ended it: another thread may have, or a child that has the
/// socket, as soon as poll(2) told of the connection.
pub fn is_unwritten(fd: i32) -> bool {
    told(fd).is_some_and(|told| told[STATE] == ESTABLISHED && word(&told, SEGMENTS_OUT) == 0 && word(&told, NOT_SENT) == 0)
}

/// Whether the TCP connection was ended by a reset before anything was written into it.
pub fn is_gone(fd: i32) -> bool {
    told(fd).is_some_and(|told| told[STATE] == CLOSED && word(&told, SEGMENTS_OUT) == 0)
}

/// Whether nothing has come by the TCP connection, nor its end.
pub fn is_unread(fd: i32) -> bool {
    has_come(fd) == Some(0)
}

/// How many bytes have come and were not read; `None`: its end has, and no byte. recv(2) would take the connection's error where no byte is before it, with
/// MSG_PEEK, too.
pub fn has_come(fd: i32) -> Option<usize> {
    let bytes = || {
        let mut count = 0i32;
        let asked = calls::ioctl(fd, libc::FIONREAD, (&raw mut count) as usize);
        asked.ok().map(|_| count as usize)
    };
    match bytes()? {
        0 if told(fd)?[STATE] == ESTABLISHED => Some(0),
        // What came right before the end.
        0 => bytes().filter(|count| *count > 0),
        some => Some(some),
    }
}
