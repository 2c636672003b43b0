//! What `shunt run` refuses, and what it warns of: the words and the exit statuses.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{copy, is_root, plain, standard_error, Stage, SHUNT};
use shunt_config::TABLE;

#[test]
fn wrong_options_end_with_2_and_an_example() {
    let stage = Stage::new();
    for entry in TABLE.iter().filter(|entry| entry.name != "library") {
        let by_flag = stage.run().args([entry.flag, "12q", "true"]).output().unwrap();
        let by_variable = stage.run().arg("true").env(entry.variable, "12q").output().unwrap();
        for (output, name) in [(by_flag, entry.flag), (by_variable, entry.variable)] {
            let expected = format!("shunt: {name}: \"12q\" is not {}; example: {}\n", entry.form, entry.example);
            assert_eq!(standard_error(&output), expected);
            assert_eq!(output.status.code(), Some(2));
        }
    }
}

#[test]
fn wrong_command_lines_end_with_2() {
    let stage = Stage::new();
    for arguments in [&["--rnig", "1M", "true"][..], &["--ring"], &[]] {
        let output = stage.run().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn a_negative_number_is_a_value_and_no_flag() {
    let stage = Stage::new();
    for words in [&["--ring", "-1"][..], &["--ring=-1"]] {
        let output = stage.run().args(words).arg("true").output().unwrap();
        assert_eq!(standard_error(&output), "shunt: --ring: \"-1\" is not a size; example: 256K\n");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_misspelt_variable_is_pointed_out() {
    let stage = Stage::new();
    let output = stage.run().arg("true").env("SHUNT_RIGN", "1M").output().unwrap();
    assert_eq!(standard_error(&output), "shunt: warning: SHUNT_RIGN is not an option of shunt; did you mean SHUNT_RING?\n");
    assert!(output.status.success());
}

#[test]
fn a_missing_library_is_said_clearly() {
    let stage = Stage::new();
    let output = stage.run().args(["--require", "--library", "/no/such/libshunt.so", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(standard_error(&output).starts_with("shunt: --library: cannot use \"/no/such/libshunt.so\": No such file"));

    let command = stage.path("alone/shunt");
    copy(SHUNT, &command);
    let output = plain(&command).args(["run", "--require", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).starts_with("shunt: cannot find libshunt.so in "), "{}", standard_error(&output));
}

/// A unit file names the library of a package that was removed, or an image brings one of another machine.
#[test]
fn a_library_that_cannot_be_had_does_not_stop_a_service() {
    let stage = Stage::new();
    let damaged = stage.path("libshunt.so");
    std::fs::write(&damaged, "no library").unwrap();
    for library in ["/no/such/libshunt.so", "/", damaged.to_str().unwrap()] {
        let mut command = stage.run();
        command.env("LD_PRELOAD", format!("{library}/libshunt.so"));
        let output = command.args(["--library", library, "sh", "-c", "echo \"it runs, $LD_PRELOAD\"; exit 7"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it runs, \n", "and its loader has nothing to complain of");
        assert_eq!(output.status.code(), Some(7));
        let said = standard_error(&output);
        assert!(said.contains("the program runs, and its connections go through the kernel"), "{said}");
        // The loader complains of the command itself, which was given the same variable.
        assert_eq!(said.lines().filter(|line| line.starts_with("shunt: ")).count(), 1, "one warning: {said}");
        assert_eq!(said.matches("ld.so").count(), 1, "none of the program: {said}");
    }
}

/// Status and message of running `program`, given from the scratch directory.
fn refusal(stage: &Stage, program: &str) -> (Option<i32>, String) {
    let output = stage.run().arg(program).current_dir(stage.path("")).output().unwrap();
    assert!(output.stdout.is_empty());
    (output.status.code(), standard_error(&output))
}

#[test]
fn programs_that_are_not_there_end_with_127() {
    let stage = Stage::new();
    stage.executable("orphan", "#!/no/such/interpreter\n");
    let loader = stage.compile("unloadable", "int main(void) { return 0; }", &["-Wl,--dynamic-linker=/no/such/loader"]);
    assert!(loader.exists());
    for (program, message) in [
        ("no-such-program", "no-such-program: not found in PATH"),
        ("./no-such-program", "./no-such-program: not found: No such file or directory (os error 2)"),
        ("./orphan", "./orphan: its interpreter /no/such/interpreter is not there"),
        ("./unloadable", "./unloadable: the dynamic loader it asks for, /no/such/loader, is not there"),
    ] {
        assert_eq!(refusal(&stage, program), (Some(127), format!("shunt: {message}\n")));
    }
}

#[test]
fn programs_that_cannot_be_executed_end_with_126() {
    let stage = Stage::new();
    std::fs::write(stage.path("plain"), "#!/bin/sh\n").unwrap();
    stage.executable("junk", b"\0\x01\x02");
    for (program, message) in [
        ("./", "./: is a directory, not a program"),
        ("./plain", "./plain: no permission to execute it (try: chmod +x ./plain)"),
        ("./junk", "./junk: is not a program"),
    ] {
        assert_eq!(refusal(&stage, program), (Some(126), format!("shunt: {message}\n")));
    }
}

#[test]
fn a_text_without_a_first_line_belongs_to_the_shell() {
    let stage = Stage::new();
    let script = stage.executable("script", "echo \"$1\"; exit 3\n");
    let output = stage.run().arg(&script).arg("argument").output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"argument\n"[..]));
}

const PROGRAM: &str = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 5; }\n";

/// Runs `program`, which must run to its end, and gives the one warning.
fn only_warning(stage: &Stage, program: &std::path::Path) -> String {
    let output = stage.run().arg(program).output().unwrap();
    let errors = standard_error(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"ran\n"[..]), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let start = format!("shunt: warning: {} ", program.display());
    errors.strip_prefix(&start).unwrap_or_else(|| panic!("{errors}")).to_owned()
}

#[test]
fn static_and_go_programs_run_with_a_warning() {
    let stage = Stage::new();
    let program = stage.compile("static", PROGRAM, &["-static"]);
    assert!(only_warning(&stage, &program).starts_with("is statically linked"));
    let program = stage.compile("static-pie", PROGRAM, &["-static-pie", "-fPIE"]);
    assert!(only_warning(&stage, &program).starts_with("is statically linked"));

    let go = format!("__attribute__((section(\".go.buildinfo\"), used)) static char mark[16];\n{PROGRAM}");
    let program = stage.compile("go", &go, &[]);
    assert!(only_warning(&stage, &program).starts_with("is a Go program"));
    let program = stage.compile("static-go", &go, &["-static"]);
    assert!(only_warning(&stage, &program).starts_with("is a Go program"));
}

/// The loader's name tells the C library; behind this one is the real loader, so that the program runs.
#[test]
fn a_program_with_another_c_library_runs_without_ours() {
    let stage = Stage::new();
    let probe = Command::new("readelf").args(["-p", ".interp", "/bin/true"]).output().unwrap();
    let text = String::from_utf8(probe.stdout).unwrap();
    let loader = text.split_whitespace().find(|word| word.starts_with('/')).unwrap();
    let renamed = stage.path("ld-musl-here.so.1");
    std::os::unix::fs::symlink(loader, &renamed).unwrap();
    let source = "#include <stdlib.h>\n#include <stdio.h>\nint main(void) { puts(getenv(\"LD_PRELOAD\") ? \"preloaded\" : \"ran\"); return 5; }\n";
    let program = stage.compile("musl", source, &[&format!("-Wl,--dynamic-linker={}", renamed.display())]);
    assert!(only_warning(&stage, &program).starts_with("uses another C library"));
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let stage = Stage::new();
    let interpreter = stage.compile("interpreter", PROGRAM, &["-static"]);
    let script = stage.executable("script", format!("#!{}\n", interpreter.display()));
    let output = stage.run().arg(&script).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(standard_error(&output).contains("interpreter is statically linked"), "{}", standard_error(&output));
}

/// Root may give files away, so as root the file belongs to another user; others find set-user-ID programs of root.
#[test]
fn a_set_user_id_program_runs_with_a_warning() {
    let stage = Stage::new();
    if is_root() {
        let program = stage.compile("set-user-id", PROGRAM, &[]);
        std::os::unix::fs::chown(&program, Some(1), None).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(only_warning(&stage, &program).starts_with("is set-user-ID"));
        std::os::unix::fs::chown(&program, Some(0), Some(1)).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o2755)).unwrap();
        assert!(only_warning(&stage, &program).starts_with("is set-group-ID"));
    } else {
        let output = stage.run().args(["su", "--version"]).output().unwrap();
        assert!(output.status.success() && standard_error(&output).contains("su is set-user-ID"));
    }
}

/// Only root can give a file capabilities, and only to others do they mean anything.
#[test]
fn a_program_with_capabilities_runs_with_a_warning() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let program = stage.compile("capable", PROGRAM, &[]);
    // struct vfs_cap_data, revision 2, effective: CAP_NET_BIND_SERVICE permitted.
    let capabilities: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let bytes: Vec<u8> = capabilities.iter().flat_map(|word| word.to_le_bytes()).collect();
    match rustix::fs::setxattr(&program, "security.capability", &bytes, rustix::fs::XattrFlags::empty()) {
        // A file system without extended attributes cannot hold the case.
        Err(rustix::io::Errno::NOTSUP) => return,
        result => result.unwrap(),
    }
    let command = stage.path("bin/shunt");
    copy(SHUNT, &command);
    let output =
        plain(&command).arg("run").arg(&program).env("SHUNT_LIBRARY", stage.library()).uid(65534).gid(65534).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", standard_error(&output));
    assert!(standard_error(&output).contains("capable has file capabilities"), "{}", standard_error(&output));
}

/// An ELF image of another class and machine, with one segment holding `code`.
fn foreign_image(machine: u16, code: &[u8]) -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const CODE: u32 = 52 + 32;
    let mut image = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
    image.extend(machine.to_le_bytes());
    for word in [1, BASE + CODE, 52, 0, 0] {
        image.extend(word.to_le_bytes());
    }
    for half in [52u16, 32, 1, 40, 0, 0] {
        image.extend(half.to_le_bytes());
    }
    let size = CODE + code.len() as u32;
    for word in [1, 0, BASE, BASE, size, size, 5, 0x1000] {
        image.extend(word.to_le_bytes());
    }
    image.extend(code);
    image
}

#[test]
fn programs_of_other_architectures() {
    let stage = Stage::new();
    // mov eax, 1; mov ebx, 7; int 0x80: exit(7), where the kernel runs 32-bit programs at all.
    let code = b"\xb8\x01\0\0\0\xbb\x07\0\0\0\xcd\x80";
    let program = stage.executable("x86", foreign_image(3, code));
    let output = stage.run().arg(&program).output().unwrap();
    let errors = standard_error(&output);
    assert!(errors.contains("x86 is a 32-bit x86 program: libshunt.so is not;"), "{errors}");
    assert!(matches!(output.status.code(), Some(7 | 126)), "{}", output.status);

    let program = stage.executable("s390", foreign_image(22, code));
    let output = stage.run().arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(standard_error(&output).contains("is a program for 32-bit S/390, which this machine cannot run"));
}
