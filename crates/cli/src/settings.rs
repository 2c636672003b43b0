//! What each option is for one program, and where that was said: by a flag, a variable, a configuration file or a profile.
//!
//! From strong to weak: flag, variable, the program's section, the top of the file; of two files the user's is the stronger. One profile at
//! most has a say: that which the strongest of these names. Its values stand behind the values that were given at the same place.
mod file;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use shunt_config::{Entry, Options, Profile, Source, PROFILES, TABLE};

use crate::failure::Failure;
use crate::unit::root::Root;
use file::{File, Given, Owner, Section};

/// The variable that names a file to be read in place of both.
pub const FILE_VARIABLE: &str = "SHUNT_CONFIG";
/// The variable that names a profile.
pub const PROFILE_VARIABLE: &str = "SHUNT_PROFILE";
/// The flag that does.
pub const PROFILE_FLAG: &str = "profile";
/// A profile of this name is none.
const NO_PROFILE: &str = "none";
const SYSTEM: &str = "/etc/shunt/shunt.toml";

/// Where a value was said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nowhere.
    Default,
    /// By a flag, with its dashes.
    Flag(String),
    /// By a variable.
    Variable(&'static str),
    /// In a file.
    File(PathBuf, usize),
    /// In a profile that every installation has.
    Profile(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Flag(name) => f.write_str(name),
            Origin::Variable(name) => f.write_str(name),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Profile(name) => write!(f, "profile {name}"),
        }
    }
}

/// One option's value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The option.
    pub entry: &'static Entry,
    /// The value as a flag would have it.
    pub value: OsString,
    /// Where it was said.
    pub origin: Origin,
}

/// A place that says things.
#[derive(Default)]
struct Layer {
    values: Vec<Setting>,
    profile: Option<(String, Origin)>,
}

/// The files that there are.
#[derive(Debug)]
pub struct Files {
    /// Where they are looked for, strong ones first, and what was read.
    pub list: Vec<(PathBuf, Option<File>)>,
}

impl Files {
    /// Reads the user's file and the system's, or that which `SHUNT_CONFIG` names.
    ///
    /// # Errors
    /// If one cannot be read or understood, or if the named one is not there.
    pub fn read<'a>(variable: impl Fn(&str) -> Option<&'a OsStr>) -> Result<Files, Failure> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(path) = variable(FILE_VARIABLE) {
            let file = File::read(Path::new(path), Owner::Anyone)?.ok_or_else(|| {
                Failure::of_usage(format_args!(
                    "{FILE_VARIABLE}: {}: cannot be had; for no file at all: /dev/null",
                    Path::new(path).display()
                ))
            })?;
            return Ok(Files { list: vec![(path.into(), Some(file))] });
        }
        let home = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(Path::new(variable("HOME")?).join(".config")));
        let user = home.map(|home| (home.join("shunt/shunt.toml"), Owner::User));
        let paths = user.into_iter().chain([(SYSTEM.into(), Owner::Anyone)]);
        let list = paths.map(|(path, owner)| File::read(&path, owner).map(|file| (path, file))).collect::<Result<_, _>>()?;
        Ok(Files { list })
    }

    /// The system's alone, below `root`: what holds for services, which have no user's file.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub fn of_system(root: &Root) -> Result<Files, Failure> {
        let path = root.shown(Path::new(SYSTEM));
        let file = match root.find(Path::new(SYSTEM)) {
            Ok(found) => File::read_as(&path, &found.path(), Owner::Anyone)?,
            Err(_) => None,
        };
        Ok(Files { list: vec![(path, file)] })
    }

    fn there(&self) -> impl Iterator<Item = &File> {
        self.list.iter().filter_map(|(_, file)| file.as_ref())
    }

    /// All mistakes of all sections.
    pub fn mistakes(&self) -> Vec<Failure> {
        let mut mistakes = vec![];
        for file in self.there() {
            let sections = file.programs.iter().map(|(_, section)| section).chain([&file.top]);
            for section in sections.clone().chain(file.profiles.iter().map(|(_, section)| section)) {
                mistakes.extend(section.checked(&file.path).err());
            }
            for (named, line) in sections.filter_map(|section| section.profile.as_ref()) {
                mistakes.extend(self.profile(named, &Origin::File(file.path.clone(), *line)).err());
            }
        }
        mistakes
    }

    /// The values of a profile: the files' before those that it has everywhere.
    fn profile(&self, name: &str, named_by: &Origin) -> Result<Vec<Setting>, Failure> {
        if name == NO_PROFILE {
            return Ok(vec![]);
        }
        let mut values = vec![];
        let mut known = false;
        for file in self.there() {
            if let Some(section) = file.profile(name) {
                known = true;
                values.extend(layer(file, section)?.values);
            }
        }
        if let Some(profile) = Profile::by_name(name) {
            known = true;
            values.extend(profile.values.iter().filter_map(|(option, value)| {
                Some(Setting { entry: Entry::by_name(option)?, value: (*value).into(), origin: Origin::Profile(profile.name) })
            }));
        }
        if known {
            return Ok(values);
        }
        let own = self.there().flat_map(|file| file.profiles.iter().map(|(name, _)| name.as_str()));
        let mut names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).chain(own).chain([NO_PROFILE]).collect();
        names.sort_unstable();
        names.dedup();
        let from = match named_by {
            Origin::File(..) => format!("{named_by}: {PROFILE_FLAG}"),
            other => other.to_string(),
        };
        Err(Failure::of_usage(format_args!(
            "{from}: \"{}\" is not a profile; there are {}",
            name.escape_debug(),
            names.join(", ")
        )))
    }
}

/// What holds for a program.
#[derive(Debug)]
pub struct Settings {
    /// The profile that has a say, and where it was named.
    pub profile: Option<(String, Origin)>,
    /// Every option, in the order of the table.
    pub list: Vec<Setting>,
}

impl Settings {
    /// For the program of this name, if it is known. `flag` gives values by the flag's name, `variable` by the variable's.
    ///
    /// # Errors
    /// The first value that cannot be used, with status 2.
    pub fn resolve<'f, 'v>(
        files: &Files,
        flag: impl Fn(&str) -> Option<&'f OsStr>,
        variable: impl Fn(&str) -> Option<&'v OsStr>,
        program: Option<&str>,
    ) -> Result<Settings, Failure> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let named = |value: Option<&OsStr>, origin: Origin| value.map(|value| (value.to_string_lossy().into_owned(), origin));
        let mut flags = Layer { values: vec![], profile: named(flag(PROFILE_FLAG), Origin::Flag(format!("--{PROFILE_FLAG}"))) };
        let mut variables =
            Layer { values: vec![], profile: named(variable(PROFILE_VARIABLE), Origin::Variable(PROFILE_VARIABLE)) };
        let mut options = Options::default();
        for entry in &TABLE {
            // A flag hides its variable, even a wrong one.
            if let Some(value) = flag(entry.name) {
                options.set(entry, Source::Flag, value.as_encoded_bytes()).map_err(Failure::of_usage)?;
                flags.values.push(Setting { entry, value: value.to_owned(), origin: Origin::Flag(entry.flag.to_owned()) });
            } else if let Some(value) = variable(entry.variable) {
                options.set(entry, Source::Variable, value.as_encoded_bytes()).map_err(Failure::of_usage)?;
                variables.values.push(Setting { entry, value: value.to_owned(), origin: Origin::Variable(entry.variable) });
            }
        }
        let mut layers = vec![flags, variables];
        let sections = files.there().filter_map(|file| Some((file, file.program(program?)?)));
        for (file, section) in sections.chain(files.there().map(|file| (file, &file.top))) {
            layers.push(layer(file, section)?);
        }

        let mut profile = None;
        if let Some(at) = layers.iter().position(|layer| layer.profile.is_some()) {
            let (name, origin) = layers[at].profile.clone().unwrap_or((NO_PROFILE.to_owned(), Origin::Default));
            let values = files.profile(&name, &origin)?;
            layers.insert(at + 1, Layer { values, profile: None });
            profile = Some((name, origin)).filter(|(name, _)| name != NO_PROFILE);
        }
        let strongest = |entry: &'static Entry| {
            let said = layers.iter().flat_map(|layer| &layer.values).find(|setting| setting.entry.name == entry.name);
            said.cloned().unwrap_or_else(|| Setting { entry, value: entry.default.into(), origin: Origin::Default })
        };
        Ok(Settings { profile, list: TABLE.iter().map(strongest).collect() })
    }
}

fn layer(file: &File, section: &Section) -> Result<Layer, Failure> {
    let at = |line: usize| Origin::File(file.path.clone(), line);
    let setting = |Given { entry, value, line }: Given| Setting { entry, value, origin: at(line) };
    Ok(Layer {
        values: section.checked(&file.path)?.into_iter().map(setting).collect(),
        profile: section.profile.as_ref().map(|(name, line)| (name.clone(), at(*line))),
    })
}

/// By which name a program has its section: that of its file.
pub fn section_name(program: &OsStr) -> Option<&str> {
    Path::new(program).file_name()?.to_str()
}

#[cfg(test)]
mod tests;
