//! Calls on both ends of a connection, and words that the peer writes in between: lengths stay in bounds, calls return,
//! and nothing outside the connection's page and rings is touched (it is not mapped; the sanitizer watches the buffer).

use crate::input::Input;
use shunt_ring::{bell, Pipe, Window};
use shunt_segment::area::{ring_offset, window_offset, CHANNEL_PAGES, LINK_SIZE, PAGE, RING_SIZE};
use shunt_segment::channel::{arm, ChannelPage, Side};
use shunt_segment::sync::AtomicU64;
use shunt_segment::sync::Ordering::Relaxed;
use shunt_sys::{calls, libc};
use std::sync::OnceLock;

const CHANNEL: usize = 5;
const LARGEST: usize = 80_000;

struct Link(*mut u8);
// SAFETY: one thread runs this target.
unsafe impl Sync for Link {}
// SAFETY: as above.
unsafe impl Send for Link {}

/// One link for all runs, of which only one channel can be touched.
fn link() -> *mut u8 {
    static LINK: OnceLock<Link> = OnceLock::new();
    let map = |at: *mut u8, size, protection, fixed| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
        // SAFETY: a fresh range, or one inside it.
        unsafe { calls::mmap(at, size, protection, flags, -1, 0) }.expect("address space for a link")
    };
    LINK.get_or_init(|| {
        let link = map(std::ptr::null_mut(), LINK_SIZE, libc::PROT_NONE, 0);
        let open = |offset: usize, size| {
            map(link.wrapping_add(offset), size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED);
        };
        open(CHANNEL_PAGES + CHANNEL * PAGE, PAGE);
        for (class, size) in RING_SIZE.iter().enumerate().skip(1) {
            for side in 0..2 {
                open(ring_offset(CHANNEL, side, class), *size as usize);
            }
        }
        Link(link)
    })
    .0
}

fn wide(side: &Side, which: u8) -> &AtomicU64 {
    match which % 8 {
        0 => &side.post.word,
        1 => &side.post.ack,
        2 => &side.borders[which as usize / 8 % 8],
        3 => &side.transmit.acked,
        4 => &side.transmit.word,
        5 => &side.wait.held,
        6 => &side.wait.held_until,
        _ => &side.receive.position,
    }
}

pub fn run(data: &[u8]) {
    let _ = play(Input(data));
}

fn play(mut input: Input) -> Option<()> {
    let link = link();
    // SAFETY: mapped, only atomics in it.
    let page: &ChannelPage = unsafe { &*link.add(CHANNEL_PAGES + CHANNEL * PAGE).cast() };
    let start = input.word()?;
    for side in &page.sides {
        side.clear();
        side.transmit.class_limit.store(input.byte()? as u32 % 8, Relaxed);
        side.post.word.store(start & shunt_segment::channel::word::POSITION, Relaxed);
        side.post.ack.store(start, Relaxed);
        side.transmit.acked.store(start, Relaxed);
        side.receive.position.store(start, Relaxed);
    }
    let windows = [Window::new(), Window::new()];
    for (side, window) in windows.iter().enumerate() {
        window.set(link.wrapping_add(window_offset(CHANNEL, side)));
    }
    // Exactly as long as each call may write: the sanitizer sees one byte more.
    while let Some(operation) = input.byte() {
        let (end, operation) = ((operation & 1) as usize, operation >> 1);
        let (own, peer) = (&page.sides[end], &page.sides[1 - end]);
        let outgoing = Pipe { own, peer, link, channel: CHANNEL, sender: end, window: &windows[end] };
        let incoming = Pipe { sender: 1 - end, window: &windows[1 - end], ..outgoing };
        match operation % 16 {
            0 | 1 => {
                let bytes = vec![operation; input.length(LARGEST)?];
                // SAFETY: the whole of `bytes`.
                assert!(unsafe { outgoing.send(bytes.as_ptr(), bytes.len()) } <= bytes.len());
            }
            2 | 3 => {
                let mut bytes = vec![0; input.length(LARGEST)?];
                // SAFETY: the whole of `bytes`.
                assert!(unsafe { incoming.receive(bytes.as_mut_ptr(), bytes.len()) }.unwrap_or(0) <= bytes.len());
            }
            4 => {
                let (skip, mut bytes) = (input.length(LARGEST)?, vec![0; input.length(LARGEST)?]);
                // SAFETY: the whole of `bytes`.
                assert!(unsafe { incoming.peek(skip, bytes.as_mut_ptr(), bytes.len()) }.unwrap_or(0) <= bytes.len());
            }
            5 => {
                let (free, size) = outgoing.writable();
                assert!(free <= size);
                outgoing.can_grow();
                outgoing.unacknowledged();
                bell::arm(&own.wait, arm::IN);
                bell::must_ring(&peer.wait, arm::OUT);
            }
            7 => outgoing.end(u64::from(input.byte()?) << 56),
            10 => {
                let bytes = vec![operation; input.length(LARGEST)?];
                // SAFETY: the whole of `bytes`.
                assert!(unsafe { outgoing.hold(bytes.as_ptr(), bytes.len()) } <= bytes.len());
            }
            11 => {
                let (least, most) = (input.length(LARGEST)?, input.length(LARGEST)?);
                let (hold, says) = (input.byte()? & 1 != 0, input.length(2 * LARGEST)?);
                // SAFETY: writes the pieces, all of them.
                let filled = unsafe {
                    outgoing.fill(least, most, hold, |space| {
                        assert!(space[0].1 + space[1].1 <= most);
                        space.iter().filter(|piece| piece.1 > 0).for_each(|piece| piece.0.write_bytes(operation, piece.1));
                        says
                    })
                };
                assert!(filled.unwrap_or(0) <= most.min(says));
            }
            12 => outgoing.push(),
            13 => outgoing.leave_held(u64::from(input.byte()?)),
            14 => {
                if incoming.held_until().is_some() {
                    incoming.take_held();
                }
            }
            8 => wide(own, input.byte()?).store(input.word()?, Relaxed),
            _ => {
                // One field of a word, or one of the narrow words.
                let which = input.byte()?;
                let value = input.byte()?;
                match which >> 5 {
                    0 => own.transmit.class_limit.store(value as u32, Relaxed),
                    1 => own.transmit.small.store((value as u32) << (which & 31), Relaxed),
                    2 => own.receive.switch.store(value as u32, Relaxed),
                    3 => own.receive.class.store((value as u32) << (which & 31), Relaxed),
                    _ => {
                        wide(own, which).fetch_xor((value as u64) << ((which >> 3 & 7) * 8), Relaxed);
                    }
                }
            }
        }
    }
    Some(())
}
