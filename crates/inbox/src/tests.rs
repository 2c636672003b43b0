//! Sockets with an inbox as a program sees them, between threads of one process, held against the kernel's own.

mod datagrams;
mod faults;
mod filters;
mod gates;
mod hostile;
mod limits;
mod locals;
mod messages;
mod names;
mod order;
mod world;

use shunt_sys::Errno;
use world::{alone_in_both, in_both, plain, Room, World};
