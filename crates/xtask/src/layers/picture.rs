//! What a crate's rooms take from each other.

use super::graph;
use super::paths::{Target, World};
use super::references::Found;
use super::rooms::Assignment;
use std::collections::{BTreeMap, BTreeSet};

/// The places at which a name is used: file and line.
pub type Sites = BTreeSet<(String, usize)>;
/// Names, and where they are used.
pub type Names = BTreeMap<String, Sites>;

/// A crate's rooms and arrows.
pub struct Picture {
    pub package: String,
    pub rooms: Vec<(String, Option<i64>)>,
    /// From a room to another, the names that the first takes.
    pub arrows: BTreeMap<(usize, usize), Names>,
    /// Names taken from other crates.
    pub outward: BTreeMap<String, Names>,
    /// Crates that the manifest lists and no source names.
    pub unused: Vec<String>,
    /// Files and lines of a room, without those of tests.
    pub sizes: Vec<(usize, usize)>,
    pub circles: Vec<Vec<usize>>,
    /// For each room with circles among what would be its own rooms: their names.
    pub inner_circles: Vec<(usize, Vec<String>)>,
    /// How many files the largest circle of files holds.
    pub file_circle: usize,
    pub statics: Vec<(String, usize, String)>,
    pub lines: usize,
    pub largest: (String, usize),
    /// Methods that stand in another room than their type: `Type::method` and both rooms.
    pub abroad: Vec<(String, usize, usize)>,
    pub stale: Vec<String>,
    pub unplaced: Vec<String>,
}

impl Picture {
    /// Of the rooms of this assignment. `methods`: calls of methods whose names are defined once count, too.
    pub fn new(world: &World, package: usize, found: &Found, assignment: &Assignment, methods: bool) -> Picture {
        let of = &world.crates[package];
        let paths: Vec<String> = of.tree.files.iter().map(|file| file.path.clone()).collect();
        let mut arrows: BTreeMap<(usize, usize), Names> = BTreeMap::new();
        let mut outward: BTreeMap<String, Names> = BTreeMap::new();
        let mut inner: BTreeMap<usize, BTreeSet<(String, String)>> = BTreeMap::new();
        let mut between_files = BTreeSet::new();
        let mut abroad = BTreeSet::new();
        for reference in &found.references {
            let (owner, file) = world.place(&reference.target);
            let from = &paths[reference.file];
            let site = (from.clone(), reference.line);
            let name = world.name(&reference.target);
            if owner != package {
                outward.entry(world.crates[owner].package.clone()).or_default().entry(name).or_default().insert(site);
                continue;
            }
            between_files.insert((reference.file, file));
            let short = world.short_name(&reference.target);
            let (a, b) = (assignment.room(from, &reference.within), assignment.room(&paths[file], &short));
            if a != b {
                arrows.entry((a, b)).or_default().entry(name).or_default().insert(site);
            } else {
                let pair = (assignment.inner(from, &reference.within), assignment.inner(&paths[file], &short));
                if pair.0 != pair.1 {
                    inner.entry(a).or_default().insert(pair);
                }
            }
        }
        if methods {
            for (a, b, name, site) in method_calls(found, &paths, assignment) {
                arrows.entry((a, b)).or_default().entry(name).or_default().insert(site);
            }
        }
        for (target, file) in world.methods_abroad(package) {
            let Target::Method { item, name, .. } = &target else { continue };
            let of_type = Target::Item { package, item: *item };
            let home = assignment.room(&paths[world.place(&of_type).1], &world.short_name(&of_type));
            let here = assignment.room(&paths[file], &world.short_name(&target));
            if home != here {
                abroad.insert((format!("{}::{name}", world.name(&of_type)), home, here));
            }
        }
        let mut sizes = vec![(0, 0); assignment.rooms.len()];
        for file in &of.tree.files {
            let room = assignment.room(&file.path, "");
            sizes[room].0 += 1;
            sizes[room].1 += file.lines - file.of_tests.min(file.lines);
        }
        let pairs: BTreeSet<(usize, usize)> = arrows.keys().copied().collect();
        let largest = of.tree.files.iter().max_by_key(|file| file.lines).map(|file| (file.path.clone(), file.lines));
        Picture {
            package: of.package.clone(),
            circles: graph::circles(assignment.rooms.len(), &pairs),
            inner_circles: inner.into_iter().flat_map(|(room, pairs)| circles_of_names(room, &pairs)).collect(),
            file_circle: graph::circles(paths.len(), &between_files).first().map_or(0, Vec::len),
            unused: of.dependencies.values().filter(|name| !outward.contains_key(*name)).cloned().collect(),
            statics: found.statics.iter().map(|(file, line, name)| (paths[*file].clone(), *line, name.clone())).collect(),
            lines: sizes.iter().map(|(_, lines)| lines).sum(),
            largest: largest.unwrap_or_default(),
            rooms: assignment.rooms.clone(),
            stale: assignment.stale(&paths),
            unplaced: assignment.unplaced(&paths),
            abroad: abroad.into_iter().collect(),
            arrows,
            outward,
            sizes,
        }
    }

    /// The arrows to rooms that are not below: pairs of rooms and the names.
    pub fn upward(&self) -> Vec<((usize, usize), &Names)> {
        let up =
            |(from, to): (usize, usize)| matches!((self.rooms[from].1, self.rooms[to].1), (Some(from), Some(to)) if to >= from);
        self.arrows.iter().filter(|(pair, _)| up(**pair)).map(|(pair, names)| (*pair, names)).collect()
    }

    pub fn name(&self, room: usize) -> &str {
        &self.rooms[room].0
    }

    /// How many names each room takes from each other.
    pub fn weights(&self) -> Vec<Vec<usize>> {
        let count = |from: usize, to: usize| self.arrows.get(&(from, to)).map_or(0, Names::len);
        (0..self.rooms.len()).map(|from| (0..self.rooms.len()).map(|to| count(from, to)).collect()).collect()
    }

    pub fn largest_circle(&self) -> usize {
        self.circles.first().map_or(1, Vec::len)
    }
}

fn circles_of_names(room: usize, pairs: &BTreeSet<(String, String)>) -> Vec<(usize, Vec<String>)> {
    let names: Vec<&String> = pairs.iter().flat_map(|(a, b)| [a, b]).collect::<BTreeSet<_>>().into_iter().collect();
    let index = |name: &String| names.binary_search(&name).expect("collected above");
    let arrows = pairs.iter().map(|(a, b)| (index(a), index(b))).collect();
    let circles = graph::circles(names.len(), &arrows);
    circles.into_iter().map(|circle| (room, circle.into_iter().map(|node| names[node].clone()).collect())).collect()
}

/// Names of methods that the standard library's types have, too: their calls say nothing.
const COMMON: &[&str] = &[
    "add",
    "all",
    "and",
    "and_then",
    "any",
    "as_bytes",
    "as_mut",
    "as_mut_ptr",
    "as_ptr",
    "as_ref",
    "by_ref",
    "cast",
    "chain",
    "checked_add",
    "clear",
    "clone",
    "cmp",
    "contains",
    "copied",
    "copy_from_slice",
    "count",
    "default",
    "drain",
    "end",
    "eq",
    "expect",
    "extend",
    "fill",
    "filter",
    "find",
    "first",
    "fold",
    "get",
    "get_mut",
    "index",
    "insert",
    "into_iter",
    "is_empty",
    "is_none",
    "is_some",
    "iter",
    "iter_mut",
    "last",
    "len",
    "load",
    "lock",
    "map",
    "max",
    "min",
    "new",
    "next",
    "not",
    "offset",
    "ok",
    "or",
    "peek",
    "pop",
    "position",
    "push",
    "put",
    "read",
    "remove",
    "replace",
    "reserve",
    "rev",
    "send",
    "set",
    "skip",
    "sort",
    "split",
    "split_at",
    "start",
    "store",
    "sub",
    "swap",
    "take",
    "then",
    "truncate",
    "unlock",
    "update",
    "wait",
    "wake",
    "write",
    "zip",
    "fetch_add",
    "fetch_or",
    "fetch_sub",
    "fetch_and",
    "compare_exchange",
    "starts_with",
    "ends_with",
    "min_by",
    "or_else",
    "unwrap_or",
    "windows",
    "from",
    "into",
    "is_null",
    "add_assign",
    "join",
    "kind",
];

fn method_calls(found: &Found, paths: &[String], assignment: &Assignment) -> Vec<(usize, usize, String, (String, usize))> {
    let mut defined: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (name, file, whole) in &found.methods {
        defined.entry(name).or_default().push((*file, whole));
    }
    let mut calls = Vec::new();
    for (file, within, line, name) in &found.calls {
        let Some([(home, whole)]) = defined.get(name.as_str()).map(Vec::as_slice) else { continue };
        if COMMON.contains(&name.as_str()) {
            continue;
        }
        let (a, b) = (assignment.room(&paths[*file], within), assignment.room(&paths[*home], whole));
        if a != b {
            calls.push((a, b, format!(".{name}() of {whole}"), (paths[*file].clone(), *line)));
        }
    }
    calls
}
