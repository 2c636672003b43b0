//! A port that owns everything it stands on, over UDP for programs that only have a connection.

use super::{memory, NetworkPort};
use crate::port::Error;
use core::mem::size_of;
use core::ops::{Deref, DerefMut};
use shunt_endpoint::device::udp::{from_sockaddr, ipv4, ipv6, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::{Address, Endpoint};
use shunt_region::Pool;
use shunt_sys::{libc, Errno};

/// A port with the memory that its engine lies in.
pub struct Owned<E: Endpoint>(NetworkPort<'static, E>);

/// Over UDP.
pub type UdpPort = Owned<Udp>;

/// Memory of an engine, freed with it. A raw box: the engine has the only reference.
pub(super) struct Memory(*mut [u64]);

// SAFETY: memory of its own, as a box's.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by a box, and freed once; the engine that borrowed it is gone.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl UdpPort {
    /// As [`NetworkPort::over`], with an endpoint at the address that this end of the connection has; of an AF_UNIX stream, at the loopback's.
    ///
    /// # Errors
    /// As [`NetworkPort::over`].
    pub fn over(fd: i32, pool: &Pool) -> Result<UdpPort, Error> {
        Owned::with(fd, beside(fd), pool)
    }
}

/// An endpoint at the address that this end of a connection has; of an AF_UNIX stream, at the loopback's.
///
/// # Errors
/// Those of getsockname(2) and of the endpoint.
pub fn beside(fd: i32) -> Result<Udp, Error> {
    Ok(Udp::bind(&local(fd)?, options())?)
}

impl<E: Endpoint> Owned<E> {
    /// As [`NetworkPort::over`], with this endpoint. The descriptor is the call's also where there is none.
    ///
    /// # Errors
    /// As [`NetworkPort::over`], and why there is no endpoint.
    pub fn with(fd: i32, endpoint: Result<E, Error>, pool: &Pool) -> Result<Owned<E>, Error> {
        let endpoint = endpoint.inspect_err(|_| {
            // SAFETY: the descriptor is this call's.
            unsafe { libc::close(fd) };
        })?;
        let own = Memory(Box::into_raw(memory(&endpoint).into_boxed_slice()));
        // SAFETY: just made. The port that borrows it has it, as the field that is dropped last, and no call gives the engine away.
        let mut port = NetworkPort::over(fd, endpoint, unsafe { &mut *own.0 }, pool)?;
        port.memory = Some(own);
        Ok(Owned(port))
    }

    /// Becomes readable when something comes, for a loop of the program's, which calls [`NetworkPort::progress`] then; and some times in a
    /// second whatever comes: what was lost is sent again in its calls, and they notice that the peer's process has ended.
    pub fn descriptor(&mut self) -> i32 {
        self.endpoint().descriptor()
    }
}

impl<E: Endpoint> Deref for Owned<E> {
    type Target = NetworkPort<'static, E>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<E: Endpoint> DerefMut for Owned<E> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Frames of a long message come closely: the kernel joins them, a buffer of 64 KiB for each run.
fn options() -> Options {
    Options { coalesce: true, shape: Shape { segment: 8 << 20, ..Shape::SMALL }, ..Options::default() }
}

/// Where an endpoint can be reached by who reaches this end of a connection; any port.
fn local(fd: i32) -> Result<Address, Error> {
    let mut bytes = [0u8; size_of::<libc::sockaddr_storage>()];
    let mut length = bytes.len() as u32;
    // SAFETY: as much room.
    if unsafe { libc::getsockname(fd, bytes.as_mut_ptr().cast(), &mut length) } != 0 {
        return Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)).into());
    }
    let bytes = &bytes[..(length as usize).min(bytes.len())];
    let family = bytes.get(..2).map_or(0, |family| i32::from(u16::from_ne_bytes([family[0], family[1]])));
    match (family, from_sockaddr(bytes)) {
        (libc::AF_INET, Some(_)) => Ok(ipv4([bytes[4], bytes[5], bytes[6], bytes[7]], 0)),
        // An IPv4 connection by a socket of IPv6.
        (libc::AF_INET6, Some(_)) if bytes[8..18] == [0; 10] && bytes[18..20] == [0xff; 2] => {
            Ok(ipv4([bytes[20], bytes[21], bytes[22], bytes[23]], 0))
        }
        (libc::AF_INET6, Some(_)) => {
            let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
            Ok(ipv6(core::array::from_fn(|at| bytes[8 + at]), 0, scope))
        }
        (libc::AF_UNIX, _) => Ok(ipv4([127, 0, 0, 1], 0)),
        _ => Err(Errno(libc::EAFNOSUPPORT).into()),
    }
}
