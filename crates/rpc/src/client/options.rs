//! How a caller binds and calls.

use crate::onc::Claim;
use std::time::Duration;

/// How a caller binds and calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to look for the server, whose start may come later. 5 seconds at first.
    pub patience: Duration,
    /// Bytes of the window; 0, as at first: 64 MiB on one host, where pages that are never used cost nothing, and 4 MiB between hosts, where
    /// servers count them. Long arguments and results lie there, and memory by reference: what finds no room is refused (`TooLong`, `Busy`).
    pub window: usize,
    /// Bytes that are set aside for results longer than a message, where the definition has no bound, or one that the window has no room
    /// for. 1 MiB at first.
    pub room: usize,
    /// How long a call may take; `None`, as at first: until the server ends.
    pub deadline: Option<Duration>,
    /// How long a waiting call looks before it sleeps. 50 microseconds at first.
    pub spin: Duration,
    /// The user that the server must run as; `None`: this one, or root. Of no meaning between hosts.
    pub server_user: Option<u32>,
    /// What a server by SunRPC is told of the caller: AUTH_SYS, a claim. `None`, as at first: nothing, AUTH_NONE.
    pub claim: Option<Claim>,
    /// Bytes of an answer by SunRPC at most. 32 MiB at first.
    pub record: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            window: 0,
            room: 1 << 20,
            deadline: None,
            spin: Duration::from_micros(50),
            server_user: None,
            claim: None,
            record: 32 << 20,
        }
    }
}

impl Options {
    /// Bytes of the window of a binding.
    pub(crate) fn window_of(&self, on_one_host: bool) -> usize {
        match (self.window, on_one_host) {
            (0, true) => 64 << 20,
            (0, false) => 4 << 20,
            (window, _) => window,
        }
    }
}
