//! What the program set on one end of a connection: options that belong to the open file, and so to all of its owners.
//!
//! Forked children and programs after an exec share the page, as they share the open file on Linux. Only the owners of the
//! side write; a peer that scribbles here changes what the owners think they have set, on this connection.
//!
//! ```text
//! word   0..7 level   8..15 name   16..23 length   32..63 the value, if it has at most four bytes
//!        otherwise the value follows, eight bytes in a word
//! ```

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Words for options: twenty of the usual four bytes and a longer one.
pub const WORDS: usize = 23;

/// Longest value that is kept, in bytes.
pub const LONGEST: usize = 16;

/// The options of one side.
#[repr(C, align(64))]
pub struct Settings {
    /// Counts changes; odd while a thread writes.
    pub version: AtomicU32,
    /// Words in use.
    pub count: AtomicU32,
    /// The options, one after the other.
    pub words: [AtomicU64; WORDS],
}

/// One option as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Level, as for setsockopt(2).
    pub level: i32,
    /// Name, as for setsockopt(2).
    pub name: i32,
    /// Bytes of `data` that count.
    pub length: usize,
    /// The value.
    pub data: [u8; LONGEST],
}

/// A copy of one side's options that does not change.
pub struct Copied {
    words: [u64; WORDS],
    count: usize,
}

impl Settings {
    /// Makes it as fresh memory is: no options.
    pub fn clear(&self) {
        self.version.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// Replaces all options by `list`; what has no room is left out. Gives the new version. The caller keeps other writers away.
    pub fn publish(&self, list: impl Iterator<Item = Setting>) -> u32 {
        let next = (self.version.load(Ordering::Relaxed) | 1).wrapping_add(1);
        self.version.store(next.wrapping_sub(1), Ordering::Relaxed);
        crate::sync::fence(Ordering::Release); // pairs with the one in `copy`
        let mut at = 0;
        for setting in list {
            let length = setting.length.min(LONGEST);
            let more = if length > 4 { length.div_ceil(8) } else { 0 };
            let fits = [setting.level, setting.name].iter().all(|number| (0..256).contains(number));
            if !fits || at + 1 + more > WORDS {
                continue;
            }
            let eight = |place: usize| core::array::from_fn(|byte| setting.data[place * 8 + byte]);
            let short = if more == 0 { u64::from_le_bytes(eight(0)) << 32 } else { 0 };
            let head = setting.level as u64 | (setting.name as u64) << 8 | (length as u64) << 16 | short;
            self.words[at].store(head, Ordering::Relaxed);
            for place in 0..more {
                self.words[at + 1 + place].store(u64::from_le_bytes(eight(place)), Ordering::Relaxed);
            }
            at += 1 + more;
        }
        self.count.store(at as u32, Ordering::Relaxed);
        self.version.store(next, Ordering::Release);
        next
    }

    /// The options and their version; `None` while a thread changes them.
    pub fn copy(&self) -> Option<(u32, Copied)> {
        let version = self.version.load(Ordering::Acquire);
        let count = (self.count.load(Ordering::Relaxed) as usize).min(WORDS);
        let words = core::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        crate::sync::fence(Ordering::Acquire); // pairs with the one in `publish`
        let settled = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        settled.then_some((version, Copied { words, count }))
    }
}

impl Copied {
    /// The options, in the order of setting. Nonsense ends the list.
    pub fn iter(&self) -> impl Iterator<Item = Setting> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let head = *self.words[..self.count].get(at)?;
            let length = (head >> 16) as usize & 0xff;
            let more = if length > 4 { length.div_ceil(8) } else { 0 };
            let values = self.words[..self.count].get(at + 1..at + 1 + more)?;
            if length > LONGEST {
                return None;
            }
            let mut data = [0; LONGEST];
            if more == 0 {
                data[..4].copy_from_slice(&((head >> 32) as u32).to_le_bytes());
            }
            for (place, value) in values.iter().enumerate() {
                data[place * 8..place * 8 + 8].copy_from_slice(&value.to_le_bytes());
            }
            at += 1 + more;
            Some(Setting { level: head as i32 & 0xff, name: (head >> 8) as i32 & 0xff, length, data })
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn fresh() -> Settings {
        Settings { version: AtomicU32::new(0), count: AtomicU32::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn setting(name: i32, length: usize, first: u8) -> Setting {
        Setting { level: 1, name, length, data: core::array::from_fn(|k| if k < length { first + k as u8 } else { 0 }) }
    }

    #[test]
    fn values_of_all_lengths_come_back() {
        let settings = fresh();
        let list: Vec<Setting> = [0, 1, 4, 5, 8, 16].iter().map(|&length| setting(length as i32, length, 7)).collect();
        assert_eq!(settings.publish(list.iter().copied()), 2);
        let (version, copied) = settings.copy().expect("nobody writes");
        assert_eq!((version, copied.iter().collect::<Vec<_>>()), (2, list));
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let settings = fresh();
        settings.publish((0..40).map(|name| setting(name, 16, 1)));
        let names: Vec<i32> = settings.copy().expect("nobody writes").1.iter().map(|setting| setting.name).collect();
        assert_eq!(names, (0..7).collect::<Vec<_>>());
    }

    #[test]
    fn a_writer_is_noticed_and_nonsense_ends_the_list() {
        let settings = fresh();
        settings.version.store(3, Ordering::Relaxed);
        assert!(settings.copy().is_none());
        settings.version.store(4, Ordering::Relaxed);
        settings.count.store(u32::MAX, Ordering::Relaxed);
        for word in &settings.words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(settings.copy().expect("nobody writes").1.iter().count(), 0);
    }
}
