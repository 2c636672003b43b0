//! `shunt config`: what each option would be for a program, and where that was said.
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::ArgMatches;
use serde::Serialize;

use crate::failure::Failure;
use crate::output;
use crate::settings::{section_name, Files, Settings};
use crate::text_table::text_table;

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    files: Vec<FileRow>,
    program: Option<&'a str>,
    profile: Option<ProfileRow>,
    options: Vec<OptionRow>,
}

#[derive(Serialize)]
struct FileRow {
    path: String,
    state: &'static str,
}

#[derive(Serialize)]
struct ProfileRow {
    name: String,
    from: String,
}

#[derive(Serialize)]
struct OptionRow {
    name: &'static str,
    variable: &'static str,
    value: String,
    from: String,
}

/// Prints it. All sections of the files are checked, those of other programs, too.
///
/// # Errors
/// Every mistake of the files, with status 2.
pub fn config(matches: &ArgMatches) -> Result<u8, Failure> {
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str());
    let files = Files::read(variable)?;
    let mistakes = files.mistakes();
    if !mistakes.is_empty() {
        mistakes.iter().for_each(Failure::report);
        return Ok(2);
    }
    let flag = |name: &str| matches.try_get_one::<OsString>(name).ok().flatten().map(OsString::as_os_str);
    let program = matches.get_one::<OsString>("program").and_then(|program| section_name(OsStr::new(program)));
    let settings = Settings::resolve(&files, flag, variable, program)?;
    let report = report(&files, settings, program);
    if matches.get_flag("json") {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(0)
}

fn report<'a>(files: &Files, settings: Settings, program: Option<&'a str>) -> Report<'a> {
    let state = |path: &Path, read: bool| match std::fs::metadata(path) {
        _ if read => "read",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "not there",
        _ => "may not be read",
    };
    let files =
        files.list.iter().map(|(path, file)| FileRow { path: path.display().to_string(), state: state(path, file.is_some()) });
    let option = |setting: crate::settings::Setting| OptionRow {
        name: setting.entry.name,
        variable: setting.entry.variable,
        value: setting.value.to_string_lossy().into_owned(),
        from: setting.origin.to_string(),
    };
    Report {
        schema: "shunt.config/1",
        files: files.collect(),
        program,
        profile: settings.profile.map(|(name, origin)| ProfileRow { name, from: origin.to_string() }),
        options: settings.list.into_iter().map(option).collect(),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for file in &report.files {
        text += &format!("{}: {}\n", file.path, file.state);
    }
    if let Some(profile) = &report.profile {
        text += &format!("profile {}, named by {}\n", profile.name, profile.from);
    }
    let rows: Vec<Vec<String>> =
        report.options.iter().map(|option| vec![option.name.to_owned(), option.value.clone(), option.from.clone()]).collect();
    text + "\n" + &text_table(&["OPTION", "VALUE", "FROM"], &rows)
}
