//! `shunt-bench ARGUMENTS` does what `shunt bench ARGUMENTS` does: for working on the instrument
//! itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    shunt_bench::run_from(std::env::args_os().skip(1))
}
