//! `shunt enable`, `disable`, `status` and `doctor --unit` below a directory that stands for a root; systemd's own checker reads what they write.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{library, plain, SHUNT};
use serde_json::Value;

struct Root {
    directory: tempfile::TempDir,
}

impl Root {
    fn new() -> Root {
        let root = Root { directory: tempfile::tempdir().unwrap() };
        // Its program is a real one, which the library can be loaded into.
        root.put("usr/bin/served", std::fs::read("/usr/bin/env").unwrap());
        root.put(
            "lib/systemd/system/served.service",
            "[Unit]\nDescription=x\n[Service]\nType=simple\nExecStart=/usr/bin/served --port 1\nEnvironment=LD_PRELOAD=/usr/lib/own.so\nRestrictAddressFamilies=AF_INET AF_INET6\nNoNewPrivileges=yes\n",
        );
        root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn shunt(&self, words: &[&str]) -> Output {
        let mut command = self.strict(words);
        if words[0] == "enable" {
            // The build's directory may be another user's than that of the tests.
            command.arg("--any-library");
        }
        command.output().unwrap()
    }

    fn strict(&self, words: &[&str]) -> Command {
        let mut command = plain(SHUNT);
        command.args(words).arg("--root").arg(self.directory.path()).env("SHUNT_LIBRARY", library());
        command
    }

    fn drop_in(&self) -> PathBuf {
        self.path("etc/systemd/system/served.service.d/shunt.conf")
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_service_is_enabled_told_of_and_disabled() {
    let root = Root::new();
    root.put("etc/shunt/shunt.toml", "spin = \"7us\"\n[programs.served]\nring = \"1M\"\n[programs.other]\nring = \"64K\"\n");
    let output = root.shunt(&["status", "served"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));

    let output = root.shunt(&["enable", "served", "--profile", "frugal"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = read(&root.drop_in());
    for line in [
        format!("Environment=\"LD_PRELOAD=/usr/lib/own.so:{}\"", library().display()),
        "Environment=\"SHUNT_SPIN=0\"".into(),
        "Environment=\"SHUNT_RING=64K\"".into(),
        "RestrictAddressFamilies=AF_UNIX".into(),
        "RestrictAddressFamilies=AF_NETLINK".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    assert!(!said(&output).contains("missing"), "{}", said(&output));

    // Once more: what it wrote itself does not count.
    let output = root.shunt(&["enable", "served"]);
    assert!(output.status.success(), "{}", said(&output));
    let again = read(&root.drop_in());
    assert!(again.contains("SHUNT_SPIN=7us") && again.contains("SHUNT_RING=1M"), "{again}");
    assert_eq!(again.matches("own.so").count(), 1, "{again}");

    let output = root.shunt(&["status", "served.service", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((&status["schema"], &status["enabled"]), (&"shunt.status/1".into(), &true.into()));
    assert_eq!(status["findings"], Value::Array(vec![]), "the drop-in answers what the unit forbids");

    let output = root.shunt(&["disable", "served"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!root.drop_in().parent().unwrap().exists());
    assert_eq!(root.shunt(&["status", "served"]).status.code(), Some(3));
    assert!(root.shunt(&["disable", "served"]).status.success());
}

#[test]
fn systemd_reads_the_drop_in() {
    let root = Root::new();
    assert!(root.shunt(&["enable", "served"]).status.success());
    // The checker takes files; where it follows a root of its own it would need a whole system there.
    let unit = root.path("served.service");
    std::fs::copy(root.path("lib/systemd/system/served.service"), &unit).unwrap();
    let drop_in = read(&root.drop_in());
    let whole = format!("{}{drop_in}", read(&unit).replace("/usr/bin/served", "/usr/bin/env"));
    std::fs::write(&unit, whole).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&unit).output();
    let output = output.expect("systemd-analyze is there (scripts/prepare test)");
    let said = said(&output);
    let about_it: Vec<&str> = said.lines().filter(|line| line.contains("served.service")).collect();
    assert!(about_it.is_empty(), "{said}");
}

#[test]
fn directives_in_the_way_are_named() {
    let root = Root::new();
    let output = root.shunt(&["doctor", "--unit", "served"]);
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    for words in [
        "missing  RestrictAddressFamilies=AF_INET AF_INET6",
        "no-unix",
        "served.service:7",
        "against it: RestrictAddressFamilies=AF_UNIX",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    root.put(
        "etc/systemd/system/served.service.d/own.conf",
        "[Service]\nRestrictAddressFamilies=AF_UNIX AF_NETLINK\nPrivateUsers=yes\n",
    );
    let output = root.shunt(&["doctor", "--unit", "served", "--json"]);
    assert_eq!(output.status.code(), Some(0), "limited is not missing");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["findings"][0]["directive"], "PrivateUsers=yes");
}

#[test]
fn what_others_wrote_is_left_alone() {
    let root = Root::new();
    root.put("etc/systemd/system/served.service.d/shunt.conf", "[Service]\nNice=3\n");
    for words in [&["enable", "served"], &["disable", "served"]] {
        let output = root.shunt(words);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("was not made by shunt enable"), "{}", said(&output));
    }
    assert_eq!(read(&root.drop_in()), "[Service]\nNice=3\n");
    assert_eq!(root.shunt(&["enable", "nothing"]).status.code(), Some(1));
    assert_eq!(root.shunt(&["enable", "../served"]).status.code(), Some(2));
    assert_eq!(root.shunt(&["enable", "served.socket"]).status.code(), Some(2));
    // A program that takes no library is said so, and the drop-in is there all the same.
    let root = Root::new();
    root.put("usr/bin/served", "#!/bin/sh\n");
    let output = root.shunt(&["enable", "served", "--profile", "nothing"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(!root.drop_in().exists());
}

#[test]
fn links_of_an_image_lead_nowhere_out_of_it() {
    let (root, host) = (Root::new(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(root.path("etc/systemd/system")).unwrap();
    std::os::unix::fs::symlink(host.path(), root.path("etc/systemd/system/served.service.d")).unwrap();
    let output = root.shunt(&["enable", "served"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(std::fs::read_dir(host.path()).unwrap().count(), 0);
    // A file of the host is not shown as the image's unit.
    let secret = host.path().join("secret");
    std::fs::write(&secret, "[Service]\nExecStart=/secret\n").unwrap();
    std::os::unix::fs::symlink(&secret, root.path("etc/systemd/system/other.service")).unwrap();
    let output = root.shunt(&["status", "other"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_library_that_others_may_change_is_no_service_s() {
    let (root, place) = (Root::new(), tempfile::tempdir().unwrap());
    let theirs = place.path().join("libshunt.so");
    std::fs::copy(library(), &theirs).unwrap();
    let enable = |mode: u32, flag: &[&str]| {
        std::fs::set_permissions(&theirs, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        root.strict(&["enable", "served"]).args(flag).env("SHUNT_LIBRARY", &theirs).output().unwrap()
    };
    assert!(enable(0o755, &[]).status.success());
    let output = enable(0o757, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("can be written by other users"), "{}", said(&output));
    assert!(enable(0o757, &["--any-library"]).status.success());
    if crate::common::is_root() {
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        let output = enable(0o755, &[]);
        assert!(output.status.code() == Some(1) && said(&output).contains("belongs to user 65534"), "{}", said(&output));
    }
}
