//! Which room a file or a single item is in, and what may grow no more: the form of `layers.toml`.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A file of rooms.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(rename = "crate", default)]
    pub crates: Vec<Rules>,
}

/// What holds in one crate.
#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The package's name.
    pub name: String,
    /// Rooms; none: each top-level module is one.
    #[serde(default)]
    pub room: Vec<Room>,
    /// A shorter form of the same: rooms from the lowest to the highest, and for each path its room.
    #[serde(default)]
    pub order: Vec<String>,
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// How many distinct names a room may take from one that is not below it: `"stream -> remote" = 8`.
    #[serde(default)]
    pub upward: BTreeMap<String, usize>,
    /// How many rooms may lie in one circle.
    pub largest_circle: Option<usize>,
    pub statics: Option<usize>,
    pub lines: Option<usize>,
}

/// A topic.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct Room {
    pub name: String,
    /// A room takes names from lower floors only. Rooms without a floor may take and give where they like.
    pub floor: Option<i64>,
    /// Paths below `src`: a file, a directory with its slash, or `file.rs::Item`. The longest that fits decides.
    #[serde(default)]
    pub files: Vec<String>,
}

/// Reads a file of rooms.
///
/// # Errors
/// A sentence that names the file and the place in it.
pub fn read(path: &std::path::Path) -> Result<Config, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The rooms of a crate, and what is in them.
pub struct Assignment {
    pub rooms: Vec<(String, Option<i64>)>,
    /// Paths and the rooms they lead to.
    places: Vec<(String, usize)>,
    listed: bool,
}

impl Assignment {
    /// What the rules say of a crate with these files.
    ///
    /// # Errors
    /// A sentence, if a path leads to a room that is not in `order`.
    pub fn new(rules: &Rules, files: &[String]) -> Result<Assignment, String> {
        let mut rooms: Vec<(String, Option<i64>)> = Vec::new();
        let mut places = Vec::new();
        for room in &rules.room {
            places.extend(room.files.iter().map(|path| (path.clone(), rooms.len())));
            rooms.push((room.name.clone(), room.floor));
        }
        for name in &rules.order {
            let above = rooms.iter().filter_map(|(_, floor)| *floor).max().unwrap_or(0) + 1;
            rooms.push((name.clone(), Some(above)));
        }
        for (path, name) in &rules.files {
            let room = rooms.iter().position(|(known, _)| known == name);
            places
                .push((path.clone(), room.ok_or_else(|| format!("`{path}` is in the room `{name}`, which is not in `order`"))?));
        }
        let listed = !rooms.is_empty();
        let mut made = Assignment { rooms, places, listed };
        for file in files {
            if made.longest(file, "").is_none() {
                let name = top_module(file);
                let room = made.rooms.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    made.rooms.push((name, None));
                    made.rooms.len() - 1
                });
                made.places.push((file.clone(), room));
            }
        }
        Ok(made)
    }

    fn longest(&self, file: &str, item: &str) -> Option<&(String, usize)> {
        let fits = |path: &str| match path.split_once("::") {
            Some((of, name)) => {
                of == file && (name == item || item.strip_prefix(name).is_some_and(|rest| rest.starts_with("::")))
            }
            None => path == file || path.ends_with('/') && file.starts_with(path),
        };
        self.places.iter().filter(|(path, _)| fits(path)).max_by_key(|(path, _)| path.len())
    }

    /// The room of an item in a file; the item may be empty.
    pub fn room(&self, file: &str, item: &str) -> usize {
        self.longest(file, item).map(|(_, room)| *room).expect("every file is in a room")
    }

    /// The room inside the room: what would be a top-level module if the room were a crate.
    pub fn inner(&self, file: &str, item: &str) -> String {
        let (path, _) = self.longest(file, item).expect("every file is in a room");
        let path = path.split("::").next().unwrap_or(path).trim_end_matches('/');
        let last = path.rsplit('/').next().unwrap_or(path);
        last.strip_suffix(".rs").unwrap_or(last).to_owned()
    }

    /// Paths of the rules that lead to no file.
    pub fn stale(&self, files: &[String]) -> Vec<String> {
        let stale = |path: &str| {
            let path = path.split("::").next().unwrap_or(path);
            !files.iter().any(|file| file == path || path.ends_with('/') && file.starts_with(path))
        };
        self.places.iter().map(|(path, _)| path.clone()).filter(|path| stale(path)).collect()
    }

    /// Files that fell into rooms of their top-level modules though rooms are listed.
    pub fn unplaced(&self, files: &[String]) -> Vec<String> {
        let without = |file: &&String| {
            self.listed
                && self.rooms[self.room(file, "")].1.is_none()
                && self.longest(file, "").is_some_and(|(path, _)| path == *file)
        };
        files.iter().filter(without).cloned().collect()
    }
}

fn top_module(file: &str) -> String {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}
