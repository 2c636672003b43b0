//! Random definitions: rpcgen takes them as we do, values that we encode by them are decoded by rpcgen's code and encoded to the same bytes, and a file
//! that lacks a sign of punctuation is refused by both.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{json, Map, Value};
use shunt_rpcgen::model::{Base, Declaration, Definition, File, Shape};
use shunt_rpcgen::values::{decode, encode};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Definitions of a file at most, and what decides about each.
const DEFINITIONS: usize = 24;
const DECISIONS: usize = 24;
/// Values of each type.
const VALUES: u32 = 8;
/// Words of a definition's longest value, and bytes for it in the C program.
const LONGEST: u32 = 400;
/// Depth of values of types that hold themselves.
const DEEPEST: u32 = 4;

/// Decisions, of which there may be too few: the rest are the simplest.
struct Choices<'c>(std::slice::Iter<'c, u32>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.0.next().map_or(0, |choice| *choice as usize % count)
    }
}

/// A definition that others may use: its name, words of its longest value, members if it is an enum.
struct Known {
    name: String,
    words: u32,
    members: Vec<String>,
}

const BASES: [(&str, u32); 12] = [
    ("int", 1),
    ("unsigned int", 1),
    ("hyper", 2),
    ("unsigned hyper", 2),
    ("float", 1),
    ("double", 2),
    ("bool", 1),
    ("char", 1),
    ("unsigned char", 1),
    ("short", 1),
    ("unsigned short", 1),
    ("long", 1),
];

/// `TYPE NAME` in some shape, and the words of its longest value.
fn declaration(choices: &mut Choices<'_>, known: &[Known], name: &str) -> (String, u32) {
    let kind = choices.below(10);
    let count = choices.below(4) as u32 + 1;
    match kind {
        7 => return (format!("string {name}<{count}>"), 2),
        8 => return (format!("opaque {name}[{count}]"), 1),
        9 => return (format!("opaque {name}<{}>", count * 7), 9),
        _ => {}
    }
    let (base, words) = match choices.below(2) {
        1 if !known.is_empty() => {
            let known = &known[choices.below(known.len())];
            (known.name.as_str(), known.words)
        }
        _ => BASES[choices.below(BASES.len())],
    };
    if words * count > LONGEST / 8 {
        return (format!("int {name}"), 1);
    }
    match kind {
        0..=3 => (format!("{base} {name}"), words),
        4 => (format!("{base} {name}[{count}]"), words * count),
        5 => (format!("{base} {name}<{count}>"), words * count + 1),
        _ => (format!("{base} *{name}"), words + 1),
    }
}

fn union(text: &mut String, choices: &mut Choices<'_>, known: &[Known], name: &str) -> u32 {
    let enums: Vec<&Known> = known.iter().filter(|known| !known.members.is_empty()).collect();
    let (decides, labels): (&str, Vec<String>) = match choices.below(4) {
        0 => ("int", ["0", "-5", "0x10", "7"].map(String::from).into()),
        1 => ("unsigned int", ["3", "017", "0", "4294967295"].map(String::from).into()),
        2 => ("bool", ["TRUE", "FALSE"].map(String::from).into()),
        _ => match enums.get(choices.below(enums.len().max(1))) {
            Some(known) => (&known.name, known.members.clone()),
            None => ("int", vec!["1".into()]),
        },
    };
    let _ = writeln!(text, "union {name} switch ({decides} which) {{");
    let mut longest = 0;
    let mut arm = |text: &mut String, choices: &mut Choices<'_>, field: &str| {
        if choices.below(4) == 3 {
            text.push_str("    void;\n");
            return;
        }
        let (declared, words) = declaration(choices, known, field);
        longest = longest.max(words);
        let _ = writeln!(text, "    {declared};");
    };
    let arms = 1 + choices.below(labels.len());
    for (at, label) in labels.iter().take(arms).enumerate() {
        let _ = writeln!(text, "case {label}:");
        // Several labels may choose the same.
        if at + 1 == arms || choices.below(3) < 2 {
            arm(text, choices, &format!("f{at}"));
        }
    }
    if decides != "bool" && choices.below(2) == 1 {
        text.push_str("default:\n");
        arm(text, choices, "other");
    }
    text.push_str("};\n");
    longest + 1
}

/// The text of a file, and the names of its types.
fn file(decisions: &[Vec<u32>]) -> (String, Vec<String>) {
    let (mut text, mut known) = (String::new(), Vec::<Known>::new());
    for (number, decisions) in decisions.iter().enumerate() {
        let mut choices = Choices(decisions.iter());
        let name = format!("t{number}");
        let (mut words, mut members) = (1, vec![]);
        match choices.below(5) {
            0 => {
                let _ = writeln!(text, "const BOUND{number} = {};", choices.below(9) + 1);
                let (declared, longest) = declaration(&mut choices, &known, &name);
                let _ = writeln!(text, "typedef {declared};");
                words = longest;
            }
            1 => {
                members = (0..=choices.below(4)).map(|at| format!("M{number}_{at}")).collect();
                let values = members.iter().enumerate().map(|(at, member)| match at {
                    0 => format!("{member} = {}", choices.below(50) as i32 - 25),
                    _ => member.clone(),
                });
                let _ = writeln!(text, "enum {name} {{ {} }};", values.collect::<Vec<_>>().join(", "));
            }
            2 | 3 => {
                let _ = writeln!(text, "struct {name} {{");
                words = 0;
                for field in 0..=choices.below(6) {
                    let (declared, longest) = declaration(&mut choices, &known, &format!("f{field}"));
                    words += longest;
                    let _ = writeln!(text, "    {declared};");
                }
                if choices.below(4) == 3 {
                    words = words * DEEPEST + DEEPEST;
                    let _ = writeln!(text, "    {name} *next;");
                }
                text.push_str("};\n");
            }
            _ => words = union(&mut text, &mut choices, &known, &name),
        }
        known.push(Known { name, words, members });
    }
    let types = known.iter().map(|known| known.name.clone()).collect::<Vec<_>>();
    let procedures = types.iter().enumerate().map(|(at, name)| format!("        {name} PROCEDURE{at}({name}) = {};\n", at + 1));
    let _ = writeln!(
        text,
        "program RANDOM {{\n    version FIRST {{\n{}    }} = 1;\n}} = 0x20000055;",
        procedures.collect::<String>()
    );
    (text, types)
}

/// A value of a type; `deep`: how deep it may go.
fn value(file: &File, declared: &Declaration, choices: &mut dyn FnMut(usize) -> usize, deep: u32) -> Value {
    let bytes = |count: usize, choices: &mut dyn FnMut(usize) -> usize| {
        let digits: String = (0..count).map(|_| format!("{:02x}", choices(256))).collect();
        Value::String(format!("0x{digits}"))
    };
    match (&declared.base, declared.shape) {
        (Base::String, Shape::Variable(most)) => {
            let count = choices(most.min(9) as usize + 1);
            Value::String((0..count).map(|_| char::from(b'a' + choices(26) as u8)).collect())
        }
        (Base::Opaque, Shape::Fixed(count)) => bytes(count as usize, choices),
        (Base::Opaque, Shape::Variable(most)) => {
            let count = choices(most.min(40) as usize + 1);
            bytes(count, choices)
        }
        (base, Shape::One) => one(file, base, choices, deep),
        (base, Shape::Optional) if deep > 0 && choices(2) == 1 => one(file, base, choices, deep - 1),
        (_, Shape::Optional) => Value::Null,
        (base, Shape::Fixed(count)) => (0..count).map(|_| one(file, base, choices, deep)).collect(),
        (base, Shape::Variable(most)) => {
            let count = choices(most.min(9) as usize + 1);
            (0..count).map(|_| one(file, base, choices, deep)).collect()
        }
    }
}

fn one(file: &File, base: &Base, choices: &mut dyn FnMut(usize) -> usize, deep: u32) -> Value {
    let mut wide = || (choices(1 << 31) as u64) << 33 ^ choices(1 << 31) as u64;
    match base {
        Base::Int => json!(wide() as i32),
        Base::Unsigned => json!(wide() as u32),
        Base::Hyper => json!(wide() as i64),
        Base::UnsignedHyper => json!(wide()),
        Base::Short => json!(wide() as i16),
        Base::UnsignedShort => json!(wide() as u16),
        Base::Char => json!(wide() as i8),
        Base::UnsignedChar => json!(wide() as u8),
        // Quarters have no other digits in either.
        Base::Float => json!(f64::from(wide() as i16) / 4.0),
        Base::Double => json!(wide() as i32 as f64 / 4.0),
        Base::Bool => json!(choices(2) == 1),
        Base::Named(name) => match file.definition(name).expect("defined before") {
            Definition::Typedef(declared) => value(file, declared, choices, deep),
            Definition::Enumeration(_, members) => Value::String(members[choices(members.len())].0.clone()),
            Definition::Structure(_, fields) => {
                let fields = fields.iter().map(|field| (field.name.clone(), value(file, field, choices, deep)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Definition::Union(union) => {
                let at = choices(union.arms.len() + usize::from(union.default.is_some()));
                let others = || (0..).find(|number| union.arms.iter().all(|arm| arm.1 != *number)).expect("there are many");
                let (number, arm) = match union.arms.get(at) {
                    Some((_, number, arm)) => (*number, arm.as_ref()),
                    None => (others(), union.default.as_ref().and_then(Option::as_ref)),
                };
                let decides = match &union.discriminant.base {
                    Base::Bool => json!(number != 0),
                    Base::Named(name) => match file.definition(name) {
                        Some(Definition::Enumeration(_, members)) => {
                            match members.iter().find(|member| member.1 == number) {
                                Some(member) => Value::String(member.0.clone()),
                                // The default's number is no member: the first arm instead.
                                None => return one_of_arms(file, union, choices, deep),
                            }
                        }
                        other => panic!("{other:?} decides"),
                    },
                    _ => json!(number),
                };
                let mut object = Map::from_iter([(union.discriminant.name.clone(), decides)]);
                object.extend(arm.map(|arm| (arm.name.clone(), value(file, arm, choices, deep))));
                Value::Object(object)
            }
            other => panic!("{other:?} is a type"),
        },
        other => panic!("{other:?} is not made here"),
    }
}

/// A value of a union of an enum by its first label.
fn one_of_arms(file: &File, union: &shunt_rpcgen::model::Union, choices: &mut dyn FnMut(usize) -> usize, deep: u32) -> Value {
    let (label, _, arm) = &union.arms[0];
    let mut object = Map::from_iter([(union.discriminant.name.clone(), Value::String(label.clone()))]);
    object.extend(arm.as_ref().map(|arm| (arm.name.clone(), value(file, arm, choices, deep))));
    Value::Object(object)
}

/// Decodes what it reads by the code of rpcgen for the type of a number, and encodes it again: the number and a length, then bytes; a length, then
/// bytes; a length of -1: they are none.
const CODEC: &str = r#"
#include "random.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char in[1 << 16], out[1 << 16];
static struct { xdrproc_t code; size_t size; } types[] = { TYPES };
int main(void) {
    uint32_t head[2];
    while (fread(head, 8, 1, stdin) == 1) {
        XDR from, to;
        uint32_t answer = -1;
        void *value = calloc(1, types[head[0]].size + 1);
        if (head[1] > sizeof in || fread(in, 1, head[1], stdin) != head[1]) return 1;
        xdrmem_create(&from, in, head[1], XDR_DECODE);
        if (types[head[0]].code(&from, value) && xdr_getpos(&from) == head[1]) {
            xdrmem_create(&to, out, sizeof out, XDR_ENCODE);
            if (types[head[0]].code(&to, value)) answer = xdr_getpos(&to);
        }
        xdr_free(types[head[0]].code, value);
        free(value);
        fwrite(&answer, 4, 1, stdout);
        if (answer != (uint32_t)-1) fwrite(out, 1, answer, stdout);
    }
    return 0;
}
"#;

/// Whether rpcgen takes what stands in `random.x` there.
fn taken(directory: &Path, switch: &str, target: &str) -> bool {
    let _ = std::fs::remove_file(directory.join(target));
    let made = Command::new("rpcgen").args([switch, "-o", target, "random.x"]).current_dir(directory).output();
    made.expect("rpcgen (scripts/prepare test)").status.success()
}

/// What rpcgen's code makes of the bytes of types.
fn recoded(directory: &Path, types: &[String], all: &[(usize, Vec<u8>)]) -> Result<Vec<Option<Vec<u8>>>, TestCaseError> {
    let table: String = types.iter().map(|name| format!("{{ (xdrproc_t)xdr_{name}, sizeof({name}) }}, ")).collect();
    std::fs::write(directory.join("codec.c"), CODEC.replace("TYPES", &table)).unwrap();
    // Where a field of several bools stands before three numbers, rpcgen writes `bool`, which the headers do not have.
    let compiled = Command::new("cc")
        .args(["-w", "-Dbool=bool_t", "-I/usr/include/tirpc", "-I.", "-o", "codec", "codec.c", "random_xdr.c", "-ltirpc"])
        .current_dir(directory)
        .output()
        .unwrap();
    prop_assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut child = Command::new(directory.join("codec")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut said = vec![];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, bytes) in all {
                to.write_all(&(*number as u32).to_ne_bytes()).unwrap();
                to.write_all(&(bytes.len() as u32).to_ne_bytes()).unwrap();
                to.write_all(bytes).unwrap();
            }
        });
        from.read_to_end(&mut said).unwrap();
    });
    prop_assert!(child.wait().unwrap().success());
    let mut rest = &said[..];
    let mut take = |count: usize| {
        let (head, tail) = rest.split_at(count);
        rest = tail;
        head
    };
    Ok(all
        .iter()
        .map(|_| {
            let length = u32::from_ne_bytes(take(4).try_into().unwrap());
            (length != u32::MAX).then(|| take(length as usize).to_vec())
        })
        .collect())
}

/// Signs without which no file is one.
const SIGNS: [char; 5] = [';', '{', '}', '(', ')'];

fn alike(decisions: &[Vec<u32>], mut state: u64) -> Result<(), TestCaseError> {
    let mut choices = move |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count.max(1)
    };
    let (text, types) = file(decisions);
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    std::fs::write(directory.join("random.x"), &text).unwrap();
    let ours = shunt_rpcgen::parse(&text);
    prop_assert!(ours.is_ok(), "{}\n{text}", ours.unwrap_err());
    prop_assert!(taken(directory, "-h", "random.h") && taken(directory, "-c", "random_xdr.c"), "rpcgen refuses\n{text}");
    let file = ours.unwrap();

    let (mut all, mut wanted) = (vec![], vec![]);
    for (number, name) in types.iter().enumerate() {
        let declared = Declaration { name: String::new(), base: Base::Named(name.clone()), shape: Shape::One };
        for _ in 0..VALUES {
            let value = value(&file, &declared, &mut choices, DEEPEST);
            let bytes = encode(&file, &declared, &value);
            prop_assert!(bytes.is_ok(), "{name}: {value}: {}\n{text}", bytes.unwrap_err());
            let bytes = bytes.unwrap();
            let ours = decode(&file, &declared, &bytes);
            prop_assert_eq!(ours.as_ref(), Ok(&value), "{}\n{}", name, text);
            // A word less is no value.
            if let Some(short) = bytes.len().checked_sub(4) {
                prop_assert!(decode(&file, &declared, &bytes[..short]).is_err(), "{name}: {value}\n{text}");
                all.push((number, bytes[..short].to_vec()));
                wanted.push(None);
            }
            wanted.push(Some(bytes.clone()));
            all.push((number, bytes));
        }
    }
    let found = recoded(directory, &types, &all)?;
    for (((number, bytes), wanted), found) in all.iter().zip(wanted).zip(found) {
        prop_assert_eq!(&found, &wanted, "{}: {:02x?}\n{}", types[*number], bytes, text);
    }

    let signs: Vec<usize> = text.char_indices().filter(|(_, sign)| SIGNS.contains(sign)).map(|(at, _)| at).collect();
    for _ in 0..8 {
        let mut broken = text.clone();
        broken.remove(signs[choices(signs.len())]);
        std::fs::write(directory.join("random.x"), &broken).unwrap();
        prop_assert!(!taken(directory, "-h", "broken.h"), "rpcgen takes\n{broken}");
        prop_assert!(shunt_rpcgen::parse(&broken).is_err(), "we take\n{broken}");
    }
    Ok(())
}

#[test]
fn rpcgen_and_we_are_alike() {
    let decisions = prop::collection::vec(prop::collection::vec(any::<u32>(), 0..DECISIONS), 1..DEFINITIONS);
    // A second each; PROPTEST_CASES says how many.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(6);
    let config = Config { cases, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    runner
        .run(&(decisions, any::<u64>()), |(decisions, state)| alike(&decisions, state))
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Debian's own definitions of which rpcgen's code compiles with libtirpc's headers: the others want headers that are nowhere.
const DEBIANS: [&str; 12] = [
    "bootparam_prot",
    "key_prot",
    "klm_prot",
    "mount",
    "nfs_prot",
    "nlm_prot",
    "rex",
    "rquota",
    "rusers",
    "sm_inter",
    "spray",
    "yp",
];

/// What is taken of what came with rpcsvc-proto, and what is made of it.
#[test]
fn files_of_debian_are_taken() {
    let from = Path::new("/usr/include/rpcsvc");
    let read = |name: &str, others: &[File]| shunt_rpcgen::read(&from.join(format!("{name}.x")), &[], others);
    let nis = read("nis", &[]).unwrap();
    for entry in std::fs::read_dir(from).expect("rpcsvc-proto (scripts/prepare test)") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "x") {
            let file = shunt_rpcgen::read(&path, &[], std::slice::from_ref(&nis)).unwrap();
            shunt_rpcgen::rust(&file).and_then(|_| shunt_rpcgen::c(&file, "name")).unwrap();
        }
    }
    let mut state = 1u64;
    let mut choices = move |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count.max(1)
    };
    for name in DEBIANS {
        let file = read(name, &[]).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        std::fs::copy(from.join(format!("{name}.x")), directory.join("random.x")).unwrap();
        assert!(taken(directory, "-h", "random.h") && taken(directory, "-c", "random_xdr.c"), "{name}: rpcgen refuses");
        // Those of rpc/rpc.h are not in it.
        let own = |one: &Definition| one.type_name().filter(|name| !["netobj", "des_block"].contains(&name.as_str())).cloned();
        let types: Vec<String> = file.definitions.iter().filter_map(own).collect();
        let mut all = vec![];
        for (number, kind) in types.iter().enumerate() {
            let declared = Declaration { name: String::new(), base: Base::Named(kind.clone()), shape: Shape::One };
            for _ in 0..VALUES {
                let value = value(&file, &declared, &mut choices, DEEPEST);
                let bytes = encode(&file, &declared, &value).unwrap_or_else(|error| panic!("{name}, {kind}: {value}: {error}"));
                assert_eq!(decode(&file, &declared, &bytes).as_ref(), Ok(&value), "{name}, {kind}");
                all.push((number, bytes));
            }
        }
        let found = recoded(directory, &types, &all).unwrap_or_else(|error| panic!("{name}: {error}"));
        for ((number, bytes), found) in all.iter().zip(found) {
            assert_eq!(found.as_ref(), Some(bytes), "{name}, {}", types[*number]);
        }
    }
}
