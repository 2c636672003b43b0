//! Typed callers and servers for `shunt-rpc` from rpcgen's `.x` files.
//!
//! In a `build.rs`:
//!
//! ```no_run
//! shunt_rpcgen::build("log.x");
//! ```
//!
//! and in the program `include!(concat!(env!("OUT_DIR"), "/log.rs"));`, in a module of its own. By hand:
//! `shunt-rpcgen log.x --output log.rs`.
//!
#![doc = include_str!("../README.md")]

mod c;
mod check;
pub mod command;
pub mod model;
mod names;
mod parse;
mod rust;
#[cfg(feature = "json")]
pub mod values;
mod write;

pub use c::{generate as c, C};
pub use check::breaks;
pub use parse::{parse, Error};
pub use rust::{definition, generate as rust};
pub use write::write;

use std::path::Path;

/// Makes `OUT_DIR/NAME.rs` of `NAME.x`, for a build script.
///
/// # Panics
/// With the file's name, line and column, where something is wrong.
pub fn build(path: impl AsRef<Path>) {
    let path = path.as_ref();
    println!("cargo::rerun-if-changed={}", path.display());
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = parse(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
    let text = rust(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let directory = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let name = path.file_stem().expect("a file's name");
    let target = Path::new(&directory).join(name).with_extension("rs");
    std::fs::write(&target, text).unwrap_or_else(|error| panic!("{}: {error}", target.display()));
}
