//! The environment of the program: our variables checked and set, everything else as it was.
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shunt_config::{Entry, TABLE};

use crate::failure::{warn, Failure};
use crate::settings::{Files, Origin, Settings};

const LD_PRELOAD: &str = "LD_PRELOAD";
const RING: &str = "SHUNT_RING";
const FILES: [&str; 2] = [super::library::FILE, super::library::RPC_FILE];

/// Variables and their values, in order. A name may occur twice, as it may in a real environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// A copy of this process's environment.
    pub fn of_this_process() -> Environment {
        Environment { variables: std::env::vars_os().collect() }
    }

    /// The first value of `name`: the one getenv(3) would find.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
    }

    fn set(&mut self, name: &str, value: OsString) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.into(), value));
    }

    /// All variables.
    pub fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Checks every option, and stores in their variables those that a flag, a file or a profile gives to the program of this name.
    ///
    /// # Errors
    /// The first value that cannot be used, with status 2.
    pub fn apply_options<'a>(
        &mut self,
        flag: impl Fn(&str) -> Option<&'a OsStr>,
        files: &Files,
        program: Option<&str>,
    ) -> Result<(), Failure> {
        let settings = Settings::resolve(files, flag, |name| self.get(name), program)?;
        for setting in settings.list {
            if !matches!(setting.origin, Origin::Default | Origin::Variable(_)) {
                self.set(setting.entry.variable, setting.value);
            }
        }
        self.warn_of_misspelt_variables();
        Ok(())
    }

    /// Bounds rings by the memory limit of this process's control group, unless the user has said how large they may be.
    pub fn respect_memory_limit(&mut self) {
        let given = self.get(RING).is_some_and(|value| !value.is_empty());
        if let Some(bytes) = super::memory_limit::ring().filter(|_| !given) {
            self.set(RING, bytes.to_string().into());
        }
    }

    /// A variable that is almost one of ours is a mistake that no user would notice. Others that begin with `SHUNT_`
    /// may belong to another program.
    fn warn_of_misspelt_variables(&self) {
        for (name, _) in &self.variables {
            if let Some((name, meant)) = name.to_str().and_then(|name| Some((name, misspelt(name)?))) {
                warn(format_args!("{name} is not an option of shunt; did you mean {}?", meant.variable));
            }
        }
    }

    /// No copy of the library is preloaded: the loader would say of each program that it cannot.
    pub fn forget_library(&mut self) {
        let Some(old) = self.get(LD_PRELOAD).map(OsStr::to_owned) else { return };
        let others: Vec<&[u8]> =
            old.as_bytes().split(|byte| separates(*byte)).filter(|name| !name.is_empty() && !is_ours(name)).collect();
        self.set(LD_PRELOAD, OsStr::from_bytes(&others.join(&b':')).to_owned());
    }

    /// Puts `library` at the end of LD_PRELOAD, nearest to the C library: what else is preloaded (a run-time that watches
    /// memory, a proxy, another clock) stands before it as it stands before the C library. Other copies of the library
    /// are dropped: two of them in one process would each believe the sockets to be theirs. `behind` it comes the library that stands
    /// before libtirpc, if that is wanted.
    ///
    /// # Errors
    /// If the library's path cannot be written in LD_PRELOAD, which separates names by colons and spaces.
    pub fn preload(&mut self, library: &Path, behind: Option<&Path>) -> Result<(), Failure> {
        let path = library.as_os_str().as_bytes();
        if path.iter().any(|byte| separates(*byte)) {
            return Err(Failure::of_environment(format_args!(
                "{}: a path with a space or a colon cannot be preloaded; put the library elsewhere, or name a symbolic \
                 link to it by --library",
                library.display()
            )));
        }
        let mut value = Vec::new();
        let old = self.get(LD_PRELOAD).unwrap_or_default().as_bytes();
        for other in old.split(|byte| separates(*byte)).filter(|name| !name.is_empty()) {
            if !is_ours(other) {
                value.extend_from_slice(other);
                value.push(b':');
            }
        }
        value.extend_from_slice(path);
        if let Some(behind) = behind {
            value.push(b':');
            value.extend_from_slice(behind.as_os_str().as_bytes());
        }
        self.set(LD_PRELOAD, OsStr::from_bytes(&value).to_owned());
        Ok(())
    }
}

/// Whether a name in LD_PRELOAD is one of shunt's libraries.
fn is_ours(name: &[u8]) -> bool {
    let file = name.rsplit(|byte| *byte == b'/').next();
    FILES.iter().any(|ours| file == Some(ours.as_bytes()))
}

fn separates(byte: u8) -> bool {
    byte == b':' || byte.is_ascii_whitespace()
}

/// The option that `variable` was probably meant to be: at most two letters differ.
fn misspelt(variable: &str) -> Option<&'static Entry> {
    if !variable.starts_with("SHUNT") || Entry::by_variable(variable).is_some() {
        return None;
    }
    TABLE
        .iter()
        .map(|entry| (strsim::damerau_levenshtein(variable, entry.variable), entry))
        .min_by_key(|(distance, _)| *distance)
        .and_then(|(distance, entry)| (distance <= 2).then_some(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preloaded(old: Option<&str>) -> String {
        let mut environment = Environment::default();
        if let Some(old) = old {
            environment.set(LD_PRELOAD, old.into());
        }
        environment.preload(Path::new("/x/libshunt.so"), None).unwrap();
        environment.get(LD_PRELOAD).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn the_library_comes_last_and_once() {
        assert_eq!(preloaded(None), "/x/libshunt.so");
        assert_eq!(preloaded(Some("")), "/x/libshunt.so");
        assert_eq!(preloaded(Some("libjemalloc.so.2")), "libjemalloc.so.2:/x/libshunt.so");
        assert_eq!(preloaded(Some("/a.so /old/libshunt.so:/b.so")), "/a.so:/b.so:/x/libshunt.so");
        assert_eq!(preloaded(Some("/old/libshunt.so:/old/libshunt_tirpc.so:/b.so")), "/b.so:/x/libshunt.so");
    }

    #[test]
    fn the_one_before_libtirpc_stands_behind_it() {
        let mut environment = Environment::default();
        for _ in 0..2 {
            environment.preload(Path::new("/x/libshunt.so"), Some(Path::new("/x/libshunt_tirpc.so"))).unwrap();
            assert_eq!(environment.get(LD_PRELOAD).unwrap(), "/x/libshunt.so:/x/libshunt_tirpc.so");
        }
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_refused() {
        for path in ["/a b/libshunt.so", "/a:b/libshunt.so"] {
            assert!(Environment::default().preload(Path::new(path), None).is_err());
        }
    }

    #[test]
    fn a_flag_replaces_its_variable_even_a_wrong_one() {
        let none = Files { list: vec![] };
        let mut environment = Environment::default();
        environment.set("SHUNT_RING", "12q".into());
        assert_eq!(
            environment.clone().apply_options(|_| None, &none, None).unwrap_err().message,
            "SHUNT_RING: \"12q\" is not a size; example: 256K"
        );
        environment.apply_options(|name| (name == "ring").then_some(OsStr::new("64K")), &none, None).unwrap();
        assert_eq!(environment.get("SHUNT_RING").unwrap(), "64K");
        assert_eq!(environment.pairs().count(), 1);
    }

    #[test]
    fn near_misses_are_recognised_and_strangers_left_alone() {
        assert_eq!(misspelt("SHUNT_RIGN").unwrap().name, "ring");
        assert_eq!(misspelt("SHUNT_IOURING").unwrap().name, "io-uring");
        assert_eq!(misspelt("SHUNTRING").unwrap().name, "ring");
        for name in ["SHUNT_RING", "SHUNT_PROFILE", "SHUNT_", "HUNT_RING", ""] {
            assert!(misspelt(name).is_none(), "{name}");
        }
    }
}
