//! The command: `shunt-rpcgen FILE.x [--output FILE.rs]`, `shunt-rpcgen --c FILE.x --output BASE`: typed callers and servers. `shunt-rpcgen --check OLD.x NEW.x`: what the new file breaks.

use std::process::ExitCode;

const USAGE: &str = "usage: shunt-rpcgen [-DNAME[=VALUE]] [--with OTHER.x] FILE.x [--output FILE.rs]\n       shunt-rpcgen [-DNAME[=VALUE]] [--with OTHER.x] --c FILE.x --output BASE   (BASE.h and BASE.c)\n       shunt-rpcgen --check OLD.x NEW.x";

/// Switches of rpcgen but `-D`, and what is instead of each. None is taken: none would mean the same.
const SWITCHES: [(&str, &str); 24] = [
    ("-a", "all that is made of a file is made at once"),
    ("-5", "there is no code for old systems"),
    ("-b", "there is no code for old systems"),
    ("-c", "routines for XDR are in the one file that is made, in C in BASE.c"),
    ("-C", "C is C99, and C++11 as it is"),
    ("-h", "--c makes the header, BASE.h, too"),
    ("-i", "code is inlined by the compiler"),
    ("-I", "servers are not started by inetd"),
    ("-K", "servers do not exit when they are idle"),
    ("-k", "there is no code for old C"),
    ("-l", "the caller's side is in the one file that is made"),
    ("-L", "servers do not write to syslog: errors are values"),
    ("-m", "the server's side is in the one file that is made, without main"),
    ("-M", "results are the caller's always, so threads do not share them"),
    ("-n", "netids are addresses: sunrpc+tcp://HOST, sunrpc+udp://HOST, or a name"),
    ("-N", "several parameters are taken as they are, always"),
    ("-o", "--output names what is made"),
    ("-s", "addresses are given at run time, to connect and bind"),
    ("-Sc", "samples are in examples/ of the sources"),
    ("-Ss", "samples are in examples/ of the sources"),
    ("-Sm", "a makefile is not made: see cmake in docs/RPC.md"),
    ("-t", "the table of procedures is part of what is made"),
    ("-T", "the table of procedures is part of what is made"),
    ("-Y", "no preprocessor is run: conditions, constants and included files are heeded here"),
];

/// What to say of a switch that is rpcgen's and none of ours.
fn instead(argument: &str) -> Option<String> {
    let whole = SWITCHES.iter().find(|(switch, _)| *switch == argument);
    let (switch, sentence) = whole.or_else(|| SWITCHES.iter().find(|(switch, _)| argument.starts_with(switch)))?;
    Some(format!("{switch} is a switch of rpcgen that this does not take: {sentence}"))
}

/// What is said before a file: macros, and files whose types it names.
#[derive(Default)]
struct Before<'a> {
    macros: Vec<&'a str>,
    others: Vec<crate::model::File>,
}

impl<'a> Before<'a> {
    /// Takes it from the front of the arguments.
    fn take(arguments: &mut &[&'a str]) -> Result<Self, String> {
        let mut before = Self::default();
        loop {
            match *arguments {
                ["--with", path, rest @ ..] => {
                    let other = before.read(path)?;
                    before.others.push(other);
                    *arguments = rest;
                }
                [said, rest @ ..] if said.len() > 2 && said.starts_with("-D") => {
                    before.macros.push(&said[2..]);
                    *arguments = rest;
                }
                _ => return Ok(before),
            }
        }
    }

    fn read(&self, path: &str) -> Result<crate::model::File, String> {
        crate::read(path.as_ref(), &self.macros, &self.others)
    }
}

/// A file that stands where one is to be made, and that this has not made, stays.
fn is_ours(target: &str) -> Result<(), String> {
    match std::fs::read(target) {
        Ok(there) if !there.is_empty() && !there.starts_with(MADE.as_bytes()) => {
            Err(format!("{target}: is there, and was not made by shunt-rpcgen: another name, or remove it"))
        }
        _ => Ok(()),
    }
}

/// What each C file that is made begins with.
const MADE: &str = "/* Made by shunt-rpcgen:";

fn run(mut arguments: &[&str]) -> Result<ExitCode, String> {
    let before = Before::take(&mut arguments)?;
    let read = |path: &str| before.read(path);
    match arguments {
        ["--help" | "-h"] => println!("{USAGE}"),
        ["--check", old, new] => {
            let broken = crate::breaks(&read(old)?, &read(new)?);
            broken.iter().for_each(|sentence| println!("{sentence}"));
            return Ok(ExitCode::from(u8::from(!broken.is_empty())));
        }
        ["--c", path, "--output" | "-o", base] => {
            let name =
                std::path::Path::new(base).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let made = crate::c(&read(path)?, &name).map_err(|error| format!("{path}: {error}"))?;
            let all = [(format!("{base}.h"), made.header), (format!("{base}.c"), made.source)];
            all.iter().try_for_each(|(target, _)| is_ours(target))?;
            for (target, text) in all {
                std::fs::write(&target, text).map_err(|error| format!("{target}: {error}"))?;
            }
        }
        [path] | [path, "--output" | "-o", _] if !path.starts_with('-') => {
            let text = crate::rust(&read(path)?).map_err(|error| format!("{path}: {error}"))?;
            match arguments.get(2) {
                Some(target) => std::fs::write(target, text).map_err(|error| format!("{target}: {error}"))?,
                None => print!("{text}"),
            }
        }
        _ => {
            let ours = |argument: &&&str| argument.starts_with('-') && !argument.starts_with("--");
            let foreign = arguments.iter().filter(ours).find_map(|argument| instead(argument));
            return Err(foreign.map_or(USAGE.into(), |sentence| format!("{sentence}\n{USAGE}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs it with the program's arguments, behind the name that cargo gives a command of its own (`cargo shunt-rpcgen FILE.x`).
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(arguments.strip_prefix(&["shunt-rpcgen"]).unwrap_or(&arguments)).unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_has_not_made_stays() {
        let directory = std::env::temp_dir().join(format!("shunt-rpcgen-stays-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| directory.join(name).to_str().unwrap().to_string();
        std::fs::write(at("log.x"), "struct a { int b; };").unwrap();
        let make = || run(&["--c", &at("log.x"), "--output", &at("log")]);
        // Made, and made again.
        make().and_then(|_| make()).unwrap();
        std::fs::write(at("log.c"), "int main(void) { return 0; }").unwrap();
        std::fs::remove_file(at("log.h")).unwrap();
        assert!(make().unwrap_err().contains("log.c: is there"));
        assert_eq!(std::fs::read_to_string(at("log.c")).unwrap(), "int main(void) { return 0; }");
        assert!(!directory.join("log.h").exists(), "neither is made");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// All that rpcgen of Debian's rpcsvc-proto says that it takes.
    #[test]
    fn switches_of_rpcgen_are_refused_in_words() {
        let all = "-a -b -c -C -h -i 5 -I -K 120 -k -l -L -m -M -n tcp -N -o out -5 -s tcp -Sc -Ss -Sm -t -T -Y /usr/bin";
        for switch in all.split(' ').filter(|word| word.starts_with('-')) {
            if switch == "-h" {
                continue; // is --help, if it is alone
            }
            for arguments in [vec![switch, "file.x"], vec![switch, "5", "file.x"], vec![switch]] {
                let sentence = run(&arguments).unwrap_err();
                assert!(sentence.contains("a switch of rpcgen") && sentence.contains(&switch[..2]), "{sentence}");
            }
        }
        assert!(run(&["-h", "file.x"]).unwrap_err().contains("BASE.h"));
        assert!(!run(&["--colour", "file.x"]).unwrap_err().contains("a switch of rpcgen"));
    }
}
