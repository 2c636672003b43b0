//! Looking at other processes from outside: what /proc, the kernel's socket tables and shunt's shared memory tell.
//!
//! Nothing here needs the inspected program to run: a stopped or hung one is read like any other. Nothing here maps
//! foreign memory either: segments are copied by pread(2), so a segment that shrinks or changes while it is read gives
//! odd numbers at worst.
pub mod connection;
pub mod diagnosis;
pub mod jobs;
pub mod kernel_tcp;
pub mod link;
pub mod process_state;
pub mod processes;
pub mod regions;
pub mod stations;
pub mod sunrpc;
pub mod words;
