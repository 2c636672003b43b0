//! The language of RFC 4506 and RFC 5531, with what rpcgen takes besides, and `IN`, `OUT`, `INOUT` before a parameter.

use crate::model::*;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Why text is none of the language, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}: {}", self.line, self.column, self.text)
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(i64),
    Text(String),
    Mark(char),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(to, "`{word}`"),
            Self::Number(number) => write!(to, "{number}"),
            Self::Text(text) => write!(to, "\"{text}\""),
            Self::Mark(mark) => write!(to, "`{mark}`"),
            Self::End => to.write_str("the end of the file"),
        }
    }
}

type Place = (usize, usize);

fn error<T>((line, column): Place, text: impl Into<String>) -> Result<T, Error> {
    Err(Error { line, column, text: text.into() })
}

/// Tokens with their places. Lines that begin with `%` are rpcgen's to pass on, and those with `#` the preprocessor's: markers of its
/// output are skipped, directives are refused, because their meaning is not here.
fn tokens(text: &str) -> Result<Vec<(Token, Place)>, Error> {
    let mut all = vec![];
    let mut rest = text.char_indices().peekable();
    let (mut line, mut start) = (1, 0);
    let mut fresh = true;
    while let Some(&(at, character)) = rest.peek() {
        let place = (line, text[start..at].chars().count() + 1);
        let left = &text[at..];
        let skip = |rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>, end: usize| {
            while rest.next_if(|(now, _)| *now < at + end).is_some() {}
        };
        if character == '\n' {
            rest.next();
            (line, start, fresh) = (line + 1, at + 1, true);
        } else if fresh && (character == '%' || character == '#') {
            let end = left.find('\n').unwrap_or(left.len());
            let marker = left[1..end].trim_start().starts_with(|c: char| c.is_ascii_digit()) || left[1..end].starts_with("line");
            if character == '#' && !marker {
                return error(place, "a directive: give the file to cpp first");
            }
            skip(&mut rest, end);
        } else if character.is_whitespace() {
            rest.next();
        } else if left.starts_with("/*") {
            let Some(end) = left.find("*/") else { return error(place, "a comment without an end") };
            let inside = &left[..end];
            if let Some(last) = inside.rfind('\n') {
                line += inside.matches('\n').count();
                start = at + last + 1;
            }
            skip(&mut rest, end + 2);
        } else if left.starts_with("//") {
            skip(&mut rest, left.find('\n').unwrap_or(left.len()));
        } else if character.is_ascii_alphabetic() || character == '_' {
            let end = left.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(left.len());
            all.push((Token::Word(left[..end].to_string()), place));
            fresh = false;
            skip(&mut rest, end);
        } else if character.is_ascii_digit() || character == '-' {
            let end = left[1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(left.len(), |end| end + 1);
            let Some(number) = number(&left[..end]) else { return error(place, format!("`{}` is no number", &left[..end])) };
            all.push((Token::Number(number), place));
            fresh = false;
            skip(&mut rest, end);
        } else if character == '"' {
            let end = left[1..].find(['"', '\n']).map(|end| end + 1).filter(|end| left[*end..].starts_with('"'));
            let Some(end) = end else { return error(place, "a text without an end") };
            all.push((Token::Text(left[1..end].to_string()), place));
            fresh = false;
            skip(&mut rest, end + 1);
        } else if "{}()[]<>=;:,*".contains(character) {
            all.push((Token::Mark(character), place));
            fresh = false;
            rest.next();
        } else {
            return error(place, format!("`{character}` is not of the language"));
        }
    }
    all.push((Token::End, (line, text[start..].chars().count() + 1)));
    Ok(all)
}

/// Decimal, `0x` and `0` as in C.
pub(crate) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        i64::from_str_radix(hex, 16).ok()?
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(digits, 8).ok()?
    } else {
        digits.parse().ok()?
    };
    Some(if negative { -value } else { value })
}

struct Parser<'p> {
    tokens: Vec<(Token, Place)>,
    at: usize,
    file: File,
    /// Constants and members of enumerations.
    values: HashMap<String, i64>,
    /// Numbers of the header.
    passed: &'p HashMap<String, i64>,
    /// Constants that are texts.
    texts: HashSet<String>,
    /// Types that are named, to be found when all is read.
    named: Vec<(String, Place)>,
    types: HashMap<String, Place>,
}

const WORDS: &[&str] = &[
    "bool",
    "case",
    "const",
    "default",
    "double",
    "quadruple",
    "enum",
    "float",
    "hyper",
    "int",
    "opaque",
    "string",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "void",
    "program",
    "version",
    "char",
    "short",
    "long",
    "IN",
    "OUT",
    "INOUT",
];

/// Reads a file.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(text: &str) -> Result<File, Error> {
    parse_with(text, &[], &HashMap::new())
}

/// What rpcgen's files name without defining it, since `rpc/rpc.h` does: a number, and types.
const MAXNETNAMELEN: i64 = 255;
const KNOWN: [(&str, Shape); 2] = [("netobj", Shape::Variable(1024)), ("des_block", Shape::Fixed(8))];

/// Reads a file whose types may be those of others: as many of them come along as it names. Numbers that are passed on to the header count
/// where the file has no constant of the name.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn parse_with(text: &str, others: &[File], passed: &HashMap<String, i64>) -> Result<File, Error> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        file: File::default(),
        values: HashMap::from([("TRUE".into(), 1), ("FALSE".into(), 0)]),
        passed,
        texts: HashSet::new(),
        named: vec![],
        types: HashMap::new(),
    };
    while *parser.peek() != Token::End {
        parser.definition()?;
    }
    // What comes along names further types.
    let mut named = std::mem::take(&mut parser.named);
    let mut brought = vec![];
    while let Some((name, place)) = named.pop() {
        if parser.types.contains_key(&name) {
            continue;
        }
        let found = others.iter().flat_map(|file| &file.definitions).find(|one| one.type_name() == Some(&name));
        let known = KNOWN
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, shape)| Definition::Typedef(Declaration { name: name.clone(), base: Base::Opaque, shape: *shape }));
        let Some(found) = found.or(known.as_ref()) else { return error(place, format!("no type is called `{name}`")) };
        named.extend(found.names().into_iter().map(|name| (name, place)));
        parser.types.insert(name, place);
        brought.insert(0, found.clone());
    }
    parser.file.definitions.splice(0..0, brought);
    for (name, place) in &parser.types {
        if parser.file.is_endless(name) {
            return error(*place, format!("`{name}` holds itself: a pointer or a length is to be between"));
        }
    }
    Ok(parser.file)
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn place(&self) -> Place {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&mut self, mark: char) -> bool {
        let found = *self.peek() == Token::Mark(mark);
        if found {
            self.next();
        }
        found
    }

    fn is_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(found) if found == word);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), Error> {
        if self.is(mark) {
            return Ok(());
        }
        error(self.place(), format!("`{mark}` is missing before {}", self.peek()))
    }

    fn name(&mut self, what: &str) -> Result<String, Error> {
        let place = self.place();
        match self.peek().clone() {
            Token::Word(word) if WORDS.contains(&word.as_str()) => {
                error(place, format!("{what} is missing: `{word}` is a word of the language"))
            }
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            other => error(place, format!("{what} is missing before {other}")),
        }
    }

    /// A number, or the name of one.
    fn value(&mut self) -> Result<i64, Error> {
        let place = self.place();
        match self.next() {
            Token::Number(number) => Ok(number),
            Token::Word(word) => match self.values.get(&word).or_else(|| self.passed.get(&word)) {
                Some(&value) => Ok(value),
                None if word == "MAXNETNAMELEN" => Ok(MAXNETNAMELEN),
                None => error(place, format!("no constant is called `{word}`")),
            },
            other => error(place, format!("a number is missing before {other}")),
        }
    }

    fn within<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Error> {
        let place = self.place();
        let value = self.value()?;
        T::try_from(value).or_else(|_| error(place, format!("{value} is no {what}")))
    }

    fn define(&mut self, name: &str, place: Place) -> Result<(), Error> {
        match self.types.insert(name.to_string(), place) {
            None => Ok(()),
            Some((line, _)) => error(place, format!("`{name}` is defined in line {line} already")),
        }
    }

    fn constant(&mut self, name: &str, value: i64, place: Place) -> Result<(), Error> {
        match self.values.insert(name.to_string(), value) {
            None => Ok(()),
            Some(_) => error(place, format!("`{name}` has a value already")),
        }
    }

    fn definition(&mut self) -> Result<(), Error> {
        let place = self.place();
        let Token::Word(word) = self.peek().clone() else {
            return error(place, format!("a definition is missing before {}", self.peek()));
        };
        self.next();
        let named = self.place();
        let definition = match word.as_str() {
            "const" => {
                let name = self.name("a name")?;
                self.expect('=')?;
                if let Token::Text(text) = self.peek().clone() {
                    self.next();
                    if self.values.contains_key(&name) || !self.texts.insert(name.clone()) {
                        return error(named, format!("`{name}` has a value already"));
                    }
                    Definition::Text(name, text)
                } else {
                    let value = self.value()?;
                    self.constant(&name, value, named)?;
                    Definition::Constant(name, value)
                }
            }
            "enum" => {
                let name = self.name("a name")?;
                self.define(&name, named)?;
                Definition::Enumeration(name, self.members()?)
            }
            "struct" => {
                let name = self.name("a name")?;
                self.define(&name, named)?;
                Definition::Structure(name, self.fields()?)
            }
            "union" => {
                let name = self.name("a name")?;
                self.define(&name, named)?;
                Definition::Union(self.union(name)?)
            }
            "typedef" => {
                let declaration = self.declaration(true)?;
                if declaration.base == Base::Void {
                    return error(named, "`void` has no values");
                }
                // `typedef struct s s;` says in C what is so here.
                let is_itself = declaration.shape == Shape::One && declaration.base == Base::Named(declaration.name.clone());
                if is_itself && self.types.contains_key(&declaration.name) {
                    return self.expect(';');
                }
                self.define(&declaration.name, named)?;
                Definition::Typedef(declaration)
            }
            "program" => Definition::Program(self.program()?),
            other => return error(place, format!("const, enum, struct, union, typedef or program is wanted, not `{other}`")),
        };
        self.expect(';')?;
        self.file.definitions.push(definition);
        Ok(())
    }

    fn members(&mut self) -> Result<Vec<(String, i64)>, Error> {
        self.expect('{')?;
        let mut members: Vec<(String, i64)> = vec![];
        loop {
            let place = self.place();
            let name = self.name("a member")?;
            let value = if self.is('=') {
                i64::from(self.within::<i32>("number of 32 bits")?)
            } else {
                // As in C, where rpcgen puts it.
                members.last().map_or(0, |(_, last)| last + 1)
            };
            self.constant(&name, value, place)?;
            members.push((name, value));
            if !self.is(',') {
                break;
            }
        }
        self.expect('}')?;
        Ok(members)
    }

    fn fields(&mut self) -> Result<Vec<Declaration>, Error> {
        self.expect('{')?;
        let mut fields: Vec<Declaration> = vec![];
        while !self.is('}') {
            let place = self.place();
            let field = self.declaration(true)?;
            if fields.iter().any(|other| other.name == field.name) {
                return error(place, format!("`{}` twice", field.name));
            }
            if field.base != Base::Void {
                fields.push(field);
            }
            self.expect(';')?;
        }
        Ok(fields)
    }

    fn union(&mut self, name: String) -> Result<Union, Error> {
        if !self.is_word("switch") {
            return error(self.place(), "`switch` is missing");
        }
        self.expect('(')?;
        let place = self.place();
        let discriminant = self.declaration(true)?;
        let decides = matches!(discriminant.base, Base::Int | Base::Unsigned | Base::Bool | Base::Named(_));
        if discriminant.shape != Shape::One || !decides {
            return error(place, "an int, unsigned, bool or enumeration is to decide");
        }
        self.expect(')')?;
        self.expect('{')?;
        let (mut arms, mut default): (Vec<(String, i64, Option<Declaration>)>, _) = (vec![], None);
        while !self.is('}') {
            let place = self.place();
            let mut labels = vec![];
            if self.is_word("default") {
                self.expect(':')?;
                if default.is_some() {
                    return error(place, "`default` twice");
                }
            } else {
                while self.is_word("case") {
                    let place = self.place();
                    let written = self.peek().to_string().trim_matches('`').to_string();
                    let value = self.value()?;
                    if arms.iter().any(|(_, other, _)| *other == value) || labels.iter().any(|(_, other)| *other == value) {
                        return error(place, format!("case {written} twice"));
                    }
                    labels.push((written, value));
                    self.expect(':')?;
                }
                if labels.is_empty() {
                    return error(place, format!("`case` or `default` is missing before {}", self.peek()));
                }
            }
            let arm = Some(self.declaration(true)?).filter(|arm| arm.base != Base::Void);
            self.expect(';')?;
            if labels.is_empty() {
                default = Some(arm);
            } else {
                arms.extend(labels.into_iter().map(|(written, value)| (written, value, arm.clone())));
            }
        }
        Ok(Union { name, discriminant, arms, default })
    }

    fn program(&mut self) -> Result<Program, Error> {
        let name = self.name("a name")?;
        self.expect('{')?;
        let mut versions: Vec<Version> = vec![];
        while !self.is('}') {
            let place = self.place();
            if !self.is_word("version") {
                return error(place, format!("`version` is missing before {}", self.peek()));
            }
            let version = self.version()?;
            if versions.iter().any(|other| other.number == version.number) {
                return error(place, format!("version {} twice", version.number));
            }
            versions.push(version);
        }
        self.expect('=')?;
        let number = self.within("number of a program")?;
        Ok(Program { name, number, versions })
    }

    fn version(&mut self) -> Result<Version, Error> {
        let name = self.name("a name")?;
        self.expect('{')?;
        let mut procedures: Vec<Procedure> = vec![];
        while !self.is('}') {
            let place = self.place();
            let procedure = self.procedure()?;
            if let Some(other) = procedures.iter().find(|other| other.number == procedure.number || other.name == procedure.name)
            {
                return error(place, format!("`{}` and `{}` have one number or name", other.name, procedure.name));
            }
            procedures.push(procedure);
        }
        self.expect('=')?;
        let number = self.within("number of a version")?;
        self.expect(';')?;
        Ok(Version { name, number, procedures })
    }

    fn procedure(&mut self) -> Result<Procedure, Error> {
        let place = self.place();
        let (base, optional) = (self.base()?, self.is('*'));
        if base == Base::Opaque {
            return error(place, "opaque results are to have a typedef, with their length");
        }
        let shape = match &base {
            Base::String => Shape::Variable(u32::MAX),
            _ if optional => Shape::Optional,
            _ => Shape::One,
        };
        let result = Declaration { name: String::new(), base, shape };
        let name = self.name("a procedure's name")?;
        self.expect('(')?;
        let mut parameters = vec![];
        let void = matches!(self.peek(), Token::Word(word) if word == "void");
        let none = if void { self.void() } else { self.is(')') };
        if !none {
            loop {
                parameters.push(self.parameter(parameters.len())?);
                if !self.is(',') {
                    break;
                }
            }
            self.expect(')')?;
        }
        if parameters.len() > 8 {
            return error(place, "more than eight parameters: make a structure of them");
        }
        self.expect('=')?;
        let number = self.within("number of a procedure here: 0 to 65535")?;
        self.expect(';')?;
        Ok(Procedure { name, number, result, parameters })
    }

    /// `void)`.
    fn void(&mut self) -> bool {
        self.next();
        self.is(')')
    }

    fn parameter(&mut self, index: usize) -> Result<Parameter, Error> {
        let place = self.place();
        let way = match () {
            () if self.is_word("IN") => Way::In,
            () if self.is_word("OUT") => Way::Out,
            () if self.is_word("INOUT") => Way::InOut,
            () => Way::Value,
        };
        let mut declaration = self.declaration(false)?;
        if declaration.name.is_empty() {
            declaration.name = format!("argument{}", index + 1);
        }
        if declaration.base == Base::Void {
            return error(place, "`void` stands alone");
        }
        if way != Way::Value {
            use Base::*;
            let lies = matches!(declaration.base, Opaque | Int | Unsigned | Hyper | UnsignedHyper | Float | Double);
            if !lies || !matches!(declaration.shape, Shape::Variable(_)) {
                let what =
                    "by reference go opaque, int, unsigned, hyper, float and double, of variable length: `INOUT int keys<100>`";
                return error(place, what);
            }
        }
        Ok(Parameter { way, declaration })
    }

    fn base(&mut self) -> Result<Base, Error> {
        let place = self.place();
        let Token::Word(word) = self.peek().clone() else {
            return error(place, format!("a type is missing before {}", self.peek()));
        };
        self.next();
        Ok(match word.as_str() {
            "void" => Base::Void,
            "int" | "long" | "int32_t" => {
                self.is_word("int");
                Base::Int
            }
            "unsigned" => match self.peek().clone() {
                Token::Word(next) if matches!(next.as_str(), "int" | "long" | "hyper" | "short" | "char") => {
                    self.next();
                    match next.as_str() {
                        "hyper" => Base::UnsignedHyper,
                        "short" => Base::UnsignedShort,
                        "char" => Base::UnsignedChar,
                        _ => Base::Unsigned,
                    }
                }
                _ => Base::Unsigned,
            },
            "u_int" | "u_long" | "uint32_t" => Base::Unsigned,
            "hyper" | "quad_t" | "int64_t" | "longlong_t" => Base::Hyper,
            "u_hyper" | "u_quad_t" | "uint64_t" | "u_longlong_t" => Base::UnsignedHyper,
            "short" | "int16_t" => Base::Short,
            "u_short" | "uint16_t" => Base::UnsignedShort,
            "char" | "int8_t" => Base::Char,
            "u_char" | "uint8_t" => Base::UnsignedChar,
            "float" => Base::Float,
            "double" => Base::Double,
            "quadruple" => Base::Quadruple,
            "bool" | "bool_t" => Base::Bool,
            "opaque" => Base::Opaque,
            "string" => Base::String,
            "struct" | "enum" | "union" => {
                let place = self.place();
                let name = self.name("a name: a definition of its own is wanted")?;
                self.named.push((name.clone(), place));
                Base::Named(name)
            }
            other if WORDS.contains(&other) => return error(place, format!("a type is missing before `{other}`")),
            _ => {
                self.named.push((word.clone(), place));
                Base::Named(word)
            }
        })
    }

    /// A type, a name (which parameters need not have), a shape.
    fn declaration(&mut self, named: bool) -> Result<Declaration, Error> {
        let place = self.place();
        let base = self.base()?;
        if base == Base::Void {
            return Ok(Declaration { name: String::new(), base, shape: Shape::One });
        }
        let optional = self.is('*');
        let name = if named || matches!(self.peek(), Token::Word(_)) { self.name("a name")? } else { String::new() };
        let shape = if optional {
            Shape::Optional
        } else if self.is('[') {
            let count = self.within("length")?;
            self.expect(']')?;
            Shape::Fixed(count)
        } else if self.is('<') {
            let most = if *self.peek() == Token::Mark('>') { u32::MAX } else { self.within("bound")? };
            self.expect('>')?;
            Shape::Variable(most)
        } else if base == Base::String && !named {
            // rpcgen's parameters and results.
            Shape::Variable(u32::MAX)
        } else {
            Shape::One
        };
        match (&base, shape) {
            (Base::Opaque, Shape::One | Shape::Optional) => error(place, "opaque needs a length: `[8]` or `<8>`"),
            (Base::String, Shape::Variable(_)) => Ok(Declaration { name, base, shape }),
            (Base::String, _) => error(place, "a string has a bound: `<>` or `<8>`"),
            _ => Ok(Declaration { name, base, shape }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn errors_have_a_place_and_words() {
        assert_eq!(wrong("struct a {\n  int b\n};"), "3:1: `;` is missing before `}`");
        assert_eq!(wrong("struct a { c d; };"), "1:12: no type is called `c`");
        assert_eq!(wrong("struct a { int d[N]; };"), "1:18: no constant is called `N`");
        assert_eq!(wrong("const A = 1;\nconst A = 2;"), "2:7: `A` has a value already");
        assert_eq!(wrong("struct a { a b; };"), "1:8: `a` holds itself: a pointer or a length is to be between");
        assert_eq!(wrong("/* \n */ opaque"), "2:5: const, enum, struct, union, typedef or program is wanted, not `opaque`");
        assert_eq!(wrong("typedef opaque a;"), "1:9: opaque needs a length: `[8]` or `<8>`");
        assert_eq!(wrong("/* no"), "1:1: a comment without an end");
        assert_eq!(wrong("#define A 1"), "1:1: a directive: give the file to cpp first");
        assert_eq!(wrong("const A = 12x;"), "1:11: `12x` is no number");
        assert_eq!(wrong("union u switch (int a) { case 1: int b; case 1: void; };"), "1:46: case 1 twice");
        assert_eq!(wrong("program P { version V { void F(INOUT string a<>) = 1; } = 1; } = 1;").split(' ').next(), Some("1:32:"));
        assert_eq!(wrong("const struct = 1;"), "1:7: a name is missing: `struct` is a word of the language");
    }

    #[test]
    fn lines_of_others_are_skipped() {
        let file = parse("%#include <x.h>\n# 1 \"a.x\"\nconst A = 0x10; // sixteen\nconst B = -1;").unwrap();
        assert_eq!(file.definitions, [Definition::Constant("A".into(), 16), Definition::Constant("B".into(), -1)]);
    }

    proptest::proptest! {
        /// Any text is a file or has an error in it.
        #[test]
        fn any_text_is_judged(words in proptest::collection::vec(proptest::sample::select(&[
            "struct", "union", "a", "b", "{", "}", ";", "int", "<", ">", "[", "]", "7", "switch", "(", ")", "case", ":", "default",
            "*", "program", "version", "=", ",", "void", "string", "opaque", "INOUT", "enum", "typedef", "\n", "/*", "*/", "é",
        ][..]), 0..60)) {
            let text = words.join(" ");
            if let Err(error) = parse(&text) {
                proptest::prop_assert!(error.line <= text.lines().count() + 1);
            }
        }
    }
}
