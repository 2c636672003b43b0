//! What a tool asks: whether hostd is there, whose it is, and what it has counted.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shunt_segment::meeting::{Answer, Counts, Request, COUNTS, NAME};
use shunt_sys::{calls, Errno};

use crate::packets;

/// How long an answer is waited for (ns).
const PATIENCE: i64 = 1_000_000_000;

/// A path as bind(2) and connect(2) take it; `None`: it is too long.
pub(crate) fn address(path: &Path) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Some((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let fd = calls::socket(libc::AF_UNIX, kind, 0)?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let (address, length) = address(path).ok_or(Errno(libc::ENAMETOOLONG))?;
    let fd = socket()?;
    calls::connect(fd.as_raw_fd(), (&raw const address).cast(), length)?;
    Ok(fd)
}

/// Asks the one of this directory: its user, and what it has counted.
///
/// Errors: ENOENT: there is none. ECONNREFUSED: it has ended. ETIMEDOUT: it does not answer.
pub fn ask(directory: &Path) -> io::Result<(u32, Counts)> {
    let of = |error: Errno| io::Error::from_raw_os_error(error.0);
    let connection = connect(&directory.join(OsStr::from_bytes(NAME))).map_err(of)?;
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of_val(&who) as u32;
    let fd = connection.as_raw_fd();
    calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut length).map_err(of)?;
    let hear = |room: &mut [u8]| match calls::poll_one(fd, libc::POLLIN, PATIENCE) {
        Ok(told) if told != 0 => packets::receive(connection.as_fd(), room).map(|(got, _)| got).map_err(of),
        _ => Err(of(Errno(libc::ETIMEDOUT))),
    };
    let no_sense = || io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol: another version of shunt");
    let mut room = [0u8; COUNTS + 1];
    let got = hear(&mut room)?;
    if room.get(..got).and_then(Answer::decode) != Some(Answer::Hello) {
        return Err(no_sense());
    }
    packets::send(connection.as_fd(), &Request::Counts.encode(), None);
    let got = hear(&mut room)?;
    let counts = room.get(..got).and_then(Counts::decode).ok_or_else(no_sense)?;
    Ok((who.uid, counts))
}
