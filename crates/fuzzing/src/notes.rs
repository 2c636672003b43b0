//! What the owner of a queue writes where an agent reads the frames that it notes: anything, at any place, and how much of it.

use shunt_sys::mapping::Room;
use shunt_xdp::notes::{Notes, Reader, LONGEST, RING, SIZE, WRITTEN};

use crate::input::Input;

/// Steps of one run at most.
const STEPS: usize = 64;

/// The page in front of the ring.
const PAGE: usize = 4096;

pub fn run(data: &[u8]) {
    let _ = steps(&mut Input(data));
}

/// Until the bytes are used up.
fn steps(input: &mut Input) -> Option<()> {
    let mut room = Room::new(SIZE).expect("memory");
    let place = room.start();
    let longest = input.half()?;
    // SAFETY: as many bytes as both ask for, until the end of this function.
    let (notes, mut reader) = unsafe { (Notes::new(place), Reader::begin(place, longest.into())) };
    let mut buffer = Box::new([0; LONGEST]);
    for _ in 0..STEPS {
        match input.byte()? % 5 {
            // How much there is: any number.
            0 => {
                let written = input.word()? >> (input.byte()? % 64);
                // SAFETY: a word of the first page.
                unsafe { place.add(WRITTEN).cast::<u64>().write_volatile(written) };
            }
            // Bytes in the ring, or in front of it.
            kind @ (1 | 2) => {
                let at = if kind == 1 { PAGE + input.word()? as usize % (RING - 256) } else { usize::from(input.byte()?) };
                let length = input.byte()?.into();
                let bytes = input.bytes(length);
                // SAFETY: inside the memory.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.add(at), bytes.len()) };
            }
            // A frame in good order.
            3 => {
                let length = input.byte()?.into();
                let bytes = input.bytes(length);
                // SAFETY: as many bytes as there are.
                unsafe { notes.sent(&[(bytes.as_ptr(), bytes.len())]) };
            }
            _ => {
                let mut taken = 0;
                reader.read(&mut buffer, |noted, bytes| {
                    assert!(bytes.len() <= LONGEST && bytes.len() <= noted.length as usize);
                    taken += 24 + bytes.len();
                });
                assert!(taken <= RING, "no more than the ring holds");
                // Whatever was there: what is noted behind it is read as it is. Another reader has its own words again.
                // SAFETY: as above.
                reader = unsafe { Reader::begin(place, longest.into()) };
                let frame = b"as it is".repeat(20);
                // SAFETY: as many bytes as there are.
                unsafe { notes.sent(&[(frame.as_ptr(), frame.len())]) };
                let mut frames = Vec::new();
                reader.read(&mut buffer, |noted, bytes| frames.push((noted.length as usize, bytes.to_vec())));
                assert_eq!(frames, [(frame.len(), frame[..frame.len().min(longest.into())].to_vec())]);
            }
        }
    }
    Some(())
}
