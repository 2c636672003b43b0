//! An inbox that other senders write: whatever stands in its header and ring, lengths stay in bounds and calls return.

use crate::input::Input;
use shunt_ring::inbox::{Details, Inbox, Posted, Source};
use shunt_ring::local::Put;
use shunt_ring::lock;
use shunt_segment::inbox::{LONGEST, RING, RING_LEAST};
use shunt_segment::sync::AtomicU64;
use shunt_segment::sync::Ordering::Relaxed;
use shunt_sys::{calls, libc};

const SIZE: usize = RING_LEAST;
/// The header's words that processes write.
const WORDS: usize = 512;

struct Memory(*mut u8);

impl Memory {
    /// The inbox between two pages that are not mapped.
    fn new() -> Memory {
        let map = |at: *mut u8, size, protection, fixed| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
            // SAFETY: a fresh range, or one inside it.
            unsafe { calls::mmap(at, size, protection, flags, -1, 0) }.expect("address space for an inbox")
        };
        let start = map(core::ptr::null_mut(), RING + SIZE + 8192, libc::PROT_NONE, 0);
        map(start.wrapping_add(4096), RING + SIZE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED);
        Memory(start)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = calls::munmap(self.0, RING + SIZE + 8192);
    }
}

pub fn run(data: &[u8]) {
    let memory = Memory::new();
    let base = memory.0.wrapping_add(4096);
    // SAFETY: mapped, and as long as said.
    let inbox = unsafe { Inbox::new(base, SIZE as u32) };
    inbox.header().limit.store(212_992, Relaxed);
    let _ = play(&inbox, base, Input(data));
}

fn play(inbox: &Inbox, base: *mut u8, mut input: Input) -> Option<()> {
    let word = |at: usize| {
        // SAFETY: inside the mapping, aligned to 8.
        unsafe { &*base.add(at & !7).cast::<AtomicU64>() }
    };
    while let Some(operation) = input.byte() {
        match operation % 16 {
            0 | 1 if operation & 32 != 0 => {
                let mut bytes = vec![operation; input.length(LONGEST + 5)?];
                let pieces = core::iter::once((bytes.as_mut_ptr(), bytes.len()));
                let freed = |owner| lock::revoke(&inbox.header().lock, owner);
                // SAFETY: the whole of `bytes`.
                let put = unsafe { inbox.put(1, operation & 16 != 0, 3, pieces, bytes.len(), 53_248, freed) };
                assert!(bytes.len() <= LONGEST || put != Put::Done);
            }
            2..=4 if operation & 32 != 0 => {
                let mut bytes = vec![0u8; input.length(LONGEST)?];
                let (start, room) = (bytes.as_mut_ptr(), bytes.len());
                let buffers = |from: usize, most: usize| {
                    assert!(from <= room && most <= room - from);
                    core::iter::once((start.wrapping_add(from), most))
                };
                // SAFETY: inside `bytes`, as is checked.
                let seen = unsafe {
                    if operation & 16 == 0 {
                        inbox.see_bytes(room, buffers)
                    } else {
                        inbox.see_packet(room, buffers)
                    }
                };
                if let Some(seen) = seen {
                    assert!(seen.copied <= room);
                    inbox.take_seen(&seen);
                }
                inbox.waiting_bytes();
                inbox.waiting_charge();
            }
            0 | 1 => {
                let bytes = vec![operation; input.length(LONGEST + 5)?];
                let source = Source { v6: operation & 16 != 0, port: 7, scope: 3, ..Source::default() };
                let stamp = u64::from(operation & 32);
                let details = Details { to: [operation & 64; 16], stamp, interface: stamp as u32, ..Details::default() };
                let pieces = core::iter::once((bytes.as_ptr(), bytes.len()));
                let freed = |owner| lock::revoke(&inbox.header().lock, owner);
                // SAFETY: the whole of `bytes`.
                let posted = unsafe { inbox.post(1, &source, &details, pieces, bytes.len(), freed) };
                assert!(bytes.len() <= LONGEST || posted != Posted::Done);
            }
            2..=4 => {
                let mut bytes = vec![0; input.length(LONGEST)?];
                if let Some(front) = inbox.front() {
                    assert!(front.length <= LONGEST);
                    let pieces = core::iter::once((bytes.as_mut_ptr(), bytes.len()));
                    // SAFETY: the whole of `bytes`.
                    assert!(unsafe { inbox.copy(&front, pieces) }.is_some_and(|copied| copied <= bytes.len()));
                    inbox.details(&front);
                    inbox.is_crowded();
                    inbox.may_yield(&front);
                    if operation & 16 == 0 {
                        inbox.take(&front);
                    }
                }
            }
            5 => {
                inbox.open();
            }
            6 => inbox.enter(),
            7 => inbox.leave(),
            8 if operation & 16 == 0 => inbox.pin(),
            8 => inbox.unpin(),
            9 if operation & 16 == 0 => {
                inbox.before_kernel();
            }
            9 => inbox.after_kernel(),
            10 => inbox.note_drained(inbox.begin_look()),
            11 if operation & 0x70 == 0x70 => inbox.retire(),
            12 => word(input.half()? as usize % WORDS).store(input.word()?, Relaxed),
            13 => {
                word(input.byte()? as usize * 8 % WORDS).fetch_xor(1 << (input.byte()? % 64), Relaxed);
            }
            14 => word(RING + input.half()? as usize * 8 % SIZE).store(input.word()?, Relaxed),
            _ => {
                // A record at the head, as a sender would announce it.
                let head = inbox.header().head.load(Relaxed);
                let at = RING + head as usize % SIZE;
                word(at).store((head & !63) | u64::from(input.byte()?), Relaxed);
                word(RING + (head as usize).wrapping_add(8) % SIZE).store(input.word()?, Relaxed);
            }
        }
    }
    Some(())
}
