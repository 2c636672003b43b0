//! Our bytes against those of rpcgen's code: what we encode it decodes, and encodes as we did; what either refuses, so does the other.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use shunt_rpc::xdr::{from_bytes, to_bytes, Bytes, List, Opaque};
use shunt_rpc_examples::torture::*;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The C program, if rpcgen and libtirpc are installed.
fn codec() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let directory = std::env::temp_dir().join(format!("shunt-rpcgen-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::copy(here.join("torture.x"), directory.join("torture.x")).unwrap();
    for (switch, target) in [("-h", "torture.h"), ("-c", "torture_xdr.c")] {
        let _ = std::fs::remove_file(directory.join(target));
        let made = Command::new("rpcgen").args([switch, "-o", target, "torture.x"]).current_dir(&directory).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("not tested: rpcgen is not installed (rpcsvc-proto)");
            return None;
        }
    }
    let compiled = Command::new("cc")
        .args(["-w", "-O1", "-I/usr/include/tirpc", "-I.", "-o", "codec", "torture_xdr.c"])
        .arg(here.join("codec.c"))
        .arg("-ltirpc")
        .current_dir(&directory)
        .output()
        .unwrap();
    if !compiled.status.success() && String::from_utf8_lossy(&compiled.stderr).contains("rpc/rpc.h") {
        eprintln!("not tested: libtirpc's headers are not installed (libtirpc-dev)");
        return None;
    }
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(directory.join("codec"))
}

/// What rpcgen's code makes of each.
fn recoded(program: &PathBuf, all: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let answers = std::thread::scope(|scope| {
        scope.spawn(move || {
            for bytes in all {
                to.write_all(&(bytes.len() as u32).to_ne_bytes()).unwrap();
                to.write_all(bytes).unwrap();
            }
        });
        let answers = all.iter().map(|_| {
            let mut length = [0; 4];
            from.read_exact(&mut length).expect("the C program lives");
            let length = u32::from_ne_bytes(length);
            (length != u32::MAX).then(|| {
                let mut bytes = vec![0; length as usize];
                from.read_exact(&mut bytes).unwrap();
                bytes
            })
        });
        answers.collect::<Vec<_>>()
    });
    assert!(child.wait().unwrap().success());
    answers
}

fn text<const N: u32>(most: usize) -> impl Strategy<Value = Bytes<N>> {
    // C's strings end at a zero.
    proptest::collection::vec(1u8..=255, 0..=most).prop_map(Bytes)
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let first = (any::<i32>(), any::<u32>(), any::<i64>(), any::<u64>(), any::<f32>(), any::<f64>(), any::<bool>());
    let second = (any::<i8>(), any::<i16>(), any::<u16>(), any::<i32>(), any::<u32>(), any::<u8>());
    (first, second).prop_map(|((a, b, c, d, e, f, g), (h, i, j, k, l, m))| Numbers { a, b, c, d, e, f, g, h, i, j, k, l, m })
}

fn color() -> impl Strategy<Value = Color> {
    prop_oneof![Just(Color::Red), Just(Color::Green), Just(Color::Blue)]
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 5]>().prop_map(Opaque)
}

fn blob() -> impl Strategy<Value = Blob> {
    proptest::collection::vec(any::<u8>(), 0..=13).prop_map(Bytes)
}

fn chain() -> impl Strategy<Value = Option<Box<Link>>> {
    proptest::collection::vec(any::<i32>(), 0..20)
        .prop_map(|values| values.into_iter().fold(None, |next, value| Some(Box::new(Link { value, next }))))
}

fn everything() -> impl Strategy<Value = Everything> {
    let shape = prop_oneof![any::<i32>().prop_map(Shape::Red), text(7).prop_map(Shape::Green), text(7).prop_map(Shape::Blue),];
    let perhaps = prop_oneof![digest().prop_map(Perhaps::True), Just(Perhaps::False)];
    let others = any::<i32>().prop_filter("a case of its own", |number| ![1, -2, 15].contains(number));
    let choice = prop_oneof![
        numbers().prop_map(Choice::Case1),
        Just(Choice::Minus2),
        proptest::collection::vec(blob(), 0..=2).prop_map(|blobs| Choice::Octal(List(blobs))),
        (others, any::<i64>()).prop_map(|(number, value)| Choice::Default(number, value)),
    ];
    let names = proptest::collection::vec(text(7), 0..=4).prop_map(List);
    let several = proptest::collection::vec(numbers(), 0..=3).prop_map(List);
    let alone = proptest::option::of(any::<i32>().prop_map(Box::new));
    let first = (numbers(), color(), digest(), blob(), text(7), any::<[i32; 3]>(), names, several);
    let second = (chain(), shape, perhaps, choice, [color(), color()], alone, text(40));
    (first, second).prop_map(|((n, c, d, b, s, m, list, several), (chain, form, maybe, one, colors, alone, unbounded))| {
        Everything { n, c, d, b, s, m, list, several, chain, form, maybe, one, colors, alone, unbounded }
    })
}

#[test]
fn our_bytes_are_those_of_rpcgen() {
    let Some(program) = codec() else { return };
    let mut runner = TestRunner::deterministic();
    let strategy = everything();
    let values: Vec<Everything> = (0..3000).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    let bytes: Vec<Vec<u8>> = values.iter().map(to_bytes).collect();
    for ((value, ours), theirs) in values.iter().zip(&bytes).zip(recoded(&program, &bytes)) {
        assert_eq!(theirs.as_ref(), Some(ours), "{value:?}");
        assert_eq!(to_bytes(&from_bytes::<Everything>(ours).unwrap()), *ours);
    }

    // Changed in one place, cut or longer: what we take, rpcgen's code takes for the same.
    let mut changed = vec![];
    for (at, bytes) in bytes.iter().enumerate() {
        let mut bytes = bytes.clone();
        let place = at * 31 % bytes.len();
        match at % 4 {
            0 => bytes[place] = bytes[place].wrapping_add(1),
            1 => bytes.truncate(place & !3),
            2 => bytes.extend([0; 4]),
            _ => bytes[place & !3..][..4].copy_from_slice(&(at as u32 % 9).to_be_bytes()),
        }
        changed.push(bytes);
    }
    let (mut taken, mut refused) = (0, 0);
    for (bytes, theirs) in changed.iter().zip(recoded(&program, &changed)) {
        match from_bytes::<Everything>(bytes) {
            // A zero inside a string ends it in C.
            Ok(value) if has_zero(&value) => {}
            Ok(value) => {
                taken += 1;
                assert_eq!(theirs, Some(to_bytes(&value)), "{value:?}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 300 && refused > 300, "{taken} {refused}");
    let _ = std::fs::remove_dir_all(program.parent().unwrap());
}

fn has_zero(value: &Everything) -> bool {
    let form: &[u8] = match &value.form {
        Shape::Green(name) | Shape::Blue(name) => name,
        Shape::Red(_) => &[],
    };
    let texts = [&value.s[..], form, &value.unbounded].into_iter().chain(value.list.iter().map(|name| &name[..]));
    texts.flatten().any(|&byte| byte == 0)
}
