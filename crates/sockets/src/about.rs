//! What a program may ask about its own socket, and which memory it may show to the peer: a level of shunt's own.
//!
//! The level and the numbers are a contract with programs (`shunt_socket.h`): without the library the kernel answers as to any level that it
//! does not know, EOPNOTSUPP to questions and ENOPROTOOPT to what is set, so a program learns that, too.

use core::sync::atomic::Ordering;
use shunt_segment::reason::Reason;
use shunt_stream::references::lend::{self, Asked, Shown};
use shunt_stream::socket::{flag, stream, Socket};
use shunt_stream::views::{self, Next};
use shunt_sys::libc::{self, c_int, socklen_t};
use shunt_sys::{calls, thread, user, Errno, Result};
use shunt_table::process::status_page;
use shunt_table::table::{self, Kind};

/// `SOL_SHUNT`: "SHNT". Linux counts its levels from 0 on, and has some 300.
pub const LEVEL: c_int = 0x5348_4e54;

/// `SHUNT_SO_CARRIER`: an int, one of [`carrier`].
pub const CARRIER: c_int = 1;
/// `SHUNT_SO_REASON`: the name of the reason why the socket is carried as it is, with its NUL, as `shunt why` prints it.
pub const REASON: c_int = 2;
/// `SHUNT_SO_POOL`, which is set: the peer may see this pool, so that sends with MSG_ZEROCOPY go by reference.
pub const POOL: c_int = 3;
/// `SHUNT_SO_REFERRED`: how many bytes did, as 64 bits.
pub const REFERRED: c_int = 4;
/// `SHUNT_SO_VIEW`: asked with [`View`], which says how much is wanted, and answered with it: the next bytes to receive, where they lie.
pub const VIEW: c_int = 5;
/// `SHUNT_SO_GIVE_BACK`, which is set: the number of a view, 64 bits. The descriptor may be closed by now.
pub const GIVE_BACK: c_int = 6;
/// `SHUNT_SO_FILE`, which is set: as [`POOL`], of a file of memory of the program's, or of none any more.
pub const FILE: c_int = 7;
/// `SHUNT_SO_QUOTA`, which is set: bytes that may be under way by reference, 64 bits.
pub const QUOTA: c_int = 8;
/// `SHUNT_SO_OUTPUT`, which is set: an int, `SHUNT_COPY` or `SHUNT_EMULATED_COPY`.
pub const OUTPUT: c_int = 9;

/// The value of [`VIEW`]: `struct shunt_so_view`.
#[repr(C)]
#[derive(Clone, Copy)]
struct View {
    address: u64,
    length: u64,
    number: u64,
}

/// What carries the bytes of a socket.
pub mod carrier {
    /// The kernel.
    pub const KERNEL: i32 = 0;
    /// Memory that is shared with a peer on this host.
    pub const SHARED_MEMORY: i32 = 1;
    /// Shunt's own way to a peer on another host.
    pub const OTHER_HOST: i32 = 2;
}

/// The stream at `fd`, if this library carries it.
fn carried(fd: c_int) -> Result<Option<&'static Socket>> {
    let accelerated = stream(fd);
    if table::get(fd).kind() == Kind::Private {
        return Err(Errno(libc::EBADF));
    }
    if accelerated.is_none() && calls::status_of(fd)?.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(Errno(libc::ENOTSOCK));
    }
    Ok(accelerated)
}

/// The same of a connection: what is set of none yet would be lost when it is made. Errors: ENOTCONN.
fn connected(fd: c_int) -> Result<Option<&'static Socket>> {
    let (accelerated, mut peer, mut room) = (carried(fd)?, [0u8; 128], 128);
    match accelerated {
        Some(_) => Ok(accelerated),
        None => calls::getpeername(fd, peer.as_mut_ptr().cast(), &mut room).map(|_| None),
    }
}

/// getsockopt(2) at [`LEVEL`]. Errors: EBADF, ENOTSOCK, ENOPROTOOPT for an option that is not known, EINVAL, EFAULT; those
/// of [`views::next`].
///
/// # Safety
/// `data` and `length` may be any addresses that are not ours.
pub unsafe fn get(fd: c_int, name: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let accelerated = carried(fd)?;
    match name {
        CARRIER => {
            let carrier = match accelerated {
                None => carrier::KERNEL,
                Some(socket) if socket.has(flag::REMOTE) => carrier::OTHER_HOST,
                // A relay or a conversion moves its bytes on to the kernel's.
                Some(socket) if socket.hold.is_carried() => carrier::KERNEL,
                Some(_) => carrier::SHARED_MEMORY,
            };
            // SAFETY: passed on.
            unsafe { tell(&carrier.to_ne_bytes(), data, length) }
        }
        REASON => {
            let reason = match accelerated {
                Some(_) => Reason::Accelerated,
                None => status_page::reason(fd),
            };
            let word = reason.word().as_bytes();
            let mut text = [0; 64];
            let count = word.len().min(text.len() - 1);
            text[..count].copy_from_slice(&word[..count]);
            // SAFETY: passed on.
            unsafe { tell(&text[..=count], data, length) }
        }
        REFERRED => {
            let bytes = accelerated.map_or(0, |socket| socket.connected.loans.bytes.load(Ordering::Relaxed));
            // SAFETY: passed on.
            unsafe { tell(&bytes.to_ne_bytes(), data, length) }
        }
        // SAFETY: passed on.
        VIEW => unsafe { view(accelerated.ok_or(Errno(libc::EOPNOTSUPP))?, fd, data.cast(), length) },
        _ => Err(Errno(libc::ENOPROTOOPT)),
    }
}

/// [`VIEW`]. What the program asks and is answered must both be memory before anything is received.
unsafe fn view(socket: &'static Socket, fd: c_int, data: *mut View, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: any bytes are one; both addresses may fault.
    let asked = unsafe {
        if (user::read(length)? as usize) < size_of::<View>() {
            return Err(Errno(libc::EINVAL));
        }
        let asked = user::read(data)?;
        user::write(data, asked)?;
        user::write(length, size_of::<View>() as socklen_t)?;
        asked
    };
    if (asked.address, asked.number) != (0, 0) {
        return Err(Errno(libc::EINVAL));
    }
    let most = usize::try_from(asked.length).unwrap_or(usize::MAX);
    let answer = match views::next(socket, fd, most)? {
        Next::InPlace { address, length, number } => View { address: address as u64, length: length as u64, number },
        Next::Copied(count) => View { address: 0, length: count as u64, number: 0 },
    };
    // SAFETY: as above; another thread may have unmapped it meanwhile.
    if let Err(error) = unsafe { user::write(data, answer) } {
        let _ = views::give_back(fd, answer.number);
        return Err(error);
    }
    Ok(0)
}

/// setsockopt(2) at [`LEVEL`]. Of a connection that the kernel has, which copies, the value is looked at and nothing follows from it.
///
/// Errors: EBADF, ENOTSOCK, ENOPROTOOPT for an option that is not known, EFAULT; ENOTCONN; those of [`Shown::named`], [`lend::show`], [`views::give_back`].
///
/// # Safety
/// `data` may be any address that is not ours.
pub unsafe fn set(fd: c_int, name: c_int, data: *const u8, length: socklen_t) -> Result<isize> {
    // The descriptor of what is given back may be another's by now.
    let accelerated = if name == GIVE_BACK { None } else { carried(fd)? };
    let mut asked = Asked::default();
    let room = match name {
        GIVE_BACK | QUOTA => size_of::<u64>(),
        OUTPUT => size_of::<c_int>(),
        POOL => core::mem::offset_of!(Asked, length),
        FILE => size_of::<Asked>(),
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    };
    if (length as usize) < room {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: as much as there is room for, and any bytes are one, or a number; the address may fault.
    unsafe { user::copy_all(data, (&raw mut asked).cast(), room)? };
    match name {
        GIVE_BACK => return views::give_back(fd, asked.address).map(|()| 0),
        OUTPUT => return lend::choose(connected(fd)?, asked.address).map(|()| 0),
        QUOTA => {
            lend::limit(connected(fd)?, asked.address);
            return Ok(0);
        }
        _ if asked.reserved != 0 => return Err(Errno(libc::EINVAL)),
        FILE if asked.descriptor == -1 => {
            return accelerated.map_or(Ok(()), |socket| lend::hide(socket, asked.address)).map(|()| 0);
        }
        _ => {}
    }
    connected(fd)?;
    let shown = Shown::named(&asked, name == FILE, thread::process())?;
    accelerated.map_or(Ok(()), |socket| lend::show(socket, shown)).map(|()| 0)
}

/// As the kernel tells options: as much as there is room for, and how much that was.
unsafe fn tell(bytes: &[u8], data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: both may fault.
    unsafe {
        let room = user::read(length)?;
        if (room as i32) < 0 {
            return Err(Errno(libc::EINVAL));
        }
        let room = (room as usize).min(bytes.len());
        user::copy_all(bytes.as_ptr(), data, room)?;
        user::write(length, room as socklen_t)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    fn asked(fd: c_int, name: c_int, room: usize) -> Result<Vec<u8>> {
        let (mut data, mut length) = (vec![0xaa; 64], room as socklen_t);
        // SAFETY: addresses of this function.
        unsafe { get(fd, name, data.as_mut_ptr(), &mut length)? };
        data.truncate(length as usize);
        Ok(data)
    }

    #[test]
    fn a_socket_of_the_kernel_says_so() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd();
        assert_eq!(asked(fd, CARRIER, 4), Ok(carrier::KERNEL.to_ne_bytes().to_vec()));
        assert_eq!(asked(fd, REASON, 64), Ok(b"unknown\0".to_vec()));
        assert_eq!(asked(fd, REASON, 4), Ok(b"unkn".to_vec()), "as much as there is room for");
        assert_eq!(asked(fd, 3, 4), Err(Errno(libc::ENOPROTOOPT)));
        assert_eq!(asked(fd, CARRIER, u32::MAX as usize), Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(asked(file.as_raw_fd(), CARRIER, 4), Err(Errno(libc::ENOTSOCK)));
        assert_eq!(asked(-1, CARRIER, 4), Err(Errno(libc::EBADF)));
    }

    #[test]
    fn every_reason_fits() {
        assert!(Reason::ALL.iter().all(|reason| reason.word().len() < 63));
    }

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../../buffers-c/include/shunt_socket.h");
        let names = [
            ("SOL_SHUNT", LEVEL),
            ("SHUNT_SO_CARRIER", CARRIER),
            ("SHUNT_SO_REASON", REASON),
            ("SHUNT_SO_POOL", POOL),
            ("SHUNT_SO_REFERRED", REFERRED),
            ("SHUNT_SO_VIEW", VIEW),
            ("SHUNT_SO_GIVE_BACK", GIVE_BACK),
            ("SHUNT_SO_FILE", FILE),
            ("SHUNT_SO_QUOTA", QUOTA),
            ("SHUNT_SO_OUTPUT", OUTPUT),
            ("SHUNT_CARRIER_KERNEL", carrier::KERNEL),
            ("SHUNT_CARRIER_SHARED_MEMORY", carrier::SHARED_MEMORY),
            ("SHUNT_CARRIER_OTHER_HOST", carrier::OTHER_HOST),
        ];
        for (name, value) in names {
            let said = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            let said = said.unwrap_or_else(|| panic!("{name}"));
            let number = match said.strip_prefix("0x") {
                Some(digits) => i32::from_str_radix(digits, 16),
                None => said.parse(),
            };
            assert_eq!(number, Ok(value), "{name}");
        }
    }
}
