//! Input alignment, and reverse copyout: section 5.2, figure 2.
//!
//! Pages of the system and of the application can be swapped where the data starts at the same offset in both. A page that is
//! full is swapped. One that is filled in part is copied out if it holds less than the threshold; else the rest of it is completed
//! with what the application has there, and it is swapped.

/// What an input module says of the buffers that it likes (section 5.2: the query).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alignment {
    /// A buffer starts at a multiple of this ...
    pub granularity: usize,
    /// ... plus this: headers that are not stripped lie in front.
    pub offset: usize,
    /// Messages of this many bytes fill pages.
    pub preferred: usize,
    /// Fewer bytes are copied, however they are aligned.
    pub copy_below: usize,
}

impl Alignment {
    /// Whether a buffer at `address` is aligned to the data that a module puts at its offset.
    pub fn suits(&self, address: usize) -> bool {
        address % self.granularity == self.offset % self.granularity
    }
}

/// What is done with one page, in order of addresses. Offsets are from the start of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Copy these bytes out.
    Copyout {
        /// From here.
        from: usize,
        /// So many.
        length: usize,
    },
    /// Swap the page.
    Swap {
        /// The data's offset of the page's first byte; negative where the page begins in front of the data.
        page: isize,
        /// Bytes in front of the data, to be completed from the application's page first.
        front: usize,
        /// Bytes behind the data, likewise.
        back: usize,
    },
}

/// The steps for `length` bytes that lie at `offset` in a page of the system, and are to be at `target` of the application, in pages
/// of `page` bytes. A threshold just above half a page copies least; `usize::MAX` never swaps a page that is not full.
pub fn steps(offset: usize, target: usize, length: usize, page: usize, threshold: usize) -> impl Iterator<Item = Step> {
    let aligned = offset % page == target % page;
    let offset = offset % page;
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= length {
            return None;
        }
        if !aligned {
            let from = core::mem::replace(&mut at, length);
            return Some(Step::Copyout { from, length });
        }
        let in_page = (offset + at) % page;
        let part = (page - in_page).min(length - at);
        let from = at;
        at += part;
        if part == page || part >= threshold {
            let back = page - in_page - part;
            Some(Step::Swap { page: from as isize - in_page as isize, front: in_page, back })
        } else {
            Some(Step::Copyout { from, length: part })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = 64;

    proptest! {
        /// The application's memory is as if all had been copied out, whatever is swapped.
        #[test]
        fn steps_have_the_effect_of_copyout(
            offset in 0usize..200, target in 0usize..200, length in 0usize..500, threshold in 1usize..80, alike: bool,
        ) {
            let target = if alike { target - target % PAGE + offset % PAGE } else { target };
            let mut application: Vec<u8> = (0..1024).map(|i| i as u8 | 128).collect();
            let mut system: Vec<u8> = vec![0x55; 1024];
            let start = offset % PAGE;
            for i in 0..length {
                system[start + i] = i as u8 & 127;
            }
            let mut expected = application.clone();
            expected[target..target + length].copy_from_slice(&system[start..start + length]);
            let mut copied = 0;
            for step in steps(offset, target, length, PAGE, threshold) {
                match step {
                    Step::Copyout { from, length } => {
                        application[target + from..][..length].copy_from_slice(&system[start + from..][..length]);
                        copied += length;
                    }
                    Step::Swap { page, front, back } => {
                        let (ours, theirs) = ((start as isize + page) as usize, (target as isize + page) as usize);
                        prop_assert!(ours % PAGE == 0 && theirs % PAGE == 0);
                        system[ours..ours + front].copy_from_slice(&application[theirs..theirs + front]);
                        let end = PAGE - back;
                        system[ours + end..ours + PAGE].copy_from_slice(&application[theirs + end..theirs + PAGE]);
                        system[ours..ours + PAGE].swap_with_slice(&mut application[theirs..theirs + PAGE]);
                        copied += front + back;
                    }
                }
            }
            prop_assert_eq!(application, expected);
            if alike && threshold == PAGE / 2 + 1 {
                prop_assert!(copied <= 2 * (PAGE / 2), "reverse copyout copies half a page at each end at most");
            }
        }
    }
}
