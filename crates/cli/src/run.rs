//! `shunt run`: puts the preload library and the options into the environment and becomes the program.
mod environment;
mod exec;
mod image;
pub mod library;
mod lookup;
mod memory_limit;
pub mod obstacle;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::ArgMatches;

use crate::failure::{warn, Failure};
use crate::settings::{section_name, Files};
use environment::Environment;
use obstacle::Obstacle;

/// The flag without which a library that cannot be had is no failure.
pub const REQUIRE: &str = "require";

/// Becomes the program. Comes back only if that cannot be done.
pub fn run(matches: &ArgMatches) -> Result<Infallible, Failure> {
    let mut environment = Environment::of_this_process();
    let words: Vec<&OsStr> = matches.get_many::<OsString>("program").into_iter().flatten().map(OsString::as_os_str).collect();
    environment.apply_options(
        |name| matches.get_one::<OsString>(name).map(OsString::as_os_str),
        &Files::read(|name| environment.get(name))?,
        section_name(words[0]),
    )?;
    let by = if matches.contains_id("library") { "--library" } else { library::VARIABLE };
    // A service must start although an upgrade or an image has lost the library: it is the kernel's then, as any program without shunt.
    let library = match library::find(environment.get(library::VARIABLE), by) {
        Err(missing) if !matches.get_flag(REQUIRE) => {
            warn(format_args!("{}; the program runs, and its connections go through the kernel", missing.message));
            None
        }
        found => Some(found?),
    };
    let path = lookup::find(words[0], environment.get("PATH"))?;
    let Some(library) = library else {
        environment.forget_library();
        return Err(exec::replace_this_process(Path::new(&path), &words, environment.pairs()));
    };

    let obstacle = Obstacle::of(&path, environment.get("PATH"));
    if let Some(obstacle) = &obstacle {
        warn(format_args!("{obstacle}; it runs, and its connections go through the kernel"));
    }
    if obstacle.is_none_or(|obstacle| !obstacle.library_would_break_it()) {
        environment.respect_memory_limit();
        let behind =
            match environment.get(library::RPC_VARIABLE).is_some_and(|value| value == "on").then(|| library::beside(&library)) {
                Some(Err(missing)) if !matches.get_flag(REQUIRE) => {
                    warn(format_args!("{}; calls of SunRPC go through libtirpc's own functions", missing.message));
                    None
                }
                found => found.transpose()?,
            };
        environment.preload(&library, behind.as_deref())?;
    }
    Err(exec::replace_this_process(Path::new(&path), &words, environment.pairs()))
}
