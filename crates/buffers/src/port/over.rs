//! A port over a connection that two programs have anyway: they agree in its bytes on a link, or on copying.
//!
//! ```text
//! both     hello: a name and a secret, 16 random bytes each. The one with the lesser name is the host.
//! host     1, it listens at its name (an abstract AF_UNIX address)              0, it cannot
//! guest    1, it has connected there, and sent the host's secret                0, there is nobody: another host or namespace
//! host     1, the link's memory has been passed (as by Port::connect)           0
//! guest    1, it is mapped (as by Port::accept)                                 0
//! ```
//!
//! A 0 is the last word: messages are copied through the connection from then on. The name stands in /proc/net/unix while its owner
//! listens; the secret is known to the two ends of the connection alone, so nobody else gets the link. What is passed is what any port
//! passes, checked as there.
//!
//! The connection is used by the C library's calls: a preloaded library sees them. The link is the kernel's own.

use super::setup::Descriptor;
use super::stream::Stream;
use super::{Error, Port};
use core::mem::size_of;
use shunt_region::Violation;
use shunt_sys::{calls, libc, Errno};

const MAGIC: [u8; 8] = *b"shunt-1\n";
const NAME: usize = 16;
const HELLO: usize = MAGIC.len() + 2 * NAME;
const BACKLOG: i32 = 16;

type Name = [u8; NAME];

impl Port {
    /// A port over a connected stream: AF_UNIX or TCP, of the kernel's or accelerated. Both ends call this, when neither has bytes under
    /// way; the connection is the port's from then on, also if this fails.
    ///
    /// Where both processes are on one host, in one network namespace, messages go by reference, whatever carries the connection
    /// ([`Port::shares`]). Elsewhere every call works, too: all is copied through the connection, for [`shunt_region::Limit::Apart`].
    ///
    /// Waits for the peer.
    ///
    /// # Errors
    /// [`Error::System`]: not a connected stream. [`Error::Violation`]: the other end does not do the same. [`Error::Gone`].
    pub fn over(fd: i32) -> Result<Port, Error> {
        Port::agree(fd, true)
    }

    /// As [`Port::over`], but memory is not shared, wherever the peer is. It is enough that one end says so.
    ///
    /// # Errors
    /// As [`Port::over`].
    pub fn over_copying(fd: i32) -> Result<Port, Error> {
        Port::agree(fd, false)
    }

    fn agree(fd: i32, share: bool) -> Result<Port, Error> {
        let mut stream = Stream::of(fd)?;
        let mut own = [0; HELLO];
        own[..MAGIC.len()].copy_from_slice(&MAGIC);
        let secrets = &mut own[MAGIC.len()..];
        if calls::getrandom(secrets.as_mut_ptr().cast(), secrets.len(), 0)? < secrets.len() {
            return Err(Errno(libc::EAGAIN).into());
        }
        stream.put(&[&own])?;
        let mut theirs = [0; HELLO];
        stream.take(&mut theirs)?;
        let ((mine, secret), other) = (parts(&own), parts(&theirs));
        if theirs[..MAGIC.len()] != MAGIC || mine == other.0 {
            return Err(Violation::Record.into());
        }
        let port = match mine < other.0 {
            true => host(&mut stream, share, &mine, &secret)?,
            false => guest(&mut stream, share, &other.0, &other.1)?,
        };
        match port {
            Some(mut port) => {
                port.beside = Some(stream);
                Ok(port)
            }
            None => Port::copying(stream),
        }
    }
}

fn parts(hello: &[u8; HELLO]) -> (Name, Name) {
    let at = |from: usize| core::array::from_fn(|place| hello[from + place]);
    (at(MAGIC.len()), at(MAGIC.len() + NAME))
}

fn say(stream: &mut Stream, done: bool) -> Result<bool, Error> {
    stream.put(&[&[b'0' + done as u8]]).map(|()| done)
}

fn hear(stream: &mut Stream) -> Result<bool, Error> {
    let mut word = [0];
    stream.take(&mut word)?;
    match word {
        [b'0'] => Ok(false),
        [b'1'] => Ok(true),
        _ => Err(Violation::Record.into()),
    }
}

fn host(stream: &mut Stream, share: bool, name: &Name, secret: &Name) -> Result<Option<Port>, Error> {
    let listener = share.then(|| listen(name).ok()).flatten();
    if !say(stream, listener.is_some())? || !hear(stream)? {
        return Ok(None);
    }
    let link = listener.and_then(|listener| admit(&listener, secret));
    let port = link.and_then(|link| Port::connect(link.release()).ok());
    Ok(if say(stream, port.is_some())? && hear(stream)? { port } else { None })
}

fn guest(stream: &mut Stream, share: bool, name: &Name, secret: &Name) -> Result<Option<Port>, Error> {
    if !hear(stream)? {
        return Ok(None);
    }
    let link = share.then(|| knock(name, secret).ok()).flatten();
    if !say(stream, link.is_some())? || !hear(stream)? {
        return Ok(None);
    }
    let port = link.and_then(|link| Port::accept(link.release()).ok());
    Ok(if say(stream, port.is_some())? { port } else { None })
}

fn address(name: &Name) -> (libc::sockaddr_un, u32) {
    // SAFETY: plain integers.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let digits = name.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| b"0123456789abcdef"[digit as usize]);
    // An abstract address begins with a zero.
    let all = [0].into_iter().chain(*b"shunt-port-").chain(digits);
    let mut length = size_of::<libc::sa_family_t>();
    for (to, from) in address.sun_path.iter_mut().zip(all) {
        *to = from as libc::c_char;
        length += 1;
    }
    (address, length as u32)
}

fn socket() -> Result<Descriptor, Errno> {
    calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0).map(Descriptor)
}

fn listen(name: &Name) -> Result<Descriptor, Errno> {
    let (socket, (address, length)) = (socket()?, address(name));
    calls::bind(socket.0, (&raw const address).cast(), length)?;
    calls::listen(socket.0, BACKLOG)?;
    Ok(socket)
}

/// Connects, and sends the secret: the peer will find it with the connection.
fn knock(name: &Name, secret: &Name) -> Result<Descriptor, Errno> {
    let (socket, (address, length)) = (socket()?, address(name));
    calls::connect(socket.0, (&raw const address).cast(), length)?;
    let sent = calls::sendto(socket.0, secret.as_ptr().cast(), NAME, libc::MSG_NOSIGNAL, core::ptr::null(), 0)?;
    if sent != NAME {
        return Err(Errno(libc::EIO));
    }
    blocking(&socket)?;
    Ok(socket)
}

/// Takes the connection whose other end knows the secret. Others are closed: as many as can have waited in front of it.
fn admit(listener: &Descriptor, secret: &Name) -> Option<Descriptor> {
    for _ in 0..4 * BACKLOG {
        // The guest has connected already: when nobody waits, it was not let in.
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = Descriptor(calls::accept4(listener.0, core::ptr::null_mut(), core::ptr::null_mut(), flags).ok()?);
        // The guest's secret was there before its word was.
        let mut said: Name = [0; NAME];
        let count = receive(&socket, &mut said, libc::MSG_DONTWAIT);
        // All bytes are looked at: how long it takes says nothing of where they differ.
        let differs = said.iter().zip(secret).fold(0, |differs, (a, b)| differs | (a ^ b));
        if count == Ok(NAME) && differs == 0 {
            return blocking(&socket).is_ok().then_some(socket);
        }
    }
    None
}

fn receive(socket: &Descriptor, target: &mut [u8], flags: i32) -> Result<usize, Errno> {
    let none = core::ptr::null_mut::<libc::sockaddr>();
    calls::recvfrom(socket.0, target.as_mut_ptr().cast(), target.len(), flags, none, core::ptr::null_mut())
}

fn blocking(socket: &Descriptor) -> Result<(), Errno> {
    let flags = calls::fcntl(socket.0, libc::F_GETFL, 0)?;
    calls::fcntl(socket.0, libc::F_SETFL, (flags & !libc::O_NONBLOCK) as usize).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    /// The other end, by hand: its hello says that it is the guest.
    fn guest_by_hand(stream: &mut UnixStream) -> (Name, Name) {
        let mut own = [0xff; HELLO];
        own[..MAGIC.len()].copy_from_slice(&MAGIC);
        stream.write_all(&own).unwrap();
        let mut theirs = [0; HELLO];
        stream.read_exact(&mut theirs).unwrap();
        let mut word = [0];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"1");
        parts(&theirs)
    }

    #[test]
    fn who_does_not_know_the_secret_gets_no_link() {
        for knows in [false, true] {
            let (here, mut there) = UnixStream::pair().unwrap();
            let host = std::thread::spawn(move || Port::over(here.into_raw_fd()).unwrap());
            let (name, secret) = guest_by_hand(&mut there);
            let stranger = knock(&name, &[7; NAME]).unwrap();
            let guest = knows.then(|| knock(&name, &secret).unwrap());
            there.write_all(b"1").unwrap();
            let mut word = [0];
            there.read_exact(&mut word).unwrap();
            assert_eq!(word[0], b'0' + knows as u8);
            let got = receive(&stranger, &mut [0], 0);
            assert!(matches!(got, Ok(0) | Err(Errno(libc::ECONNRESET))), "{got:?}");
            if let Some(guest) = guest {
                let port = Port::accept(guest.release()).unwrap();
                there.write_all(b"1").unwrap();
                assert!(host.join().unwrap().shares());
                drop(port);
            } else {
                assert!(!host.join().unwrap().shares());
            }
            assert!(knock(&name, &secret).is_err(), "nobody listens any more");
        }
    }

    #[test]
    fn other_bytes_and_an_end_are_no_port() {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&[b'x'; HELLO]).unwrap();
        assert!(matches!(Port::over(here.into_raw_fd()), Err(Error::Violation(_))));
        let (here, mut there) = UnixStream::pair().unwrap();
        let host = std::thread::spawn(move || Port::over(here.into_raw_fd()).err());
        guest_by_hand(&mut there);
        there.write_all(b"2").unwrap();
        assert!(matches!(host.join().unwrap(), Some(Error::Violation(_))));
        let (here, mut there) = UnixStream::pair().unwrap();
        let host = std::thread::spawn(move || Port::over(here.into_raw_fd()).err());
        guest_by_hand(&mut there);
        drop(there);
        assert_eq!(host.join().unwrap(), Some(Error::Gone));
    }
}
