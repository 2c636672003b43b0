//! What a connection of the kernel's holds, in line (socket(7), SO_OOBINLINE): the urgent byte is taken by itself, so that a
//! caller that passes the bytes on knows which one it is.

use shunt_sys::libc::{MSG_DONTWAIT, MSG_PEEK};
use shunt_sys::{calls, Result};

/// Takes up to `length` bytes, 1 or more, without waiting. True: it is one, the urgent one.
///
/// # Safety
/// `data` has room for `length` bytes.
pub unsafe fn take(fd: i32, data: *mut u8, length: usize) -> Result<(usize, bool)> {
    // SAFETY: passed on.
    unsafe { take_between(fd, data, length, &mut || {}) }
}

/// How often a byte is seen that was not there a moment ago, until it is believed that the kernel does not count it.
const HIDDEN: u32 = 2;

/// [`take`], with what happens between its looks and its receive.
unsafe fn take_between(fd: i32, data: *mut u8, length: usize, between: &mut dyn FnMut()) -> Result<(usize, bool)> {
    let mut hidden = 0;
    loop {
        // The kernel forgets a mark when its byte is taken, and ends a read only at one that is not its first byte's. So nothing
        // is taken that was not there when the mark was looked for: an urgent byte that comes in between would be an ordinary one.
        let there = calls::bytes_waiting(fd).unwrap_or(1) > 0;
        let urgent = there && is_at_mark(fd);
        between();
        let (length, look) = match (there, urgent) {
            (true, false) => (length, 0),
            (true, true) => (length.min(1), 0),
            // Another owner of the connection has taken it out of line: the kernel counts nothing at a mark, and gives what lies behind
            // it.
            (false, _) => (length.min(1), if hidden < HIDDEN { MSG_PEEK } else { 0 }),
        };
        let (nobody, flags) = (core::ptr::null_mut(), MSG_DONTWAIT | look);
        match calls::recvfrom(fd, data.cast(), length, flags, nobody, core::ptr::null_mut()) {
            Ok(1..) if look != 0 => hidden += 1,
            taken => return taken.map(|taken| (taken, urgent)),
        }
    }
}

/// Whether the next byte is the urgent one (sockatmark(3)).
fn is_at_mark(fd: i32) -> bool {
    const SIOCATMARK: u64 = 0x8905;
    calls::asked(fd, SIOCATMARK).is_ok_and(|at| at != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::{libc, Errno};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// A connection: the end that writes, and the one that takes.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (taker, _) = listener.accept().unwrap();
        calls::setsockopt_int(taker.as_raw_fd(), libc::SOL_SOCKET, libc::SO_OOBINLINE, 1).unwrap();
        (writer, taker)
    }

    fn send_urgent(stream: &TcpStream, byte: u8) {
        let nobody = core::ptr::null();
        assert_eq!(calls::sendto(stream.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB, nobody, 0), Ok(1));
    }

    /// What came, and whether it was urgent. `between` runs before each receive.
    fn taken(stream: &TcpStream, between: &mut dyn FnMut()) -> Result<(Vec<u8>, bool)> {
        let mut data = [0; 16];
        // SAFETY: as long as it is said.
        let (count, urgent) = unsafe { take_between(stream.as_raw_fd(), data.as_mut_ptr(), data.len(), between)? };
        Ok((data[..count].to_vec(), urgent))
    }

    fn wait_for(stream: &TcpStream, count: u32) {
        while calls::bytes_waiting(stream.as_raw_fd()).unwrap() < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_urgent_byte_is_taken_by_itself() {
        let (mut writer, taker) = pair();
        writer.write_all(b"before").unwrap();
        send_urgent(&writer, b'!');
        writer.write_all(b"behind").unwrap();
        wait_for(&taker, 13);
        for expected in [(&b"before"[..], false), (b"!", true), (b"behind", false)] {
            assert_eq!(taken(&taker, &mut || {}), Ok((expected.0.to_vec(), expected.1)));
        }
        assert_eq!(taken(&taker, &mut || {}), Err(Errno(libc::EAGAIN)));
        drop(writer);
        assert_eq!(calls::poll_one(taker.as_raw_fd(), libc::POLLIN, -1).map(|events| events & libc::POLLIN), Ok(libc::POLLIN));
        assert_eq!(taken(&taker, &mut || {}), Ok((Vec::new(), false)));
    }

    #[test]
    fn a_mark_out_of_line_holds_nobody_up() {
        let (mut writer, taker) = pair();
        calls::setsockopt_int(taker.as_raw_fd(), libc::SOL_SOCKET, libc::SO_OOBINLINE, 0).unwrap();
        send_urgent(&writer, b'!');
        writer.write_all(b"behind").unwrap();
        assert_eq!(calls::poll_one(taker.as_raw_fd(), libc::POLLIN, -1).map(|events| events & libc::POLLIN), Ok(libc::POLLIN));
        let mut turns = 0;
        let mut count = || {
            turns += 1;
            assert!(turns < 10, "it turns for ever");
        };
        assert_eq!(taken(&taker, &mut count), Ok((b"b".to_vec(), false)));
        assert_eq!(taken(&taker, &mut count), Ok((b"ehind".to_vec(), false)));
    }

    #[test]
    fn an_urgent_byte_that_comes_between_the_looks_and_the_receive_keeps_its_mark() {
        let (mut writer, taker) = pair();
        for before in [&b""[..], b"before"] {
            writer.write_all(before).unwrap();
            wait_for(&taker, before.len() as u32);
            let mut calls = 0;
            let mut come = || {
                calls += 1;
                if calls == 1 {
                    send_urgent(&writer, b'!');
                    (&writer).write_all(b"behind").unwrap();
                    wait_for(&taker, before.len() as u32 + 7);
                }
            };
            let mut all = Vec::new();
            while all.last() != Some(&(b"behind".to_vec(), false)) {
                all.push(taken(&taker, &mut come).unwrap());
            }
            let expected = [(before.to_vec(), false), (b"!".to_vec(), true), (b"behind".to_vec(), false)];
            assert_eq!(all, &expected[usize::from(before.is_empty())..]);
        }
    }
}
