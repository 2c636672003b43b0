//! Which connection a TCP socket is an end of: its sequence numbers, as the kernel tells them.
//!
//! The kernel tells them by TCP_QUEUE_SEQ, of the queue that TCP_REPAIR_QUEUE has chosen. To choose one a socket must be under repair (TCP_REPAIR, which takes CAP_NET_ADMIN
//! in the user namespace that owns its network); to ask it need not, and the choice stays (net/ipv4/tcp.c, Linux 3.5 and since).

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use libc::{IPPROTO_TCP, SOL_SOCKET, TCP_QUEUE_SEQ, TCP_REPAIR, TCP_REPAIR_QUEUE};
use shunt_segment::meeting::Refusal;
use shunt_sys::{calls, Errno};

use crate::batch::{Batch, Setting};
use crate::confinement::{NETWORK_OF, OWNER_OF};
use crate::table::Numbers;

/// Values of TCP_REPAIR: on, and off without a packet.
const ON: i32 = 1;
const OFF: i32 = -1;
/// Values of TCP_REPAIR_QUEUE.
const RECEIVED: i32 = 1;
const SENT: i32 = 2;
/// SO_NETNS_COOKIE, since Linux 5.14.
const NETWORK: i32 = 71;
/// Of TCP_INFO: tcpi_state, and where tcpi_bytes_received is.
const ESTABLISHED: u8 = 1;
const BYTES_RECEIVED: usize = 128;

/// What a socket is an end of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Its numbers.
    pub numbers: Numbers,
    /// Its network namespace; 0: the kernel does not tell.
    pub network: u64,
}

/// Whose networks' sockets are read. Root of a network makes sockets with whatever numbers it likes (TCP_REPAIR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Networks {
    /// Those that this process's user namespace owns: root of the host alone is root over them.
    Own,
    /// Those of other user namespaces as well.
    All,
}

/// Of how many networks it is known at a time whose they are.
const KNOWN: usize = 4096;

/// Reads sockets.
pub struct Reader {
    batch: Option<Batch>,
    /// Device and inode of the user namespace that owns the networks; `None`: any may.
    owner: Option<(u64, u64)>,
    /// Whether it does, by cookie, which is never another network's.
    known: HashMap<u64, bool>,
}

impl Reader {
    /// One that cannot be killed in the middle, where the kernel has what that needs.
    ///
    /// Errors: this process's user namespace is not told (/proc).
    pub fn new(networks: Networks) -> std::io::Result<Reader> {
        let owner = match networks {
            Networks::Own => Some(std::fs::metadata("/proc/self/ns/user").map(|own| (own.dev(), own.ino()))?),
            Networks::All => None,
        };
        let mut reader = Reader { batch: Batch::new().ok(), owner, known: HashMap::with_capacity(2 * KNOWN) };
        // Older kernels have the ring, and not the command.
        if reader.batch.is_some() && !reader.is_of_use() {
            reader.batch = None;
        }
        Ok(reader)
    }

    /// Whether a kill cannot leave a socket under repair.
    pub fn is_in_one(&self) -> bool {
        self.batch.is_some()
    }

    fn is_of_use(&mut self) -> bool {
        let Ok(socket) = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return false };
        let setting = Setting { option: (SOL_SOCKET, libc::SO_REUSEADDR), value: 1 };
        self.set(socket.as_fd(), &[setting]).is_ok()
    }

    fn set(&mut self, fd: BorrowedFd, settings: &[Setting]) -> Result<(), Errno> {
        if let Some(batch) = &mut self.batch {
            return batch.set(fd.as_raw_fd(), settings);
        }
        // Those behind one that fails are made nevertheless, as in a batch.
        let set = |setting: &Setting| calls::setsockopt_int(fd.as_raw_fd(), setting.option.0, setting.option.1, setting.value);
        settings.iter().map(set).fold(Ok(()), Result::and)
    }

    /// Looks at a socket, which is as it was afterwards.
    ///
    /// Errors: NoConnection; Forbidden: it takes CAP_NET_ADMIN over the socket's network, or another user namespace owns that.
    pub fn read(&mut self, socket: BorrowedFd) -> Result<Connection, Refusal> {
        let fd = socket.as_raw_fd();
        let told = |level, name| calls::getsockopt_int(fd, level, name).map_err(|_| Refusal::NoConnection);
        let kind = [libc::SO_TYPE, libc::SO_PROTOCOL].map(|name| told(SOL_SOCKET, name));
        if kind != [Ok(libc::SOCK_STREAM), Ok(IPPROTO_TCP)] || told(IPPROTO_TCP, TCP_REPAIR)? != 0 {
            return Err(Refusal::NoConnection);
        }
        let received = received(fd).ok_or(Refusal::NoConnection)?;
        let network = network(fd);
        if !self.is_of_own(fd, network) {
            return Err(Refusal::Forbidden);
        }
        let reuse = told(SOL_SOCKET, libc::SO_REUSEADDR)?;
        let repair = |value| Setting { option: (IPPROTO_TCP, TCP_REPAIR), value };
        let choose = |value| Setting { option: (IPPROTO_TCP, TCP_REPAIR_QUEUE), value };
        // Repair has taken it away.
        let reuse = Setting { option: (SOL_SOCKET, libc::SO_REUSEADDR), value: reuse };
        let mut number = |queue: i32| {
            self.set(socket, &[repair(ON), choose(queue), repair(OFF), reuse]).map_err(|_| Refusal::Forbidden)?;
            told(IPPROTO_TCP, TCP_QUEUE_SEQ).map(|number| number as u32)
        };
        let numbers = Numbers { sends: number(SENT)?, expects: number(RECEIVED)? };
        // A repair begins with no queue chosen, without which nobody is told a number.
        self.set(socket, &[repair(ON), repair(OFF), reuse]).map_err(|_| Refusal::Forbidden)?;
        // What another holder of the socket writes while the queue of received bytes is chosen comes as if it were its peer's.
        if self::received(fd) != Some(received) {
            return Err(Refusal::NoConnection);
        }
        Ok(Connection { numbers, network })
    }

    /// Whether the socket's network is one of those whose sockets are read.
    fn is_of_own(&mut self, fd: i32, network: u64) -> bool {
        let Some(owner) = self.owner else { return true };
        if let Some(known) = self.known.get(&network).filter(|_| network != 0) {
            return *known;
        }
        let is_own = owner_of_network(fd) == Ok(owner);
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert(network, is_own);
        is_own
    }
}

/// How many bytes an established connection has received; `None`: it is none.
fn received(fd: i32) -> Option<u64> {
    let mut bytes = [0u8; BYTES_RECEIVED + 8];
    let mut length = bytes.len() as u32;
    calls::getsockopt(fd, IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut length).ok()?;
    let is_whole = length as usize == bytes.len() && bytes[0] == ESTABLISHED;
    bytes.last_chunk().filter(|_| is_whole).map(|word| u64::from_ne_bytes(*word))
}

/// Device and inode of the user namespace that owns a socket's network. Errors: EPERM: it is none of this process's or of those in it.
fn owner_of_network(fd: i32) -> Result<(u64, u64), Errno> {
    // SAFETY: the kernel has made the descriptor for this call.
    let ask = |fd, what: u32| calls::ioctl(fd, what.into(), 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let network = ask(fd, NETWORK_OF)?;
    let owner = ask(network.as_raw_fd(), OWNER_OF)?;
    calls::status_of(owner.as_raw_fd()).map(|status| (status.st_dev, status.st_ino))
}

/// The number that the kernel knows a socket's network namespace by; 0: it does not tell.
pub(crate) fn network(fd: i32) -> u64 {
    let mut cookie = 0u64;
    let mut length = 8;
    match calls::getsockopt(fd, SOL_SOCKET, NETWORK, (&raw mut cookie).cast(), &mut length) {
        Ok(()) => cookie,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn connection() -> (TcpStream, TcpStream, TcpListener) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (server, _) = listener.accept().expect("it");
        (client, server, listener)
    }

    /// `None`, and said so: this user may not.
    fn readers() -> Option<Vec<Reader>> {
        let (client, ..) = connection();
        let reader = || Reader::new(Networks::All).expect("a reader");
        let mut readers = vec![Reader { batch: None, ..reader() }, reader()];
        if readers[0].read(client.as_fd()) == Err(Refusal::Forbidden) {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: needs CAP_NET_ADMIN\n");
            return None;
        }
        Some(readers)
    }

    #[test]
    fn both_ends_have_the_same_numbers_crosswise_and_go_on() {
        for mut reader in readers().into_iter().flatten() {
            let (mut client, mut server, _listener) = connection();
            for (socket, value) in [(&client, 1), (&server, 0)] {
                calls::setsockopt_int(socket.as_raw_fd(), SOL_SOCKET, libc::SO_REUSEADDR, value).expect("an option");
            }
            let mut room = [0; 5];
            for turn in 0..50 {
                let [one, other] = [&client, &server].map(|socket| reader.read(socket.as_fd()).expect("its numbers"));
                assert_eq!((one.numbers.sends, one.numbers.expects), (other.numbers.expects, other.numbers.sends), "{turn}");
                assert!(one.network == other.network);
                client.write_all(b"hello").expect("bytes");
                server.read_exact(&mut room).expect("bytes");
                server.write_all(&room).expect("bytes");
                client.read_exact(&mut room).expect("bytes");
                assert_eq!(&room, b"hello");
                let after = reader.read(client.as_fd()).expect("its numbers");
                assert_eq!(after.numbers.sends.wrapping_sub(one.numbers.sends), 5);
            }
            let number = calls::getsockopt_int(client.as_raw_fd(), IPPROTO_TCP, TCP_QUEUE_SEQ);
            assert_eq!(number, Err(Errno(libc::EINVAL)), "its holder can read a number");
            let option = |socket: &TcpStream, name| calls::getsockopt_int(socket.as_raw_fd(), SOL_SOCKET, name);
            assert_eq!([option(&client, libc::SO_REUSEADDR), option(&server, libc::SO_REUSEADDR)], [Ok(1), Ok(0)]);
            drop(client);
            assert_eq!(server.read(&mut room).expect("the end"), 0);
        }
    }

    #[test]
    fn what_is_no_connection_is_refused() {
        for mut reader in readers().into_iter().flatten() {
            let (client, server, listener) = connection();
            let unix = std::os::unix::net::UnixStream::pair().expect("a pair");
            let datagrams = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            let file = std::fs::File::open("/dev/null").expect("a file");
            let others = [listener.as_fd(), unix.0.as_fd(), datagrams.as_fd(), file.as_fd()];
            assert!(others.into_iter().all(|other| reader.read(other) == Err(Refusal::NoConnection)));
            // One under repair is its holder's affair.
            calls::setsockopt_int(client.as_raw_fd(), IPPROTO_TCP, TCP_REPAIR, ON).expect("repair");
            assert_eq!(reader.read(client.as_fd()), Err(Refusal::NoConnection));
            calls::setsockopt_int(client.as_raw_fd(), IPPROTO_TCP, TCP_REPAIR, OFF).expect("no repair");
            assert!(reader.read(client.as_fd()).is_ok());
            client.shutdown(std::net::Shutdown::Write).expect("an end");
            assert_eq!(reader.read(client.as_fd()), Err(Refusal::NoConnection), "it ends");
            drop(server);
        }
    }

    /// Where root may do what it may here, one of the readers cannot be killed in the middle, from Linux 6.7 on.
    #[test]
    fn a_kill_never_leaves_a_socket_under_repair() {
        let Some(mut readers) = readers() else { return };
        let reader = readers.remove(1);
        if !reader.is_in_one() {
            return;
        }
        let (client, server, _listener) = connection();
        for turn in 0..200u64 {
            // SAFETY: the child makes plain calls on memory that is there, and is killed.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let mut reader = Reader::new(Networks::All).expect("a reader");
                loop {
                    let _ = reader.read(client.as_fd());
                }
            }
            std::thread::sleep(std::time::Duration::from_micros(1000 + 37 * turn));
            // SAFETY: a child of this process.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, core::ptr::null_mut(), 0);
            }
            assert_eq!(calls::getsockopt_int(client.as_raw_fd(), IPPROTO_TCP, TCP_REPAIR), Ok(0), "{turn}");
        }
        drop(server);
    }

    /// Root of a user namespace of its own makes a false end of any connection: sockets of its network are refused.
    #[test]
    fn a_network_of_another_user_namespace_is_refused() {
        if readers().is_none() {
            return;
        }
        let code = "import socket\n\
            l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname())\n\
            u = socket.socket(fileno=0, family=socket.AF_UNIX, type=socket.SOCK_STREAM)\n\
            socket.send_fds(u, [b'x'], [c.fileno()]); u.recv(1)";
        let came_from = |options: &[&str]| {
            let (own, its) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let mut command = std::process::Command::new("unshare");
            command.args(options).args(["sh", "-c", "ip link set lo up && exec python3 -c \"$0\"", code]);
            let mut child = command.stdin(OwnedFd::from(its)).spawn().expect("unshare");
            drop(command);
            let got = calls::poll_one(own.as_raw_fd(), libc::POLLIN, 20_000_000_000)
                .and_then(|_| crate::packets::receive(own.as_fd(), &mut [0; 2]));
            let reads = |networks| {
                let socket = got.as_ref().ok()?.1.as_ref()?;
                let mut reader = Reader::new(networks).expect("a reader");
                // What is known of a network is what was found.
                let [first, second] = [0; 2].map(|_| reader.read(socket.as_fd()).map(|_| ()));
                assert_eq!(first, second);
                Some(first)
            };
            let told = [Networks::Own, Networks::All].map(reads);
            drop(own);
            let _ = child.wait();
            told
        };
        assert_eq!(came_from(&["--net"]), [Some(Ok(())), Some(Ok(()))]);
        let foreign = came_from(&["--user", "--map-root-user", "--net"]);
        // Where nobody may make a user namespace there is no such stranger.
        assert!(foreign == [Some(Err(Refusal::Forbidden)), Some(Ok(()))] || foreign == [None, None], "{foreign:?}");
    }
}
