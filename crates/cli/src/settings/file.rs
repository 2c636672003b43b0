//! A configuration file: what it says, by section, with the line of each word.
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use shunt_config::{Entry, Options, Source, TABLE};
use toml_edit::{ImDocument, Item, TableLike, Value};

use super::FILE_VARIABLE;
use crate::failure::{warn, Failure};

/// Larger files are no configuration.
const LARGEST: u64 = 1 << 20;
/// What names a profile, at the top or in a program's section.
const PROFILE: &str = "profile";
const PROGRAMS: &str = "programs";
const PROFILES: &str = "profiles";

/// A file that was read.
#[derive(Debug)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// What holds for all programs.
    pub top: Section,
    /// What holds for one, by its file's name.
    pub programs: Vec<(String, Section)>,
    /// Values under a name.
    pub profiles: Vec<(String, Section)>,
}

/// Options and what is said of them. Not checked yet: a mistake in the section of one program is no other program's.
#[derive(Debug, Default)]
pub struct Section {
    /// The profile that it names, and the line.
    pub profile: Option<(String, usize)>,
    words: Vec<Word>,
}

/// One line's worth.
#[derive(Debug)]
struct Word {
    name: String,
    /// As a flag would have it; none if no option has such values.
    value: Option<OsString>,
    line: usize,
}

/// An option's value, checked.
#[derive(Clone, Debug)]
pub struct Given {
    /// The option.
    pub entry: &'static Entry,
    /// Its value as a flag would have it.
    pub value: OsString,
    /// The line in its file.
    pub line: usize,
}

/// Whose file is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Whoever's it is: the administrator, or the one that set the variable, named it.
    Anyone,
    /// The user's or root's. HOME may be another user's (`sudo -E`, `su -m`), and an option names a library that programs load.
    User,
}

impl Owner {
    /// Why a file of this owner and mode is not believed.
    fn refuses(self, owner: u32, mode: u32, user: u32) -> Option<&'static str> {
        match self {
            Owner::Anyone => None,
            Owner::User if owner != user && owner != 0 => Some("it belongs to another user"),
            Owner::User if mode & 0o002 != 0 => Some("others may write it"),
            Owner::User => None,
        }
    }
}

impl File {
    /// Reads the file, if it is there, may be read and is believed; a warning says that one is not.
    ///
    /// # Errors
    /// If it cannot be read, or is not TOML of this form, with the line.
    pub fn read(path: &Path, owner: Owner) -> Result<Option<File>, Failure> {
        File::read_as(path, path, owner)
    }

    /// The same, where it is reached by another path than it is told by.
    ///
    /// # Errors
    /// As for [`File::read`].
    pub fn read_as(path: &Path, reached: &Path, owner: Owner) -> Result<Option<File>, Failure> {
        let mut text = String::new();
        // A pipe that nobody writes into would hold the command up.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(reached);
        let read = opened.and_then(|file| {
            let about = file.metadata()?;
            let kind = about.file_type();
            if !kind.is_file() && !kind.is_char_device() {
                return Err(std::io::Error::other("it is not a file"));
            }
            if let Some(reason) = owner.refuses(about.uid(), about.mode(), rustix::process::geteuid().as_raw()) {
                warn(format_args!("{}: left out, since {reason}; to have it all the same: {FILE_VARIABLE}={0}", path.display()));
                return Err(PermissionDenied.into());
            }
            file.take(LARGEST + 1).read_to_string(&mut text)
        });
        match read {
            // Units that hide home directories must start.
            Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => return Ok(None),
            Err(error) => return Err(Failure::of_usage(format_args!("{}: cannot be read: {error}", path.display()))),
            Ok(_) if text.len() as u64 > LARGEST => {
                return Err(Failure::of_usage(format_args!(
                    "{}: is larger than 1 MiB, so it is no configuration",
                    path.display()
                )))
            }
            Ok(_) => {}
        }
        File::parse(path, &text).map(Some)
    }

    fn parse(path: &Path, text: &str) -> Result<File, Failure> {
        let line =
            |span: Option<Range<usize>>| 1 + span.map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
        let fault = |at: usize, what: &dyn std::fmt::Display| Failure::of_usage(format_args!("{}:{at}: {what}", path.display()));
        let document =
            ImDocument::parse(text).map_err(|error| fault(line(error.span()), &error.message().replace('\n', ", ")))?;

        let mut file = File { path: path.to_owned(), top: Section::default(), programs: vec![], profiles: vec![] };
        for (name, item) in document.iter() {
            let at = line(document.key(name).and_then(|key| key.span()).or_else(|| item.span()));
            match (name, item.as_table_like()) {
                (PROGRAMS | PROFILES, Some(sections)) => {
                    for (of, section) in sections.iter() {
                        let begin = line(section.span());
                        let Some(table) = section.as_table_like() else {
                            return Err(fault(begin, &format_args!("\"{name}.{of}\" is not a section; example: [{name}.{of}]")));
                        };
                        let list = if name == PROGRAMS { &mut file.programs } else { &mut file.profiles };
                        list.push((of.to_owned(), Section::of(table, &line)));
                    }
                }
                (_, Some(_)) => {
                    return Err(fault(at, &format_args!("[{name}] is not a section; example: [programs.redis-server]")));
                }
                (PROGRAMS | PROFILES, None) => {
                    return Err(fault(at, &format_args!("\"{name}\" has sections; example: [{name}.x]")))
                }
                (_, None) => file.top.add(name, item, at),
            }
        }
        Ok(file)
    }

    /// What is said of a program.
    pub fn program(&self, name: &str) -> Option<&Section> {
        self.programs.iter().find(|(of, _)| of == name).map(|(_, section)| section)
    }

    /// What is said of a profile.
    pub fn profile(&self, name: &str) -> Option<&Section> {
        self.profiles.iter().find(|(of, _)| of == name).map(|(_, section)| section)
    }
}

impl Section {
    fn of(table: &dyn TableLike, line: &dyn Fn(Option<Range<usize>>) -> usize) -> Section {
        let mut section = Section::default();
        for (name, item) in table.iter() {
            section.add(name, item, line(table.key(name).and_then(|key| key.span()).or_else(|| item.span())));
        }
        section
    }

    fn add(&mut self, name: &str, item: &Item, line: usize) {
        let value = item.as_value().and_then(text);
        match (name, &value) {
            (PROFILE, Some(named)) => self.profile = Some((named.clone(), line)),
            _ => self.words.push(Word { name: name.to_owned(), value: value.map(OsString::from), line }),
        }
    }

    /// All values, if options with such names have such values.
    ///
    /// # Errors
    /// The first that has not, with the file and the line.
    pub fn checked(&self, path: &Path) -> Result<Vec<Given>, Failure> {
        let mut options = Options::default();
        let check = |word: &Word| {
            let fault =
                |what: &dyn std::fmt::Display| Failure::of_usage(format_args!("{}:{}: {what}", path.display(), word.line));
            let entry = Entry::by_name(&word.name).ok_or_else(|| fault(&unknown(&word.name)))?;
            let value = word.value.clone().ok_or_else(|| {
                fault(&format_args!(
                    "{}: a string, a number, true or false, or a list of them is expected; example: \"{}\"",
                    word.name, entry.example
                ))
            })?;
            options.set(entry, Source::File, value.as_encoded_bytes()).map_err(|error| fault(&error))?;
            Ok(Given { entry, value, line: word.line })
        };
        self.words.iter().map(check).collect()
    }
}

/// A value as a flag would have it. Lists are those of ports and subnets.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Boolean(truth) => Some(if *truth.value() { "on" } else { "off" }.to_owned()),
        Value::Array(list) => {
            let words: Option<Vec<String>> =
                list.iter().map(|word| if word.is_array() { None } else { text_of_word(word) }).collect();
            words.map(|words| words.join(","))
        }
        _ => None,
    }
}

fn text_of_word(value: &Value) -> Option<String> {
    match value {
        Value::String(_) | Value::Integer(_) => text(value),
        _ => None,
    }
}

fn unknown(name: &str) -> String {
    let near = TABLE.iter().map(|entry| entry.name).chain([PROFILE]);
    match near.map(|known| (strsim::damerau_levenshtein(name, known), known)).min() {
        Some((1..=2, known)) => format!("\"{name}\" is not an option; did you mean \"{known}\"?"),
        _ => format!("\"{name}\" is not an option; `shunt config` prints them all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<File, String> {
        File::parse(Path::new("f.toml"), text).map_err(|failure| failure.message)
    }

    fn faults(text: &str) -> String {
        match parse(text) {
            Err(message) => message,
            Ok(file) => file.top.checked(&file.path).unwrap_err().message,
        }
    }

    #[test]
    fn values_are_those_of_flags() {
        let file =
            parse("ring = \"1M\"\nspin = 20\naccelerate = false\nports = [80, \"8000-8999\"]\nprofile = \"latency\"\n").unwrap();
        let values: Vec<_> = file
            .top
            .checked(&file.path)
            .unwrap()
            .iter()
            .map(|given| (given.entry.name, given.value.clone(), given.line))
            .collect();
        let expected = [("ring", "1M", 1), ("spin", "20", 2), ("accelerate", "off", 3), ("ports", "80,8000-8999", 4)];
        assert_eq!(values, expected.map(|(name, value, line)| (name, OsString::from(value), line)));
        assert_eq!(file.top.profile, Some(("latency".into(), 5)));
    }

    #[test]
    fn sections_are_of_programs_and_profiles() {
        let file = parse("[programs.redis-server]\nring = \"1M\"\n[programs.\"a b\"]\nprofile = \"x\"\n[profiles.x]\nspin = 0\n")
            .unwrap();
        assert_eq!(file.program("redis-server").unwrap().checked(&file.path).unwrap()[0].line, 2);
        assert_eq!(file.program("a b").unwrap().profile, Some(("x".into(), 4)));
        assert_eq!(file.profile("x").unwrap().checked(&file.path).unwrap()[0].value, "0");
        assert!(file.program("redis").is_none());
    }

    #[test]
    fn a_user_s_file_is_the_user_s_or_root_s() {
        assert_eq!(Owner::User.refuses(1000, 0o100_664, 1000), None);
        assert_eq!(Owner::User.refuses(0, 0o100_644, 1000), None);
        assert_eq!(Owner::User.refuses(1000, 0o100_644, 0), Some("it belongs to another user"));
        assert_eq!(Owner::User.refuses(1000, 0o100_666, 1000), Some("others may write it"));
        assert_eq!(Owner::Anyone.refuses(1000, 0o100_666, 0), None);
    }

    #[test]
    fn a_pipe_is_no_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(File::read(&path, Owner::Anyone).unwrap_err().message.ends_with("cannot be read: it is not a file"));
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (text, told) in [
            ("\n\nring = \"12q\"", "f.toml:3: ring: \"12q\" is not a size; example: 256K"),
            ("rign = \"1M\"", "f.toml:1: \"rign\" is not an option; did you mean \"ring\"?"),
            ("verbosity = 3", "f.toml:1: \"verbosity\" is not an option; `shunt config` prints them all"),
            ("ring = 1.5", "f.toml:1: ring: a string, a number, true or false, or a list of them is expected; example: \"256K\""),
            ("spin = 1\nprograms = 3", "f.toml:2: \"programs\" has sections; example: [programs.x]"),
            ("[redis]\nring = 1", "f.toml:1: [redis] is not a section; example: [programs.redis-server]"),
            ("[programs]\nredis = 1", "f.toml:2: \"programs.redis\" is not a section; example: [programs.redis]"),
        ] {
            assert_eq!(faults(text), told);
        }
        assert!(faults("ring = \n").starts_with("f.toml:1: "));
        assert!(faults("a = 1\na = 2\n").starts_with("f.toml:2: "));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(ring|spin|profile|programs|profiles|\\[|\\]|\\.|=|\"|1M|on|\n| |\u{b5}s|\\{|\\}|,){0,24}") {
            if let Ok(file) = parse(&text) {
                for section in file.programs.iter().chain(&file.profiles).map(|(_, section)| section).chain([&file.top]) {
                    let _ = section.checked(&file.path);
                }
            }
        }
    }
}
