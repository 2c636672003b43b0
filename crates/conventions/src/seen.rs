//! Objects that were looked at, and whether there may be others.

/// As many objects are remembered as looked at; of a program that has more the rest is looked at each time.
const SEEN: usize = 512;

/// Objects that were looked at.
pub struct Seen {
    /// How many objects were loaded, and unloaded, so far.
    changes: (u64, u64),
    marks: [u64; SEEN],
    count: usize,
}

impl Seen {
    /// None.
    pub const fn new() -> Seen {
        Seen { changes: (0, 0), marks: [0; SEEN], count: 0 }
    }

    /// Whether all that there are were looked at, where the loader counts these changes (0 and 0: it does not count).
    pub fn are_all(&self, changes: (u64, u64)) -> bool {
        changes == self.changes && self.count < SEEN && changes != (0, 0)
    }

    /// A look begins. What was unloaded may have been followed by another at its place.
    pub fn begin(&mut self, changes: (u64, u64)) {
        if changes.1 != self.changes.1 {
            self.forget();
        }
        self.changes = changes;
    }

    /// All are to be looked at again.
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// Whether the object of this mark is new.
    pub fn enter(&mut self, mark: u64) -> bool {
        if self.marks[..self.count].contains(&mark) {
            return false;
        }
        if let Some(place) = self.marks.get_mut(self.count) {
            *place = mark;
            self.count += 1;
        }
        true
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen::new()
    }
}

#[cfg(test)]
#[path = "tests/seen.rs"]
mod tests;
