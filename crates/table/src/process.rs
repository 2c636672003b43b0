//! What this process is, and what it may accelerate.

pub mod filtered;
pub mod helper;
pub mod identity;
pub mod kernel_only;
pub mod split_fd_tables;
pub mod status_page;
pub mod uring;
pub mod user;
pub mod users;

use identity::Identity;
use kernel_only::KernelOnly;
use uring::Rings;

/// All that it knows of itself.
struct Process {
    identity: Identity,
    kernel_only: KernelOnly,
    rings: Rings,
}

static PROCESS: Process = Process { identity: Identity::new(), kernel_only: KernelOnly::new(), rings: Rings::new() };
