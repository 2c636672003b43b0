//! What a program set on one socket.
//!
//! Threads that set options of one socket at the same time can mix up their values, which are all of this process.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_sys::libc::c_int;

/// Different options of one socket; more than any program sets.
const MOST: usize = 64;
/// Longest option that is kept.
pub const LONGEST: usize = 16;

const WORDS: usize = LONGEST / 8;

/// An option, and what it was set to.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Of setsockopt(2).
    pub level: c_int,
    /// Of setsockopt(2).
    pub name: c_int,
    /// Bytes of `data` that count.
    pub length: u8,
    /// The value.
    pub data: [u8; LONGEST],
}

impl Entry {
    /// The value.
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.length as usize]
    }
}

/// An [`Entry`] in memory that threads share.
struct Place {
    level: AtomicU32,
    name: AtomicU32,
    length: AtomicU32,
    data: [AtomicU64; WORDS],
}

impl Place {
    fn is(&self, level: c_int, name: c_int) -> bool {
        self.name.load(Ordering::Relaxed) == name as u32 && self.level.load(Ordering::Relaxed) == level as u32
    }

    fn load(&self) -> Entry {
        let mut data = [0; LONGEST];
        for (bytes, word) in data.chunks_exact_mut(8).zip(&self.data) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Entry {
            level: self.level.load(Ordering::Relaxed) as c_int,
            name: self.name.load(Ordering::Relaxed) as c_int,
            length: self.length.load(Ordering::Relaxed).min(LONGEST as u32) as u8,
            data,
        }
    }

    fn store(&self, entry: &Entry) {
        for (bytes, word) in entry.data.chunks_exact(8).zip(&self.data) {
            word.store(bytes.try_into().map_or(0, u64::from_ne_bytes), Ordering::Relaxed);
        }
        self.level.store(entry.level as u32, Ordering::Relaxed);
        self.name.store(entry.name as u32, Ordering::Relaxed);
        self.length.store(entry.length as u32, Ordering::Relaxed);
    }
}

/// Options that a program set on a socket, in the order of setting. All zero: none.
pub struct Stored {
    count: AtomicU32,
    places: [Place; MOST],
}

impl Stored {
    fn places(&self) -> &[Place] {
        &self.places[..(self.count.load(Ordering::Acquire) as usize).min(MOST)]
    }

    /// Forgets them all. What is not looked at is not touched: most sockets have few.
    pub fn clear(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Whether the program set none.
    pub fn is_empty(&self) -> bool {
        self.places().is_empty()
    }

    /// In the order of setting.
    pub fn all(&self) -> impl Iterator<Item = Entry> + '_ {
        self.places().iter().map(Place::load)
    }

    /// Becomes the same as `other`.
    pub fn follow(&self, other: &Stored) {
        let others = other.places();
        for (place, other) in self.places.iter().zip(others) {
            place.store(&other.load());
        }
        self.count.store(others.len() as u32, Ordering::Release);
    }

    /// Forgets all options but those of which `keep` is true.
    pub fn retain(&self, keep: impl Fn(c_int, c_int) -> bool) {
        let mut kept = 0;
        for place in self.places() {
            let entry = place.load();
            if keep(entry.level, entry.name) {
                self.places[kept].store(&entry);
                kept += 1;
            }
        }
        self.count.store(kept as u32, Ordering::Release);
    }

    /// The value of this option, if the program set it.
    pub fn find(&self, level: c_int, name: c_int) -> Option<Entry> {
        self.places().iter().find(|place| place.is(level, name)).map(Place::load)
    }

    /// The program has set this option.
    pub fn store(&self, level: c_int, name: c_int, bytes: &[u8]) {
        let length = bytes.len().min(LONGEST);
        let mut entry = Entry { level, name, length: length as u8, data: [0; LONGEST] };
        entry.data[..length].copy_from_slice(&bytes[..length]);
        let known = self.places();
        if let Some(place) = known.iter().find(|place| place.is(level, name)) {
            place.store(&entry);
        } else if let Some(place) = self.places.get(known.len()) {
            place.store(&entry);
            self.count.store(known.len() as u32 + 1, Ordering::Release);
        }
    }
}
