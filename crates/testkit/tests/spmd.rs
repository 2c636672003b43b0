//! What programs of OpenSHMEM and of Split-C compute in a job, what they are compiled with, and which calls are refused.

mod jobs;

use jobs::{built, compiled, compiled_as, is_fine, job, run, scratch, source, text};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The same with options of the launcher.
fn is_fine_with(ranks: usize, options: &[&str], program: &Path) {
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", &ranks.to_string()]).args(options).arg("--").arg(program);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
}

#[test]
fn programs_compute_what_they_should() {
    for name in ["types", "generics", "teams", "reuse", "forks", "roomless", "profile", "threads"] {
        let program = compiled(name);
        for ranks in [1, 2, 3, 5, 8] {
            is_fine(ranks, &program);
        }
        let alone = Command::new(&program).output().unwrap();
        assert!(alone.status.success() && alone.stdout == b"fine\n", "{name}: {alone:?}");
    }
}

#[test]
fn the_static_library_does_the_same() {
    for name in ["types", "forks", "profile"] {
        // The language is said for what follows, which is the program alone.
        let program =
            compiled_as(&format!("static-{name}"), "shunt-shmemcc", &["--static", "-x", "c"], &source(&format!("{name}.c")));
        is_fine(3, &program);
    }
}

/// The header stands alone in older C, and in C++.
#[test]
fn the_header_is_of_all_dialects() {
    let program = r#"#include <mpp/shmem.h>
    int main() { start_pes(0); int *p = (int *)shmalloc(4); *p = 1; shmem_barrier_all(); shmem_int_p(p, 2, _my_pe()); int v = *p; shfree(p); return v == 2 ? 0 : 1; }"#;
    for (compiler, standard, name) in [
        ("shunt-shmemcc", "-std=c99", "dialect.c"),
        ("shunt-shmemcc", "-std=c17", "dialect.c"),
        ("shunt-shmemc++", "-std=c++11", "dialect.cc"),
        ("shunt-shmemc++", "-std=c++20", "dialect.cc"),
    ] {
        let from = scratch().join(name);
        std::fs::write(&from, program).unwrap();
        let output = run(2, &compiled_as("dialect", compiler, &[standard, "-Werror"], &from), &[]);
        assert!(output.status.success(), "{standard}: {output:?}");
    }
}

/// Split-C's header is one of C and of C++.
#[test]
fn split_c_s_operations_do_what_they_should() {
    let cc = scratch().join("split.cc");
    std::fs::write(&cc, format!("#include \"{}\"\n", source("split.c").display())).unwrap();
    let programs = [
        compiled_as("split-c", "shunt-shmemcc", &["-std=gnu11", "-Werror"], &source("split.c")),
        compiled_as("split-cc", "shunt-shmemc++", &["-std=gnu++17", "-Werror"], &cc),
    ];
    for program in programs {
        for ranks in [1, 2, 3, 5] {
            is_fine(ranks, &program);
        }
    }
}

/// As other compilers of OpenSHMEM are asked and called: variables that waits and locks take may be volatile, and programs may be static of all kinds.
#[test]
fn the_compiler_takes_what_others_take() {
    let ask = |what: &str| text(&Command::new(built("shunt-shmemcc")).arg(what).output().unwrap().stdout);
    assert!(ask("--showme:compile").starts_with("-I/") && ask("-showme:link").ends_with("-lshunt_shmem\n"));
    assert!(ask("--showme:version").contains("OpenSHMEM 1.5") && ask("--showme:libs") == "shunt_shmem\n");
    let program = r#"#include <shmem.h>
    static volatile long word, lock;
    static volatile int count;
    int main() {
        shmem_init();
        shmem_long_p((long *)&word, 1, shmem_my_pe());
        shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
        shmem_set_lock(&lock), shmem_clear_lock(&lock);
        int taken = shmem_test_lock(&lock) == 0;
        if (taken) shmem_clear_lock(&lock);
        int ready = shmem_int_test(&count, SHMEM_CMP_EQ, 0);
        shmem_finalize();
        return ready && word ? 0 : 1;
    }"#;
    for (compiler, name, options) in [
        ("shunt-shmemc++", "volatile.cc", &["-std=c++98", "-pedantic"][..]),
        ("shunt-shmemcc", "volatile.c", &["-std=c99", "-pedantic"]),
        ("shunt-shmemcc", "volatile.c", &["-static"]),
        ("shunt-shmemcc", "volatile.c", &["-static-pie"]),
        ("shunt-shmemcc", "volatile.c", &["--static", "-static-pie"]),
    ] {
        let from = scratch().join(name);
        std::fs::write(&from, program).unwrap();
        let options = [options, &["-Werror"]].concat();
        let output = run(2, &compiled_as("volatile", compiler, &options, &from), &[]);
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
}

/// U-Net's seven programs with small sizes and awkward numbers of processors; each checks its answer.
#[test]
fn the_seven_programs_are_right() {
    let rows: [(&str, &[&str]); 13] = [
        ("matrix", &["4", "16"]),
        ("matrix", &["5", "7"]),
        ("sample-sort", &["small", "20000"]),
        ("sample-sort", &["small", "20000", "equal"]),
        ("sample-sort", &["bulk", "20000"]),
        ("sample-sort", &["bulk", "20000", "sorted"]),
        ("sample-sort", &["bulk", "20000", "zipf"]),
        ("radix-sort", &["small", "20000"]),
        ("radix-sort", &["bulk", "20000", "zipf"]),
        ("radix-sort", &["bulk", "20000", "sorted"]),
        ("components", &["50", "50"]),
        ("components", &["33", "60"]),
        ("gradient", &["40", "30"]),
    ];
    for (name, arguments) in rows {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/split-c/{name}.c"));
        let program = compiled_as(name, "shunt-shmemcc", &["-std=gnu11", "-Werror"], &from);
        for ranks in [1, 2, 3, 4, 8] {
            let output = run(ranks, &program, arguments);
            let said = text(&output.stdout);
            assert!(output.status.success() && said.ends_with("right\n"), "{name} {arguments:?} of {ranks}: {output:?}");
        }
    }
}

/// Installed, the compiler script and pkg-config find what they need.
#[test]
fn what_is_installed_works() {
    let place = scratch().join("installed");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let prefix = format!("PREFIX={}", place.display());
    let output = Command::new("make").current_dir(&root).args(["-s", "install", &prefix]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let program = scratch().join("types-installed");
    let compiled = Command::new(place.join("bin/shunt-shmemcc")).arg(source("types.c")).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let output = Command::new(place.join("bin/shunt")).args(["spmd", "-n", "2", "--"]).arg(&program).output().unwrap();
    assert_eq!(text(&output.stdout), "fine\n");
    let description = std::fs::read_to_string(place.join("lib/pkgconfig/shunt-shmem.pc")).unwrap();
    assert!(description.contains(&format!("prefix={}", place.display())) && !description.contains('@'));
}

/// Every function of the header can be linked, under both of its names, and nothing else of ours is exported.
#[test]
fn the_header_and_the_library_have_the_same_functions() {
    let header = std::fs::read_to_string(source("../../include/shmem.h")).unwrap();
    let prototypes = header.lines().filter(|line| {
        line.ends_with(';') && line.contains('(') && !line.starts_with(['#', ' ', '/', 't']) && !line.starts_with("extern")
    });
    let declared: BTreeSet<String> = prototypes
        .map(|line| {
            let before = line.split('(').next().unwrap();
            before.rsplit([' ', '*']).next().unwrap().to_owned()
        })
        .collect();
    assert!(declared.len() > 3000, "{}", declared.len());
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(built("libshunt_shmem.so")).output().unwrap();
    let exported: BTreeSet<String> =
        text(&symbols.stdout).lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let missing: Vec<_> = declared.difference(&exported).collect();
    let unknown: Vec<_> = exported.difference(&declared).filter(|name| *name != "rust_eh_personality").collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
}

/// What a wrong address or call was compared with is in the sentence. Calls of the heap are compared only if it is asked for.
#[test]
fn wrong_calls_are_told_with_what_would_be_right() {
    let program = compiled("wrong");
    let rows = [
        ("", "1", ""),
        ("sizes", "0", ""),
        ("sizes", "1", "rank 1: shmem_malloc: 5056 bytes, offset 64; rank 0 calls it with 128 bytes, offset 64"),
        ("calls", "1", "rank 1: shmem_malloc: rank 0 is in another call of the symmetric heap"),
        ("stack", "", "are not in symmetric memory (neither in the heap, 0x"),
        ("behind", "", "shmem_putmem: 8 bytes at 0x"),
        ("data", "", "of static data)"),
        ("lock", "", "shmem_set_lock: an atomic operation of 8 bytes at 0x"),
        ("member", "", "shmem_ctx_long_p: there is no rank 1 among the 1 of the context's team"),
        ("above", "", "for rank 1 are not allocated (offset 1048640 of a heap of 67108864 bytes; the last object before that is 40 bytes at offset 64)"),
        ("end", "", "8 bytes at 0x"),
        ("wait", "", "shmem_int_wait_until: 4 bytes at 0x"),
        ("test", "", "shmem_int_test_all: 4 bytes at 0x"),
    ];
    for (how, debug, sentence) in rows {
        let output = job(2, &program, &[how]).env("SHMEM_SYMMETRIC_SIZE", "64M").env("SHMEM_DEBUG", debug).output().unwrap();
        let (said, right) = (text(&output.stderr), sentence.is_empty());
        assert_eq!(output.status.code(), Some(if right { 0 } else { 1 }), "{how}: {said}");
        assert!(said.contains(sentence) && said.is_empty() == right, "{how}: {said}");
    }
}

/// With --check an address must be within one object that is allocated.
#[test]
fn addresses_are_looked_up_if_it_is_asked_for() {
    let program = compiled("wrong");
    let rows = [
        ("", ""),
        ("freed", "shmem_int_g: 4 bytes at 0x"),
        ("padding", "for rank 1 are not allocated (offset 60 of a heap of 67108864 bytes; no object is before that)"),
        ("above", "the last object before that is 40 bytes at offset 64)"),
        ("wait", "shmem_int_wait_until: 4 bytes at 0x"),
    ];
    for (how, sentence) in rows {
        let mut command = Command::new(built("shunt"));
        command.args(["spmd", "-n", "2", "--heap", "64M", "--check", "--"]).arg(&program).arg(how);
        let output = command.output().unwrap();
        let (said, right) = (text(&output.stderr), sentence.is_empty());
        assert_eq!(output.status.code(), Some(if right { 0 } else { 1 }), "{how}: {said}");
        assert!(said.contains(sentence) && said.is_empty() == right, "{how}: {said}");
        // Otherwise only what is behind all objects is found.
        if ["freed", "padding"].contains(&how) {
            assert!(run(2, &program, &["freed"]).status.success());
        }
    }
    is_fine_with(2, &["--check"], &compiled("types"));
}

/// Heaps of no process, by whatever way they are asked for, and limits of files' sizes.
#[test]
fn heaps_that_cannot_be_had_are_refused_with_a_sentence() {
    let program = compiled("ends");
    for (size, limit) in [("16777216T", "unlimited"), ("5592405.3333344245T", "unlimited"), ("1G", "1000")] {
        let script = format!("ulimit -f {limit}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(built("shunt")).args(["spmd", "-n", "3", "--"]).arg(&program);
        let output = command.env("SHMEM_SYMMETRIC_SIZE", size).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code().is_some_and(|status| status != 0 && status < 128), "{size}: {output:?}");
        assert!(said.contains("no process has address space") || said.contains("ulimit -f"), "{size}: {said}");
    }
    let output = Command::new(&program).env("SHMEM_SYMMETRIC_SIZE", "16777216T").output().unwrap();
    assert!(text(&output.stderr).contains("no process has address space"), "{output:?}");
}

/// More of them than there may be teams; and arrays that a compiler puts apart.
#[test]
fn all_active_sets_and_all_data_are_there() {
    is_fine(24, &compiled("sets"));
    let large = ["-mcmodel=medium", "-mlarge-data-threshold=65536"];
    for (name, position) in [("sets-pie", "-pie"), ("sets-no-pie", "-no-pie")] {
        let how = [large[0], large[1], if position == "-pie" { "-fPIE" } else { "-fno-pie" }, position];
        is_fine(3, &compiled_as(name, "shunt-shmemcc", &how, &source("sets.c")));
    }
}

/// A script's programs, one after the other, are the same ranks.
#[test]
fn programs_may_follow_each_other() {
    let program = compiled("types");
    let script = format!("{0} && {0} && {0}", program.display());
    for ranks in [2, 3] {
        let output = run(ranks, Path::new("/bin/sh"), &["-c", &script]);
        assert_eq!(text(&output.stdout), "fine\n".repeat(3), "{output:?}");
    }
}

/// Programs that destroy none of their teams: each has as many as ever, though a job has room for 256 at a time.
#[test]
fn teams_end_with_their_program() {
    let program = compiled("reuse");
    let script = format!("for i in 1 2 3 4 5 6 7; do {0} leave || exit 1; done; exec {0}", program.display());
    for ranks in [2, 3] {
        let output = run(ranks, Path::new("/bin/sh"), &["-c", &script]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".repeat(8)), "{output:?}");
    }
}
