//! A picture as text, as JSON and as a graph for `dot`.

use super::graph;
use super::picture::{Names, Picture};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What a report shall say.
#[derive(Default)]
pub struct Asked {
    /// Where each upward name is used.
    pub why: bool,
    /// An order with few upward names.
    pub best: bool,
    /// All names between two rooms.
    pub arrow: Option<(String, String)>,
    /// Each static.
    pub statics: bool,
}

/// The report for people.
pub fn text(picture: &Picture, asked: &Asked) -> String {
    let mut out = String::new();
    if let Some((from, to)) = &asked.arrow {
        for ((a, b), names) in &picture.arrows {
            if picture.name(*a) == from && picture.name(*b) == to {
                let _ = writeln!(out, "{}: {from} -> {to}: {}", picture.package, count(names.len(), "name"));
                write_names(&mut out, names, usize::MAX);
            }
        }
        return out;
    }
    let _ = writeln!(
        out,
        "== {}: {} in {}, {}; the largest file is {} ({})",
        picture.package,
        count(picture.lines, "line"),
        count(picture.sizes.iter().map(|(files, _)| files).sum(), "file"),
        count(picture.statics.len(), "static"),
        picture.largest.0,
        picture.largest.1
    );
    write_table(&mut out, picture);
    write_circles(&mut out, picture);
    write_upward(&mut out, picture, asked.why);
    for (what, paths) in [("lead to no file", &picture.stale), ("are in no listed room", &picture.unplaced)] {
        if !paths.is_empty() {
            let _ = writeln!(out, "paths that {what}: {}", paths.join(" "));
        }
    }
    // Rooms on floors are to become crates; modules of one crate may share a type's methods.
    if !picture.abroad.is_empty() && picture.rooms.iter().any(|(_, floor)| floor.is_some()) {
        let _ = writeln!(
            out,
            "methods that stand in another room than their type (a crate cannot have them): {}",
            picture.abroad.len()
        );
        for (name, home, here) in &picture.abroad {
            let _ = writeln!(out, "  {name}: type in {}, method in {}", picture.name(*home), picture.name(*here));
        }
    }
    if !picture.outward.is_empty() {
        let all: Vec<String> = picture.outward.iter().map(|(package, names)| format!("{package} {}", names.len())).collect();
        let _ = writeln!(out, "names of other crates: {}", all.join(", "));
    }
    if !picture.unused.is_empty() {
        let _ = writeln!(out, "in the manifest, named by no source: {}", picture.unused.join(" "));
    }
    if asked.statics {
        for (file, line, name) in &picture.statics {
            let _ = writeln!(out, "  static {file}:{line} {name}");
        }
    }
    if asked.best {
        write_best(&mut out, picture, asked.why);
    }
    out
}

/// The order in which rooms are shown: from the lowest floor, then as they were found.
fn shown(picture: &Picture) -> Vec<usize> {
    let mut order: Vec<usize> = (0..picture.rooms.len()).filter(|room| picture.sizes[*room].0 > 0).collect();
    order.sort_by_key(|room| picture.rooms[*room].1.unwrap_or(i64::MAX));
    order
}

fn write_table(out: &mut String, picture: &Picture) {
    let order = shown(picture);
    let weights = picture.weights();
    let wide = order.iter().map(|room| picture.name(*room).len()).max().unwrap_or(0).max(10);
    let _ = write!(out, "{:wide$} floor files  lines |", "takes from");
    for (at, _) in order.iter().enumerate() {
        let _ = write!(out, "{:>4}", at + 1);
    }
    let _ = writeln!(out, " |  all");
    for (at, from) in order.iter().enumerate() {
        let floor = picture.rooms[*from].1.map_or("-".to_owned(), |floor| floor.to_string());
        let (files, lines) = picture.sizes[*from];
        let _ = write!(out, "{:wide$} {floor:>2} {:>2} {files:>5} {lines:>6} |", picture.name(*from), at + 1);
        for to in &order {
            let number = weights[*from][*to];
            let cell = if from == to {
                ".".to_owned()
            } else if number == 0 {
                String::new()
            } else {
                number.to_string()
            };
            let _ = write!(out, "{cell:>4}");
        }
        let _ = writeln!(out, " | {:>4}", weights[*from].iter().sum::<usize>());
    }
    let pairs = picture.arrows.len();
    let in_circles = picture
        .arrows
        .keys()
        .filter(|(a, b)| picture.circles.iter().any(|circle| circle.contains(a) && circle.contains(b)))
        .count();
    let possible = order.len() * order.len().saturating_sub(1);
    let _ = writeln!(out, "arrows: {pairs} of {possible}, {in_circles} of them in circles");
}

fn write_circles(out: &mut String, picture: &Picture) {
    let names = |circle: &[usize]| circle.iter().map(|room| picture.name(*room)).collect::<Vec<_>>().join(" ");
    for circle in &picture.circles {
        let _ = writeln!(out, "circle of {}: {}", count(circle.len(), "room"), names(circle));
    }
    if picture.circles.is_empty() {
        let _ = writeln!(out, "no circle of rooms");
    }
    let _ = writeln!(out, "largest circle of files: {}", picture.file_circle);
    for (room, circle) in &picture.inner_circles {
        let _ = writeln!(out, "circle inside {}: {}: {}", picture.name(*room), circle.len(), circle.join(" "));
    }
}

fn write_upward(out: &mut String, picture: &Picture, why: bool) {
    let upward = picture.upward();
    if picture.rooms.iter().all(|(_, floor)| floor.is_none()) {
        return;
    }
    let distinct: BTreeSet<&String> = upward.iter().flat_map(|(_, names)| names.keys()).collect();
    let sum: usize = upward.iter().map(|(_, names)| names.len()).sum();
    let _ = writeln!(out, "upward: {} ({} between pairs of rooms)", count(distinct.len(), "name"), sum);
    for ((from, to), names) in upward {
        let _ = writeln!(out, "  {} -> {}: {}", picture.name(from), picture.name(to), names.len());
        if why {
            write_names(out, names, usize::MAX);
        }
    }
}

fn write_names(out: &mut String, names: &Names, most: usize) {
    for (name, sites) in names.iter() {
        let shown: Vec<String> = sites.iter().take(most).map(|(file, line)| format!("{file}:{line}")).collect();
        let _ = writeln!(out, "    {name:40} {}", shown.join(" "));
    }
}

fn write_best(out: &mut String, picture: &Picture, why: bool) {
    let weights = picture.weights();
    let order = graph::best_order(&weights);
    let names: Vec<&str> = order.iter().filter(|room| picture.sizes[**room].0 > 0).map(|room| picture.name(*room)).collect();
    let _ = writeln!(
        out,
        "the best order found, lowest first, with {} upward: {}",
        count(graph::upward(&order, &weights), "name"),
        names.join(" < ")
    );
    for (height, lower) in order.iter().enumerate() {
        for higher in &order[height + 1..] {
            let Some(names) = picture.arrows.get(&(*lower, *higher)) else { continue };
            let _ = writeln!(out, "  {} -> {}: {}", picture.name(*lower), picture.name(*higher), names.len());
            if why {
                write_names(out, names, usize::MAX);
            }
        }
    }
}

/// The same for programs.
pub fn json(picture: &Picture) -> Value {
    let names = |names: &Names| {
        names
            .iter()
            .map(|(name, sites)| {
                (name.clone(), sites.iter().map(|(file, line)| json!(format!("{file}:{line}"))).collect::<Value>())
            })
            .collect::<serde_json::Map<_, _>>()
    };
    let arrow = |(from, to): (usize, usize), taken: &Names| json!({ "from": picture.name(from), "to": picture.name(to), "names": names(taken) });
    let circle = |circle: &Vec<usize>| circle.iter().map(|room| json!(picture.name(*room))).collect::<Value>();
    json!({
        "crate": picture.package,
        "lines": picture.lines,
        "largest_file": { "path": picture.largest.0, "lines": picture.largest.1 },
        "rooms": shown(picture).iter().map(|room| json!({
            "name": picture.name(*room), "floor": picture.rooms[*room].1, "files": picture.sizes[*room].0, "lines": picture.sizes[*room].1,
        })).collect::<Value>(),
        "arrows": picture.arrows.iter().map(|(pair, taken)| arrow(*pair, taken)).collect::<Value>(),
        "upward": picture.upward().into_iter().map(|(pair, taken)| arrow(pair, taken)).collect::<Value>(),
        "circles": picture.circles.iter().map(circle).collect::<Value>(),
        "inner_circles": picture.inner_circles.iter().map(|(room, circle)| json!({ "room": picture.name(*room), "circle": circle })).collect::<Value>(),
        "methods_abroad": picture.abroad.iter().map(|(name, home, here)| {
            json!({ "name": name, "type_in": picture.name(*home), "method_in": picture.name(*here) })
        }).collect::<Value>(),
        "file_circle": picture.file_circle,
        "statics": picture.statics.iter().map(|(file, line, name)| json!({ "at": format!("{file}:{line}"), "name": name })).collect::<Value>(),
        "crates": picture.outward.iter().map(|(package, taken)| (package.clone(), json!(names(taken)))).collect::<serde_json::Map<_, _>>(),
        "unused_dependencies": picture.unused,
    })
}

/// A graph of the rooms; what points upward is red.
pub fn dot(picture: &Picture) -> String {
    let mut out = format!("digraph \"{}\" {{\n  rankdir=BT;\n  node [shape=box];\n", picture.package);
    for room in shown(picture) {
        let _ = writeln!(out, "  \"{0}\" [label=\"{0}\\n{1}\"];", picture.name(room), picture.sizes[room].1);
    }
    let upward: BTreeSet<(usize, usize)> = picture.upward().into_iter().map(|(pair, _)| pair).collect();
    for ((from, to), names) in &picture.arrows {
        let more = if upward.contains(&(*from, *to)) { ", color=red, constraint=false" } else { "" };
        // An arrow leads from below to the room that takes, so that the lowest floor is drawn at the bottom.
        let _ =
            writeln!(out, "  \"{}\" -> \"{}\" [dir=back, label={}{more}];", picture.name(*to), picture.name(*from), names.len());
    }
    out.push_str("}\n");
    out
}

/// A number with its noun.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
