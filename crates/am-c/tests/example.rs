//! The C example is compiled against the header and the static library, and says what it should.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_runs() {
    // The static library lies beside the test.
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archives = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libshunt_am_c") && name.ends_with(".a")
    });
    // Older builds may lie there too.
    let library =
        archives.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).unwrap()).map(|entry| entry.path());
    let program = profile.join(format!("am-c-example-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(here.join("include"))
        .arg(here.join("../../examples/messages.c"))
        .arg(library.expect("cargo builds the static library with the tests"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "20 + 22 = 42\n");
}
