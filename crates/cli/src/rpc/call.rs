//! `shunt rpc call`: arguments of words, results as JSON.
use std::time::Duration;

use clap::ArgMatches;
use serde_json::{json, Map, Value};
use shunt_rpc::{describe, list, Address, Buffer, Client, How, Options};
use shunt_rpcgen::model::{Base, Declaration, File, Parameter, Procedure, Shape, Way};
use shunt_rpcgen::values;

use crate::failure::Failure;
use crate::output::print;

/// Bytes that results may have.
const ROOM: usize = 2 << 20;

/// What is called.
struct Target {
    program: u32,
    version: u32,
    number: u16,
    /// The types, where they are known.
    types: Option<(File, Procedure)>,
}

/// The words before and behind the dots.
struct Wanted<'w> {
    program: &'w str,
    version: Option<u32>,
    procedure: &'w str,
}

impl<'w> Wanted<'w> {
    fn parse(text: &'w str) -> Result<Self, Failure> {
        let wrong = || Failure::of_usage(format_args!("{text}: PROGRAM.PROCEDURE or PROGRAM.VERSION.PROCEDURE is wanted"));
        let words: Vec<&str> = text.split('.').collect();
        match words[..] {
            [program, procedure] => Ok(Self { program, version: None, procedure }),
            [program, version, procedure] => {
                Ok(Self { program, version: Some(version.parse().map_err(|_| wrong())?), procedure })
            }
            _ => Err(wrong()),
        }
    }

    fn is_program(&self, name: &str, number: u32) -> bool {
        self.program == name || self::number(self.program) == Some(number)
    }

    fn is_version(&self, number: u32) -> bool {
        self.version.is_none_or(|version| version == number)
    }

    fn is_procedure(&self, name: &str, number: u32) -> bool {
        self.procedure == name || self::number(self.procedure) == Some(number)
    }
}

/// Decimal, or hexadecimal behind `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The procedure in a file of definitions: of the highest version that has it.
fn in_file(file: File, wanted: &Wanted<'_>) -> Option<Target> {
    let versions = file.programs().filter(|one| wanted.is_program(&one.name, one.number));
    let versions = versions.flat_map(|one| one.versions.iter().map(|version| (one.number, version)));
    let found = versions.filter(|(_, version)| wanted.is_version(version.number)).filter_map(|(program, version)| {
        let procedure = version.procedures.iter().find(|one| wanted.is_procedure(&one.name, one.number.into()))?;
        Some((program, version.number, procedure.clone()))
    });
    let (program, version, procedure) = found.max_by_key(|(_, version, _)| *version)?;
    Some(Target { program, version, number: procedure.number, types: Some((file, procedure)) })
}

fn target(address: &Address, matches: &ArgMatches, text: &str) -> Result<Target, Failure> {
    let wanted = Wanted::parse(text)?;
    if let Some(path) = matches.get_one::<String>("interface") {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::of_usage(format_args!("{path}: {error}")))?;
        let file = shunt_rpcgen::parse(&text).map_err(|error| Failure::of_usage(format_args!("{path}:{error}")))?;
        let missing = || {
            Failure::of_usage(format_args!(
                "{path} has no procedure {}",
                matches.get_one::<String>("procedure").expect("required")
            ))
        };
        return in_file(file, &wanted).ok_or_else(missing);
    }
    if let (Some(program), Some(version), Some(procedure)) = (number(wanted.program), wanted.version, number(wanted.procedure)) {
        if matches.get_flag("xdr") {
            let number = u16::try_from(procedure).map_err(|_| Failure::of_usage("procedures have numbers up to 65535"))?;
            return Ok(Target { program, version, number, types: None });
        }
    }
    let interfaces = list(address, &super::options()).map_err(Failure::of_environment)?;
    let found = interfaces.iter().filter(|one| wanted.is_program(&one.name, one.program) && wanted.is_version(one.version));
    let found = found.filter_map(|one| {
        // Each program has a procedure 0, defined or not, that does nothing.
        let known = one.procedures.iter().find(|(number, name, _)| wanted.is_procedure(name, *number)).map(|known| known.0);
        Some((one, known.or_else(|| (number(wanted.procedure)? == 0).then_some(0))?))
    });
    let Some((interface, procedure)) = found.max_by_key(|(one, _)| one.version) else {
        return Err(Failure::of_environment(format_args!("{address} has no procedure {text}: shunt rpc list {address}")));
    };
    let (program, version) = (interface.program, interface.version);
    let number = u16::try_from(procedure).map_err(|_| Failure::of_environment("a procedure's number is too large"))?;
    if matches.get_flag("xdr") {
        return Ok(Target { program, version, number, types: None });
    }
    let text = describe(address, &super::options(), program, version).map_err(Failure::of_environment)?;
    let file = shunt_rpcgen::parse(&text)
        .map_err(|error| Failure::of_environment(format_args!("what {address} says of its types is wrong: {error}")))?;
    let exact = Wanted { program: &program.to_string(), version: Some(version), procedure: &procedure.to_string() };
    match in_file(file, &exact) {
        Some(target) => Ok(target),
        None if number == 0 => Ok(Target { program, version, number, types: None }),
        None => Err(Failure::of_environment(format_args!(
            "{address} does not tell its types: --interface FILE.x has them, or --xdr takes bytes"
        ))),
    }
}

/// The bytes of an argument: JSON, or words as they are.
fn argument(file: &File, declaration: &Declaration, word: &str) -> Result<Vec<u8>, Failure> {
    let plain = || values::encode(file, declaration, &Value::String(word.into()));
    let made = match serde_json::from_str::<Value>(word) {
        // `7` and `true` are words, too.
        Ok(value) => values::encode(file, declaration, &value).or_else(|error| plain().map_err(|_| error)),
        Err(_) => plain(),
    };
    made.map_err(|error| Failure::of_usage(format_args!("{word}: {error}")))
}

/// Elements that go by reference, in this machine's own representation.
fn elements(file: &File, parameter: &Parameter, word: &str) -> Result<Vec<u8>, Failure> {
    let Declaration { base, shape: Shape::Variable(most), name } = &parameter.declaration else {
        return Err(Failure::of_environment("only what has a variable length goes by reference"));
    };
    let size = size(base);
    if parameter.way == Way::Out {
        let count: u32 = word.parse().ok().filter(|count| count <= most).ok_or_else(|| {
            Failure::of_usage(format_args!(
                "{word}: {name} is written by the server; how many elements it has is wanted, {most} at most"
            ))
        })?;
        return Ok(vec![0; count as usize * size]);
    }
    let mut bytes = argument(file, &parameter.declaration, word)?;
    // Behind the count lie the elements, big-endian; behind opaque ones, padding.
    let count = bytes.get(..4).map_or(0, |four| u32::from_be_bytes(four.try_into().unwrap_or_default())) as usize;
    let mut bytes = bytes.split_off(4);
    bytes.truncate(count * size);
    if cfg!(target_endian = "little") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Ok(bytes)
}

fn size(base: &Base) -> usize {
    match base {
        Base::Opaque => 1,
        Base::Hyper | Base::UnsignedHyper | Base::Double => 8,
        _ => 4,
    }
}

/// What the server left there.
fn shown(file: &File, parameter: &Parameter, buffer: &mut Buffer<'_, u8>) -> Result<Value, Failure> {
    let base = &parameter.declaration.base;
    let mut bytes = buffer.view().to_vec();
    if cfg!(target_endian = "little") {
        bytes.chunks_exact_mut(size(base)).for_each(<[u8]>::reverse);
    }
    let mut encoded = ((bytes.len() / size(base)) as u32).to_be_bytes().to_vec();
    encoded.extend(&bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    values::decode(file, &parameter.declaration, &encoded).map_err(Failure::of_environment)
}

/// Calls, and prints.
pub fn call(matches: &ArgMatches) -> Result<u8, Failure> {
    let word = |name: &str| matches.get_one::<String>(name).expect("clap requires it");
    let address = super::address(word("address"))?;
    let target = target(&address, matches, word("procedure"))?;
    let words: Vec<&String> = matches.get_many("arguments").unwrap_or_default().collect();
    let deadline = Some(Duration::from_millis(*matches.get_one::<u64>("deadline").expect("it has a default")));
    let connect = |window: usize| {
        let options = Options { window, room: ROOM, deadline, ..super::options() };
        Client::connect(&address, target.program, target.version..=target.version, options).map_err(Failure::of_environment)
    };
    let ask = |client: &Client, arguments: &[u8], how: &How<'_>| {
        let pending = client.begin_raw(target.number, arguments, usize::MAX, how);
        pending.and_then(|pending| pending.wait()).map(|results| results.0).map_err(Failure::of_environment)
    };
    let Some((file, procedure)) = &target.types else {
        let text = match words[..] {
            [] => "",
            [text] => text.strip_prefix("0x").unwrap_or(text),
            _ => return Err(Failure::of_usage("with --xdr there is one argument: hexadecimal digits")),
        };
        let arguments =
            bytes(text).ok_or_else(|| Failure::of_usage(format_args!("{text}: pairs of digits are wanted, four each")))?;
        let results = ask(&connect(16 << 20)?, &arguments, &How::default())?;
        print(&format!("0x{}\n", results.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))?;
        return Ok(0);
    };
    if words.len() != procedure.parameters.len() {
        let (wanted, given) = (procedure.parameters.len(), words.len());
        let definition = shunt_rpcgen::definition(procedure);
        return Err(Failure::of_usage(format_args!("{wanted} arguments are wanted, {given} are given: {definition}")));
    }
    let values = |(parameter, word): (&Parameter, &&String)| match parameter.way {
        Way::Value => argument(file, &parameter.declaration, word),
        _ => elements(file, parameter, word),
    };
    let values = procedure.parameters.iter().zip(&words).map(values).collect::<Result<Vec<_>, _>>()?;
    let all: usize = values.iter().map(|value| value.len().next_multiple_of(64)).sum();
    let client = connect((all + ROOM + (1 << 20)).next_multiple_of(4096).min(1 << 30))?;
    let (mut arguments, mut buffers, mut lent) = (vec![], vec![], vec![]);
    for (parameter, value) in procedure.parameters.iter().zip(&values) {
        if parameter.way == Way::Value {
            arguments.extend(value);
            continue;
        }
        let mut buffer = client.buffer::<u8>(value.len()).map_err(Failure::of_environment)?;
        buffer.view().copy_from(value);
        buffer.name().iter().for_each(|unit| arguments.extend(unit.to_be_bytes()));
        lent.push(buffer.lend(parameter.way != Way::Out, parameter.way != Way::In).map_err(Failure::of_environment)?);
        buffers.push((parameter, buffer));
    }
    let results = ask(&client, &arguments, &How { deadline, lent: &lent })?;
    let mut shows = values::decode(file, &procedure.result, &results)
        .map_err(|error| Failure::of_environment(format_args!("the results could not be decoded: {error}")))?;
    if !buffers.is_empty() {
        let mut object = Map::from_iter([("result".to_string(), shows)]);
        for (parameter, buffer) in buffers.iter_mut().filter(|(parameter, _)| parameter.way != Way::In) {
            object.insert(parameter.declaration.name.clone(), shown(file, parameter, buffer)?);
        }
        shows = json!(object);
    }
    print(&format!("{shows}\n"))?;
    Ok(0)
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let whole = text.len().is_multiple_of(8) && text.is_ascii();
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    whole.then(|| (0..text.len()).step_by(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_that_has_it_is_called() {
        let text =
            "program P { version A { int F(int) = 1; void G(void) = 2; } = 1; version B { int F(int) = 7; } = 3; } = 0x10;";
        let found = |wanted: &str| {
            let target = in_file(shunt_rpcgen::parse(text).unwrap(), &Wanted::parse(wanted).ok().unwrap())?;
            Some((target.program, target.version, target.number))
        };
        assert_eq!(found("P.F"), Some((16, 3, 7)));
        assert_eq!(found("0x10.1.F"), Some((16, 1, 1)));
        assert_eq!(found("16.2"), Some((16, 1, 2)));
        assert_eq!((found("P.3.G"), found("Q.F"), found("P.H")), (None, None, None));
        assert!(Wanted::parse("P").is_err() && Wanted::parse("P.x.F").is_err());
    }

    #[test]
    fn words_are_json_or_themselves() {
        let file = shunt_rpcgen::parse("typedef string s<>; typedef int i;").unwrap();
        let made = |kind: &str, word: &str| {
            let declaration = Declaration { name: String::new(), base: Base::Named(kind.into()), shape: Shape::One };
            argument(&file, &declaration, word).ok()
        };
        assert_eq!(made("s", "a b").unwrap(), *b"\0\0\0\x03a b\0");
        assert_eq!(made("s", "7").unwrap(), *b"\0\0\0\x017\0\0\0");
        assert_eq!(made("s", "\"7\"").unwrap(), *b"\0\0\0\x017\0\0\0");
        assert_eq!((made("i", "7").unwrap(), made("i", "x")), (vec![0, 0, 0, 7], None));
    }

    #[test]
    fn digits_are_units() {
        assert_eq!(bytes("0000000a").unwrap(), [0, 0, 0, 10]);
        assert_eq!((bytes("0a"), bytes("0000000g"), bytes("")), (None, None, Some(vec![])));
    }
}
