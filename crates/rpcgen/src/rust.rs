//! Rust of a file: its types with their representation, and for each version of a program a trait for servers and a caller.

use crate::model::*;
use crate::names::{constant, field, kind};
use std::collections::HashMap;
use std::fmt::Write as _;

const X: &str = "::shunt_rpc::xdr";

/// The type of a declaration.
fn kind_of(declaration: &Declaration) -> String {
    let base = match &declaration.base {
        Base::Void => "()".into(),
        Base::Int => "i32".into(),
        Base::Unsigned => "u32".into(),
        Base::Hyper => "i64".into(),
        Base::UnsignedHyper => "u64".into(),
        Base::Short => "i16".into(),
        Base::UnsignedShort => "u16".into(),
        Base::Char => "i8".into(),
        Base::UnsignedChar => "u8".into(),
        Base::Float => "f32".into(),
        Base::Double => "f64".into(),
        Base::Bool => "bool".into(),
        Base::Quadruple => format!("{X}::Quadruple"),
        Base::Opaque | Base::String => {
            return match declaration.shape {
                Shape::Fixed(count) => format!("{X}::Opaque<{count}>"),
                Shape::Variable(most) => format!("{X}::Bytes<{most}>"),
                Shape::One | Shape::Optional => unreachable!("the parser refuses it"),
            }
        }
        Base::Named(name) => kind(name),
    };
    match declaration.shape {
        Shape::One => base,
        Shape::Optional => format!("::std::option::Option<::std::boxed::Box<{base}>>"),
        Shape::Fixed(count) => format!("[{base}; {count}]"),
        Shape::Variable(most) => format!("{X}::List<{base}, {most}>"),
    }
}

/// As the language writes it.
pub(crate) fn written(declaration: &Declaration) -> String {
    let base = match &declaration.base {
        Base::Void => "void",
        Base::Int => "int",
        Base::Unsigned => "unsigned",
        Base::Hyper => "hyper",
        Base::UnsignedHyper => "unsigned hyper",
        Base::Short => "short",
        Base::UnsignedShort => "unsigned short",
        Base::Char => "char",
        Base::UnsignedChar => "unsigned char",
        Base::Float => "float",
        Base::Double => "double",
        Base::Quadruple => "quadruple",
        Base::Bool => "bool",
        Base::Opaque => "opaque",
        Base::String => "string",
        Base::Named(name) => name,
    };
    let space = if declaration.name.is_empty() { "" } else { " " };
    let name = &declaration.name;
    match declaration.shape {
        Shape::One => format!("{base}{space}{name}"),
        Shape::Optional => format!("{base} *{name}"),
        Shape::Fixed(count) => format!("{base}{space}{name}[{count}]"),
        Shape::Variable(u32::MAX) => format!("{base}{space}{name}<>"),
        Shape::Variable(most) => format!("{base}{space}{name}<{most}>"),
    }
}

/// A procedure as a line of the language.
#[must_use]
pub fn definition(procedure: &Procedure) -> String {
    let parameter = |parameter: &Parameter| {
        let way = match parameter.way {
            Way::Value => "",
            Way::In => "IN ",
            Way::Out => "OUT ",
            Way::InOut => "INOUT ",
        };
        format!("{way}{}", written(&parameter.declaration))
    };
    let parameters: Vec<String> = procedure.parameters.iter().map(parameter).collect();
    let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
    let result = match procedure.result.base {
        Base::String => "string".into(),
        _ => written(&procedure.result),
    };
    format!("{} {}({parameters}) = {}", result.trim_end(), procedure.name, procedure.number)
}

/// The name of a union's variant: its label's, or its number's.
fn variant(label: &str, value: i64) -> String {
    if label.starts_with(|character: char| character.is_ascii_alphabetic()) {
        kind(label)
    } else if value < 0 {
        format!("Minus{}", value.unsigned_abs())
    } else {
        format!("Case{value}")
    }
}

struct Writer<'f> {
    file: &'f File,
    text: String,
}

macro_rules! line {
    ($writer:expr, $($words:tt)*) => {{
        let _ = writeln!($writer.text, $($words)*);
    }};
}

/// The program's text.
///
/// # Errors
/// Two names of the language that are one in Rust.
pub fn generate(file: &File) -> Result<String, String> {
    clashes(file)?;
    let mut to = Writer { file, text: String::new() };
    line!(to, "// Made by shunt-rpcgen: changes are lost.");
    for definition in &file.definitions {
        line!(to, "");
        match definition {
            Definition::Constant(name, value) => {
                let kind = if i32::try_from(*value).is_ok() { "i32" } else { "i64" };
                let kind = if *value > i64::from(i32::MAX) && u32::try_from(*value).is_ok() { "u32" } else { kind };
                line!(to, "/// `const {name}`.\npub const {}: {kind} = {value};", constant(name));
            }
            Definition::Text(name, text) => {
                line!(to, "/// `const {name}`.\npub const {}: &str = {text:?};", constant(name));
            }
            Definition::Enumeration(name, members) => to.enumeration(name, members),
            Definition::Structure(name, fields) => to.structure(name, fields),
            Definition::Union(union) => to.union(union),
            Definition::Typedef(declaration) => {
                line!(
                    to,
                    "/// `typedef {}`.\npub type {} = {};",
                    written(declaration),
                    kind(&declaration.name),
                    kind_of(declaration)
                );
            }
            Definition::Program(program) => program.versions.iter().for_each(|version| to.version(program, version)),
        }
    }
    Ok(to.text)
}

/// Two names that become one.
fn clashes(file: &File) -> Result<(), String> {
    fn once<'a>(names: impl Iterator<Item = (String, &'a str)>, what: &str) -> Result<(), String> {
        let mut seen: HashMap<String, &str> = HashMap::new();
        for (name, of) in names {
            if let Some(other) = seen.insert(name.clone(), of) {
                return Err(format!("{what} `{other}` and `{of}` would both be `{name}`"));
            }
        }
        Ok(())
    }
    let types = file.definitions.iter().flat_map(|definition| match definition {
        Definition::Enumeration(name, _) | Definition::Structure(name, _) => vec![(kind(name), name.as_str())],
        Definition::Union(union) => vec![(kind(&union.name), union.name.as_str())],
        Definition::Typedef(declaration) => vec![(kind(&declaration.name), declaration.name.as_str())],
        Definition::Program(program) => {
            let names = |version: &Version| {
                let base = base(program, version);
                [base.clone(), format!("{base}Client"), format!("{base}Server")].map(|name| (name, program.name.as_str()))
            };
            program.versions.iter().flat_map(names).collect()
        }
        Definition::Constant(..) | Definition::Text(..) => vec![],
    });
    once(types, "the types")?;
    for definition in &file.definitions {
        match definition {
            Definition::Structure(_, fields) => {
                once(fields.iter().map(|one| (field(&one.name), one.name.as_str())), "the fields")?
            }
            Definition::Enumeration(_, members) => {
                once(members.iter().map(|(name, _)| (kind(name), name.as_str())), "the members")?;
            }
            Definition::Union(union) => {
                once(union.arms.iter().map(|(label, value, _)| (variant(label, *value), label.as_str())), "the arms")?;
            }
            Definition::Program(program) => {
                for version in &program.versions {
                    let names = version.procedures.iter().map(|one| (field(&one.name), one.name.as_str()));
                    once(names, "the procedures")?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// `LOG`, version 2: `LogV2`.
fn base(program: &Program, version: &Version) -> String {
    format!("{}V{}", kind(&program.name), version.number)
}

impl Writer<'_> {
    fn enumeration(&mut self, name: &str, members: &[(String, i64)]) {
        let kind_name = kind(name);
        // Two members with one number are two names of one variant.
        let mut first: Vec<&(String, i64)> = vec![];
        for member in members {
            if !first.iter().any(|other| other.1 == member.1) {
                first.push(member);
            }
        }
        line!(self, "/// `enum {name}`.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i32)]");
        line!(self, "pub enum {kind_name} {{");
        for (member, value) in &first {
            line!(self, "    /// `{member}`.\n    {} = {value},", kind(member));
        }
        line!(self, "}}\n");
        let others = members.iter().filter(|member| !first.contains(member));
        for (member, value) in others {
            let same = first.iter().find(|other| other.1 == *value).map_or(String::new(), |other| kind(&other.0));
            line!(self, "impl {kind_name} {{\n    /// `{member}`.\n    #[allow(non_upper_case_globals)]");
            line!(self, "    pub const {}: Self = Self::{same};\n}}\n", kind(member));
        }
        line!(self, "impl {X}::Xdr for {kind_name} {{\n    const LEAST: usize = 4;\n    const MOST: usize = 4;");
        line!(self, "    #[inline]\n    fn encode(&self, to: &mut {X}::Encoder<'_>) {{\n        to.unsigned(*self as i32 as u32);\n    }}");
        line!(self, "    #[inline]\n    fn decode(from: &mut {X}::Decoder<'_>) -> ::std::result::Result<Self, {X}::Error> {{");
        line!(self, "        match from.unsigned()? as i32 {{");
        for (member, value) in &first {
            line!(self, "            {value} => Ok(Self::{}),", kind(member));
        }
        line!(self, "            other => Err(from.error({X}::Reason::Enumeration(other))),\n        }}\n    }}\n}}");
    }

    /// The bounds of a sum of types.
    fn bounds(&mut self, name: &str, parts: &[&Declaration]) {
        let sum = |what: &str| -> String {
            parts
                .iter()
                .fold("0usize".to_string(), |sum, part| format!("{sum}.saturating_add(<{} as {X}::Xdr>::{what})", kind_of(part)))
        };
        line!(self, "    const LEAST: usize = {};", sum("LEAST"));
        if self.file.is_recursive(name) {
            line!(self, "    const MOST: usize = usize::MAX;");
        } else {
            line!(self, "    const MOST: usize = {};", sum("MOST"));
        }
    }

    fn structure(&mut self, name: &str, fields: &[Declaration]) {
        let kind_name = kind(name);
        if let Some(link) = self.file.link(name, fields) {
            let (link, others) = (field(&link.name), &fields[..fields.len() - 1]);
            return self.list(name, fields, &link, others);
        }
        line!(self, "/// `struct {name}`.\n#[derive(Clone, Debug, PartialEq)]\npub struct {kind_name} {{");
        for one in fields {
            line!(self, "    /// `{}`.\n    pub {}: {},", written(one), field(&one.name), kind_of(one));
        }
        line!(self, "}}\n\nimpl {X}::Xdr for {kind_name} {{");
        self.bounds(name, &fields.iter().collect::<Vec<_>>());
        line!(self, "    #[inline]\n    fn encode(&self, to: &mut {X}::Encoder<'_>) {{");
        for one in fields {
            line!(self, "        {X}::Xdr::encode(&self.{}, to);", field(&one.name));
        }
        let (to, from) = if fields.is_empty() { ("        let _ = to;\n", "        let _ = from;\n") } else { ("", "") };
        line!(self, "{to}    }}\n    #[inline]");
        line!(self, "    fn decode(from: &mut {X}::Decoder<'_>) -> ::std::result::Result<Self, {X}::Error> {{");
        line!(self, "{from}        Ok(Self {{");
        for one in fields {
            line!(self, "            {}: {X}::Xdr::decode(from)?,", field(&one.name));
        }
        line!(self, "        }})\n    }}\n}}");
    }

    /// An element of a list: whatever is done with one is done with all behind it, and a list may be longer than a stack is deep.
    fn list(&mut self, name: &str, fields: &[Declaration], link: &str, others: &[Declaration]) {
        let kind_name = kind(name);
        let all = |of: &dyn Fn(&str) -> String| others.iter().map(|one| of(&field(&one.name))).collect::<Vec<_>>();
        line!(
            self,
            "/// `struct {name}`, an element of a list. Fields are taken out of it by `std::mem::take`: it has a destructor."
        );
        line!(self, "pub struct {kind_name} {{");
        for one in fields {
            line!(self, "    /// `{}`.\n    pub {}: {},", written(one), field(&one.name), kind_of(one));
        }
        line!(self, "}}\n\nimpl {X}::Xdr for {kind_name} {{");
        self.bounds(name, &fields.iter().collect::<Vec<_>>());
        line!(self, "    fn encode(&self, to: &mut {X}::Encoder<'_>) {{\n        let mut at = self;\n        loop {{");
        all(&|one| format!("            {X}::Xdr::encode(&at.{one}, to);")).iter().for_each(|code| line!(self, "{code}"));
        line!(self, "            to.unsigned(u32::from(at.{link}.is_some()));");
        line!(self, "            match &at.{link} {{\n                Some(next) => at = next,\n                None => return,");
        line!(self, "            }}\n        }}\n    }}");
        line!(self, "    fn decode(from: &mut {X}::Decoder<'_>) -> ::std::result::Result<Self, {X}::Error> {{");
        let decoded = all(&|one| format!("{one}: {X}::Xdr::decode(from)?, ")).concat();
        line!(self, "        let one = |from: &mut {X}::Decoder<'_>| -> ::std::result::Result<Self, {X}::Error> {{");
        let nothing = if others.is_empty() { "            let _ = from;\n" } else { "" };
        line!(self, "{nothing}            Ok(Self {{ {decoded}{link}: None }})\n        }};");
        line!(self, "        let mut first = one(from)?;\n        let mut last = &mut first;");
        line!(self, "        while from.another::<Self>()? {{");
        line!(self, "            last = last.{link}.insert(::std::boxed::Box::new(one(from)?));\n        }}\n        Ok(first)\n    }}\n}}\n");
        line!(self, "impl ::std::clone::Clone for {kind_name} {{\n    fn clone(&self) -> Self {{");
        let cloned = all(&|one| format!("{one}: ::std::clone::Clone::clone(&of.{one}), ")).concat();
        let of = if others.is_empty() { "_" } else { "of" };
        line!(self, "        let one = |{of}: &Self| Self {{ {cloned}{link}: None }};");
        line!(self, "        let (mut first, mut at) = (one(self), self);\n        let mut last = &mut first;");
        line!(self, "        while let Some(next) = &at.{link} {{\n            last = last.{link}.insert(::std::boxed::Box::new(one(next)));");
        line!(self, "            at = next;\n        }}\n        first\n    }}\n}}\n");
        line!(self, "impl ::std::cmp::PartialEq for {kind_name} {{\n    fn eq(&self, other: &Self) -> bool {{");
        line!(self, "        let (mut a, mut b) = (self, other);\n        loop {{");
        all(&|one| format!("            if a.{one} != b.{one} {{\n                return false;\n            }}"))
            .iter()
            .for_each(|code| line!(self, "{code}"));
        line!(self, "            match (&a.{link}, &b.{link}) {{\n                (Some(x), Some(y)) => (a, b) = (x, y),");
        line!(self, "                (x, y) => return x.is_none() && y.is_none(),\n            }}\n        }}\n    }}\n}}\n");
        line!(self, "/// All elements, as a list.\nimpl ::std::fmt::Debug for {kind_name} {{");
        line!(self, "    fn fmt(&self, to: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {{");
        line!(self, "        let (mut all, mut at) = (to.debug_list(), Some(self));\n        while let Some(one) = at {{");
        let (shown, values) = (
            all(&|one| format!("{}: {{:?}}", one.trim_start_matches("r#"))).join(", "),
            all(&|one| format!(", one.{one}")).concat(),
        );
        line!(self, "            all.entry(&format_args!(\"{{{{ {shown} }}}}\"{values}));");
        line!(self, "            at = one.{link}.as_deref();\n        }}\n        all.finish()\n    }}\n}}\n");
        line!(self, "impl ::std::ops::Drop for {kind_name} {{\n    fn drop(&mut self) {{");
        line!(self, "        let mut next = self.{link}.take();\n        while let Some(mut one) = next {{");
        line!(self, "            next = one.{link}.take();\n        }}\n    }}\n}}");
    }

    /// The number of a discriminant as its type has it.
    fn label(&self, of: &Declaration, value: i64) -> String {
        match &of.base {
            Base::Bool => (value != 0).to_string(),
            Base::Named(name) => match self.file.definition(name) {
                Some(Definition::Typedef(other)) => self.label(other, value),
                Some(Definition::Enumeration(name, members)) => {
                    let member = members.iter().find(|(_, found)| *found == value);
                    member.map_or_else(|| value.to_string(), |(member, _)| format!("{}::{}", kind(name), kind(member)))
                }
                _ => value.to_string(),
            },
            Base::Unsigned => (value as u32).to_string(),
            _ => value.to_string(),
        }
    }

    fn union(&mut self, union: &Union) {
        let (kind_name, decides) = (kind(&union.name), kind_of(&union.discriminant));
        // Where each value has an arm, the default never applies.
        let all = match &union.discriminant.base {
            Base::Bool => Some(2),
            Base::Named(name) => match self.file.definition(name) {
                Some(Definition::Enumeration(_, members)) => {
                    let mut values: Vec<i64> = members.iter().map(|member| member.1).collect();
                    values.sort_unstable();
                    values.dedup();
                    Some(values.len())
                }
                _ => None,
            },
            _ => None,
        };
        let complete = all.is_some_and(|all| union.arms.len() >= all);
        let default = union.default.as_ref().filter(|_| !complete);
        line!(self, "/// `union {}`.\n#[derive(Clone, Debug, PartialEq)]\npub enum {kind_name} {{", union.name);
        for (label, value, arm) in &union.arms {
            let holds = arm.as_ref().map_or(String::new(), |arm| format!("({})", kind_of(arm)));
            line!(self, "    /// `case {label}`.\n    {}{holds},", variant(label, *value));
        }
        if let Some(arm) = default {
            let holds = arm.as_ref().map_or(String::new(), |arm| format!(", {}", kind_of(arm)));
            line!(self, "    /// `default`: none of the others' numbers.\n    Default({decides}{holds}),");
        }
        line!(self, "}}\n\nimpl {X}::Xdr for {kind_name} {{");
        line!(self, "    const LEAST: usize = 4;");
        if self.file.is_recursive(&union.name) {
            line!(self, "    const MOST: usize = usize::MAX;");
        } else {
            let arms = union.arms.iter().filter_map(|(_, _, arm)| arm.as_ref()).chain(default.into_iter().flatten());
            let most = arms.fold("0usize".to_string(), |most, arm| format!("most({most}, <{} as {X}::Xdr>::MOST)", kind_of(arm)));
            line!(self, "    const MOST: usize = {{");
            line!(self, "        #[allow(dead_code)]\n        const fn most(a: usize, b: usize) -> usize {{");
            line!(self, "            if a > b {{ a }} else {{ b }}\n        }}\n        4usize.saturating_add({most})\n    }};");
        }
        line!(self, "    fn encode(&self, to: &mut {X}::Encoder<'_>) {{\n        match self {{");
        for (label, value, arm) in &union.arms {
            let number = self.label(&union.discriminant, *value);
            let (holds, then) = match arm {
                Some(_) => ("(value)", format!("; {X}::Xdr::encode(value, to)")),
                None => ("", String::new()),
            };
            let variant = variant(label, *value);
            line!(self, "            Self::{variant}{holds} => {{ <{decides} as {X}::Xdr>::encode(&{number}, to){then} }}");
        }
        if let Some(arm) = default {
            let (holds, then) = match arm {
                Some(_) => (", value", format!("; {X}::Xdr::encode(value, to)")),
                None => ("", String::new()),
            };
            line!(self, "            Self::Default(other{holds}) => {{ {X}::Xdr::encode(other, to){then} }}");
        }
        line!(self, "        }}\n    }}");
        line!(self, "    fn decode(from: &mut {X}::Decoder<'_>) -> ::std::result::Result<Self, {X}::Error> {{");
        line!(self, "        Ok(match <{decides} as {X}::Xdr>::decode(from)? {{");
        for (label, value, arm) in &union.arms {
            let number = self.label(&union.discriminant, *value);
            let holds = if arm.is_some() { format!("({X}::Xdr::decode(from)?)") } else { String::new() };
            line!(self, "            {number} => Self::{}{holds},", variant(label, *value));
        }
        match default {
            Some(arm) => {
                let holds = if arm.is_some() { format!(", {X}::Xdr::decode(from)?") } else { String::new() };
                line!(self, "            other => Self::Default(other{holds}),");
            }
            None if complete => {}
            None => line!(self, "            other => return Err(from.error({X}::Reason::Arm(other as i32))),"),
        }
        line!(self, "        }})\n    }}\n}}");
    }

    fn version(&mut self, program: &Program, version: &Version) {
        let base = base(program, version);
        let (name, number) = (&program.name, version.number);
        line!(self, "/// What servers of `{name}`, version {number}, do. A thread of a server has one.\npub trait {base} {{");
        for one in &version.procedures {
            let mut parameters = String::new();
            for parameter in &one.parameters {
                let kind = match parameter.way {
                    Way::Value => kind_of(&parameter.declaration),
                    _ => format!("::shunt_rpc::Shared<'_, {}>", element(&parameter.declaration)),
                };
                let _ = write!(parameters, ", {}: {kind}", field(&parameter.declaration.name));
            }
            line!(self, "    /// `{}`\n    ///\n    /// # Errors\n    /// What the caller is told instead.", definition(one));
            line!(self, "    fn {}(&mut self, context: &::shunt_rpc::Context<'_>{parameters})", field(&one.name));
            line!(self, "        -> ::std::result::Result<{}, ::shunt_rpc::Fault>;", kind_of(&one.result));
        }
        line!(self, "}}\n");
        line!(self, "/// `{name}`, version {number}, for tools and bindings.\npub const {}: ::shunt_rpc::Interface = ::shunt_rpc::Interface {{", constant(&format!("{name}_V{number}_INTERFACE")));
        line!(self, "    program: {:#x},\n    version: {number},\n    name: {name:?},\n    procedures: &[", program.number);
        for one in &version.procedures {
            let (number, name, words) = (one.number, &one.name, definition(one));
            line!(self, "        ::shunt_rpc::Procedure {{ number: {number}, name: {name:?}, definition: {words:?} }},");
        }
        line!(self, "    ],\n    text: {:?},\n}};\n", crate::write(self.file));
        self.server(program, version);
        self.client(program, version);
    }

    fn server(&mut self, program: &Program, version: &Version) {
        let base = base(program, version);
        let interface = constant(&format!("{}_V{}_INTERFACE", program.name, version.number));
        line!(
            self,
            "/// Makes a service of a [`{base}`].\n#[derive(Clone, Debug, Default)]\npub struct {base}Server<T>(pub T);\n"
        );
        line!(self, "impl<T: {base}> ::shunt_rpc::Service for {base}Server<T> {{");
        line!(
            self,
            "    fn interfaces(&self) -> ::std::vec::Vec<::shunt_rpc::Interface> {{\n        ::std::vec![{interface}]\n    }}"
        );
        line!(self, "    #[inline]\n    fn call(&mut self, context: &::shunt_rpc::Context<'_>, procedure: u16, arguments: {X}::Decoder<'_>,");
        line!(self, "        answer: &mut ::shunt_rpc::Answer<'_>) -> ::std::result::Result<(), ::shunt_rpc::Refusal> {{");
        line!(self, "        match procedure {{");
        if !version.procedures.iter().any(|one| one.number == 0) {
            line!(self, "            0 => ::shunt_rpc::serve(arguments, answer, |()| Ok(())),");
        }
        for one in &version.procedures {
            let (mut pattern, mut kinds, mut given, mut before) = (String::new(), String::new(), String::new(), String::new());
            for (at, parameter) in one.parameters.iter().enumerate() {
                let _ = write!(pattern, "p{at}, ");
                let declaration = &parameter.declaration;
                if parameter.way == Way::Value {
                    let _ = write!(kinds, "{}, ", kind_of(declaration));
                    let _ = write!(given, ", p{at}");
                } else {
                    let most = if let Shape::Variable(most) = declaration.shape { most } else { 0 };
                    let _ = write!(kinds, "::shunt_rpc::Reference<{}>, ", element(declaration));
                    let _ = write!(before, "let p{at} = context.shared(p{at}, {most})?; ");
                    let _ = write!(given, ", p{at}");
                }
            }
            let (number, name) = (one.number, field(&one.name));
            let (pattern, kinds) = (pattern.trim_end(), kinds.trim_end());
            line!(self, "            {number} => ::shunt_rpc::serve(arguments, answer, |({pattern}): ({kinds})| {{");
            line!(self, "                {before}Ok(self.0.{name}(context{given})?)\n            }}),");
        }
        line!(self, "            _ => Err(::shunt_rpc::Refusal::NoProcedure),\n        }}\n    }}\n}}\n");
    }

    fn client(&mut self, program: &Program, version: &Version) {
        let base = base(program, version);
        let (name, number) = (&program.name, version.number);
        line!(
            self,
            "/// Calls `{name}`, version {number}.\n#[derive(Debug)]\npub struct {base}Client(pub ::shunt_rpc::Client);\n"
        );
        line!(self, "impl {base}Client {{");
        line!(
            self,
            "    /// Binds to the server at an address: a name of this host, `udp:HOST:PORT`, or `sunrpc+tcp://HOST[:PORT]`.\n    ///\n    /// # Errors"
        );
        line!(self, "    /// No such server, or not for this user, or without this version.");
        line!(
            self,
            "    pub fn connect(address: &str) -> ::std::result::Result<Self, ::std::boxed::Box<dyn ::std::error::Error>> {{"
        );
        line!(self, "        Ok(Self::connect_with(&address.parse()?, ::shunt_rpc::Options::default())?)\n    }}\n");
        line!(self, "    /// The same, with options.\n    ///\n    /// # Errors\n    /// As [`Self::connect`].");
        line!(self, "    pub fn connect_with(address: &::shunt_rpc::Address, options: ::shunt_rpc::Options) -> ::std::result::Result<Self, ::shunt_rpc::Error> {{");
        line!(
            self,
            "        ::shunt_rpc::Client::connect(address, {:#x}, {number}..={number}, options).map(Self)\n    }}",
            program.number
        );
        for one in &version.procedures {
            self.calls(one);
        }
        line!(self, "}}");
    }

    fn calls(&mut self, one: &Procedure) {
        let (mut parameters, mut values, mut lent) = (String::new(), String::new(), String::new());
        for parameter in &one.parameters {
            let name = field(&parameter.declaration.name);
            if parameter.way == Way::Value {
                let _ = write!(parameters, ", {name}: &{}", kind_of(&parameter.declaration));
                let _ = write!(values, "{name}, ");
            } else {
                let _ = write!(parameters, ", {name}: &::shunt_rpc::Buffer<'_, {}>", element(&parameter.declaration));
                let _ = write!(values, "{name}.reference(), ");
                let (to, from) = (parameter.way != Way::Out, parameter.way != Way::In);
                let _ = write!(lent, "{name}.lend({to}, {from})?, ");
            }
        }
        let (results, words, name) = (kind_of(&one.result), definition(one), field(&one.name));
        let plain = name.trim_start_matches("r#");
        let (values, number) = (values.trim_end(), one.number);
        let error = "::shunt_rpc::Error";
        line!(self, "\n    /// `{words}`\n    ///\n    /// # Errors\n    /// [`{error}`]\n    #[inline]");
        line!(self, "    pub fn {name}(&self{parameters}) -> ::std::result::Result<{results}, {error}> {{");
        if lent.is_empty() {
            line!(self, "        self.0.call({number}, &({values}))\n    }}");
        } else {
            line!(self, "        let how = ::shunt_rpc::How {{ lent: &[{}], ..Default::default() }};", lent.trim_end());
            line!(self, "        self.0.call_with({number}, &({values}), &how)\n    }}");
        }
        line!(
            self,
            "\n    /// Begins `{}`; with a deadline of its own, if there is one.\n    ///\n    /// # Errors\n    /// [`{error}`]",
            one.name
        );
        line!(self, "    pub fn {plain}_begin(&self{parameters}, deadline: ::std::option::Option<::std::time::Duration>)");
        line!(self, "        -> ::std::result::Result<::shunt_rpc::Pending<'_, {results}>, {error}> {{");
        line!(self, "        let how = ::shunt_rpc::How {{ deadline, lent: &[{}] }};", lent.trim_end());
        line!(self, "        self.0.begin_with({number}, &({values}), &how)\n    }}");
        if one.result.base == Base::Void && lent.is_empty() {
            line!(self, "\n    /// Sends `{}`, and waits for nothing.\n    ///\n    /// # Errors\n    /// [`{error}`]", one.name);
            line!(self, "    pub fn {plain}_tell(&self{parameters}) -> ::std::result::Result<(), {error}> {{");
            line!(self, "        self.0.tell({number}, &({values}))\n    }}");
        }
    }
}

/// The type of an element that goes by reference.
fn element(declaration: &Declaration) -> String {
    match declaration.base {
        Base::Opaque => "u8".into(),
        _ => kind_of(&Declaration { shape: Shape::One, ..declaration.clone() }),
    }
}
