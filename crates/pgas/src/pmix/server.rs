//! The connection by which the library of PMIx speaks with the launcher. It is the library's; here is seen whether it still is there, and
//! whether the launcher is.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Its sockets; none if they were not found.
#[derive(Debug, Default)]
pub struct Server {
    sockets: Vec<Socket>,
}

#[derive(Debug)]
struct Socket {
    number: RawFd,
    /// What has had that number when it was found.
    inode: u64,
    /// The same socket under another number: the library closes its own as soon as the launcher has gone.
    kept: OwnedFd,
}

/// Descriptors of this process, and what they are: a number may soon be another one's, as that by which they are listed.
pub fn open_now() -> Vec<(RawFd, u64)> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter_map(|number| Some((number, inode(number)?))).collect()
}

fn inode(descriptor: RawFd) -> Option<u64> {
    // SAFETY: plain data of ours.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &mut found) == 0).then_some(found.st_ino)
    }
}

/// Whether it is a socket whose other end another process has.
fn leads_out(descriptor: RawFd) -> bool {
    // SAFETY: plain data of ours, as long as the kernel is told.
    unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of_val(&address) as libc::socklen_t;
        if libc::getpeername(descriptor, (&raw mut address).cast(), &mut length) != 0 {
            return false;
        }
        if i32::from(address.ss_family) != libc::AF_UNIX {
            return true;
        }
        let mut found: libc::ucred = std::mem::zeroed();
        let mut length = size_of_val(&found) as libc::socklen_t;
        let asked = libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &mut length);
        asked == 0 && found.pid as u32 != std::process::id()
    }
}

impl Server {
    /// What has been opened since then and leads to another process.
    pub fn since(before: &[(RawFd, u64)]) -> Server {
        let new = open_now().into_iter().filter(|open| !before.contains(open) && leads_out(open.0));
        let sockets = new.filter_map(|(number, inode)| {
            // SAFETY: takes numbers; the answer is a new descriptor, or an error.
            let kept = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
            // SAFETY: as above.
            let kept = (kept >= 0).then(|| unsafe { OwnedFd::from_raw_fd(kept) })?;
            Some(Socket { number, inode, kept })
        });
        Server { sockets: sockets.collect() }
    }

    /// Whether the library has it still: a program that closes what it does not know takes it away.
    pub fn is_whole(&self) -> bool {
        self.sockets.iter().all(|socket| inode(socket.number) == Some(socket.inode))
    }

    /// Whether the launcher has gone.
    pub fn is_gone(&self) -> bool {
        let ended = |socket: &Socket| {
            let mut asked = libc::pollfd { fd: socket.kept.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
            // SAFETY: one entry of ours.
            unsafe { libc::poll(&mut asked, 1, 0) == 1 && asked.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0 }
        };
        self.sockets.iter().any(ended)
    }

    /// From now on this set tells its end, once, under that number.
    ///
    /// # Errors
    /// If the kernel has no room.
    pub fn add_to(&self, set: RawFd, number: u64) -> io::Result<()> {
        for socket in &self.sockets {
            let mut event = libc::epoll_event { events: (libc::EPOLLRDHUP | libc::EPOLLONESHOT) as u32, u64: number };
            // SAFETY: one event of ours, and descriptors.
            if unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, socket.kept.as_raw_fd(), &mut event) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The library is about to close it, and the launcher is to see that.
    pub fn release(&mut self) {
        for socket in self.sockets.drain(..) {
            if inode(socket.kept.as_raw_fd()) != Some(socket.inode) {
                // The program has closed it, and the number may be another file's.
                std::mem::forget(socket.kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_end_of_the_other_side_is_seen_though_the_library_has_closed_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = open_now();
        let pair = UnixStream::pair().unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let mut server = Server::since(&before);
        // Other tests of this process may open sockets meanwhile; a pair within it is none.
        server.sockets.retain(|socket| [stream.as_raw_fd(), other.as_raw_fd(), pair.0.as_raw_fd()].contains(&socket.number));
        server.sockets.retain(|socket| socket.number != other.as_raw_fd());
        assert_eq!(server.sockets.iter().map(|socket| socket.number).collect::<Vec<_>>(), [stream.as_raw_fd()]);
        assert!(server.is_whole() && !server.is_gone());
        drop(stream);
        assert!(!server.is_gone());
        drop(other);
        while !server.is_gone() {
            std::thread::yield_now();
        }
        server.release();
        assert!(server.is_whole(), "nothing is left to be missed");
    }
}
