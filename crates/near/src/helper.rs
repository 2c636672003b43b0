//! `shunt hostd`, where it listens in the directory: it introduces the ends of a connection whose client is not found at a name. What it does is in
//! crates/hostd; it proves nothing, and the handshake is the same.

use crate::held::Held;
use crate::path::Path;
use crate::waiting::{hear, hear_until, Heard};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_segment::meeting::{Answer, Refusal, Request, ANSWER, NAME};
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, clock, Errno};
use shunt_table::fd_passing;
use shunt_table::private::Pending;

/// How long it is believed that one is there, or is not (ns).
const BELIEVED: u64 = 1_000_000_000;

/// Until when it is believed, and in the last bit what.
static THERE: AtomicU64 = AtomicU64::new(0);

/// Whether there is one, as far as its name tells.
pub fn is_there(directory: &[u8], now: u64) -> bool {
    let known = THERE.load(Ordering::Relaxed);
    if now < known & !1 {
        return known & 1 != 0;
    }
    let is_there = Path::new(&[directory, b"/", NAME]).identity().is_some();
    THERE.store((now + BELIEVED) & !1 | u64::from(is_there), Ordering::Relaxed);
    is_there
}

/// It does not answer, and costs a wait: it is left alone for a while.
fn is_away() {
    THERE.store((clock::monotonic_ns() + BELIEVED) & !1, Ordering::Relaxed);
}

/// Whether an address may be translated to one of this host's: those of networks that nobody routes to from elsewhere (RFC 1918, 6598, 4193), which services,
/// containers and hosts that publish their ports have. To any other no connection shows a mark for its sake.
pub fn may_lead_here(address: &Address) -> bool {
    match address.as_v4() {
        Some([10, ..] | [192, 168, ..] | [172, 16..=31, ..] | [100, 64..=127, ..]) => true,
        Some(_) => false,
        None => address.ip[0] & 0xfe == 0xfc,
    }
}

/// What hostd has introduced.
pub struct Met {
    /// The AF_UNIX stream to the other end.
    pub unix: Held,
    /// The other end's user, as hostd sees it.
    pub user: u32,
    /// The inode of the other end of the stream: nobody stands between.
    pub peer: u64,
}

/// Why nobody was met.
pub struct Alone {
    /// What is counted.
    pub reason: Reason,
    /// hostd was shown the connection, and may have taken another one for it.
    pub is_shown: bool,
    /// It has, or was shown two.
    pub is_doubtful: bool,
}

impl From<Reason> for Alone {
    fn from(reason: Reason) -> Alone {
        Alone { reason, is_shown: false, is_doubtful: false }
    }
}

/// Shows it the TCP connection `fd`, as this side of it, and waits for the other one.
///
/// Errors: NotLocal: hostd has ended, does not answer, is not one to be trusted with the connection, or that is not one to be passed; NearUnknown: the other end did not
/// come; NearQuota; NearRefused; NoDescriptors, NoUnix.
pub fn meet(directory: &[u8], fd: i32, side: Request, deadline: u64) -> Result<Met, Alone> {
    if lingers(fd) {
        return Err(Reason::NotLocal.into());
    }
    let socket = || calls::socket(AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
    let over = Held::new(socket).map_err(|error| shunt_rendezvous::attach::forbidden(error).unwrap_or(Reason::NoDescriptors))?;
    let (name, length) = Path::new(&[directory, b"/", NAME]).socket_address();
    let connected = calls::connect(over.fd(), (&raw const name).cast(), length);
    if connected.is_err() {
        return Err(Reason::NotLocal.into());
    }
    // What is passed reaches this network: to nobody but root. Another container may have a user of this one's number.
    if !fd_passing::creator(over.fd()).is_ok_and(|listener| listener.uid == 0) {
        is_away();
        return Err(Reason::NotLocal.into());
    }
    // One that is stopped says nothing, and is given nothing.
    let mut room = [0u8; ANSWER + 1];
    match hear_until(over.fd(), &mut room, deadline) {
        Heard::Bytes(got, None) if Answer::decode(&room[..got]) == Some(Answer::Hello) => {}
        Heard::Bytes(_, Some(_)) => return Err(Reason::NearRefused.into()),
        Heard::Nothing => {
            is_away();
            return Err(Reason::NotLocal.into());
        }
        // It has no room for this end, or has ended, and another one may be there at once.
        _ => return Err(Reason::NotLocal.into()),
    }
    if fd_passing::send_with(over.fd(), &side.encode(), &[fd], MSG_DONTWAIT | MSG_NOSIGNAL).is_err() {
        return Err(Reason::NotLocal.into());
    }
    answer(&over, deadline)
}

/// SO_LINGER with a time: hostd takes that away, lest its close be the last one and take as long.
fn lingers(fd: i32) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
    let told = calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw mut linger).cast(), &mut length);
    told.is_err() || (linger.l_onoff != 0 && linger.l_linger != 0)
}

fn answer(over: &Held, deadline: u64) -> Result<Met, Alone> {
    let alone = |reason| Err(Alone { reason, is_shown: true, is_doubtful: false });
    let mut room = [0u8; ANSWER + 1];
    loop {
        let mut got = 0;
        // A descriptor that comes is noted before a fork can take it along.
        let came = Held::new(|| match hear(over.fd(), &mut room) {
            Heard::Bytes(length, fd) => {
                got = length;
                fd.map(Pending::take).ok_or(Errno(libc::EBADMSG))
            }
            Heard::Nothing => Err(Errno(libc::EAGAIN)),
            Heard::NoDescriptors => Err(Errno(libc::EMFILE)),
            Heard::End => Err(Errno(libc::EPIPE)),
        });
        match (came, room.get(..got).and_then(Answer::decode)) {
            (Ok(unix), Some(Answer::Met { user, peer })) => return Ok(Met { unix, user, peer }),
            (Err(Errno(libc::EBADMSG)), Some(Answer::Refused(Refusal::Quota))) => return alone(Reason::NearQuota),
            (Err(Errno(libc::EBADMSG)), Some(Answer::Refused(Refusal::Ambiguous))) => {
                return Err(Alone { reason: Reason::NearRefused, is_shown: true, is_doubtful: true })
            }
            (Err(Errno(libc::EBADMSG)), Some(Answer::Refused(_))) => return alone(Reason::NearRefused),
            (Err(Errno(libc::EAGAIN)), _) if clock::monotonic_ns() < deadline => {
                let _ = crate::waiting::await_any([over.fd()], deadline);
            }
            (Err(Errno(libc::EAGAIN)), _) => return alone(Reason::NearUnknown),
            // It has ended: for want of time it would wait longer than this end does.
            (Err(Errno(libc::EPIPE)), _) => return alone(Reason::NotLocal),
            (Err(Errno(libc::EMFILE)), _) => return alone(Reason::NoDescriptors),
            _ => return alone(Reason::NearRefused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_may_lead_here() {
        let v4 = |ip: [u8; 4]| may_lead_here(&Address::v4(ip, 80));
        assert!([[10, 1, 2, 3], [192, 168, 0, 1], [172, 16, 0, 1], [172, 31, 9, 9], [100, 64, 0, 1], [100, 127, 1, 1]]
            .into_iter()
            .all(v4));
        assert!(![[11, 0, 0, 1], [192, 169, 0, 1], [172, 32, 0, 1], [172, 15, 0, 1], [100, 128, 0, 1], [8, 8, 8, 8]]
            .into_iter()
            .any(v4));
        let v6 = |first: u8| may_lead_here(&Address::v6([first, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 80));
        assert!(v6(0xfd) && v6(0xfc) && !v6(0x20) && !v6(0xfe));
    }
}
