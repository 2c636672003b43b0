//! Which addresses enter the kernel untold, by where the loaded objects lie.

use core::ops::Range;

/// Where executable parts of the loaded objects lie.
pub struct Places {
    program: Range<usize>,
    libc: Range<usize>,
    own: Range<usize>,
    loader: Range<usize>,
    /// The kernel's own object (vdso(7)).
    kernel: Range<usize>,
    /// One of them is Go's, whose stacks have no room for a signal's frame.
    go: bool,
    /// Addresses of which one lies in each: C library, this one, loader, kernel.
    marks: [usize; 4],
}

/// Where nothing lies.
pub const NONE: Range<usize> = 0..0;

/// The smallest range around both.
pub fn around(left: &Range<usize>, right: &Range<usize>) -> Range<usize> {
    match (left.is_empty(), right.is_empty()) {
        (true, _) => right.clone(),
        (_, true) => left.clone(),
        _ => left.start.min(right.start)..left.end.max(right.end),
    }
}

/// Whether they have an address in common.
pub fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

impl Places {
    /// Of no object yet. An address in each of C library, this library, loader and the kernel's object tells which is which.
    pub fn new(marks: [usize; 4]) -> Places {
        Places { program: NONE, libc: NONE, own: NONE, loader: NONE, kernel: NONE, go: false, marks }
    }

    /// Enters one object, whose text is a part of the whole. The program itself comes first.
    pub fn add(&mut self, whole: &Range<usize>, text: &Range<usize>, is_go: bool) {
        self.go |= is_go;
        if self.program.is_empty() {
            self.program = text.clone();
            return;
        }
        let places = [&mut self.libc, &mut self.own, &mut self.loader, &mut self.kernel];
        for (place, mark) in places.into_iter().zip(self.marks) {
            if whole.contains(&mark) {
                *place = text.clone();
            }
        }
    }

    /// Whether an object that lies so is one of those that enter the kernel for all others.
    pub fn is_known(&self, text: &Range<usize>) -> bool {
        [&self.libc, &self.own, &self.loader, &self.kernel].into_iter().any(|known| overlap(known, text))
    }

    /// The one range of addresses that enter the kernel untold. `None`: the program lies in it, or must not be told of.
    ///
    /// Libraries that lie between, and they often do, enter kernel_only as well.
    pub fn range(&self) -> Option<Range<usize>> {
        let least = around(&self.libc, &self.own);
        if self.go || self.libc.is_empty() || self.own.is_empty() || overlap(&least, &self.program) {
            return None;
        }
        // What lies on the program's other side is told of, which costs a signal for each call.
        Some([&self.loader, &self.kernel].into_iter().fold(least, |range, further| {
            let wider = around(&range, further);
            if overlap(&wider, &self.program) {
                range
            } else {
                wider
            }
        }))
    }
}

#[cfg(test)]
#[path = "tests/places.rs"]
mod tests;
