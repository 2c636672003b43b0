//! `shunt config` and `shunt run` read the same files, and hand values to programs in variables.
use std::process::Command;

fn shunt(directory: &std::path::Path, words: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(words).env("XDG_CONFIG_HOME", directory).env_remove("SHUNT_CONFIG").env_remove("SHUNT_PROFILE");
    command.env_remove("SHUNT_SPIN").env_remove("SHUNT_LOG").output().unwrap()
}

fn written(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("shunt")).unwrap();
    std::fs::write(directory.path().join("shunt/shunt.toml"), text).unwrap();
    directory
}

#[test]
fn a_program_has_its_section_s_values_in_variables() {
    let directory = written("log = \"fallbacks\"\n[programs.env]\nprofile = \"frugal\"\n");
    let output = shunt(directory.path(), &["run", "env"]);
    let variables = String::from_utf8(output.stdout).unwrap();
    for line in ["SHUNT_LOG=fallbacks", "SHUNT_RING=64K", "SHUNT_SPIN=0"] {
        assert!(variables.lines().any(|there| there == line), "{line} is not among {variables}");
    }
    let other = shunt(directory.path(), &["run", "--profile", "none", "sh", "-c", "env"]);
    assert!(!String::from_utf8(other.stdout).unwrap().contains("SHUNT_SPIN="));
}

#[test]
fn what_is_told_is_what_programs_get() {
    let directory = written("log = \"fallbacks\"\n[programs.env]\nprofile = \"frugal\"\n");
    let output = shunt(directory.path(), &["config", "--json", "/usr/bin/env"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], &report["profile"]["name"]), (&"shunt.config/1".into(), &"frugal".into()));
    let of = |name: &str| report["options"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!((&of("spin")["value"], &of("spin")["from"]), (&"0".into(), &"profile frugal".into()));
    assert!(of("log")["from"].as_str().unwrap().ends_with("shunt.toml:1"));
}

#[test]
fn a_mistake_in_a_file_is_told_before_the_program_runs() {
    let directory = written("rign = 3\n[programs.x]\nspin = \"y\"\n");
    let run = shunt(directory.path(), &["run", "true"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8(run.stderr).unwrap().contains("shunt.toml:1: \"rign\" is not an option; did you mean \"ring\"?"));
    let config = shunt(directory.path(), &["config"]);
    assert_eq!((config.status.code(), String::from_utf8(config.stderr).unwrap().lines().count()), (Some(2), 2));
}
