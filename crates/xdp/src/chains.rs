//! Lines by a hash of their connections' tuples: lists through an array, without allocation.

/// Zeros are lists of nothing.
pub struct Chains<const LINES: usize, const CHAINS: usize> {
    /// The first line of each list, and the one behind each line, plus one.
    first: [u16; CHAINS],
    next: [u16; LINES],
}

impl<const LINES: usize, const CHAINS: usize> Chains<LINES, CHAINS> {
    /// Those under this hash.
    pub fn of(&self, hash: usize) -> impl Iterator<Item = usize> + '_ {
        let line = |link: u16| usize::from(link).checked_sub(1);
        core::iter::successors(line(self.first[hash % CHAINS]), move |before| line(self.next[*before]))
    }

    /// A line that is in no list begins one.
    pub fn put(&mut self, hash: usize, line: usize) {
        self.next[line] = core::mem::replace(&mut self.first[hash % CHAINS], line as u16 + 1);
    }

    /// A line leaves the list of this hash, in which it is.
    pub fn remove(&mut self, hash: usize, line: usize) {
        let next = self.next[line];
        match self.of(hash).take_while(|before| *before != line).last() {
            Some(before) => self.next[before] = next,
            None => self.first[hash % CHAINS] = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_leave_lists_from_any_place() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut chains = Chains::<4, 2> { first: [0; 2], next: [0; 4] };
            (0..3).for_each(|line| chains.put(7, line));
            chains.put(2, 3);
            let mut left = vec![2, 1, 0];
            for line in order {
                assert_eq!(chains.of(7).collect::<Vec<_>>(), left);
                chains.remove(7, line);
                left.retain(|other| *other != line);
            }
            assert!(chains.of(7).next().is_none() && chains.of(2).eq([3]));
            chains.put(7, 1);
            assert!(chains.of(1).eq([1]));
        }
    }
}
