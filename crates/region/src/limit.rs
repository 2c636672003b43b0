//! Why a region is not passed, or not made: every limit has a name, and the caller copies instead.

use crate::reference::Violation;
use shunt_sys::{libc, Errno};

macro_rules! limits {
    ($($name:ident = $word:literal, $text:literal;)*) => {
        /// What is missing.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Limit { $(#[doc = $text] $name),* }

        impl Limit {
            /// All of them, in the order of their codes.
            pub const ALL: &'static [Limit] = &[$(Limit::$name),*];

            /// Its short name, as tools and counters print it.
            pub fn word(self) -> &'static str {
                match self { $(Limit::$name => $word),* }
            }

            /// It as a sentence.
            pub fn text(self) -> &'static str {
                match self { $(Limit::$name => $text),* }
            }
        }
    };
}

limits! {
    PoolFull = "region-pool-full", "No run of free units in the pool: regions are in use, or still being read.";
    Quota = "region-quota", "The peer holds as many bytes of regions as it may.";
    Loans = "region-loans", "The peer holds as many regions as one account counts.";
    References = "region-references", "More outputs of one region than are counted.";
    State = "region-state", "The region is not in a state in which this can be done.";
    Stale = "region-stale", "The region was given back, and its memory is another region's.";
    Outside = "region-outside", "The bytes do not lie in a region of the pool.";
    OtherPeer = "region-other-peer", "The pool is lent to another peer, which sees all of it.";
    Forked = "region-forked", "Regions belong to the process that made their pool, not to its children.";
    Memory = "region-memory", "No memory, address space or file size for a pool, or too little of a memory cgroup's.";
    Descriptors = "region-descriptors", "No descriptor for a pool.";
    Locked = "region-locked", "No more memory can be locked (RLIMIT_MEMLOCK).";
    Mappings = "region-mappings", "The process has too many mappings to protect parts of a pool (vm.max_map_count).";
    Protection = "region-protection", "The kernel refused to change a protection.";
    NoHugePages = "region-no-huge-pages", "No huge pages for shared memory: no user namespaces, or a kernel without them.";
    Untrusted = "region-untrusted", "The peer is not one that could change this process anyway; it gets a copy.";
    Unsealed = "region-unsealed", "The peer's pool can shrink under its reader, or is not memory.";
    Shape = "region-shape", "The peer's pool has not the shape that it says.";
    Violation = "region-violation", "The peer sent a reference, or a ticket, that no honest peer sends.";
    Redirected = "region-redirected", "Parts of the region were written while an earlier output of it is being read.";
    Faulting = "region-faulting", "Another thread was changing the region's protection.";
    SignalBlocked = "region-signal-blocked", "A thread of the process has SIGSEGV blocked, or that cannot be seen: a write to a protected page would end the process.";
    FaultHandler = "region-fault-handler", "SIGSEGV cannot be handled: other handlers were installed over this library's too often.";
    Pools = "region-pools", "More pools than a process can have.";
    Rewritten = "region-rewritten", "The buffer was written while an earlier output was under way; it is copied for a while.";
    Short = "region-short", "Copying so few bytes costs less.";
    Unaligned = "region-unaligned", "The buffer is not aligned to the pages that came.";
    Pulling = "region-pulling", "As many messages are being pulled as can be at a time.";
    Private = "region-private", "The buffer does not lie in a region.";
    Apart = "region-apart", "The processes share no memory: another host, another network namespace, or a program that asked for copies.";
    Refused = "region-refused", "The process may not make memory that can be shared: a filter of system calls, or a kernel without memfd_create.";
    WrongPort = "region-wrong-port", "The message came by another port, which gives it back.";
    PoolShape = "region-pool-shape", "No pool is so large, or has such units: it is 1 to 65,536 units, each a power of two from 4 KiB to 2 MiB, and 64 GiB at most.";
    TooLarge = "region-too-large", "The region would be larger than its pool.";
    TooLong = "region-too-long", "The message is longer than what is copied for a program that asks for a reference: 64 MiB, unless its port says otherwise.";
    Read = "region-read", "The region is moved while an earlier output of it is being read, and its receiver may write there.";
}

impl Limit {
    /// What a failed system call for memory or a descriptor means.
    pub fn of(error: Errno) -> Limit {
        match error.0 {
            libc::EMFILE | libc::ENFILE | libc::ETOOMANYREFS => Limit::Descriptors,
            libc::EPERM | libc::EACCES | libc::ENOSYS => Limit::Refused,
            _ => Limit::Memory,
        }
    }
}

impl From<Violation> for Limit {
    fn from(_: Violation) -> Limit {
        Limit::Violation
    }
}

impl core::fmt::Display for Limit {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str(self.text())
    }
}

impl core::error::Error for Limit {}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn each_has_a_name_of_its_own_and_a_sentence() {
        for (number, limit) in Limit::ALL.iter().enumerate() {
            assert!(limit.text().ends_with('.') && limit.word().starts_with("region-"));
            assert!(Limit::ALL[..number].iter().all(|other| other.word() != limit.word()));
        }
    }
}
