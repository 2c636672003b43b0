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
mod preprocess;
mod rust;
#[cfg(feature = "json")]
pub mod values;
mod write;

pub use c::{generate as c, C};
pub use check::breaks;
pub use parse::{parse, Error};
pub use rust::{definition, generate as rust};
pub use write::write;

use std::collections::HashMap;
use std::path::Path;

/// Reads a file of the language: what of the preprocessor it uses is done first, with `RPC_HDR` and these macros (`NAME` or `NAME=VALUE`)
/// defined, and files that it includes looked for beside it. Types that it does not define come from the others.
///
/// # Errors
/// With the file's name, line and column.
pub fn read(path: &Path, macros: &[&str], others: &[model::File]) -> Result<model::File, String> {
    let plain = |path: &Path| {
        // Where lines end as on other systems.
        std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).replace("\r\n", "\n")).map_err(|error| error.to_string())
    };
    let text = plain(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut beside = |name: &str| plain(&path.parent().unwrap_or(Path::new("")).join(name));
    let define = |said: &str| {
        let (name, value) = said.split_once('=').unwrap_or((said, "1"));
        (name.to_string(), value.to_string())
    };
    let macros = ["RPC_HDR"].iter().chain(macros).map(|said| define(said)).collect();
    let mut first = preprocess::Preprocessor { macros, passed: HashMap::new(), read: &mut beside, depth: 0 };
    let made = first.run(&text);
    let passed = first.passed;
    made.and_then(|text| parse::parse_with(&text, others, &passed)).map_err(|error| format!("{}:{error}", path.display()))
}

/// Makes `OUT_DIR/NAME.rs` of `NAME.x`, for a build script.
///
/// # Panics
/// With the file's name, line and column, where something is wrong.
pub fn build(path: impl AsRef<Path>) {
    let path = path.as_ref();
    println!("cargo::rerun-if-changed={}", path.display());
    let file = read(path, &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    let text = rust(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let directory = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let name = path.file_stem().expect("a file's name");
    let target = Path::new(&directory).join(name).with_extension("rs");
    std::fs::write(&target, text).unwrap_or_else(|error| panic!("{}: {error}", target.display()));
}
