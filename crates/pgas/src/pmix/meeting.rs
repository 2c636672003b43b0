//! How the ranks of one host get the job's memory: the lowest one listens under an abstract name that all of them can tell, since it follows from
//! what their launcher has given each of them; the others come as often as it takes, and get the memfd once all are there. The launcher is not
//! asked to bring them together: where programs follow each other under one launcher, its server may count one program's end as another's arrival.
//!
//! ```text
//! lowest                                        another
//!   listen                     <-- connect --     again until it is there
//!   user = own?  word right? <-- hello --         user = own?  word, rank, processors
//!   all have come: make the memory -- memfd -->   map it
//!                            or the end -->       that was the listener of a program before: again
//! ```

use super::server::Server;
use crate::memory::Memory;
use std::fmt;
use std::io::{self, Read, Write};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// When a rank says that it waits for others, which may have much to do before they start.
const TALKS: Duration = Duration::from_secs(10);
/// And when it gives up.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Between looks for the others.
const SHORTEST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(20);
/// For the hello of one that has connected; another program's connection costs so much.
const HELLO: Duration = Duration::from_secs(2);
/// Names under which a lowest rank may listen: one may be another user's by then.
const NAMES: usize = 4;

/// What tells a job from all others on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    name: u128,
    word: u128,
}

/// FNV-1a of 128 bits (Fowler, Noll, Vo).
fn sum(seed: u8, parts: &[Vec<u8>]) -> u128 {
    let bytes = parts.iter().flat_map(|part| part.iter().chain([&0]));
    [seed].iter().chain(bytes).fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |sum: u128, byte| {
        (sum ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

impl Key {
    /// Of what all ranks of this host know alike, in this order, and other users do not see.
    pub fn of(parts: &[Vec<u8>]) -> Key {
        Key { name: sum(1, parts), word: sum(2, parts) }
    }

    fn address(self, which: usize) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("shunt-job-{:032x}-{which}", self.name))
    }
}

/// Says once that a wait is long, and ends it when that is of no use any more.
struct Wait<'s> {
    server: &'s Server,
    since: Instant,
    pause: Duration,
    talked: bool,
}

impl Wait<'_> {
    fn new(server: &Server) -> Wait<'_> {
        Wait { server, since: Instant::now(), pause: SHORTEST, talked: false }
    }

    /// To be called in each round; `whom` is asked if it is to be said.
    fn go_on(&mut self, whom: impl Fn() -> String) -> io::Result<()> {
        if self.server.is_gone() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the launcher has gone"));
        }
        if self.since.elapsed() > PATIENCE {
            let error = format!("{}, and has done so for {} seconds", whom(), PATIENCE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, error));
        }
        if self.since.elapsed() > TALKS && !self.talked {
            self.talked = true;
            let _ = io::stderr().write_all(format!("shunt: {} to start; still waiting\n", whom()).as_bytes());
        }
        Ok(())
    }

    /// Longer from time to time.
    fn pause(&mut self) -> Duration {
        self.pause = (self.pause * 2).min(LONGEST);
        self.pause
    }
}

/// Ranks in a sentence.
struct Ranks<'r>(&'r [usize]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "{} {}", if self.0.len() == 1 { "rank" } else { "ranks" }, numbers.join(", "))
    }
}

/// Processors that a rank may use, one bit each.
pub type Processors = [u8; 128];

/// Where the ranks of a host meet.
pub struct Place {
    listener: UnixListener,
    key: Key,
}

/// Another rank, as its process is seen from here.
pub struct Other {
    /// Its rank.
    pub rank: usize,
    /// The connection, which ends with the process.
    pub stream: UnixStream,
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

/// Whether the other end of a connection has ended it, or this one is broken.
fn has_ended(stream: &UnixStream) -> bool {
    let mut asked = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry of ours.
    unsafe { libc::poll(&mut asked, 1, 0) == 1 }
}

impl Place {
    /// A new one.
    ///
    /// # Errors
    /// If all names are taken and stay so.
    pub fn open(key: Key, server: &Server) -> io::Result<Place> {
        let mut wait = Wait::new(server);
        loop {
            for which in 0..NAMES {
                match UnixListener::bind_addr(&key.address(which)?) {
                    Ok(listener) => {
                        listener.set_nonblocking(true)?;
                        return Ok(Place { listener, key });
                    }
                    Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                    Err(_) => {}
                }
            }
            wait.go_on(|| "the job waits for a name that another one has".into())?;
            std::thread::sleep(wait.pause());
        }
    }

    /// Waits until each of these ranks has come; how many processors they and this process have together.
    ///
    /// # Errors
    /// If they do not come, or the launcher goes.
    pub fn gather(&self, ranks: &[usize], server: &Server) -> io::Result<(Vec<Other>, usize)> {
        let mut wait = Wait::new(server);
        let mut come: Vec<(Other, Processors)> = Vec::new();
        while come.len() < ranks.len() {
            wait.go_on(|| {
                let missing = ranks.iter().copied().filter(|rank| come.iter().all(|(other, _)| other.rank != *rank));
                format!("the job waits for {}", Ranks(&missing.collect::<Vec<_>>()))
            })?;
            let mut wanted = libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor of ours.
            unsafe { libc::poll(&mut wanted, 1, LONGEST.as_millis() as i32) };
            let (stream, _) = match self.listener.accept() {
                Err(error) if [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock].contains(&error.kind()) => continue,
                other => other?,
            };
            stream.set_nonblocking(false)?;
            // A stranger is not answered.
            let Some((rank, processors)) = self.hear(&stream).filter(|(rank, _)| ranks.contains(rank)) else { continue };
            // One that has gone again may have been of a program before.
            come.retain(|(other, _)| other.rank != rank || !has_ended(&other.stream));
            if come.iter().all(|(other, _)| other.rank != rank) {
                come.push((Other { rank, stream }, processors));
            }
        }
        let mut all = processors();
        for (_, processors) in &come {
            all.iter_mut().zip(processors).for_each(|(all, more)| *all |= more);
        }
        Ok((come.into_iter().map(|(other, _)| other).collect(), all.iter().map(|byte| byte.count_ones() as usize).sum()))
    }

    fn hear(&self, mut stream: &UnixStream) -> Option<(usize, Processors)> {
        if !is_of_our_user(stream) {
            return None;
        }
        stream.set_read_timeout(Some(HELLO)).ok()?;
        let (mut word, mut rank, mut processors) = ([0; 16], [0; 4], [0; 128]);
        stream.read_exact(&mut word).ok()?;
        stream.read_exact(&mut rank).ok()?;
        stream.read_exact(&mut processors).ok()?;
        (u128::from_le_bytes(word) == self.key.word).then_some((u32::from_le_bytes(rank) as usize, processors))
    }
}

/// Goes where the lowest rank listens, and gets the memory.
///
/// # Errors
/// If it does not come, or the launcher goes.
pub fn come(key: Key, rank: usize, lowest: usize, server: &Server) -> io::Result<(Memory, UnixStream)> {
    let mut hello = key.word.to_le_bytes().to_vec();
    hello.extend((rank as u32).to_le_bytes());
    hello.extend(processors());
    let mut wait = Wait::new(server);
    loop {
        for which in 0..NAMES {
            let Ok(stream) = UnixStream::connect_addr(&key.address(which)?) else { continue };
            if !is_of_our_user(&stream) || (&stream).write_all(&hello).is_err() {
                continue;
            }
            stream.set_read_timeout(Some(LONGEST))?;
            loop {
                match receive(&stream) {
                    Ok(descriptor) => return Ok((Memory::received(descriptor)?, stream)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        wait.go_on(|| format!("rank {rank} waits for the others"))?
                    }
                    // A listener of a program before, or one that has died, which the launcher sees.
                    Err(_) => break,
                }
            }
        }
        wait.go_on(|| format!("rank {rank} waits for {}", Ranks(&[lowest])))?;
        std::thread::sleep(wait.pause());
    }
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

    fn memory() -> Memory {
        Memory::create(Layout::new(1, 1).data()).unwrap()
    }

    fn give(others: &[Other]) {
        let memory = memory();
        others.iter().for_each(|other| send(&other.stream, memory.descriptor().as_raw_fd()).unwrap());
    }

    fn key(of: &str) -> Key {
        Key::of(&[of.into(), std::process::id().to_string().into()])
    }

    #[test]
    fn a_stranger_is_not_answered_and_a_rank_is() {
        let (key, server) = (key("stranger"), Server::default());
        let place = Place::open(key, &server).unwrap();
        // It has come first, and says what does not begin with the word.
        let mut stranger = UnixStream::connect_addr(&key.address(0).unwrap()).unwrap();
        stranger.write_all(&[7; 148]).unwrap();
        let rank = std::thread::spawn(move || come(key, 3, 0, &Server::default()).map(|(memory, _)| memory.map(0, 8).is_ok()));
        let (others, processors) = place.gather(&[3], &server).unwrap();
        assert_eq!((others.len(), others[0].rank), (1, 3));
        assert_eq!(processors, crate::launch::processors().len());
        give(&others);
        assert!(rank.join().unwrap().unwrap());
        drop(place);
        assert_eq!(stranger.read(&mut [0; 1]).unwrap_or(0), 0);
    }

    /// A rank is there before the lowest one listens, finds the listener of a program before, which ends, and then the right one beside a name
    /// that is taken.
    #[test]
    fn ranks_come_again_until_they_are_answered() {
        let (key, server) = (key("again"), Server::default());
        let ranks = [1, 2].map(|rank| std::thread::spawn(move || come(key, rank, 0, &Server::default()).map(drop)));
        let before = Place::open(key, &server).unwrap();
        assert_eq!(before.gather(&[1], &server).unwrap().0.len(), 1);
        drop(before);
        let taken = UnixListener::bind_addr(&key.address(0).unwrap()).unwrap();
        let place = Place::open(key, &server).unwrap();
        drop(taken);
        let (others, _) = place.gather(&[1, 2], &server).unwrap();
        give(&others);
        ranks.into_iter().for_each(|rank| rank.join().unwrap().unwrap());
    }

    /// Programs that follow each other without a pause, as in a script: none takes a rank of another.
    #[test]
    fn programs_that_follow_each_other_meet() {
        const PROGRAMS: u64 = 300;
        let key = key("follow");
        let rank = |rank: usize| {
            std::thread::spawn(move || {
                for program in 0..PROGRAMS {
                    let (memory, _stream) = come(key, rank, 0, &Server::default()).unwrap();
                    let word = memory.map(0, 8).unwrap();
                    // SAFETY: a mapped word, which was written before the memory was sent.
                    assert_eq!(unsafe { (word.address() as *const u64).read() }, program);
                }
            })
        };
        let ranks = [rank(1), rank(2)];
        for program in 0..PROGRAMS {
            let place = Place::open(key, &Server::default()).unwrap();
            let (others, _) = place.gather(&[1, 2], &Server::default()).unwrap();
            let memory = memory();
            let word = memory.map(0, 8).unwrap();
            // SAFETY: a mapped word of memory that no other has yet.
            unsafe { (word.address() as *mut u64).write(program) };
            others.iter().for_each(|other| send(&other.stream, memory.descriptor().as_raw_fd()).unwrap());
        }
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    }
}
