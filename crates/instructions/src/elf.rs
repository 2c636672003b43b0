//! Objects in files (elf(5)): 64 bits, x86-64.

use crate::{Memory, Object};
use core::ops::Range;

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PROGRAM_HEADER: usize = 56;

/// A file's bytes, seen as the loader would map them, from address 0 on.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    bytes: &'a [u8],
    headers: &'a [u8],
}

/// A program header.
#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    in_file: u64,
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = at.checked_add(length).and_then(|end| bytes.get(at..end)).unwrap_or(&[]);
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl<'a> File<'a> {
    /// A file of these bytes. `None`: it is no such object.
    pub fn new(bytes: &'a [u8]) -> Option<File<'a>> {
        if !bytes.starts_with(MAGIC) || number(bytes, 18, 2) != EM_X86_64.into() {
            return None;
        }
        let start = usize::try_from(number(bytes, 32, 8)).ok()?;
        let count = number(bytes, 56, 2) as usize;
        if number(bytes, 54, 2) != PROGRAM_HEADER as u64 {
            return None;
        }
        let headers = bytes.get(start..start.checked_add(count * PROGRAM_HEADER)?)?;
        Some(File { bytes, headers })
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        self.headers.chunks_exact(PROGRAM_HEADER).map(|header| Segment {
            kind: number(header, 0, 4) as u32,
            flags: number(header, 4, 4) as u32,
            offset: number(header, 8, 8),
            address: number(header, 16, 8),
            in_file: number(header, 32, 8),
        })
    }

    /// Puts where the text lies into `texts`, and gives the object. Text beyond that room is left out.
    pub fn object<'b>(&'b self, texts: &'b mut [Range<u64>; 8]) -> Object<'b, File<'a>> {
        let place = |segment: Segment| segment.address..segment.address.saturating_add(segment.in_file);
        let mut count = 0;
        let executable = self.segments().filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0);
        for (text, segment) in texts.iter_mut().zip(executable) {
            *text = place(segment);
            count += 1;
        }
        let unwind = self.segments().find(|segment| segment.kind == PT_GNU_EH_FRAME).map_or(0..0, place);
        Object { memory: self, text: &texts[..count], unwind }
    }
}

impl Memory for File<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let length = into.len() as u64;
        let found = self.segments().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            let end = inside.checked_add(length)?;
            (end <= segment.in_file).then_some(segment.offset.checked_add(inside)?)
        });
        found.is_some_and(|offset| self.bytes.read(offset, into))
    }
}
