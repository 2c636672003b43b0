//! Both ends of a stream whose bytes go by reference, with any words in what tells where they lie: records, offers of pools, what is held.
//!
//! Lengths stay in bounds, calls return, no memory but the pool's, or the file's, is shown, and a stream of the process that has no part in it goes on.

use crate::input::Input;
use shunt_region::shown::{Asked, Shown};
use shunt_region::{Audience, Pages, Pool, Region, Shape};
use shunt_segment::channel::references::{at, place, FILE, HELD};
use shunt_segment::channel::{state, word};
use shunt_segment::sync::Ordering::Relaxed;
use shunt_stream::pair::{End, Pair};
use shunt_stream::references::{keep, lend};
use shunt_stream::views::{self, Next};
use shunt_sys::{calls, libc};
use std::sync::OnceLock;

const SHAPE: Shape = Shape { unit: 64 << 10, units: 8 };
const ROOM: usize = 200_000;
const NOW: i32 = libc::MSG_DONTWAIT;

/// One pool, and a region of it, and a file of memory that is mapped, for all runs.
struct Own {
    pool: Pool,
    region: Region,
    file: i32,
    mapped: &'static [u8],
}

fn own() -> &'static Own {
    static OWN: OnceLock<Own> = OnceLock::new();
    OWN.get_or_init(|| {
        let pool = Pool::create(SHAPE, Pages::Small, Audience::Anyone).expect("a pool");
        let mut region = pool.allocate(SHAPE.bytes()).expect("an empty pool");
        region.bytes_mut().fill(7);
        let (file, size) = (calls::memfd_create(b"fuzz\0", libc::MFD_CLOEXEC).expect("a memfd"), SHAPE.bytes());
        calls::ftruncate(file, size as i64).expect("room");
        let base = shunt_sys::mapping::shared_part(file, 0, size).expect("a mapping");
        // SAFETY: as long, fresh, and never unmapped.
        let mapped = unsafe {
            base.write_bytes(7, size);
            std::slice::from_raw_parts(base, size)
        };
        Own { pool, region, file, mapped }
    })
}

/// What a connection shows of it: the file, or the pool.
fn lent(is_file: bool) -> &'static [u8] {
    if is_file {
        own().mapped
    } else {
        own().region.bytes()
    }
}

fn shown(is_file: bool) -> Shown {
    let own = own();
    let (address, length) = (own.mapped.as_ptr() as u64, own.mapped.len() as u64);
    let file = Asked { address, descriptor: own.file, reserved: 0, length, offset: 0 };
    let pool = Asked { address: own.pool.address() as u64, descriptor: own.pool.descriptor(), ..Asked::default() };
    Shown::named(if is_file { &file } else { &pool }, is_file, std::process::id()).expect("one of these")
}

/// An end of a connection whose near end has shown the pool, and has been answered.
fn met(is_file: bool) -> Pair {
    let pair = Pair::new();
    let on = 1i32.to_ne_bytes();
    shunt_stream::options::effects::apply(pair.near.socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &on);
    lend::show(pair.near.socket, shown(is_file)).expect("shown");
    let sent = pair.near.send(&lent(is_file)[..40_000], libc::MSG_ZEROCOPY | NOW).expect("room");
    assert_eq!(pair.far.receive(&mut vec![0; sent], libc::MSG_WAITALL), Ok(sent));
    pair
}

/// Gives all of a connection back.
fn close(pair: Pair) {
    for end in [pair.near, pair.far] {
        shunt_table::table::take(end.fd);
        shunt_rendezvous::close::end(end.socket, end.fd, false);
        let _ = calls::close(end.fd);
    }
}

/// Writes into what the peer can write.
fn scribble(input: &mut Input, pair: &Pair) -> Option<()> {
    let socket = pair.near.socket;
    let head = &socket.page().head;
    let references = &head.references[socket.side()];
    let which = input.byte()?;
    let record = &references.records[which as usize % 8];
    match which >> 4 {
        0..3 => record.place.store(input.word()?, Relaxed),
        3 => {
            // One that could be: of these kinds, at about the reader's position.
            let (kind, offset, length) = (input.byte()?, input.word()?, input.length(SHAPE.bytes() * 2)?);
            let position =
                pair.far.socket.own().receive.position.load(Relaxed).wrapping_sub(u64::from(kind >> 5)) & word::POSITION;
            let generation = u64::from(head.generation.load(Relaxed) & 0xffff);
            let kinds = [0, place::POOL, place::OFFER, place::KEPT, place::LENT, place::LENT | place::KEPT];
            record.place.store(place::of(offset % (1 << 20), length, kinds[kind as usize % kinds.len()]), Relaxed);
            record.at.store(position | generation << at::GENERATION_SHIFT, Relaxed);
        }
        4 => record.at.store(input.word()?, Relaxed),
        5 => references.shown[which as usize % 2].secret[which as usize / 2 % 2].store(input.word()?, Relaxed),
        6 => references.shown[which as usize % 2].number.store(input.half()?.into(), Relaxed),
        7 => references.shown[which as usize % 2].answer.store(input.half()?.into(), Relaxed),
        8 => {
            references.shown[which as usize % 2].pid.store([std::process::id(), 1, 0, u32::MAX][which as usize / 2 % 4], Relaxed)
        }
        9 => {
            let descriptor = u32::from(input.byte()?) | [0, FILE][which as usize / 2 % 2];
            references.shown[which as usize % 2].descriptor.store(descriptor, Relaxed);
        }
        10 => pair.far.socket.own().receive.held.store(input.word()? | HELD, Relaxed),
        11 => pair.far.socket.own().receive.holder.store(input.half()?.into(), Relaxed),
        // Bytes that no record tells of, or another one than the sender's.
        12 => drop(
            pair.near.socket.outgoing().may_refer().map(|_| pair.near.socket.outgoing().refer(which as usize % 8 * 30_000 + 1)),
        ),
        13 => pair.far.socket.own().receive.position.store(input.word()?, Relaxed),
        14 => drop(pair.far.socket.own().receive.state.fetch_xor(state::SHARED, Relaxed)),
        _ => pair.near.socket.own().transmit.word.store(input.word()?, Relaxed),
    }
    Some(())
}

/// What the program at the far end is given: bytes of the pool, of the link, or of records, and no more than it asked for.
fn act(input: &mut Input, pair: &Pair, is_file: bool, views: &mut Vec<u64>) -> Option<()> {
    let far: &End = &pair.far;
    loop {
        match input.byte()? % 12 {
            0..5 => scribble(input, pair)?,
            5 | 6 => {
                let (from, length) = (input.byte()? as usize, input.length(ROOM)?);
                // Every second one plainly: it is lent, and taken back.
                let flags = if from % 2 == 0 { libc::MSG_ZEROCOPY } else { 0 };
                pair.is_to_lend();
                let _ = pair.near.send(&lent(is_file)[from..][..length], flags | NOW);
            }
            7 => {
                let length = input.length(ROOM)?;
                let mut bytes = vec![0xAA; length + 64];
                let got = far.receive(&mut bytes[..length], NOW | [0, libc::MSG_PEEK][length % 2]).unwrap_or(0);
                assert!(got <= length && bytes[length..].iter().all(|byte| *byte == 0xAA));
                // Of the pool, of rings and places that hold its bytes or nothing, or of offers, which carry four of any kind.
                let strange = bytes[..got].iter().filter(|byte| ![0, 7].contains(*byte)).count();
                assert!(strange <= 64, "{strange} bytes of other memory than the pool's");
            }
            8 | 9 => {
                let most = input.length(ROOM)?;
                if let Ok(Next::InPlace { address, length, number }) = views::next(far.socket, far.fd, most) {
                    assert!(0 < length && length <= most);
                    // SAFETY: mapped until it is given back; the pool holds nothing else.
                    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
                    assert!(bytes.iter().all(|byte| *byte == 7), "other memory than the pool's region");
                    views.push(number);
                }
            }
            10 => {
                let number = if views.is_empty() { 0 } else { views.swap_remove(input.byte()? as usize % views.len()) };
                assert_eq!(views::give_back(far.fd, number).is_ok(), number != 0);
            }
            _ => {
                lend::keep_own(pair.near.socket, 0, &shown(is_file));
                keep::on_sharing(far.socket);
                views::stand_in(far.socket);
                while shunt_stream::error_queue::take(pair.near.socket).is_some() {}
            }
        }
    }
}

pub fn run(data: &[u8]) {
    let is_file = data.first().is_some_and(|first| first % 2 == 1);
    let (pair, mut views) = (met(is_file), Vec::new());
    let _ = act(&mut Input(data), &pair, is_file, &mut views);
    // Half of them outlive the connection.
    let late = views.split_off(views.len() / 2);
    views.into_iter().for_each(|number| assert_eq!(views::give_back(pair.far.fd, number), Ok(())));
    close(pair);
    late.into_iter().for_each(|number| assert_eq!(views::give_back(-1, number), Ok(())));
    // Nothing of that is to be seen by others.
    let other = met(is_file);
    let part = &lent(is_file)[..50_000];
    assert_eq!(other.near.send(part, libc::MSG_ZEROCOPY | NOW), Ok(part.len()));
    assert_eq!(other.far.receive(&mut vec![0; part.len()], libc::MSG_WAITALL | NOW), Ok(part.len()));
    close(other);
}
