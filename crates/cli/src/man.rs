//! The manual pages: the command's, with prose from `manual.1` and options from the table; and one of each of its commands, from its help.
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{ArgMatches, Command};
use shunt_config::{Markdown, Roff};

use crate::command_line;
use crate::failure::Failure;
use crate::output;

/// The page in the man(7) macros, with `@VERSION@` and `@OPTIONS@` where the rest goes.
const PAGE: &str = include_str!("manual.1");

/// The command's page.
pub fn page() -> String {
    PAGE.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@OPTIONS@\n", &Roff.to_string())
}

/// Prints a page, or the table of options in Markdown, or writes all pages.
pub fn man(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(directory) = matches.get_one::<OsString>("all") {
        return write_all(directory).map(|()| 0);
    }
    let words: Vec<&str> = matches.get_many::<String>("command").into_iter().flatten().map(String::as_str).collect();
    output::print(&match (matches.get_flag("options"), words.as_slice()) {
        (true, _) => Markdown.to_string(),
        (false, []) => page(),
        (false, words) => page_of(words)?,
    })?;
    Ok(0)
}

fn page_of(words: &[&str]) -> Result<String, Failure> {
    let mut pages = vec![];
    walk(&command_line::command(), &[], &mut pages);
    let wanted = format!("shunt-{}", words.join("-"));
    let found = pages.into_iter().find(|(name, _)| *name == wanted).map(|(_, page)| page);
    found.ok_or_else(|| {
        Failure::of_usage(format_args!("\"{}\" is not a command of shunt; `shunt --help` lists them", words.join(" ")))
    })
}

/// Pages of the commands below this one, with their names.
fn walk(command: &Command, above: &[&str], pages: &mut Vec<(String, String)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        let words: Vec<&str> = above.iter().copied().chain([below.get_name()]).collect();
        let name = format!("shunt-{}", words.join("-"));
        let named: &'static str = Box::leak(name.clone().into_boxed_str());
        let called: &'static str = Box::leak(format!("shunt {}", words.join(" ")).into_boxed_str());
        let mut text = Vec::new();
        let page = clap_mangen::Man::new(below.clone().name(named).bin_name(called).version(env!("CARGO_PKG_VERSION")))
            .manual("User Commands");
        if page.render(&mut text).is_ok() {
            pages.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
        walk(below, &words, pages);
    }
}

fn write_all(directory: &OsStr) -> Result<(), Failure> {
    let mut pages = vec![("shunt".to_owned(), page())];
    walk(&command_line::command(), &[], &mut pages);
    for (name, page) in pages {
        let path = Path::new(directory).join(format!("{name}.1"));
        std::fs::write(&path, page)
            .map_err(|error| Failure::of_environment(format_args!("{}: cannot be written: {error}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_page_of_this_build() {
        let kept = include_str!("../../../docs/man/shunt.1");
        assert!(kept == super::page(), "docs/man/shunt.1 is stale; run: shunt man > docs/man/shunt.1");
    }

    #[test]
    fn every_command_has_a_page() {
        let mut pages = vec![];
        walk(&command_line::command(), &[], &mut pages);
        for name in ["shunt-run", "shunt-ss", "shunt-agent-status", "shunt-rpc-call", "shunt-bench-cell"] {
            let (_, page) = pages.iter().find(|(known, _)| known == name).unwrap();
            assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{name}");
        }
        assert!(page_of(&["agent", "status"]).is_ok());
        assert_eq!(page_of(&["x"]).unwrap_err().message, "\"x\" is not a command of shunt; `shunt --help` lists them");
    }
}
