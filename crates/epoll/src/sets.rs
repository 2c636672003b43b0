//! What a set is, and each of its calls; its files know each other.

mod all_in_kernel;
mod arming;
mod change;
mod control;
mod datagrams;
mod entry;
mod events;
mod fast_path;
mod fork;
mod frames;
mod kernel;
mod list;
mod local_event;
mod nested;
mod order;
mod scan;
mod set;
mod wait;

pub use all_in_kernel::{is_all_in_kernel, look_in_kernel, spin_in_kernel, wait_in_kernel};
pub use arming::arm_all;
pub use change::{moved, DATAGRAMS, SOCKETS};
pub use control::{added, control, foreign};
pub use datagrams::before_exec;
pub use entry::Entry;
pub use fast_path::wait as wait_swiftly;
pub use fork::{any_unshared, before_fork, forked, share};
pub use local_event::hears_by_itself;
pub use nested::{in_memory, readable, rest_if_noisy};
pub use set::{created, end, release, retain, Set};
pub use wait::wait;

use shunt_sys::libc;

/// Ticks between questions to the kernel while the members of a set, all of them ours, keep it busy.
pub const KERNEL_EVERY: u64 = 60_000;
/// Calls that wait for less than this, in ns, read the clock before they look.
pub const BRIEF: u64 = 1_000_000;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
/// Events that space can be (`tcp_poll`).
const SPACE: u32 = OUT | libc::EPOLLWRNORM as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
/// Bits of an event mask that are not events.
const MODES: u32 = ET | ONESHOT | EXCLUSIVE | libc::EPOLLWAKEUP as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// Upper half-word of our tags in the kernel's event data: not a canonical address, not a small number.
const TAG: u64 = 0x9d3f << 48;
const TAG_MASK: u64 = 0xffff << 48;
