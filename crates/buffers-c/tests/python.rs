//! The Python package is installed into an environment of its own, as pip does it, and its tests and example are run there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(program: &Path, arguments: &[&str], directory: &Path, library: Option<&Path>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env_remove("SHUNT_BUFFERS_LIBRARY");
    if let Some(library) = library {
        command.env("SHUNT_BUFFERS_LIBRARY", library);
    }
    command.output().unwrap()
}

fn must(output: Output) -> String {
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{said}\n{wrong}");
    said + &wrong
}

/// The library that this build has made.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let libraries = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libshunt_buffers_c") && name.ends_with(".so")
    });
    libraries.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).unwrap()).expect("cargo builds it").path()
}

#[test]
fn the_package_is_installed_and_works() {
    let python = Path::new("python3");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let room = std::env::temp_dir().join(format!("shunt-buffers-python-{}", std::process::id()));
    // What the machine has of NumPy is enough.
    let made = run(python, &["-m", "venv", "--system-site-packages", room.to_str().unwrap()], &here, None);
    if !made.status.success() {
        println!("no venv here: {}", String::from_utf8_lossy(&made.stderr));
        return;
    }
    let inside = room.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "./python"];
    must(run(&inside, &install, &here, Some(&library())));
    let mut numpy = run(&inside, &["-c", "import numpy"], &here, None).status.success();
    if !numpy {
        let got = run(&inside, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"], &here, None);
        numpy = got.status.success();
    }
    let tests = must(run(&inside, &["-m", "unittest", "discover", "-s", "python/tests"], &here, None));
    assert!(tests.contains("OK"), "{tests}");
    assert_eq!(must(run(&inside, &["examples/frames.py", "12"], &here, None)), "12 frames, 12 of them copied\n");
    // Between sockets that are accelerated nothing is, once the receiver has come to the pool.
    let shunt = std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("shunt");
    let is_under = shunt.is_file() && shunt.with_file_name("libshunt.so").is_file();
    if is_under {
        let under =
            |arguments: &[&str]| must(run(&shunt, &[&["run", "--", inside.to_str().unwrap()], arguments].concat(), &here, None));
        let tests = under(&["-m", "unittest", "discover", "-s", "python/tests", "-k", "Sockets"]);
        assert!(tests.contains("OK"), "{tests}");
        let said = under(&["examples/frames.py", "12"]);
        let copied = said.strip_prefix("12 frames, ").and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        assert!(copied.is_some_and(|copied| copied <= 3), "{said}");
    } else {
        println!("not under shunt: no command in {} (scripts/build makes it)", shunt.parent().unwrap().display());
    }
    if numpy {
        assert!(!tests.contains("skipped"), "{tests}");
        let said = must(run(&inside, &["examples/loader.py", "2", "12"], &here, None));
        assert_eq!(said, "12 batches, 57802752 bytes, none copied\n");
        let said = must(run(&inside, &["examples/shared_arrays.py", "12"], &here, None));
        assert_eq!(said, "12 arrays, 0 % of their bytes by reference\n");
        if is_under {
            let said =
                must(run(&shunt, &["run", "--", inside.to_str().unwrap(), "examples/shared_arrays.py", "40"], &here, None));
            let part = said.strip_prefix("40 arrays, ").and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
            assert!(part.is_some_and(|part| part >= 50), "{said}");
        }
    } else {
        println!("no NumPy, and none to be had: its tests were left out");
    }
    std::fs::remove_dir_all(&room).unwrap();
}
