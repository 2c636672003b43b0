//! Unit files, as far as one has to know: systemd.syntax(7), and which files make a unit (systemd.unit(5)).
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::root::{Found, Root};
use crate::failure::Failure;

/// Where units lie, strong places first.
const PLACES: [&str; 5] =
    ["etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// A unit with its drop-ins.
#[derive(Debug)]
pub struct Unit {
    /// `redis-server.service`.
    pub name: String,
    /// The files, the unit's own first.
    pub files: Vec<PathBuf>,
    /// Assignments of the section Service, in the order in which they hold.
    pub service: Vec<Assignment>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub key: String,
    pub value: String,
    /// Where it stands: the file and the line.
    pub from: (PathBuf, usize),
}

impl Assignment {
    /// Where it stands, for people.
    pub fn place(&self) -> String {
        format!("{}:{}", self.from.0.display(), self.from.1)
    }
}

/// The whole name of what a user may have cut.
pub fn full_name(name: &str) -> Result<String, Failure> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || ":-_.\\@".contains(character);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(Failure::of_usage(format_args!("\"{}\" is no name of a unit; example: redis-server", name.escape_debug())));
    }
    match name.rsplit_once('.') {
        Some((_, "service")) => Ok(name.to_owned()),
        Some((_, "socket" | "timer" | "target" | "mount" | "automount" | "swap" | "device" | "path" | "slice" | "scope")) => {
            Err(Failure::of_usage(format_args!("{name} is no service: the service that it starts is to be named")))
        }
        _ => Ok(format!("{name}.service")),
    }
}

impl Unit {
    /// Reads the unit of this name below `root`, without the drop-in of the name `without`.
    ///
    /// # Errors
    /// If there is none, or one of its files cannot be read.
    pub fn read(root: &Root, name: &str, without: Option<&str>) -> Result<Unit, Failure> {
        let name = full_name(name)?;
        // An instance is made from its template, where it has no file of its own.
        let template = name.split_once('@').map(|(before, _)| format!("{before}@.service"));
        let names: Vec<&String> = [&name].into_iter().chain(&template).collect();
        let mut candidates = names.iter().flat_map(|name| PLACES.map(|place| Path::new(place).join(name)));
        let own = candidates.find_map(|path| Some((root.find(&path).ok()?, path)));
        let own = own.ok_or_else(|| {
            Failure::of_environment(format_args!("there is no unit {name} below {} ({})", root.path.display(), PLACES.join(", ")))
        })?;
        // Drop-ins of one name hide each other, and the others go by their names, wherever they lie.
        let mut drop_ins: BTreeMap<String, Option<(Found, PathBuf)>> = BTreeMap::new();
        for place in PLACES {
            for name in &names {
                let directory = Path::new(place).join(format!("{name}.d"));
                for entry in root.names(&directory) {
                    let (path, file) = (directory.join(&entry), entry.to_string_lossy().into_owned());
                    // One that is a link to /dev/null hides others of its name.
                    if file.ends_with(".conf") && without != Some(&file) {
                        drop_ins.entry(file).or_insert_with(|| Some((root.find(&path).ok()?, path)));
                    }
                }
            }
        }
        let (mut files, mut service) = (Vec::new(), Vec::new());
        for (found, path) in std::iter::once(own).chain(drop_ins.into_values().flatten()) {
            let file = root.shown(&path);
            let text = found
                .read()
                .map_err(|error| Failure::of_environment(format_args!("{}: cannot be read: {error}", file.display())))?;
            service.extend(section(&String::from_utf8_lossy(&text), "Service", &file));
            files.push(file);
        }
        Ok(Unit { name, files, service })
    }

    /// The values of a key that is a list: an empty assignment begins it anew.
    pub fn list(&self, key: &str) -> Vec<&Assignment> {
        let mut found = Vec::new();
        for assignment in self.service.iter().filter(|assignment| assignment.key == key) {
            match assignment.value.is_empty() {
                true => found.clear(),
                false => found.push(assignment),
            }
        }
        found
    }

    /// The value of a key that has one.
    pub fn last(&self, key: &str) -> Option<&Assignment> {
        self.service.iter().rfind(|assignment| assignment.key == key).filter(|assignment| !assignment.value.is_empty())
    }

    /// The programs that it starts as its service.
    pub fn programs(&self) -> Vec<PathBuf> {
        let program = |assignment: &&Assignment| {
            let word = assignment.value.split_whitespace().next()?;
            let path = word.trim_start_matches(['@', '-', ':', '+', '!', '|']).trim_matches('"');
            (!path.is_empty()).then(|| PathBuf::from(path))
        };
        self.list("ExecStart").iter().filter_map(program).collect()
    }
}

/// The assignments of one section.
fn section(text: &str, wanted: &str, file: &Path) -> Vec<Assignment> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = name == wanted;
            continue;
        }
        let mut whole = line.to_owned();
        while let Some(begun) = whole.strip_suffix('\\') {
            // Comments among the lines of one assignment are left out.
            let next = lines.by_ref().map(|(_, line)| line.trim()).find(|line| !line.starts_with(['#', ';']));
            whole = format!("{begun} {}", next.unwrap_or_default());
        }
        if let (true, Some((key, value))) = (inside, whole.split_once('=')) {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            found.push(Assignment { key, value, from: (file.to_owned(), number + 1) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_unit_is_its_file_and_its_drop_ins() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(
            root,
            "lib/systemd/system/a.service",
            "[Unit]\nExecStart=no\n[Service]\nExecStart=-/bin/x \\\n  # comment\n  -y\nLimitNOFILE=1\n",
        );
        put(root, "lib/systemd/system/a.service.d/10.conf", "[Service]\nLimitNOFILE=2\n");
        put(root, "etc/systemd/system/a.service.d/10.conf", "[Service]\nLimitNOFILE=3\n");
        put(root, "lib/systemd/system/a.service.d/20.conf", "[Service]\nExecStart=\nExecStart=@\"/bin/z\" z\n");
        let root = &Root::open(root).unwrap();
        let unit = Unit::read(root, "a", None).unwrap();
        assert_eq!(unit.last("LimitNOFILE").unwrap().value, "3");
        assert_eq!(unit.programs(), [Path::new("/bin/z")]);
        let unit = Unit::read(root, "a", Some("20.conf")).unwrap();
        assert_eq!(unit.list("ExecStart")[0].value.split_whitespace().collect::<Vec<_>>(), ["-/bin/x", "-y"]);
        assert_eq!(unit.list("ExecStart")[0].from.1, 4);
        assert!(Unit::read(root, "b", None).is_err());

        put(&root.path, "usr/lib/systemd/system/t@.service", "[Service]\nExecStart=/bin/t %i\n");
        assert_eq!(Unit::read(root, "t@1", None).unwrap().programs(), [Path::new("/bin/t")]);
    }

    #[test]
    fn names_are_services() {
        assert_eq!(full_name("redis").unwrap(), "redis.service");
        assert_eq!(full_name("a@b.c.service").unwrap(), "a@b.c.service");
        for name in ["", "../x", "a/b", ".x", "x.socket", "x.swap"] {
            assert_eq!(full_name(name).unwrap_err().status, 2, "{name}");
        }
    }
}
