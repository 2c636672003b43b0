//! What may grow no more: counts of `layers.toml` against what the sources hold.

use super::picture::{Names, Picture};
use super::report::count;
use super::rooms::Rules;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A sentence for each thing that grew, and for each count that is higher than what it counts.
pub fn check(rules: &Rules, picture: &Picture) -> Vec<String> {
    let mut said = Vec::new();
    upward(rules, picture, &mut said);
    circles(rules, picture, &mut said);
    statics(rules, picture, &mut said);
    if let Some(most) = rules.lines.filter(|most| picture.lines > *most) {
        said.push(format!(
            "has {} lines without those of tests, {most} are allowed; the largest room is `{}`. Move a room into a crate of its own, or say in layers.toml why this crate may be larger",
            picture.lines,
            largest_room(picture)
        ));
    }
    for path in &picture.stale {
        said.push(format!("`{path}` in layers.toml leads to no file; take it out, or write where it went"));
    }
    for file in &picture.unplaced {
        said.push(format!("{file} is in no room; write it into a room of layers.toml"));
    }
    said.into_iter().map(|sentence| format!("{}: {sentence}", picture.package)).collect()
}

/// `layers.toml`'s counts as they are now.
pub fn counts(picture: &Picture) -> String {
    let mut out = format!(
        "[[crate]]\nname = \"{}\"\nlargest_circle = {}\nstatics = {}\n",
        picture.package,
        picture.largest_circle(),
        picture.statics.len()
    );
    let _ = writeln!(out, "lines = {} # at most", picture.lines);
    let upward = picture.upward();
    if !upward.is_empty() {
        out.push_str("[crate.upward]\n");
        for ((from, to), names) in upward {
            let _ = writeln!(out, "\"{} -> {}\" = {}", picture.name(from), picture.name(to), names.len());
        }
    }
    out
}

fn upward(rules: &Rules, picture: &Picture, said: &mut Vec<String>) {
    let mut there: BTreeMap<String, (usize, &Names)> = BTreeMap::new();
    for ((from, to), names) in picture.upward() {
        there.insert(format!("{} -> {}", picture.name(from), picture.name(to)), (names.len(), names));
    }
    for (pair, (number, names)) in &there {
        let allowed = rules.upward.get(pair).copied().unwrap_or(0);
        if *number > allowed {
            let (from, to) = pair.split_once(" -> ").expect("written above");
            said.push(format!(
                "room `{from}` takes {} from `{to}`, which is not below it, and {allowed} are allowed:\n{}\
                 Move what it needs down, or let `{to}` fill in an interface that stands below both",
                count(*number, "name"),
                listed(names)
            ));
        }
    }
    for (pair, allowed) in &rules.upward {
        let number = there.get(pair).map_or(0, |(number, _)| *number);
        if number < *allowed {
            let cure = if number == 0 { "take the line out".to_owned() } else { format!("write {number}") };
            said.push(format!(
                "layers.toml allows {allowed} for `{pair}`, and there are {number}: {cure}, so that it cannot grow again"
            ));
        }
    }
}

fn listed(names: &Names) -> String {
    let mut out = String::new();
    for (name, sites) in names {
        let all: Vec<String> = sites.iter().map(|(file, line)| format!("{file}:{line}")).collect();
        let _ = writeln!(out, "    {name}  {}", all.join(" "));
    }
    out
}

fn circles(rules: &Rules, picture: &Picture, said: &mut Vec<String>) {
    let Some(allowed) = rules.largest_circle else { return };
    let found = picture.largest_circle();
    if found > allowed {
        let circle = &picture.circles[0];
        let names: Vec<&str> = circle.iter().map(|room| picture.name(*room)).collect();
        // The arrows that carry least are those that are cut most easily.
        let mut arrows: Vec<_> = picture.arrows.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b)).collect();
        arrows.sort_by_key(|(_, taken)| taken.len());
        let thin: String = arrows
            .iter()
            .take(5)
            .flat_map(|((a, b), taken)| {
                let (a, b) = (picture.name(*a), picture.name(*b));
                taken.iter().map(move |(name, sites)| {
                    let (file, line) = sites.first().expect("a name is used somewhere");
                    format!("    {a} -> {b}: {name}  {file}:{line}\n")
                })
            })
            .collect();
        said.push(format!(
            "{found} rooms lie in one circle, {allowed} are allowed: {}\nIts thinnest arrows:\n{thin}Turn one of them round: move what it takes to the room that takes it, or to a room below both",
            names.join(" ")
        ));
    } else if found < allowed {
        said.push(format!("layers.toml allows a circle of {allowed} rooms, and the largest has {found}: write largest_circle = {found}, so that it cannot grow again"));
    }
}

fn statics(rules: &Rules, picture: &Picture, said: &mut Vec<String>) {
    let Some(allowed) = rules.statics else { return };
    let found = picture.statics.len();
    if found > allowed {
        said.push(format!(
            "has {}, {allowed} are allowed. Put the new one into a structure that has an owner (the socket, the link, the process's one state); `cargo run -p shunt-xtask -- layers --statics {}` lists them",
            count(found, "static"),
            picture.package
        ));
    } else if found < allowed {
        said.push(format!("layers.toml allows {allowed} statics, and there are {found}: write statics = {found}, so that they cannot grow again"));
    }
}

fn largest_room(picture: &Picture) -> &str {
    let largest = (0..picture.rooms.len()).max_by_key(|room| picture.sizes[*room].1);
    largest.map_or("", |room| picture.name(room))
}
