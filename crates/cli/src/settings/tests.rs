use super::*;

fn files(texts: &[&str]) -> (tempfile::TempDir, Files) {
    let directory = tempfile::tempdir().unwrap();
    let list = texts.iter().enumerate().map(|(at, text)| {
        let path = directory.path().join(format!("{at}.toml"));
        std::fs::write(&path, text).unwrap();
        (path.clone(), File::read(&path, Owner::Anyone).unwrap())
    });
    let list = list.collect();
    (directory, Files { list })
}

type Words<'a> = &'a [(&'a str, &'a str)];

fn resolve<'a>(files: &Files, flags: Words<'a>, variables: Words<'a>, program: Option<&str>) -> Result<Settings, String> {
    let find = |words: Words<'a>, name: &str| words.iter().find(|(known, _)| *known == name).map(|(_, value)| OsStr::new(*value));
    Settings::resolve(files, |name| find(flags, name), |name| find(variables, name), program).map_err(|failure| failure.message)
}

fn value(settings: &Settings, name: &str) -> String {
    let setting = settings.list.iter().find(|setting| setting.entry.name == name).unwrap();
    let origin = setting.origin.to_string();
    format!("{} {}", setting.value.to_str().unwrap(), origin.rsplit('/').next().unwrap())
}

const USER: &str =
    "spin = \"1us\"\n[programs.db]\nring = \"64K\"\nprofile = \"own\"\n[profiles.own]\nring = \"8K\"\nlog = \"all\"\n";
const SYSTEM: &str = "spin = \"2us\"\nring = \"32K\"\nprofile = \"frugal\"\n[programs.db]\nring = \"16K\"\n[profiles.own]\nlog = \"off\"\nspin = 7\n";

#[test]
fn the_strongest_place_has_its_say() {
    let (_directory, files) = files(&[USER, SYSTEM]);
    let db = resolve(&files, &[], &[], Some("db")).unwrap();
    assert_eq!(value(&db, "ring"), "64K 0.toml:3");
    assert_eq!(value(&db, "log"), "all 0.toml:7");
    assert_eq!(value(&db, "spin"), "7 1.toml:8");
    assert_eq!(value(&db, "accelerate"), "on default");
    assert_eq!(db.profile.unwrap().0, "own");

    let other = resolve(&files, &[], &[("SHUNT_SPIN", "3us"), ("SHUNT_RING", "")], None).unwrap();
    assert_eq!(value(&other, "spin"), "3us SHUNT_SPIN");
    assert_eq!(value(&other, "ring"), "32K 1.toml:2");
    assert_eq!(value(&other, "spin-on-kernel"), "off profile frugal");
}

#[test]
fn a_profile_stands_behind_the_place_that_names_it() {
    let (_directory, files) = files(&[USER, SYSTEM]);
    let by_flag = resolve(&files, &[("profile", "latency")], &[("SHUNT_SPIN", "3us")], Some("db")).unwrap();
    assert_eq!(value(&by_flag, "spin"), "500us profile latency");
    assert_eq!(value(&by_flag, "ring"), "64K 0.toml:3");
    let beside = resolve(&files, &[("profile", "latency"), ("spin", "4us")], &[], Some("db")).unwrap();
    assert_eq!(value(&beside, "spin"), "4us --spin");
    let by_variable = resolve(&files, &[], &[("SHUNT_PROFILE", "latency"), ("SHUNT_SPIN", "3us")], Some("db")).unwrap();
    assert_eq!(value(&by_variable, "spin"), "3us SHUNT_SPIN");
    assert_eq!(value(&by_variable, "unix"), "on profile latency");
    let none = resolve(&files, &[("profile", "none")], &[], None).unwrap();
    assert_eq!(value(&none, "spin"), "1us 0.toml:1");
    assert!(none.profile.is_none());
}

#[test]
fn a_profile_that_is_none_is_told_with_its_place() {
    let (_directory, files) = files(&["[profiles.own]\nspin = 1\n"]);
    let there = "there are frugal, latency, none, own, throughput";
    assert_eq!(
        resolve(&files, &[("profile", "x")], &[], None).unwrap_err(),
        format!("--profile: \"x\" is not a profile; {there}")
    );
    let error = resolve(&files, &[], &[("SHUNT_PROFILE", "x")], None).unwrap_err();
    assert_eq!(error, format!("SHUNT_PROFILE: \"x\" is not a profile; {there}"));
}

#[test]
fn mistakes_of_one_program_s_section_are_its_own() {
    let (_directory, files) = files(&["[programs.db]\nrign = 1\n[programs.web]\nprofile = \"x\"\n[profiles.y]\nspin = \"z\"\n"]);
    assert!(resolve(&files, &[], &[], Some("other")).is_ok());
    assert!(resolve(&files, &[], &[], Some("db"))
        .unwrap_err()
        .ends_with("0.toml:2: \"rign\" is not an option; did you mean \"ring\"?"));
    assert!(resolve(&files, &[], &[], Some("web")).unwrap_err().contains("0.toml:4: profile: \"x\" is not a profile"));
    assert_eq!(files.mistakes().len(), 3);
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let named = |path: &'static str| Files::read(|name| (name == FILE_VARIABLE).then_some(OsStr::new(path)));
    assert_eq!(
        named("/nowhere/x").unwrap_err().message,
        "SHUNT_CONFIG: /nowhere/x: cannot be had; for no file at all: /dev/null"
    );
    assert_eq!(named("/dev/null").unwrap().mistakes().len(), 0);
    assert!(named("/").unwrap_err().message.starts_with("/: cannot be read: "));
    let none = Files::read(|name| (name == "XDG_CONFIG_HOME").then_some(OsStr::new("/nowhere"))).unwrap();
    assert_eq!(none.list[0].0, Path::new("/nowhere/shunt/shunt.toml"));
}

#[test]
fn the_document_has_each_profile_s_values() {
    let document = include_str!("../../../../docs/CONFIGURATION.md");
    for profile in &PROFILES {
        let values: Vec<String> = profile.values.iter().map(|(name, value)| format!("`{name} = \"{value}\"`")).collect();
        let row = format!("| `{}` | {} | {} |", profile.name, values.join(", "), profile.purpose);
        assert!(document.contains(&row), "docs/CONFIGURATION.md lacks: {row}");
    }
}
