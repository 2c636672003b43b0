//! A peer of a port that sends any records and tickets, writes any words into the link, and offers any pools.

use crate::input::Input;
use shunt_buffers::costs::Costs;
use shunt_buffers::port::Port;
use shunt_buffers::record::{Kind, Record};
use shunt_buffers::region::{Audience, Pages, Pool, Reference, Shape};
use shunt_buffers::Semantics;
use shunt_sys::{calls, libc};

const SHAPE: Shape = Shape { unit: 4096, units: 16 };
/// The most that a message is received as.
const ROOM: usize = 100_000;

fn pool() -> Pool {
    Pool::create(SHAPE, Pages::Small, Audience::Anyone).expect("a pool")
}

/// A file that is offered as a pool and is none: sealed or not, of any bytes.
fn other(input: &mut Input, peer: &mut Port) -> Option<()> {
    let (seals, size) = (input.byte()?, input.length(1 << 20)?);
    let fd = calls::memfd_create(b"any\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).ok()?;
    let bytes = input.bytes(64);
    let made = calls::ftruncate(fd, size as i64).and_then(|()| calls::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), 0));
    if made.is_ok() && seals & 1 != 0 {
        let _ = calls::fcntl(fd, libc::F_ADD_SEALS, (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL) as usize);
    }
    let _ = peer.pass_raw(b"PTL"[seals as usize / 2 % 3], fd);
    let _ = calls::close(fd);
    Some(())
}

fn record(input: &mut Input) -> Option<[u8; Record::SIZE]> {
    let (kind, semantics) = (input.byte()?, input.byte()?);
    let semantics = Semantics::of_index(semantics as usize % 8)?;
    let kind = [Kind::Bytes, Kind::Region, Kind::Pull, Kind::Forwarded][kind as usize % 4];
    let (offset, length) = (input.length(1 << 18)? as u64, input.length(1 << 18)? as u64);
    let serial = input.byte()? as u16;
    let reference = Reference { offset, length, generation: 1, pool: input.byte()? as u32 % 3, ticket: offset };
    Some(Record { kind, semantics, serial, reference, source: input.byte()? as u64 * 512 }.to_bytes())
}

/// What the peer does, until its bytes are used up.
fn act(input: &mut Input, peer: &mut Port, own: &Pool) -> Option<()> {
    loop {
        match input.byte()? % 8 {
            0 | 1 => drop(peer.put_raw(0, &record(input)?)),
            2 => drop(peer.put_raw(0, input.bytes(Record::SIZE))),
            3 => drop(peer.put_raw(1, &input.word()?.to_le_bytes())),
            4 => {
                // The words that count: channels' pages, and the last page with the pulls.
                let at = input.half()? as usize;
                let at = if at.is_multiple_of(2) { shunt_segment::area::LINK_SIZE + at / 2 } else { at };
                peer.scribble(at, input.word()?);
            }
            5 => drop(peer.offer(own)),
            6 => other(input, peer)?,
            _ => drop(peer.put_raw(0, input.bytes(input.0.first().copied()? as usize))),
        }
    }
}

pub fn run(data: &[u8]) {
    let (mut honest, mut peer) = Port::pair().expect("ports");
    honest.set_costs(Costs::USUAL);
    peer.set_costs(Costs::USUAL);
    honest.set_largest(ROOM);
    let (ours, theirs) = (pool(), pool());
    honest.offer(&ours).expect("a pool of its own");
    // Lent: a ticket that can be given back, once.
    let mut region = ours.allocate(SHAPE.unit).expect("an empty pool");
    region.bytes_mut().fill(7);
    let _ = honest.send_shared(&region, SHAPE.unit, Semantics::EMULATED_SHARE);
    let mut input = Input(data);
    let first = input.byte().unwrap_or(0);
    let _ = act(&mut input, &mut peer, &theirs);
    // The hang-up ends every wait.
    drop(peer);
    let mut room = vec![0xAA; ROOM + 64];
    for turn in 0..8u8 {
        let _ = honest.progress();
        let done = match (first >> turn & 1, turn % 3) {
            (0, _) => honest.receive(&mut room[..ROOM]).is_ok(),
            (_, 0) => honest.receive_region(Semantics::EMULATED_WEAK_MOVE).is_ok(),
            _ => honest.receive_reference().and_then(|message| honest.give_back(message)).is_ok(),
        };
        if !done {
            break;
        }
    }
    assert!(room[ROOM..].iter().all(|byte| *byte == 0xAA), "written behind the buffer");
    let _ = honest.progress();
    honest.abandon();
    assert_eq!(honest.lent(), (0, 0));
    drop(honest);
    assert!(region.bytes().iter().all(|byte| *byte == 7), "what is lent for reading is not written");
    drop(region);
    assert_eq!(ours.free(), SHAPE.units, "all of it came back");
}
