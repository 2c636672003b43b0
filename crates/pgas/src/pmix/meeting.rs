//! How the ranks of one host get the job's memory: the lowest one listens under an abstract name that it has drawn, the others come with the
//! secret that they have from PMIx, and get the memfd once all are there.
//!
//! ```text
//! lowest                                        another
//!   listen; name and secret to PMIx               name and secret from PMIx
//!                              <-- connect --     user = own?
//!   user = own?  secret right? <-- hello --       secret, rank, processors
//!   all have come: make the memory -- memfd -->   map it
//! ```

use super::random;
use crate::memory::Memory;
use std::io::{self, Read, Write};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long ranks of a host wait for each other: after the fence all of them run.
const PATIENCE: Duration = Duration::from_secs(60);
/// And for the hello of one that has connected; another program's connection costs so much.
const HELLO: Duration = Duration::from_secs(2);

/// Processors that a rank may use, one bit each.
pub type Processors = [u8; 128];

/// Where the ranks of a host meet.
pub struct Place {
    listener: UnixListener,
    name: String,
    secret: [u8; 16],
}

/// Another rank, as its process is seen from here.
pub struct Other {
    /// Its rank.
    pub rank: usize,
    /// The connection, which ends with the process.
    pub stream: UnixStream,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The process and the user at the other end.
pub(super) fn credentials(stream: &UnixStream) -> io::Result<libc::ucred> {
    // SAFETY: plain data of ours, as long as the kernel is told.
    unsafe {
        let mut found: libc::ucred = zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        if libc::getsockopt(stream.as_raw_fd(), level, option, (&raw mut found).cast(), &mut length) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(found)
    }
}

fn is_of_our_user(stream: &UnixStream) -> bool {
    // SAFETY: asks for a number.
    credentials(stream).is_ok_and(|found| found.uid == unsafe { libc::geteuid() })
}

/// Processors of this process.
fn processors() -> Processors {
    let mut bits = [0; 128];
    for number in crate::launch::processors().into_iter().filter(|number| *number < 1024) {
        bits[number / 8] |= 1 << (number % 8);
    }
    bits
}

impl Place {
    /// A new one.
    pub fn open() -> io::Result<Place> {
        let name = format!("shunt-job-{}", hexadecimal(&random()?));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Place { listener, name, secret: random()? })
    }

    /// What the others need to know.
    pub fn invitation(&self) -> String {
        format!("{}:{}", self.name, hexadecimal(&self.secret))
    }

    /// Waits until each of these ranks has come; how many processors they and this process have together.
    pub fn gather(&self, ranks: &[usize]) -> io::Result<(Vec<Other>, usize)> {
        let until = Instant::now() + PATIENCE;
        let mut all = processors();
        let mut come: Vec<Other> = Vec::new();
        while come.len() < ranks.len() {
            let left = until.saturating_duration_since(Instant::now()).as_millis() as i32;
            let mut wanted = libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor of ours.
            if unsafe { libc::poll(&mut wanted, 1, left) } == 0 || left == 0 {
                let missing = ranks.iter().filter(|rank| come.iter().all(|other| other.rank != **rank));
                let missing: Vec<String> = missing.map(usize::to_string).collect();
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("these ranks did not come: {}", missing.join(", "))));
            }
            let (stream, _) = match self.listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            // A stranger is not answered.
            if let Some((rank, processors)) = self.hear(&stream) {
                if ranks.contains(&rank) && come.iter().all(|other| other.rank != rank) {
                    all.iter_mut().zip(processors).for_each(|(all, more)| *all |= more);
                    come.push(Other { rank, stream });
                }
            }
        }
        Ok((come, all.iter().map(|byte| byte.count_ones() as usize).sum()))
    }

    fn hear(&self, mut stream: &UnixStream) -> Option<(usize, Processors)> {
        if !is_of_our_user(stream) {
            return None;
        }
        stream.set_read_timeout(Some(HELLO)).ok()?;
        let (mut secret, mut rank, mut processors) = ([0; 16], [0; 4], [0; 128]);
        stream.read_exact(&mut secret).ok()?;
        stream.read_exact(&mut rank).ok()?;
        stream.read_exact(&mut processors).ok()?;
        (secret == self.secret).then_some((u32::from_le_bytes(rank) as usize, processors))
    }
}

/// Goes where the lowest rank listens, and gets the memory.
pub fn come(invitation: &str, rank: usize) -> io::Result<(Memory, UnixStream)> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (name, secret) = invitation.split_once(':').ok_or_else(|| broken("the invitation has no secret"))?;
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    if !is_of_our_user(&stream) {
        return Err(broken("another user listens there"));
    }
    let digits = (0..16).map(|at| secret.get(at * 2..at * 2 + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()));
    let mut hello: Vec<u8> = digits.collect::<Option<_>>().ok_or_else(|| broken("the invitation's secret is none"))?;
    hello.extend((rank as u32).to_le_bytes());
    hello.extend(processors());
    stream.write_all(&hello)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let memory = Memory::received(receive(&stream)?)?;
    Ok((memory, stream))
}

/// Room for one descriptor beside a message, aligned as its header must be.
#[repr(C, align(8))]
struct Beside([u8; 32]);

fn message(byte: &mut libc::iovec, beside: &mut Beside) -> libc::msghdr {
    // SAFETY: plain data; zeroes are an empty message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = beside.0.as_mut_ptr().cast();
    // SAFETY: computes a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
    message
}

/// Sends a descriptor with one byte (cmsg(3)).
pub fn send(stream: &UnixStream, descriptor: RawFd) -> io::Result<()> {
    let mut byte = [b'm'];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut beside = Beside([0; 32]);
    let message = message(&mut part, &mut beside);
    // SAFETY: the message has room for the one header, whose parts are written, and lives during the call.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        if libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut beside = Beside([0; 32]);
    let mut message = message(&mut part, &mut beside);
    // SAFETY: the message has room for one header, and lives during the call; a header that the kernel wrote is whole, and its descriptor
    // is new and nobody's yet.
    unsafe {
        let count = loop {
            let count = libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
            if count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break count;
            }
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&message);
        let right = !header.is_null() && (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS;
        if !right {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the lowest rank of this host has gone"));
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn a_stranger_is_not_answered_and_a_rank_is() {
        let place = Place::open().unwrap();
        let name = place.invitation().split(':').next().unwrap().to_owned();
        // It has come first, and says what does not end with the secret.
        let mut stranger = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        stranger.write_all(&[7; 148]).unwrap();
        let invitation = place.invitation();
        let rank = std::thread::spawn(move || come(&invitation, 3).map(|(memory, _)| memory.map(0, 8).is_ok()));
        let (others, processors) = place.gather(&[3]).unwrap();
        assert_eq!((others.len(), others[0].rank), (1, 3));
        assert_eq!(processors, crate::launch::processors().len());
        let memory = Memory::create(Layout::new(1, 1).data()).unwrap();
        send(&others[0].stream, std::os::fd::AsRawFd::as_raw_fd(&memory.descriptor())).unwrap();
        assert!(rank.join().unwrap().unwrap());
        drop(place);
        assert_eq!(stranger.read(&mut [0; 1]).unwrap_or(0), 0);
    }

    #[test]
    fn invitations_of_no_sense_are_refused() {
        for invitation in ["", "name", "name:12", ":"] {
            assert!(come(invitation, 0).is_err(), "{invitation}");
        }
    }
}
