//! Every function that `shmem.h` declares is called, and its result compared: by its name, by its name of the profiling interface (in C++), and by
//! C11's generic name. A function for which there is no check, or a generic name that was not used, is a failure. On 1 to 8 ranks, and on two hosts.

use shunt_testkit::hosts::{self, Host};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HEADER: &str = include_str!("../../shmem/include/shmem.h");
const CHECKS: &str = include_str!("../../shmem/tests/programs/api.h");

/// Names of types in functions, and in C.
const TYPES: [(&str, &str); 26] = [
    ("float", "float"),
    ("double", "double"),
    ("longdouble", "long double"),
    ("char", "char"),
    ("schar", "signed char"),
    ("short", "short"),
    ("int", "int"),
    ("long", "long"),
    ("longlong", "long long"),
    ("uchar", "unsigned char"),
    ("ushort", "unsigned short"),
    ("uint", "unsigned int"),
    ("ulong", "unsigned long"),
    ("ulonglong", "unsigned long long"),
    ("int8", "int8_t"),
    ("int16", "int16_t"),
    ("int32", "int32_t"),
    ("int64", "int64_t"),
    ("uint8", "uint8_t"),
    ("uint16", "uint16_t"),
    ("uint32", "uint32_t"),
    ("uint64", "uint64_t"),
    ("size", "size_t"),
    ("ptrdiff", "ptrdiff_t"),
    ("complexf", "SHUNT_COMPLEX_FLOAT"),
    ("complexd", "SHUNT_COMPLEX_DOUBLE"),
];
const SIZES: [(&str, &str); 6] =
    [("8", "uint8_t"), ("16", "uint16_t"), ("32", "uint32_t"), ("64", "uint64_t"), ("128", "two"), ("mem", "char")];

/// Functions of this prefix that the header declares, without it.
fn declared(prefix: &str) -> Vec<&'static str> {
    let name = |line: &'static str| {
        let before = line.split_once('(').filter(|_| line.ends_with(';') && !line.starts_with(['#', ' ', '}']))?.0;
        before.rsplit([' ', '*']).next()?.strip_prefix(prefix)
    };
    HEADER.lines().filter_map(name).collect()
}

/// Generic names that it defines.
fn generic() -> BTreeSet<&'static str> {
    let from = HEADER.find("201112L").expect("a part for C11");
    HEADER[from..].lines().filter_map(|line| Some(line.strip_prefix("#define shmem_")?.split_once('(')?.0)).collect()
}

struct Case {
    /// Without `shmem_`.
    name: &'static str,
    c: &'static str,
    check: String,
    context: bool,
    /// Without the type.
    operation: Option<String>,
}

/// The check that a function needs, if there is one.
fn case(name: &'static str) -> Option<Case> {
    let (plain, context) = name.strip_prefix("ctx_").map_or((name, false), |plain| (plain, true));
    let checks = |check: &str| CHECKS.contains(&format!("#define CHECK_{check} "));
    if let Some((of, operation)) = plain.split_once('_') {
        if let Some((_, c)) = TYPES.iter().find(|(known, _)| *known == of).filter(|_| checks(operation)) {
            return Some(Case { name, c, check: operation.into(), context, operation: Some(operation.into()) });
        }
    }
    SIZES.iter().rev().find_map(|(size, c)| {
        let (before, after) = plain.split_once(size)?;
        let operation = format!("{before}{after}");
        // Those of a team take bytes, those of an active set words.
        let of_set =
            *size != "mem" && ["broadcast", "collect", "fcollect", "alltoall", "alltoalls"].contains(&operation.as_str());
        let check = if of_set { format!("set_{operation}") } else { operation };
        checks(&check).then_some(Case { name, c, check, context, operation: None })
    })
}

/// A program of C that makes all these calls; `call` says how one is written.
fn program(cases: &[Case], call: impl Fn(&Case) -> Option<String>) -> String {
    let (mut text, mut list) = (String::from("#include \"api.h\"\n"), String::new());
    for (number, case) in cases.iter().enumerate() {
        let Some(call) = call(case) else { continue };
        let argument = if case.context { "ctx, " } else { "" };
        let quiet = if case.context { "shmem_ctx_quiet(ctx)" } else { "shmem_quiet()" };
        let bytes = "#undef V\n#undef SAME\n#define V(value) two_of(value)\n#define SAME(a, b) same(a, b)\n";
        let plain = "#undef V\n#undef SAME\n#define V(value) ((T)(value))\n#define SAME(a, b) ((a) == (b))\n";
        let is_two = case.c == "two";
        write!(
            text,
            "#define F(...) {call}({argument}__VA_ARGS__)\n#define T {}\n#define QUIET {quiet}\n{}static void call{number}(void) {{ function = \"{call}\"; CHECK_{} }}\n{}#undef F\n#undef T\n#undef QUIET\n",
            case.c,
            if is_two { bytes } else { "" },
            case.check,
            if is_two { plain } else { "" },
        )
        .unwrap();
        writeln!(list, "    call{number}();").unwrap();
    }
    text + "int main(void) {\n    int provided;\n    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);\n    start();\n    alone();\n" + &list
        + "    shmem_barrier_all();\n    if (me == 0) puts(\"fine\");\n    shmem_finalize();\n    return 0;\n}\n"
}

fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release").join(name);
    assert!(path.exists(), "{} is missing; run: make build", path.display());
    path.canonicalize().unwrap()
}

fn compiled(name: &str, compiler: &str, options: &[&str], text: &str) -> PathBuf {
    let scratch = std::env::temp_dir().join(format!("shunt-openshmem-api-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let (source, program) = (scratch.join(name), scratch.join(name.replace('.', "-")));
    std::fs::write(&source, text).unwrap();
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shmem/tests/programs");
    let mut command = Command::new(built(compiler));
    // Thousands of small functions, each used once: they are not made faster.
    command.args(options).args(["-O0", "-I"]).arg(headers).arg(&source).arg("-o").arg(&program);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn is_fine(what: &str, output: &Output) {
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
        (Some(0), "fine\n"),
        "{what}: {output:?}"
    );
}

/// On this host and on two, if there may be such.
fn runs(program: &Path, on_one: &[usize], on_each: &[usize]) {
    for ranks in on_one {
        let mut command = Command::new(built("shunt"));
        command.args(["spmd", "-n", &ranks.to_string(), "--"]).arg(program).env("SHMEM_SYMMETRIC_SIZE", "64M");
        is_fine(&format!("{ranks} ranks"), &command.output().unwrap());
    }
    let hosts: [Host; 2] = match hosts::pair(Default::default()) {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let files = hosts.each_ref().map(|host| host.enter(|| File::open("/proc/thread-self/ns/net").unwrap()));
    for ranks in on_each {
        let place = |file: &File| format!("/proc/{}/fd/{}:{ranks}", std::process::id(), file.as_raw_fd());
        let mut command = Command::new(built("shunt"));
        command.args(["spmd", "--rsh", "nsenter --net={host}", "--hosts", &files.each_ref().map(place).join(","), "--"]);
        is_fine(
            &format!("{ranks} ranks on each of two hosts"),
            &command.arg(program).env("SHMEM_SYMMETRIC_SIZE", "64M").output().unwrap(),
        );
    }
}

fn cases() -> Vec<Case> {
    let names = declared("shmem_");
    assert!(names.len() > 1700, "{} functions", names.len());
    let words: BTreeSet<&str> = CHECKS.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let (mut cases, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match case(name) {
            Some(case) => cases.push(case),
            // Those by which a program begins.
            None if words.contains(format!("shmem_{name}").as_str()) || ["init", "init_thread", "finalize"].contains(&name) => {}
            None => missing.push(name),
        }
    }
    assert!(missing.is_empty(), "no check calls {missing:?}");
    cases
}

#[test]
fn every_function_does_what_it_should() {
    let text = program(&cases(), |case| Some(format!("shmem_{}", case.name)));
    runs(&compiled("names.c", "shunt-shmemcc", &["-std=gnu11", "-Wall", "-Wno-unused-value"], &text), &[1, 2, 3, 4, 8], &[1, 2]);
}

/// The names that a profiler calls are all there, and the header is one of C++, too.
#[test]
fn every_function_of_the_profiling_interface_does_the_same() {
    let names: BTreeSet<&str> = declared("pshmem_").into_iter().collect();
    let missing: Vec<_> = declared("shmem_").into_iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "without pshmem_: {missing:?}");
    let text = program(&cases(), |case| Some(format!("pshmem_{}", case.name)));
    let words = text.replacen("#include \"api.h\"", CHECKS, 1);
    let mut renamed = String::new();
    let mut rest = words.as_str();
    // Whole words that are functions.
    while let Some(at) = rest.find("shmem_") {
        let (before, word) = rest.split_at(at);
        let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(word.len());
        let is_function = names.contains(&word[6..end]) && !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        renamed += before;
        renamed += if is_function { "p" } else { "" };
        renamed += &word[..end];
        rest = &word[end..];
    }
    runs(&compiled("profiled.cc", "shunt-shmemc++", &["-std=gnu++17", "-Wno-unused-value"], &(renamed + rest)), &[1, 4], &[1]);
}

#[test]
fn every_generic_name_does_the_same() {
    let (generic, cases) = (generic(), cases());
    let of = |case: &Case| case.operation.as_deref().filter(|operation| generic.contains(operation)).map(str::to_owned);
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    cases.iter().filter_map(of).for_each(|name| *used.entry(name).or_default() += 1);
    let missing: Vec<_> = generic.iter().filter(|name| **name != "sync" && !used.contains_key(**name)).collect();
    assert!(generic.len() > 60 && missing.is_empty(), "{missing:?}");
    let text = program(&cases, |case| of(case).map(|name| format!("shmem_{name}")));
    let with_sync = text.replace("    alone();\n", "    alone();\n    shmem_sync(SHMEM_TEAM_WORLD), shmem_sync(0, 0, n, P);\n");
    runs(
        &compiled("generic.c", "shunt-shmemcc", &["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wno-unused-value"], &with_sync),
        &[2, 3],
        &[1],
    );
}
