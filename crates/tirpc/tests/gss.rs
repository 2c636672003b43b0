//! Programs of libtirpc with RPCSEC_GSS and Kerberos print the same with and without the library, at either end, over the kernel's sockets and over
//! shunt's. What they print is libtirpc's: with its limits, and errors.

mod common;

use common::{gcc, library};
use std::path::Path;
use std::process::Command;

#[test]
fn rpcsec_gss_says_the_same_with_and_without() {
    let scratch = tempfile::tempdir().unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = scratch.path().join("gss");
    let source = tests.join("gss.c");
    gcc(&["-O1", "-o", program.to_str().unwrap(), source.to_str().unwrap(), "-ltirpc", "-lgssapi_krb5"]);
    let (ours, shunt) = (library("libshunt_tirpc.so"), library("libshunt.so"));
    let preload = |under: bool, collapsed: bool| {
        let libraries = under.then_some(&shunt).into_iter().chain(collapsed.then_some(&ours));
        libraries.map(|path| path.to_str().unwrap()).collect::<Vec<_>>().join(":")
    };
    // Which end has what: libshunt.so, and the library.
    let rows: Vec<_> = [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .flat_map(|under| [(false, false), (false, true), (true, false), (true, true)].map(|collapsed| (under, collapsed)))
        .collect();
    let name = |((a, b), (c, d)): ((bool, bool), (bool, bool))| format!("{}{}{}{}", a as u8, b as u8, c as u8, d as u8);
    let mut command = Command::new("unshare");
    command.args(["-n", "bash"]).arg(tests.join("gss.sh")).arg(&program).current_dir(scratch.path());
    for row @ (under, collapsed) in rows.iter().copied() {
        command.args([name(row), preload(under.0, collapsed.0), preload(under.1, collapsed.1), String::new()]);
    }
    let both = || preload(true, true);
    command.args(["whole".into(), both(), both(), "whole".into()]);
    let done = command.output().unwrap();
    let told = |what: &str| std::fs::read_to_string(scratch.path().join(what)).unwrap_or_default();
    assert!(done.status.success(), "{done:?} {}", told("realm.log"));
    let plain = told("out.0000");
    for said in ["known as: 0 user@LAB to test@localhost, kerberos_v5, service 3", "echo of 60000: 0 same"] {
        assert!(plain.contains(said), "{plain} {}", told("realm.log"));
    }
    assert!(plain.ends_with("end\n"), "{plain}");
    // libtirpc signs what is not in its buffer any more.
    assert_eq!(told("out.whole").matches("echo of 200001: 0 same").count(), 3, "{}", told("out.whole"));
    for row @ (_, (server, client)) in rows {
        let name = name(row);
        assert_eq!(told(&format!("out.{name}")), plain, "{name}");
        for (file, what, collapsed) in [("server", "reply in", server), ("client", "call in", client)] {
            let text = told(&format!("{file}.{name}"));
            let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{name}: {text}"));
            assert_eq!(line.ends_with("libshunt_tirpc.so"), collapsed, "{name}: {line}");
        }
    }
}
