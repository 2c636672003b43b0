//! A global address space for the processes of one job.
//!
//! This crate owns a job's memory and who lies where in it ([`layout`]), the check of every address ([`World::remote`]), the waiting
//! ([`wait`]), barriers and collectives of groups, locks, the program's static data, and the launcher's side ([`launch`]). It refuses to know
//! the names of OpenSHMEM, which are `shunt-shmem`'s. Ranks of other hosts are reached by [`remote`].
//!
//! ```
//! // A job of one, as every program is without a launcher.
//! let world = shunt_pgas::World::join().unwrap();
//! let counts = world.alloc::<u64>(4).unwrap();
//! counts.at(world.me(), 3).fetch_add(world, 5).unwrap();
//! assert_eq!(counts.at(world.me(), 3).get(world), Ok(5));
//! assert!(counts.at(1, 0).get(world).is_err());
//! world.finalize().unwrap();
//! ```
#![doc = include_str!("../README.md")]
// The model checker takes `arrival` and `doze` by themselves (`tests/loom_waits.rs`).
#![cfg(not(loom))]

mod arrival;
pub mod atomic;
pub mod collective;
mod doze;
mod error;
mod far;
mod global;
mod group;
pub mod heap;
mod image;
pub mod launch;
pub mod layout;
pub mod lock;
mod memory;
pub mod pmix;
pub mod remote;
pub mod trace;
pub mod view;
pub mod wait;
mod world;

/// What [`arrival`] and [`doze`] are made of; their models in `tests` take the checker's instead.
mod atomics {
    pub use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
}

pub use error::{Ended, Error, Result};
pub use far::Operation;
pub use global::{Global, Got, Guard, Lock, Plain, Scope, Signal, Spread, Symmetric, Team};
pub use group::Group;
pub use world::{bytes, heap_from_environment, World, CHECK, HEAP, VARIABLE};
