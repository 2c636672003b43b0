//! What a rank takes of the symmetric heap, and how large that is.

use super::{locked, World};
use crate::error::{Error, Result};
use crate::memory::LARGEST;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a symmetric heap if nothing else is said.
pub const HEAP: usize = 1 << 30;

/// Bytes as people write them: `64M`, `1G`, `0x1000`, `1.5g`.
pub fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1u64 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        (at, 't' | 'T') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    if let Some(hexadecimal) = number.strip_prefix("0x") {
        return usize::from_str_radix(hexadecimal, 16).ok()?.checked_mul(unit as usize);
    }
    let value: f64 = number.parse().ok().filter(|value: &f64| *value >= 0.0 && *value < 1e15)?;
    Some((value * unit as f64) as usize)
}

/// The size of the heap by the variables that OpenSHMEM has, or by those of other libraries.
pub fn heap_from_environment() -> std::result::Result<usize, String> {
    for name in ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_HEAP_SIZE"] {
        if let Ok(value) = std::env::var(name) {
            return bytes(&value).filter(|size| *size > 0).ok_or(format!("{name}={value} is no size"));
        }
    }
    Ok(HEAP)
}

impl World {
    /// Takes so many bytes of the heap, on every rank alike; the address in this process, which is a multiple of `alignment` as far as
    /// heaps begin at such. No barrier.
    ///
    /// # Errors
    /// If there is no room.
    pub fn take(&self, bytes: usize, alignment: usize) -> Result<usize> {
        // Rank 0's heap begins at a multiple of that, the others at multiples of their size after it.
        if alignment > LARGEST || (self.ranks > 1 && !self.heap_bytes.is_multiple_of(alignment.max(1))) {
            return Err(Error::Full { bytes, heap: self.heap_bytes });
        }
        let mut heap = locked(&self.heap);
        let taken = heap.as_mut().and_then(|heap| heap.take(bytes, alignment));
        self.rises(taken, bytes);
        drop(heap);
        let address = taken.map(|offset| self.own_heap + offset).ok_or(Error::Full { bytes, heap: self.heap_bytes })?;
        crate::memory::take_in(address, bytes);
        Ok(address)
    }

    /// An object lies there now.
    fn rises(&self, offset: Option<usize>, bytes: usize) {
        if let (Some(offset), false) = (offset, self.careful) {
            self.top.fetch_max(offset + bytes, Relaxed);
        }
    }

    /// Gives back what [`World::take`] gave; false if nothing begins there. No barrier.
    pub fn give(&self, address: usize) -> bool {
        let offset = address.wrapping_sub(self.own_heap);
        locked(&self.heap).as_mut().is_some_and(|heap| heap.give(offset))
    }

    /// As [`crate::heap::Heap::exchange`], by addresses. The bytes stay where they are.
    pub fn exchange(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.own_heap);
        let taken = locked(&self.heap).as_mut()?.exchange(offset, bytes);
        self.rises(taken, bytes);
        let address = self.own_heap + taken?;
        crate::memory::take_in(address, bytes);
        Some(address)
    }

    /// The size that was asked for, of the object that begins there.
    pub fn size_of(&self, address: usize) -> Option<usize> {
        locked(&self.heap).as_ref().and_then(|heap| heap.size(address.wrapping_sub(self.own_heap)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, size) in
            [("4096", Some(4096)), ("64M", Some(64 << 20)), ("1.5k", Some(1536)), ("2g", Some(2 << 30)), ("0x1000", Some(4096))]
        {
            assert_eq!(bytes(text), size, "{text}");
        }
        for text in ["", "M", "many", "-1", "1e30G"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
