//! epoll sets that hold accelerated sockets.
//!
//! The set is a real epoll descriptor. Foreign descriptors go into it as the program says. A stream's companion goes in
//! edge-triggered, under a tag of ours: a doorbell is an edge. What a stream is ready for is then computed in memory.
//!
//! Each set has two queues of entries that may be ready without a doorbell: *watched* ones, and those found *ready*.
//! [`wait()`] looks at them, spins over them while that pays, and before sleeping arms them all: from then on a stream that
//! does nothing costs nothing, and the kernel says which one rang. So cost grows with active sockets, not with registered
//! ones.

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
pub use arming::arm_sleeping;
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
