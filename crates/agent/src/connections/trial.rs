//! Whether this kernel lets an agent take connections and give them back: by doing it, in a network namespace of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use shunt_sys::clock::monotonic_ns;
use shunt_xdp::escrow::Escrow;

use super::eligible::Name;
use super::kept::Kept;
use super::repair;
use super::restore::Held;
use crate::ebpf::kernel::Program;

/// What failed, and how.
pub type Failure = (&'static str, io::Error);

/// Makes a connection, takes it and gives it back, and hands a frame to the kernel.
///
/// # Errors
/// The step that failed: EPERM without CAP_NET_ADMIN; EINVAL for frames before Linux 5.18.
pub fn try_out() -> Result<(), Failure> {
    let work = || {
        // SAFETY: concerns this thread alone, which ends.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(("make a network namespace", io::Error::last_os_error()));
        }
        raise_loopback().map_err(|error| ("raise an interface", error))?;
        hand_over()?;
        // A type for local experiments (IEEE 802), which no protocol of the kernel's has; loopback is the first interface.
        let mut frame = [0u8; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        let program = Program::that_passes("shunt_try").map_err(|error| ("load a program", error))?;
        program.run_on(1, &frame).map_err(|error| ("hand a frame to the kernel", error))
    };
    std::thread::spawn(work).join().unwrap_or_else(|_| Err(("try", io::ErrorKind::Other.into())))
}

fn hand_over() -> Result<(), Failure> {
    let io = |step| move |error: io::Error| (step, error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("listen"))?;
    let mut ours = TcpStream::connect(listener.local_addr().map_err(io("listen"))?).map_err(io("connect"))?;
    let (mut theirs, _) = listener.accept().map_err(io("accept"))?;
    theirs.set_read_timeout(Some(Duration::from_secs(2))).map_err(io("wait"))?;
    theirs.write_all(b"unread").map_err(io("write"))?;
    let fd = ours.as_raw_fd();
    let names = [Name::of(fd, libc::getsockname), Name::of(fd, libc::getpeername)];
    let [Ok(here), Ok(there)] = names else { return Err(("name a socket", io::Error::last_os_error())) };
    let escrow = Escrow::create(1 << 12, 1 << 12).map_err(|errno| ("make memory", io::Error::from_raw_os_error(errno.0)))?;
    let kept = Kept::of(ours.as_fd(), [here, there]);
    repair::shut(ours.as_fd()).map_err(|errno| ("attach a filter", io::Error::from_raw_os_error(errno)))?;
    repair::read_out(ours.as_fd(), &kept, &escrow, 1514, monotonic_ns())
        .map_err(|decline| ("put a socket into repair", io::Error::other(decline.word())))?;
    let copy = ours.try_clone().map_err(io("copy a descriptor"))?;
    let restored = Held::new(copy.into(), escrow, kept).restore(true);
    restored.map_err(|refused| (refused.step, io::Error::from_raw_os_error(refused.errno)))?;
    let mut bytes = [0u8; 6];
    ours.read_exact(&mut bytes).map_err(io("read what was unread"))?;
    ours.write_all(&bytes).map_err(io("write again"))?;
    theirs.read_exact(&mut bytes).map_err(io("hear from a socket that was given back"))?;
    if &bytes == b"unread" {
        Ok(())
    } else {
        Err(("compare bytes", io::ErrorKind::InvalidData.into()))
    }
}

/// Up, with its address.
pub(super) fn raise_loopback() -> io::Result<()> {
    // SAFETY: `ifreq` is plain data for which zero is valid; the ioctls read the name and access the flags of one that outlives them.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let done = |status| if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        done(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &mut request))?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        done(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &mut request))
    }
}

#[cfg(test)]
mod tests {
    /// As root on a kernel that is recent enough; else it says which step is refused, and does no harm.
    #[test]
    fn a_hand_over_works_or_is_refused_for_lack_of_privilege() {
        if let Err((step, error)) = super::try_out() {
            // SAFETY: takes nothing.
            assert_ne!(unsafe { libc::geteuid() }, 0, "cannot {step}: {error}");
        }
    }
}
