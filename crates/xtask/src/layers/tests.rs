//! The reader of imports on small trees, and what the check says.

use super::check::{check, counts};
use super::graph;
use super::names::Crate;
use super::paths::World;
use super::picture::Picture;
use super::references::find;
use super::rooms::{Assignment, Config, Rules};
use std::collections::{BTreeMap, BTreeSet};

fn made(package: &str, dependencies: &[&str], texts: &[(&str, &str)]) -> Crate {
    let dependencies = dependencies.iter().map(|name| (name.replace('-', "_"), (*name).to_owned())).collect::<BTreeMap<_, _>>();
    let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Crate::new(package, package, dependencies, &texts).unwrap()
}

fn world(texts: &[(&str, &str)]) -> World {
    let mut world = World::default();
    world.add(made("small", &[], texts));
    world.place_methods();
    world
}

/// Each name that a file takes from another, as `a.rs: b::name`.
fn uses(texts: &[(&str, &str)]) -> Vec<String> {
    uses_in(&world(texts))
}

fn uses_in(world: &World) -> Vec<String> {
    let found = find(world, 0);
    let said = |reference: &super::references::Reference| {
        format!("{}: {}", world.crates[0].tree.files[reference.file].path, world.name(&reference.target))
    };
    found.references.iter().map(said).collect::<BTreeSet<_>>().into_iter().collect()
}

// A later text of a path replaces an earlier one.
fn picture(rules: &str, texts: &[(&str, &str)]) -> (Rules, Picture) {
    let config: Config = toml::from_str(rules).unwrap();
    let rules = config.crates[0].clone();
    let world = world(texts);
    let files: Vec<String> = world.crates[0].tree.files.iter().map(|file| file.path.clone()).collect();
    let assignment = Assignment::new(&rules, &files).unwrap();
    let picture = Picture::new(&world, 0, &find(&world, 0), &assignment, false);
    (rules, picture)
}

const B: (&str, &str) =
    ("b.rs", "pub fn one() {} pub fn two() {} pub struct Three; pub const FOUR: u8 = 4; pub mod five { pub fn six() {} }");

fn beside_b(a: &str) -> Vec<String> {
    uses(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), B])
}

#[test]
fn use_trees_are_expanded() {
    assert_eq!(
        beside_b("use crate::b::{one, Three as Other, five::{self, six}};"),
        ["a.rs: b::Three", "a.rs: b::five::six", "a.rs: b::one"]
    );
    assert_eq!(beside_b("use super::b as c; fn f() { c::two(); c::five::six() }"), ["a.rs: b::five::six", "a.rs: b::two"]);
    assert_eq!(beside_b("use crate::{b::{self}}; fn f() -> b::Three { b::one() }"), ["a.rs: b::Three", "a.rs: b::one"]);
}

#[test]
fn a_module_by_itself_counts_once() {
    assert_eq!(beside_b("use crate::b;"), ["a.rs: b"]);
    assert_eq!(beside_b("pub use crate::b::*;"), ["a.rs: b"]);
}

#[test]
fn globs_bring_what_is_used() {
    assert_eq!(beside_b("use super::b::*; fn f() -> u8 { one(); FOUR }"), ["a.rs: b::FOUR", "a.rs: b::one"]);
    // A variable is no name of a glob's.
    assert_eq!(beside_b("use super::b::*; fn f(two: u8) -> u8 { one(); two }"), ["a.rs: b::one"]);
    let texts = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use super::b::Kind::*; fn f() { let _ = Left; }"),
        ("b.rs", "pub enum Kind { Left }"),
    ];
    assert_eq!(uses(&texts), ["a.rs: b::Kind"]);
}

#[test]
fn paths_in_types_patterns_and_expressions_count() {
    assert_eq!(
        beside_b("struct S { x: crate::b::Three } fn f() { crate::b::five::six() }"),
        ["a.rs: b::Three", "a.rs: b::five::six"]
    );
    assert_eq!(beside_b("fn f(x: u8) { match x { crate::b::FOUR => {} _ => {} } }"), ["a.rs: b::FOUR"]);
    assert_eq!(beside_b("impl Clone for crate::b::Three { fn clone(&self) -> Self { loop {} } }"), ["a.rs: b::Three"]);
    assert_eq!(beside_b("fn f() { use crate::b; b::one() } fn g() { let b = 1; drop(b) }"), ["a.rs: b::one"]);
}

#[test]
fn supers_are_counted() {
    let texts = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub mod c; fn own() {}"),
        ("a/c.rs", "pub mod d { pub fn f() { super::super::own(); super::super::super::b::one(); self::g() } fn g() {} }"),
        B,
    ];
    assert_eq!(uses(&texts), ["a/c.rs: a::own", "a/c.rs: b::one"]);
}

#[test]
fn a_re_export_leads_to_the_file_that_defines() {
    let texts = [
        ("lib.rs", "mod a; mod b; pub mod facade; pub use facade::work as labour;"),
        ("a.rs", "use crate::labour; use crate::facade::{Thing, inner::deep}; fn f() { labour(); deep() }"),
        ("b.rs", "pub(crate) use super::facade::*; "),
        ("facade.rs", "mod made; pub(crate) mod inner; pub use made::{work, Thing};"),
        ("facade/made.rs", "pub fn work() {} pub struct Thing;"),
        ("facade/inner.rs", "pub use super::made::work as deep;"),
    ];
    let found = uses(&texts);
    assert!(found.contains(&"a.rs: facade::made::work".to_owned()), "{found:?}");
    assert!(found.contains(&"a.rs: facade::made::Thing".to_owned()), "{found:?}");
    assert!(!found.iter().any(|name| name.starts_with("a.rs: facade::inner")), "{found:?}");
    assert!(found.contains(&"b.rs: facade".to_owned()), "{found:?}");
    assert!(found.contains(&"lib.rs: facade::made::work".to_owned()), "{found:?}");
}

#[test]
fn re_exports_in_a_circle_end() {
    assert_eq!(
        uses(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::x; pub use crate::b::*;"),
            ("b.rs", "pub use crate::a::x; pub use crate::a::*;")
        ]),
        ["a.rs: b", "b.rs: a"]
    );
}

#[test]
fn a_module_and_a_function_of_one_name_are_two() {
    let texts = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::connect; fn f() { connect(); connect::other() }"),
        ("b.rs", "pub mod connect; pub use connect::connect;"),
        ("b/connect.rs", "pub fn connect() {} pub fn other() {}"),
    ];
    assert_eq!(uses(&texts), ["a.rs: b::connect::connect", "a.rs: b::connect::other", "b.rs: b::connect::connect"]);
}

#[test]
fn what_only_tests_see_is_dropped() {
    assert_eq!(beside_b("#[cfg(test)] mod tests { use crate::b::one; }"), [""; 0]);
    assert_eq!(beside_b("#[cfg(all(test, unix))] use crate::b::one; #[test] fn t() { crate::b::two() }"), [""; 0]);
    assert_eq!(
        beside_b("#[cfg(not(test))] use crate::b::one; #[cfg(any(test, unix))] use crate::b::two;"),
        ["a.rs: b::one", "a.rs: b::two"]
    );
    assert_eq!(
        beside_b("struct S; impl S { #[cfg(test)] fn t() { crate::b::two() } fn u() { crate::b::one() } }"),
        ["a.rs: b::one"]
    );
    // The file of a test module is no file of the crate.
    assert_eq!(uses(&[("lib.rs", "#[cfg(test)] mod a; mod b;"), B]), [""; 0]);
}

#[test]
fn words_in_comments_and_strings_say_nothing() {
    assert_eq!(beside_b("// crate::b::one\n/// [`crate::b::two`]\nconst X: &str = \"crate::b::one\";"), [""; 0]);
}

#[test]
fn calls_and_rules_of_macros_are_read() {
    assert_eq!(
        beside_b("use crate::b; fn f() { assert!(b::five::six() == (), \"{}\", crate::b::FOUR) }"),
        ["a.rs: b::FOUR", "a.rs: b::five::six"]
    );
    assert_eq!(beside_b("macro_rules! m { ($x:expr) => { $crate::b::two($x) } }"), ["a.rs: b::two"]);
    let texts = [
        ("lib.rs", "mod a; #[macro_use] mod b;"),
        ("a.rs", "fn f() { crate::m!() }"),
        ("b.rs", "#[macro_export] macro_rules! m { () => {} }"),
    ];
    assert_eq!(uses(&texts), ["a.rs: b::m"]);
}

#[test]
fn what_a_call_of_a_macro_makes_is_known_by_its_module() {
    let b = ("b.rs", "macro_rules! m { ($n:ident) => { pub struct $n; } } m!(Thing); pub fn one() {}");
    let a = ("a.rs", "use crate::b::{one, Thing}; fn f() { one(); crate::b::Thing::new() } fn g() { std::b::Other }");
    assert_eq!(uses(&[("lib.rs", "mod a; mod b;"), a, b]), ["a.rs: b::Thing", "a.rs: b::one"]);
    // Without such a call, a name that is not there is nothing of ours.
    assert_eq!(beside_b("fn f() { crate::b::gone() }"), [""; 0]);
}

#[test]
fn a_method_that_stands_elsewhere_than_its_type_is_named() {
    let texts = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::Thing; fn f() { Thing::here(); Thing::there() }"),
        ("b.rs", "pub struct Thing; impl Thing { pub fn here() {} }"),
        ("c.rs", "use crate::b::Thing; impl Thing { pub fn there() {} }"),
    ];
    assert_eq!(uses(&texts), ["a.rs: b::Thing", "a.rs: b::Thing::there", "c.rs: b::Thing"]);
}

#[test]
fn other_crates_are_known_by_their_names_and_their_aliases() {
    let mut world = World::default();
    world.add(made(
        "upper",
        &["shunt-lower"],
        &[
            ("lib.rs", "mod a; pub use shunt_lower as low;"),
            ("a.rs", "use crate::low::x; fn f() { x(); shunt_lower::deep::y(); ::shunt_lower::deep::z() }"),
        ],
    ));
    world.add(made(
        "shunt-lower",
        &[],
        &[
            ("lib.rs", "mod made; pub mod deep; pub use made::x;"),
            ("made.rs", "pub fn x() {}"),
            ("deep.rs", "pub fn y() {} pub fn z() {}"),
        ],
    ));
    world.place_methods();
    assert_eq!(uses_in(&world), ["a.rs: deep::y", "a.rs: deep::z", "a.rs: made::x", "lib.rs: crate"]);
}

#[test]
fn files_of_modules_are_found_as_the_compiler_finds_them() {
    let texts = [
        ("lib.rs", "mod a; mod b { pub mod c; } #[path = \"odd/place.rs\"] mod e;"),
        ("a/mod.rs", "mod d; use crate::b::c::f; use crate::e::g;"),
        ("a/d.rs", "use super::super::b::c::f;"),
        ("b/c.rs", "pub fn f() {}"),
        ("odd/place.rs", "pub fn g() {}"),
    ];
    assert_eq!(uses(&texts), ["a/d.rs: b::c::f", "a/mod.rs: b::c::f", "a/mod.rs: e::g"]);
}

#[test]
fn a_file_that_is_missing_or_broken_is_named() {
    let texts = |text: &str| [("lib.rs".to_owned(), text.to_owned())].into_iter().collect();
    let error = |text: &str| Crate::new("small", "small", BTreeMap::new(), &texts(text)).err().unwrap();
    assert_eq!(error("mod gone;"), "small/src: lib.rs: the file of `mod gone` is missing");
    assert!(error("\nfn").starts_with("small/src: lib.rs:"), "{}", error("\nfn"));
}

#[test]
fn statics_are_counted_wherever_they_stand() {
    let text = "static A: u8 = 1; fn f() -> &'static str { static B: u8 = 2; \"\" } \
        macro_rules! m { ($n:ident) => { static $n: u8 = 3; } } thread_local! { static C: u8 = 4; } \
        #[cfg(test)] mod tests { static D: u8 = 5; } extern \"C\" { static E: u8; }";
    let found = find(&world(&[("lib.rs", text)]), 0);
    let names: Vec<&str> = found.statics.iter().map(|(_, _, name)| name.as_str()).collect();
    assert_eq!(names, ["A", "B", "n", "C"]);
}

const UP: [(&str, &str); 4] = [
    ("lib.rs", ""),
    ("low.rs", "use crate::high::{one, two}; fn f() { one(); two() } pub fn base() {}"),
    ("high.rs", "use crate::low::base; pub fn one() { base() } pub fn two() {}"),
    ("lib.rs", "mod low; mod high;"),
];

const FLOORS: &str = "[[crate]]\nname = \"small\"\norder = [\"low\", \"high\", \"top\"]\nfiles = { \"low.rs\" = \"low\", \"high.rs\" = \"high\", \"lib.rs\" = \"top\" }\n";

#[test]
fn what_grew_is_said_and_what_to_do() {
    let (rules, found) = picture(FLOORS, &UP);
    let said = check(&rules, &found);
    assert_eq!(said.len(), 1, "{said:?}");
    for part in ["small: room `low` takes 2 names from `high`", "0 are allowed", "high::one  low.rs:1", "interface"] {
        assert!(said[0].contains(part), "{}", said[0]);
    }
}

#[test]
fn a_count_that_is_too_high_fails_and_the_right_one_does_not() {
    let with = |counts: &str| {
        let (rules, found) = picture(&format!("{FLOORS}{counts}"), &UP);
        check(&rules, &found)
    };
    assert_eq!(with("upward = { \"low -> high\" = 2 }\nlargest_circle = 2\nstatics = 0\nlines = 3\n"), [""; 0]);
    assert!(with("upward = { \"low -> high\" = 3 }")[0].contains("write 2"));
    assert!(with("upward = { \"low -> high\" = 2, \"low -> top\" = 1 }")[0].contains("take the line out"));
    let said = with("upward = { \"low -> high\" = 2 }\nlargest_circle = 1\nstatics = 1\nlines = 2\n");
    assert!(said[0].contains("2 rooms lie in one circle, 1 are allowed: low high"), "{said:?}");
    assert!(said[0].contains("high -> low: low::base  high.rs:1"), "{said:?}");
    assert!(said[1].contains("write statics = 0"), "{said:?}");
    assert!(said[2].contains("3 lines"), "{said:?}");
    assert!(with("upward = { \"low -> high\" = 2 }\nlargest_circle = 3\n")[0].contains("write largest_circle = 2"));
}

#[test]
fn counts_that_are_written_down_pass() {
    let (_, found) = picture(FLOORS, &UP);
    let written = counts(&found);
    let places = FLOORS.split_once("order").unwrap().1;
    let (head, rest) = written.split_once("lines").unwrap();
    let (rules, found) = picture(&format!("{head}order{places}lines{rest}"), &UP);
    assert_eq!(check(&rules, &found), [""; 0]);
}

#[test]
fn paths_that_lead_nowhere_and_files_without_a_room_are_named() {
    let rules =
        "[[crate]]\nname = \"small\"\n[[crate.room]]\nname = \"low\"\nfloor = 1\nfiles = [\"low.rs\", \"lib.rs\", \"gone/\"]\n";
    let (rules, found) = picture(rules, &UP);
    let said = check(&rules, &found);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("`gone/`"), "{said:?}");
    assert!(said[1].contains("high.rs is in no room"), "{said:?}");
}

#[test]
fn a_single_item_may_be_in_another_room_than_its_file() {
    let rules = FLOORS.replace("\"lib.rs\"", "\"high.rs::one\" = \"low\", \"low.rs::f\" = \"high\", \"lib.rs\"");
    let (_, found) = picture(&rules, &UP);
    assert!(found.upward().is_empty());
    let rules = FLOORS.replace("\"lib.rs\"", "\"high.rs::one\" = \"low\", \"lib.rs\"");
    let (_, found) = picture(&rules, &UP);
    let names: Vec<&String> = found.upward()[0].1.keys().collect();
    assert_eq!(names, ["high::two"]);
}

#[test]
fn without_rooms_each_top_module_is_one() {
    let (_, found) = picture("[[crate]]\nname = \"small\"\n", &UP);
    let mut names: Vec<&str> = found.rooms.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["high", "lib", "low"]);
    assert!(found.upward().is_empty());
    assert_eq!(found.largest_circle(), 2);
}

#[test]
fn circles_are_the_largest_sets_that_reach_each_other() {
    let arrows = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (4, 5)].into_iter().collect();
    assert_eq!(graph::circles(6, &arrows), [vec![0, 1, 2], vec![3, 4]]);
    assert!(graph::circles(3, &[(0, 1), (1, 2), (0, 2)].into_iter().collect()).is_empty());
}

#[test]
fn the_best_order_turns_the_lightest_arrows_up() {
    // 0 takes from 1, 1 from 2, 2 from 0; the last is the lightest.
    let weights = [vec![0, 5, 0], vec![0, 0, 4], vec![1, 0, 0]];
    let order = graph::best_order(&weights);
    assert_eq!(order, [2, 1, 0]);
    assert_eq!(graph::upward(&order, &weights), 1);
}
