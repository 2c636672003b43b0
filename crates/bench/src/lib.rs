//! The measuring instrument behind `shunt bench`.
//!
//! It asks the same question of every **contender** (kernel TCP blocking, kernel TCP spinning, shunt)
//! and of the **floor** beneath them (a bare cache line, a bare byte ring, a bare AF_UNIX socket), in
//! turns, several times over, and reports medians. A contender is nothing but a prefix to a command
//! line (`shunt run --`, or nothing): programs, arguments and pinning are the same for all.
//!
//! A **cell** is one question: [`instrument::Cell`]. To add one, implement the trait in a file of
//! `cells/` and enter it in `cells::all`; interleaving, floors, break-downs, table, JSON and plot come
//! with it.
//!
//! This layer knows nothing of how shunt works. It looks inside once: whether a process maps a link
//! segment, so that a contender that quietly fell back to the kernel is not praised for it.
//!
//! ```no_run
//! // What the command does with the words after `shunt bench`.
//! let code = shunt_bench::run_from(["cell", "pingpong", "--repeat", "3"].map(Into::into));
//! # let _ = code;
//! ```
//!
//! A command line built with clap can take the parsed form instead: [`Bench`] is a
//! `clap::Parser`, and `Bench::run` does it.

mod cells;
mod command;
pub mod contenders;
mod curves;
mod drawing;
mod genie;
mod heat;
mod hosts;
pub mod instrument;
pub mod machine;
pub mod measurement;
pub mod network;
mod output;
mod papers;
mod pgas;
mod plot;
mod process;
mod programs;
pub mod progress;
pub mod report;
pub mod statistics;
mod sunrpc;
mod supervisor;
mod vrpc;

pub use command::{run_from, Action, Bench, Options};
