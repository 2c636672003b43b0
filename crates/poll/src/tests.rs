//! poll, select and epoll as a program sees them, over streams between threads of one process, held against the kernel's own.

mod asleep;
mod edges;
mod errors;
mod faults;
mod frames;
mod levels;
mod model;
mod polling;
mod selecting;
mod sets_inside;
mod signals;
mod waits;
mod world;

use crate::poll::deadline;
use asleep::while_asleep;
use signals::{send_to_self, with_pending_signal};
use world::{in_both, start, World, AT_ONCE, FOR_EVER};

const IN: i32 = shunt_sys::libc::EPOLLIN;
const OUT: i32 = shunt_sys::libc::EPOLLOUT;
const RDHUP: i32 = shunt_sys::libc::EPOLLRDHUP;
const HUP: i32 = shunt_sys::libc::EPOLLHUP;
const ERR: i32 = shunt_sys::libc::EPOLLERR;
const PRI: i32 = shunt_sys::libc::EPOLLPRI;
const ET: i32 = shunt_sys::libc::EPOLLET;
const ONESHOT: i32 = shunt_sys::libc::EPOLLONESHOT;
const EXCLUSIVE: i32 = shunt_sys::libc::EPOLLEXCLUSIVE;
