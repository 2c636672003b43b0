//! A socket whose kernel a test or a fuzzer plays: the rings lie in a memory file, and the other ends of them are its maker's.

use shunt_sys::{calls, libc, Errno};

use crate::ring::{Consumer, Descriptor, Kind, Places, Producer};
use crate::socket::{Rings, Shape, Socket, Umem};

/// Bytes from one ring to the next in the file: room for the longest of [`Shape`].
const RING: usize = 1 << 21;

/// The kernel's ends.
pub struct Kernel {
    /// Frames that arrive.
    pub receive: Producer<Descriptor>,
    /// Frames that are to be sent.
    pub transmit: Consumer<Descriptor>,
    /// Chunks for frames to come.
    pub fill: Consumer<u64>,
    /// Chunks whose frame was sent.
    pub completion: Producer<u64>,
}

/// A socket over `umem`, and its kernel.
///
/// # Errors
/// EINVAL for a shape that cannot be; what the system answers.
pub fn socket(umem: Umem, shape: Shape) -> Result<(Socket, Kernel), Errno> {
    if !shape.is_sound() {
        return Err(Errno(libc::EINVAL));
    }
    let fd = calls::memfd_create(b"shunt-played\0", libc::MFD_CLOEXEC)?;
    let mapped = calls::ftruncate(fd, 4 * RING as i64).and_then(|()| {
        let [receive, transmit, fill, completion] = [Kind::Receive, Kind::Transmit, Kind::Fill, Kind::Completion].map(places);
        let rings = Rings {
            receive: Consumer::map_at(fd, &receive, shape.receive)?,
            transmit: Producer::map_at(fd, &transmit, shape.transmit)?,
            fill: Producer::map_at(fd, &fill, shape.fill())?,
            completion: Consumer::map_at(fd, &completion, shape.transmit)?,
        };
        let kernel = Kernel {
            receive: Producer::map_at(fd, &receive, shape.receive)?,
            transmit: Consumer::map_at(fd, &transmit, shape.transmit)?,
            fill: Consumer::map_at(fd, &fill, shape.fill())?,
            completion: Producer::map_at(fd, &completion, shape.transmit)?,
        };
        Ok((rings, kernel))
    });
    match mapped {
        Ok((rings, kernel)) => Ok((Socket::of(fd, umem, shape, (0, true), rings), kernel)),
        Err(errno) => {
            let _ = calls::close(fd);
            Err(errno)
        }
    }
}

/// A line of cache for each word, as the kernel has it.
fn places(kind: Kind) -> Places {
    Places { begin: kind as usize * RING, producer: 0, consumer: 64, flags: 128, slots: 192 }
}
