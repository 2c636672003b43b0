//! Which room of a crate takes names from which other: `cargo run -p shunt-xtask -- layers`.
//!
//! A crate is a height, and a room in it is a topic: a module at the crate's top, or what `layers.toml` lists. A room
//! takes names from lower floors only, rooms of one crate make small circles at most, and the program keeps few statics.
//! What is not so yet is written down in `layers.toml` as counts that may only fall.
//!
//! ```text
//! source       a crate's tree of modules, without tests        load: of which crates, and from where
//! names        what modules define and import                paths: what a path leads to
//! references   which names each file uses
//! rooms        the form of layers.toml                         picture: arrows between rooms
//! graph        circles, and the best order                     report: as text, JSON and a graph
//! check        what may grow no more                           crates: what the repository's crates take from each other
//! ```

mod check;
mod crates;
mod graph;
mod load;
mod names;
mod paths;
mod picture;
mod references;
mod report;
mod rooms;
mod source;

use picture::Picture;
use report::Asked;
use rooms::{Assignment, Config, Rules};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: xtask layers [OPTION...] [CRATE...]
  (nothing)         rooms, arrows, circles, upward names, statics and lines of the crates in crates/xtask/layers.toml
  CRATE...          of these packages only (sockets or shunt-sockets), whether listed there or not
  --check           only say what grew, with exit status 1
  --counts          layers.toml's counts as they are now
  --crates          all crates by height, and what each takes from which
  --plan FILE       with the rooms of FILE in place of layers.toml's
  --why             where each upward name is used
  --arrow FROM TO   all that room FROM takes from room TO, and where
  --best            an order of the rooms with few upward names
  --methods         calls of methods count, too, where a method's name is defined once in the crate
  --modules         forget the rooms: each top-level module is one
  --statics         each static
  --json, --dot     for programs, for Graphviz";

/// What the command line asks for.
#[derive(Default)]
struct Command {
    asked: Asked,
    plan: Option<PathBuf>,
    check: bool,
    counts: bool,
    by_height: bool,
    methods: bool,
    modules: bool,
    json: bool,
    dot: bool,
    crates: Vec<String>,
}

/// Does what the words behind `layers` say.
pub fn main(words: &[&str]) -> ExitCode {
    let Some(command) = parse(words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&command) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask layers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[&str]) -> Option<Command> {
    let mut command = Command::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--plan" => command.plan = Some(PathBuf::from(words.next()?)),
            "--arrow" => command.asked.arrow = Some(((*words.next()?).to_owned(), (*words.next()?).to_owned())),
            "--why" => command.asked.why = true,
            "--best" => command.asked.best = true,
            "--statics" => command.asked.statics = true,
            "--check" => command.check = true,
            "--counts" => command.counts = true,
            "--crates" => command.by_height = true,
            "--methods" => command.methods = true,
            "--modules" => command.modules = true,
            "--json" => command.json = true,
            "--dot" => command.dot = true,
            option if option.starts_with('-') => return None,
            name if name.starts_with("shunt-") => command.crates.push(name.to_owned()),
            name => command.crates.push(format!("shunt-{name}")),
        }
    }
    Some(command)
}

fn run(command: &Command) -> Result<String, String> {
    if command.by_height {
        return crates::text();
    }
    let file = command.plan.clone().unwrap_or_else(|| load::root().join("crates/xtask/layers.toml"));
    let config = rooms::read(&file)?;
    let pictures = pictures(&config, command)?;
    if command.check {
        let rules = |picture: &Picture| config.crates.iter().find(|rules| rules.name == picture.package);
        let said: Vec<String> = pictures
            .iter()
            .flat_map(|picture| rules(picture).map(|rules| check::check(rules, picture)).unwrap_or_default())
            .collect();
        return if said.is_empty() { Ok(String::new()) } else { Err(said.join("\nxtask layers: ")) };
    }
    if command.counts {
        return Ok(pictures.iter().map(check::counts).collect::<Vec<_>>().join("\n"));
    }
    if command.json {
        let all: serde_json::Value = pictures.iter().map(report::json).collect();
        return Ok(format!("{all:#}\n"));
    }
    let text = |picture: &Picture| if command.dot { report::dot(picture) } else { report::text(picture, &command.asked) };
    let texts = pictures.iter().map(text);
    Ok(texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"))
}

fn pictures(config: &Config, command: &Command) -> Result<Vec<Picture>, String> {
    let packages: Vec<String> = match &command.crates[..] {
        [] => config.crates.iter().map(|rules| rules.name.clone()).collect(),
        named => named.to_vec(),
    };
    let world = load::world(&packages)?;
    let mut pictures = Vec::new();
    for name in &packages {
        let package = world.crates.iter().position(|made| made.package == *name).ok_or("a crate that was read is missing")?;
        let plain = Rules { name: name.clone(), ..Rules::default() };
        let rules = config.crates.iter().find(|rules| rules.name == *name && !command.modules).unwrap_or(&plain);
        let files: Vec<String> = world.crates[package].tree.files.iter().map(|file| file.path.clone()).collect();
        let assignment = Assignment::new(rules, &files).map_err(|error| format!("{name}: {error}"))?;
        let found = references::find(&world, package);
        pictures.push(Picture::new(&world, package, &found, &assignment, command.methods));
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests;
