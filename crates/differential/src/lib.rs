//! The differential laboratory: the same program on the kernel and on shunt must print the same.
//!
//! A *scenario* (`scenarios/*.c`) is one function over the libc API that writes into its transcript everything an application can
//! observe: return values, errno, bytes, addresses, poll masks, the order of events, signals. The laboratory runs it on the
//! kernel and in each [`Arrangement`] with shunt, every time in a network namespace of its own and with a deadline, and requires
//! equal transcripts. What may differ is listed in `deviations.toml` line by line, with the reason; everything else fails. The
//! outcome of all scenarios is the published matrix, `target/semantics-matrix.md`.
//!
//! This crate knows nothing about how shunt works: it runs `shunt run -- PROGRAM`, and asks only whether a connection's
//! descriptor was the kernel's TCP socket, because an equal transcript of a connection that was never accelerated proves nothing.
//!
//! To add a scenario, write a function into a file of its family:
//!
//! ```c
//! DUET(half_close, "after shutdown(SHUT_WR) the other direction still works")
//! {
//!     int fd = connected();
//!     R(shutdown(fd, SHUT_WR));
//!     far("recv 1 10; send 1 100 7");
//!     say_received("after half-close", fd, 100, 7);
//! }
//! ```
//!
//! name it in `rows.toml` beside what it shows, and prove that the kernel does the same every time, and shunt the same as the
//! kernel:
//!
//! ```text
//! cargo run --release -p shunt-differential -- stability half_close
//! cargo run --release -p shunt-differential -- compare closing.c      # a file, a family, names or beginnings of names
//! ```

pub mod across;
pub mod arrangement;
pub mod catalogue;
pub mod compare;
pub mod deviations;
pub mod judge;
pub mod matrix;
pub mod namespace;
pub mod page;
pub mod programs;
pub mod random;
pub mod rows;
pub mod site;
pub mod told;
pub mod trial;

pub use arrangement::{Arrangement, Role};
pub use catalogue::Scenario;
