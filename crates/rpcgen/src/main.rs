//! `shunt-rpcgen FILE.x [--output FILE.rs]`, `shunt-rpcgen --c FILE.x --output BASE`: typed callers and servers. `shunt-rpcgen --check OLD.x NEW.x`: what the new file breaks.

use std::process::ExitCode;

const USAGE: &str = "usage: shunt-rpcgen FILE.x [--output FILE.rs]\n       shunt-rpcgen --c FILE.x --output BASE   (BASE.h and BASE.c)\n       shunt-rpcgen --check OLD.x NEW.x";

fn read(path: &str) -> Result<shunt_rpcgen::model::File, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    shunt_rpcgen::parse(&text).map_err(|error| format!("{path}:{error}"))
}

fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    match arguments {
        ["--help" | "-h"] => println!("{USAGE}"),
        ["--check", old, new] => {
            let broken = shunt_rpcgen::breaks(&read(old)?, &read(new)?);
            broken.iter().for_each(|sentence| println!("{sentence}"));
            return Ok(ExitCode::from(u8::from(!broken.is_empty())));
        }
        ["--c", path, "--output" | "-o", base] => {
            let name =
                std::path::Path::new(base).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let made = shunt_rpcgen::c(&read(path)?, &name).map_err(|error| format!("{path}: {error}"))?;
            for (target, text) in [(format!("{base}.h"), made.header), (format!("{base}.c"), made.source)] {
                std::fs::write(&target, text).map_err(|error| format!("{target}: {error}"))?;
            }
        }
        [path] | [path, "--output" | "-o", _] if !path.starts_with('-') => {
            let text = shunt_rpcgen::rust(&read(path)?).map_err(|error| format!("{path}: {error}"))?;
            match arguments.get(2) {
                Some(target) => std::fs::write(target, text).map_err(|error| format!("{target}: {error}"))?,
                None => print!("{text}"),
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}
