//! splice(2) between a stream and a pipe.

use super::*;
use crate::splice;
use shunt_pipes::kept_pipes;
use shunt_sys::libc::{EBADF, EINVAL, O_CLOEXEC, O_NONBLOCK, O_RDONLY, O_WRONLY, SPLICE_F_NONBLOCK};
use shunt_sys::{action, calls};
use shunt_table::table::{self, Kind};
use std::sync::Mutex;

struct Pipe([i32; 2]);

/// Some of these tests are about all pipes of the process.
static ALONE: Mutex<()> = Mutex::new(());

impl Pipe {
    fn new() -> Pipe {
        let mut ends = [-1; 2];
        calls::pipe2(ends.as_mut_ptr(), O_CLOEXEC | O_NONBLOCK).unwrap();
        Pipe(ends)
    }

    /// As the hook of pipe2(2) has it.
    fn kept() -> Pipe {
        let pipe = Pipe::new();
        for end in pipe.0 {
            table::take(end);
        }
        kept_pipes::enter(pipe.0, O_CLOEXEC | O_NONBLOCK);
        assert!(kept_pipes::reading(pipe.0[0]).is_some() && kept_pipes::writing(pipe.0[1]).is_some());
        pipe
    }

    /// What the kernel has in it.
    fn in_kernel(&self) -> u32 {
        calls::bytes_waiting(self.0[0]).unwrap()
    }

    fn put(&self, bytes: &[u8]) -> shunt_sys::Result<usize> {
        calls::write(self.0[1], bytes.as_ptr().cast(), bytes.len())
    }

    fn text(&self) -> String {
        let mut room = vec![0u8; 1 << 20];
        let got = calls::read(self.0[0], room.as_mut_ptr().cast(), room.len()).unwrap_or(0);
        String::from_utf8_lossy(&room[..got]).into_owned()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.0.into_iter().for_each(|end| calls::close(end).unwrap());
    }
}

#[test]
fn bytes_of_a_stream_go_into_a_pipe() {
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::new());
    near.send(b"abcdef", 0).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 4, 0), Ok(4));
    assert_eq!(pipe.text(), "abcd");
    assert_eq!(far.text(8, 0).unwrap(), "ef", "the others stay");
}

#[test]
fn bytes_of_a_pipe_go_into_a_stream() {
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::new());
    pipe.put(b"abcdef").unwrap();
    assert_eq!(splice::into(near.socket, near.fd, pipe.0[0], 4, 0), Ok(4));
    assert_eq!(far.text(8, 0).unwrap(), "abcd");
    assert_eq!(pipe.text(), "ef");
}

#[test]
fn a_full_pipe_takes_what_fits_and_the_rest_stays_in_the_stream() {
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::new());
    let bytes = pattern(100 << 10);
    assert_eq!(near.send(&bytes, 0).unwrap(), bytes.len());
    let moved = splice::out(far.socket, far.fd, pipe.0[1], bytes.len(), SPLICE_F_NONBLOCK).unwrap() as usize;
    assert!((1..bytes.len()).contains(&moved), "{moved}");
    let mut first = vec![0u8; moved];
    assert_eq!(calls::read(pipe.0[0], first.as_mut_ptr().cast(), moved).unwrap(), moved);
    let rest = receive_whole(far, bytes.len() - moved);
    assert_eq!([first, rest].concat(), bytes);
}

#[test]
fn a_pipe_without_room_is_eagain() {
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::new());
    while pipe.put(&[0; 4096]).is_ok() {}
    near.send(b"x", 0).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 1, SPLICE_F_NONBLOCK), Err(EAGAIN));
    assert_eq!(far.text(4, 0).unwrap(), "x", "nothing is lost");
}

#[test]
fn a_stream_without_bytes_is_eagain_where_it_does_not_wait() {
    let (Pair { far, .. }, pipe) = (&Pair::new(), Pipe::new());
    far.set_nonblocking();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 1, 0), Err(EAGAIN));
}

#[test]
fn a_pipe_without_bytes_is_eagain_where_it_does_not_wait() {
    let (Pair { near, .. }, pipe) = (&Pair::new(), Pipe::new());
    assert_eq!(splice::into(near.socket, near.fd, pipe.0[0], 1, SPLICE_F_NONBLOCK), Err(EAGAIN));
}

#[test]
fn ends_are_nothing_to_move() {
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::new());
    near.shut(libc::SHUT_WR).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 9, 0), Ok(0));
    let [reads, writes] = pipe.0;
    calls::close(writes).unwrap();
    assert_eq!(splice::into(far.socket, far.fd, reads, 9, 0), Ok(0));
    calls::close(reads).unwrap();
    core::mem::forget(pipe);
}

#[test]
fn a_stream_whose_peer_has_closed_takes_no_bytes_and_the_pipe_keeps_them() {
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::new());
    near.shut(libc::SHUT_WR).unwrap();
    pipe.put(b"kept").unwrap();
    near.socket.set(crate::socket::flag::NONBLOCK);
    // MSG_NOSIGNAL cannot be said of splice: the signal is ignored in a test, as Rust's runtime has it.
    assert_eq!(splice::into(near.socket, near.fd, pipe.0[0], 4, 0).map_err(|error| error.0), Err(libc::EPIPE));
    assert_eq!(pipe.text(), "kept");
    assert_eq!(far.text(4, NOW).unwrap(), "");
}

#[test]
fn a_pipe_is_what_has_the_size_of_one() {
    let pipe = Pipe::new();
    assert_eq!(splice::check_pipe(pipe.0[0], O_RDONLY), Ok(()));
    let mut pair = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).unwrap();
    assert_eq!(splice::check_pipe(pair[0], O_WRONLY).map_err(|error| error.0), Err(EINVAL));
    assert_eq!(splice::check_pipe(-1, O_WRONLY).map_err(|error| error.0), Err(EBADF));
    pair.into_iter().for_each(|end| calls::close(end).unwrap());
}

#[test]
fn what_is_said_before_descriptors_are_looked_at_is_what_the_kernel_says() {
    let (from, to) = (Pipe::new(), Pipe::new());
    from.put(b"x").unwrap();
    for flags in [0, 1, 2, 4, 8, 15, 16, 0x8000_0000] {
        for length in [0, 1] {
            let null = core::ptr::null_mut::<i64>();
            // SAFETY: a plain call.
            let kernel = unsafe { libc::syscall(libc::SYS_splice, from.0[0], null, to.0[1], null, length, flags) };
            if kernel == 1 {
                assert_eq!(splice::begins(length, flags), None, "{length} {flags}");
                from.put(b"x").unwrap();
                to.text();
            } else {
                let said = if kernel == 0 { Ok(0) } else { Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap())) };
                assert_eq!(splice::begins(length, flags), Some(said), "{length} {flags}");
            }
        }
    }
}

#[test]
fn a_pipe_that_only_splice_has_seen_holds_its_bytes_in_memory() {
    let _alone = ALONE.lock();
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::kept());
    near.send(b"abcdef", 0).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 9, 0), Ok(6));
    assert_eq!(pipe.in_kernel(), 0);
    assert_eq!(splice::into(far.socket, far.fd, pipe.0[0], 4, 0), Ok(4));
    assert_eq!(near.text(8, 0).unwrap(), "abcd");
    assert_eq!(pipe.in_kernel(), 0);
    assert_eq!(table::get(pipe.0[0]).kind(), Kind::Foreign, "a look at an end");
    assert_eq!(pipe.in_kernel(), 2);
    assert!(kept_pipes::writing(pipe.0[1]).is_none(), "for good");
    assert_eq!(pipe.text(), "ef");
    near.send(b"gh", 0).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 9, 0), Ok(2));
    assert_eq!(pipe.text(), "gh");
}

#[test]
fn a_kept_pipe_is_as_large_as_the_kernel_s() {
    let _alone = ALONE.lock();
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::kept());
    let bytes = pattern(100 << 10);
    assert_eq!(near.send(&bytes, 0).unwrap(), bytes.len());
    let size = calls::fcntl(pipe.0[0], libc::F_GETPIPE_SZ, 0).unwrap() as usize;
    let mut seen = Vec::new();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], bytes.len(), 0), Ok(size as isize));
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], bytes.len(), 0), Err(EAGAIN));
    assert_eq!(splice::into(far.socket, far.fd, pipe.0[0], 10_000, 0), Ok(10_000));
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], bytes.len(), 0), Ok(10_000), "behind what was moved to the front");
    seen.extend(receive_whole(near, 10_000));
    assert_eq!(pipe.in_kernel(), 0);
    kept_pipes::settle_all();
    assert_eq!(pipe.in_kernel(), size as u32);
    let mut room = vec![0; size];
    assert_eq!(calls::read(pipe.0[0], room.as_mut_ptr().cast(), size), Ok(size));
    seen.extend(room);
    assert_eq!(seen, bytes[..size + 10_000]);
}

#[test]
fn a_child_leaves_what_lies_in_memory_to_its_parent() {
    let _alone = ALONE.lock();
    let (Pair { near, far }, pipe) = (&Pair::new(), Pipe::kept());
    near.send(b"abc", 0).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 9, 0), Ok(3));
    kept_pipes::forked();
    assert_eq!(table::get(pipe.0[0]).kind(), Kind::Foreign);
    assert_eq!(pipe.in_kernel(), 0);
}

/// A reading end can be closed past the library; the program has written nothing that SIGPIPE could be about.
#[test]
fn bytes_that_no_reader_is_left_for_are_given_up_without_a_signal() {
    let _alone = ALONE.lock();
    let (Pair { near, far }, pipe) = (&Pair::new(), std::mem::ManuallyDrop::new(Pipe::kept()));
    near.send(b"abc", 0).unwrap();
    assert_eq!(splice::out(far.socket, far.fd, pipe.0[1], 9, 0), Ok(3));
    calls::close(pipe.0[0]).unwrap();
    // Blocked, so that one that is sent stays to be seen.
    let only = action::bit(libc::SIGPIPE);
    let (mut before, mut now, mut waiting) = (0, 0, 0u64);
    calls::sigprocmask(libc::SIG_BLOCK, &only, &mut before, calls::KERNEL_SIGSET).unwrap();
    assert_eq!(table::get(pipe.0[1]).kind(), Kind::Foreign);
    // SAFETY: room for the answer.
    unsafe { shunt_sys::syscall!(libc::SYS_rt_sigpending, &raw mut waiting, calls::KERNEL_SIGSET) };
    calls::sigprocmask(libc::SIG_SETMASK, &before, &mut now, calls::KERNEL_SIGSET).unwrap();
    assert_eq!((waiting & only, now & only), (0, only), "none came, and the mask is the thread's");
    calls::close(pipe.0[1]).unwrap();
}
