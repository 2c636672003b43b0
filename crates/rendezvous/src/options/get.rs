//! getsockopt(2) on a stream.

use super::kinds::leaves_information;
use super::{constants, multipath, probe_of};
use crate::options::information;
use core::sync::atomic::Ordering;
use shunt_stream::due;
use shunt_stream::options::effects::integer;
use shunt_stream::options::limits;
use shunt_stream::options::option_probe::{is_mapped, OptionProbe};
use shunt_stream::options::owners::catch_up;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::readiness;
use shunt_sys::libc::{self, c_int, socklen_t, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::{calls, user, Errno, Result};
use shunt_table::sockaddr::Encoded;

/// getsockopt(2) on a stream.
///
/// # Safety
/// Pointers as the manual page asks.
pub unsafe fn get(socket: &Socket, fd: i32, level: c_int, name: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: any address may be the program's.
    if unsafe { user::read(length) }.is_err() {
        // Which the kernel finds only where it knows the option.
        OptionProbe::fresh(socket).map_err(|_| Errno(libc::EFAULT))?.get(level, name, data, length)?;
    }
    let name = limits::name(level, name);
    catch_up(socket);
    due::keep();
    // SAFETY: passed on.
    unsafe {
        let family = socket.family.load(Ordering::Relaxed);
        match (level, name) {
            (SOL_SOCKET, libc::SO_TYPE) => tell(libc::SOCK_STREAM, data, length),
            (SOL_SOCKET, libc::SO_DOMAIN) => tell(family, data, length),
            (SOL_SOCKET, libc::SO_PROTOCOL) => tell(multipath::protocol(socket), data, length),
            (SOL_SOCKET, libc::SO_ACCEPTCONN) => tell(0, data, length),
            (SOL_SOCKET, libc::SO_ERROR) => tell(pending_error(socket), data, length),
            (SOL_SOCKET, libc::SO_PEEK_OFF) => tell(socket.peek_offset.load(Ordering::Relaxed), data, length),
            (SOL_SOCKET, libc::SO_PEERCRED) => tell_bytes(&ucred_unknown(), data, length),
            (IPPROTO_TCP, libc::TCP_INFO) => info(socket, data, length),
            // A probe that is not connected would tell more.
            (IPPROTO_IPV6, libc::IPV6_V6ONLY) if multipath::is(socket) && family == libc::AF_INET => Err(Errno(libc::EOPNOTSUPP)),
            (SOL_SOCKET, SO_PEERNAME) => peer_name(socket, fd, data, length),
            (IPPROTO_IP | IPPROTO_IPV6, ORIGINAL_DESTINATION) => original_destination(socket, level, data, length),
            (SOL_SOCKET, libc::SO_COOKIE) if socket.stored.find(level, name).is_none() => cookie(socket, fd, data, length),
            _ => {
                let kept = if (level, name) == (IPPROTO_TCP, libc::TCP_MAXSEG) { None } else { socket.stored.find(level, name) };
                if let Some(entry) = kept {
                    if limits::is_kept_no_time(&entry) {
                        return tell_bytes(&[0; size_of::<libc::timeval>()], data, length);
                    }
                    return tell_of(level, entry.bytes(), data, length);
                }
                if (level, name) == (SOL_SOCKET, libc::SO_LINGER) {
                    // Never set, and no other option changes it. Java asks before it closes a channel.
                    return tell_bytes(&[0; size_of::<libc::linger>()], data, length);
                }
                if let Some(value) = constants::of(socket, level, name)? {
                    return tell_of(level, &value.to_ne_bytes(), data, length);
                }
                // A probe is bound, which says v6 only, and has dropped a segment of its own.
                let fresh = matches!((level, name), (IPPROTO_IPV6, libc::IPV6_V6ONLY) | (SOL_SOCKET, SO_MEMINFO));
                let probe = if fresh { OptionProbe::fresh(socket)? } else { probe_of(socket)? };
                probe.get(level, name, data, length)?;
                Ok(0)
            }
        }
    }
}

/// SO_PEERCRED of a TCP socket: no process.
fn ucred_unknown() -> [u8; 12] {
    let mut bytes = [0xffu8; 12];
    bytes[..4].copy_from_slice(&[0; 4]);
    bytes
}

fn pending_error(socket: &Socket) -> c_int {
    let (peer, _) = socket.incoming().look();
    readiness::observe(socket, peer);
    readiness::take_error(socket).unwrap_or(0)
}

unsafe fn tell(value: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { tell_bytes(&value.to_ne_bytes(), data, length) }
}

/// What is known of an option. Those of IP answer less room than an integer's with one byte, if that holds it (do_ip_getsockopt).
unsafe fn tell_of(level: c_int, bytes: &[u8], data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: promised by the caller of `get`.
    unsafe {
        let one = level == IPPROTO_IP && (1..4).contains(&user::read(length)?) && (0..=255).contains(&integer(bytes));
        tell_bytes(if one { &bytes[..bytes.len().min(1)] } else { bytes }, data, length)
    }
}

unsafe fn tell_bytes(bytes: &[u8], data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: promised by the caller of `get`.
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

/// TCP_INFO: a probe's, with what is true of the stream in its place.
unsafe fn info(socket: &Socket, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let family = if is_mapped(socket) { libc::AF_INET } else { socket.family.load(Ordering::Relaxed) };
    let list = &socket.stored;
    let is_usual = || !multipath::is(socket) && list.all().all(|entry| leaves_information(&entry));
    let usual = is_usual();
    let (known, segment, mut bytes) = match information::remembered(family).filter(|_| usual) {
        Some(answer) => answer,
        None => {
            let mut bytes = [0u8; information::SIZE];
            let mut known = information::SIZE as socklen_t;
            let probe = probe_of(socket)?;
            probe.get(IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr(), &mut known)?;
            let segment = probe.read(IPPROTO_TCP, libc::TCP_MAXSEG).map_or(0, |(bytes, _)| integer(&bytes).max(0) as u64);
            let answer = (known as usize, segment, bytes);
            if usual && is_usual() {
                information::remember(family, answer);
            }
            answer
        }
    };
    information::fill(socket, &mut bytes, segment);
    // SAFETY: passed on.
    unsafe { tell_bytes(&bytes[..known.min(information::SIZE)], data, length) }
}

/// The companion's cookie, which no other socket has at the same time, and the number of the connection that it serves:
/// companions serve several, one after the other.
unsafe fn cookie(socket: &Socket, fd: i32, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let mut bytes = [0u8; 8];
    let mut size = 8;
    // SAFETY: passed on.
    unsafe {
        if user::read(length)? < size {
            return Err(Errno(libc::EINVAL));
        }
        calls::getsockopt(fd, SOL_SOCKET, libc::SO_COOKIE, bytes.as_mut_ptr().cast(), &mut size)?;
        let generation = socket.page().head.generation.load(Ordering::Relaxed) as u64;
        tell_bytes(&(u64::from_ne_bytes(bytes) ^ generation << 40).to_ne_bytes(), data, length)
    }
}

/// SO_ORIGINAL_DST (linux/netfilter_ipv4.h), and that of IPv6, which has the same number: the kernel answers where it tracks connections, which a probe's answer tells,
/// with what the probe is connected to. No address of a stream's is translated.
unsafe fn original_destination(socket: &Socket, level: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    probe_of(socket)?.get(level, ORIGINAL_DESTINATION, data, length)?;
    let (_, server) = socket.addresses();
    let told = Encoded::new(if level == IPPROTO_IP { libc::AF_INET } else { libc::AF_INET6 }, &server);
    // SAFETY: promised by the caller of `get`; the kernel has written as many bytes.
    unsafe { user::copy_all(told.pointer().cast(), data, told.length as usize)? };
    Ok(0)
}

const ORIGINAL_DESTINATION: c_int = 80;
const SO_MEMINFO: c_int = 55;
const SO_PEERNAME: c_int = 28;

/// SO_PEERNAME: exactly as many bytes of the address as asked for (sk_getsockopt).
unsafe fn peer_name(socket: &Socket, fd: i32, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let mut address = [0u64; 16];
    let mut size = 128;
    // SAFETY: the address fits; the rest is passed on.
    unsafe {
        crate::options::names::remote(socket, fd, address.as_mut_ptr().cast(), &mut size)?;
        let asked = user::read(length)?;
        if (asked as i32) < 0 || asked > size {
            return Err(Errno(libc::EINVAL));
        }
        let bytes = core::slice::from_raw_parts(address.as_ptr().cast::<u8>(), size as usize);
        tell_bytes(&bytes[..asked as usize], data, length)
    }
}
