//! What an agent is told when it starts.

use std::path::PathBuf;

use shunt_xdp::socket::Mode;

use crate::ebpf::kernel::Attachment;

/// How an agent shall work.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The interface, and the only one that is touched.
    pub interface: String,
    /// The UDP port of its endpoints.
    pub port: u16,
    /// The queues that are lent to endpoints; the others are the agent's. `None`: all but the first, where there are more; with `take` the first.
    pub lend: Option<Vec<u32>>,
    /// Users (besides root) that may have a queue: they can send whatever frames they like.
    pub trusted: Vec<u32>,
    /// How the program is attached, if not whichever way works.
    pub attachment: Option<Attachment>,
    /// What copies, if not whichever way works.
    pub mode: Option<Mode>,
    /// What one user may have at a time.
    pub limits: Limits,
    /// Slots of the rings of each of the agent's own queues: a power of two.
    pub depth: u32,
    /// Microseconds that the agent looks for work after the last it found, before it sleeps.
    pub spin: u32,
    /// Whether established connections are taken from the kernel for processes that have a queue and ask for it.
    pub take: bool,
    /// The file to which every frame of the queues is written, if one is; `-`: standard output.
    pub capture: Option<PathBuf>,
    /// Bytes of each frame there.
    pub capture_length: u32,
    /// Also where rules of netfilter count or limit what comes and leaves, of which they see nothing then.
    pub despite_rules: bool,
    /// Whether the engine recovers from losses on these by itself, or gives back.
    pub recovers: bool,
}

impl Configuration {
    /// What holds unless something else is said.
    pub fn new(interface: &str) -> Configuration {
        Configuration {
            interface: interface.to_string(),
            port: shunt_xdp::protocol::PORT,
            lend: None,
            trusted: Vec::new(),
            attachment: None,
            mode: None,
            limits: Limits::default(),
            depth: 1024,
            spin: 50,
            take: false,
            capture: None,
            capture_length: 1 << 18,
            despite_rules: false,
            recovers: false,
        }
    }
}

/// What one user may have at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Endpoints.
    pub endpoints: u32,
    /// Bytes of their memory.
    pub bytes: u64,
    /// Tags.
    pub tags: u32,
}

impl Default for Limits {
    /// 16 endpoints, 64 MiB, 4096 tags: a user with all of it can still not starve the machine.
    fn default() -> Limits {
        Limits { endpoints: 16, bytes: 64 << 20, tags: 4096 }
    }
}
