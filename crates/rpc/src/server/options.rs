//! How a server serves.

use std::time::Duration;

/// How a server serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads; each has a service of its own. 1 at first.
    pub threads: usize,
    /// Callers at most. 1,024 at first.
    pub callers: usize,
    /// Users that may call; empty, as at first: this one, and root. Of no meaning between hosts, where each client that reaches the
    /// port may.
    pub users: Vec<u32>,
    /// Any user of this host may call.
    pub everyone: bool,
    /// How long a thread looks for calls before it sleeps. 50 microseconds at first.
    pub spin: Duration,
    /// The largest window that a caller may have. 64 MiB at first.
    pub window: u64,
    /// Bytes that all callers together make this process keep: windows of callers on other hosts; by SunRPC, calls that have not come whole
    /// and answers that are not taken, but for 64 KiB of each connection. A caller whose window is too much is refused as `Busy`; a call by
    /// SunRPC that is, with SYSTEM_ERR, and its connection ends. 1 GiB at first.
    pub memory: u64,
    /// Bytes of a call or an answer by SunRPC at most. 32 MiB at first.
    pub record: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            callers: 1024,
            users: vec![],
            everyone: false,
            spin: Duration::from_micros(50),
            window: 64 << 20,
            memory: 1 << 30,
            record: 32 << 20,
        }
    }
}
