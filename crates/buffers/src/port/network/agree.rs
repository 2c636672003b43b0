//! How two ports of a network find each other: over a connection that their programs have, or in one process.
//!
//! ```text
//! both    hello: a magic word, the endpoint's address (six words), the tag by which the other may send there; 64 bytes
//! both    the engines' hand-shake, over the endpoints
//! ```
//!
//! A process that reads the connection learns the tag, and can send to the endpoint from the peer's address: it is to be as private as what is sent.

use super::{Ends, NetworkPort};
use crate::port::stream::Stream;
use crate::port::Error;
use shunt_am::port::{PortError, Trouble};
use shunt_endpoint::{Address, Endpoint, OpenError, Tag, Tags};
use shunt_region::{Limit, Pool, Violation};
use shunt_sys::{libc, Errno};

const MAGIC: [u8; 8] = *b"shunt-n1";
const HELLO: usize = 64;

pub(super) fn error_of_port(error: PortError) -> Error {
    match error {
        PortError::System(errno) => errno.into(),
        PortError::Memory(_) => Limit::Memory.into(),
        PortError::Device | PortError::Post(_) => Errno(libc::EOPNOTSUPP).into(),
    }
}

fn error_of_opening(error: OpenError) -> Error {
    match error {
        OpenError::System(errno) => errno.into(),
        _ => Violation::Record.into(),
    }
}

fn error_of(trouble: Trouble) -> Error {
    match trouble {
        Trouble::Channel(error) => error_of_opening(error),
        Trouble::Region(limit) => limit.into(),
        _ => Error::Gone,
    }
}

fn hello(address: &Address, tag: Tag) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&MAGIC);
    let words = address.to_words().into_iter().chain([tag.0]);
    for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn heard(bytes: &[u8; HELLO]) -> Result<(Address, Tag), Violation> {
    let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|place| bytes[8 * at + place]));
    if bytes[..8] != MAGIC || word(7) == 0 {
        return Err(Violation::Record);
    }
    Ok((Address::from_words(core::array::from_fn(|at| word(1 + at))), Tag(word(7))))
}

impl<'m, E: Endpoint> NetworkPort<'m, E> {
    /// A port over `endpoint`, with the process at the other end of a connected stream, which does the same; the stream is the port's from
    /// now on, also if this fails. `memory` is the engine's ([`super::memory`]). Inputs come into `pool`, and regions of it can be sent.
    ///
    /// Waits for the peer.
    ///
    /// # Errors
    /// [`Error::System`]: not a connected stream, or the endpoint cannot be used. [`Error::Violation`]: the other end does not do the
    /// same, or is at an endpoint of another kind. [`Error::Gone`]: it has ended, or its endpoint cannot be reached.
    pub fn over(fd: i32, endpoint: E, memory: &'m mut [u64], pool: &Pool) -> Result<Self, Error> {
        let mut stream = Stream::of(fd)?;
        let mut port = NetworkPort::new(endpoint, memory, pool)?;
        let endpoint = port.messages.endpoint();
        let tag = endpoint.new_tag()?;
        stream.put(&[&hello(&endpoint.address(), tag)])?;
        let mut theirs = [0; HELLO];
        stream.take(&mut theirs)?;
        let (address, send) = heard(&theirs)?;
        port.peer = port.messages.open(&address, Tags { receive: tag, send }).map_err(error_of_opening)?;
        let peer = port.peer;
        let (messages, ends): (_, &mut Ends) = (&mut *port.messages, &mut port.ends);
        messages.connect(peer, ends).map_err(error_of)?;
        port.beside = Some(stream);
        Ok(port)
    }

    /// Two ports of one process, connected.
    ///
    /// # Errors
    /// As [`NetworkPort::over`].
    pub fn pair<'n, F: Endpoint>(
        (a, for_a, of_a): (E, &'m mut [u64], &Pool),
        (b, for_b, of_b): (F, &'n mut [u64], &Pool),
    ) -> Result<(Self, NetworkPort<'n, F>), Error> {
        let (mut here, mut there) = (NetworkPort::new(a, for_a, of_a)?, NetworkPort::new(b, for_b, of_b)?);
        let joined = shunt_am::port::join((&mut *here.messages, &mut here.ends), (&mut *there.messages, &mut there.ends));
        (here.peer, there.peer) = joined.map_err(error_of)?;
        Ok((here, there))
    }
}
