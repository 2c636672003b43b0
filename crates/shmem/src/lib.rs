//! OpenSHMEM 1.5 for C and C++: `libshunt_shmem`, `include/shmem.h`.
//!
//! This crate owns the names and types of the standard. `table.rs` lists the functions; `build.rs` makes the symbols of it, each as
//! `shmem_` and `pshmem_`; what they do is in the modules here, a few lines over `shunt-pgas`, which owns memory, waiting and barriers. It
//! knows neither layout nor kernel.
//!
//! The caller's side of each function is what the standard says of it. What goes wrong ends the job with a sentence that names the
//! function, the rank and the offset, since C programs do not ask.
#![doc = include_str!("../README.md")]
#![allow(clippy::missing_safety_doc)] // the standard's text is each function's

mod atomics;
mod collectives;
mod contexts;
mod long_double;
mod memory;
mod numbers;
mod setup;
mod signals;
mod teams;
mod transfers;
mod waits;

/// The symbols.
#[allow(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks, clippy::unit_arg, non_snake_case)]
#[allow(clippy::let_unit_value, clippy::not_unsafe_ptr_arg_deref, clippy::too_many_arguments, unused_unsafe)]
pub mod functions {
    use crate::contexts::{Ctx, DEFAULT};
    use crate::long_double::{long_double_ctx_g, long_double_ctx_p, long_double_g, long_double_p, LongDouble};
    use crate::numbers::{Complex, Number};
    use crate::teams::{Team, TeamConfig};
    use crate::{atomics, collectives, contexts, memory, setup, signals, teams, transfers, waits};
    use shunt_pgas::atomic::Word;
    use shunt_pgas::World;
    use std::ffi::{c_int, c_void};

    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}
