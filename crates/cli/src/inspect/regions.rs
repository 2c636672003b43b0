//! What a process tells of its regions: how often each limit made it copy.
use std::mem::offset_of;

use shunt_region::told::{Told, COUNTS, MAGIC, NAME};
use shunt_region::Limit;

use super::processes::{self, Descriptor, Target};
use super::words::Words;

/// The counts of process `pid`, found among its `descriptors`: those that are not zero. A child has its parent's open, too.
pub fn counters(pid: u32, descriptors: &[Descriptor]) -> Vec<(&'static str, u64)> {
    let own_number = processes::own_number(pid);
    let ours = descriptors.iter().filter(|descriptor| descriptor.target == Target::Memory(NAME.to_owned()));
    let words = ours.filter_map(|descriptor| Words::copy(&processes::open(pid, descriptor.number).ok()?, size_of::<Told>()).ok());
    words.filter_map(|words| counts(&words, own_number)).flatten().collect()
}

fn counts(words: &Words, pid: u32) -> Option<Vec<(&'static str, u64)>> {
    let ours = words.word64(offset_of!(Told, magic)) == MAGIC
        && words.word32(offset_of!(Told, pid)) == pid
        && words.word32(offset_of!(Told, limits)) as usize == Limit::ALL.len();
    let count = |limit: &Limit| words.word64(offset_of!(Told, counts) + *limit as usize % COUNTS * 8);
    ours.then(|| Limit::ALL.iter().map(|limit| (limit.word(), count(limit))).filter(|(_, count)| *count != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_of() {
        let pid = std::process::id();
        assert!(counters(pid, &processes::descriptors(pid).unwrap()).is_empty());
        shunt_region::told::note(Limit::Quota);
        let descriptors = processes::descriptors(pid).unwrap();
        assert_eq!(counters(pid, &descriptors), [("region-quota", 1)]);
        let found = descriptors.iter().find(|descriptor| descriptor.target == Target::Memory(NAME.to_owned())).unwrap();
        let words = Words::copy(&processes::open(pid, found.number).unwrap(), size_of::<Told>()).unwrap();
        assert_eq!(counts(&words, pid + 1), None, "a parent's are not its child's");
    }
}
