//! C of a file: types as rpcgen has them, a routine for each, callers and servers over `shunt_rpc.h`.

use crate::model::*;
use std::fmt::Write as _;

/// A header and a source.
pub struct C {
    /// `NAME.h`.
    pub header: String,
    /// `NAME.c`.
    pub source: String,
}

macro_rules! put {
    ($to:expr, $($words:tt)*) => {{
        let _ = writeln!($to, $($words)*);
    }};
}

/// The type of one element.
fn base(base: &Base) -> &str {
    match base {
        Base::Void => "void",
        Base::Int => "int32_t",
        Base::Unsigned => "uint32_t",
        Base::Hyper => "int64_t",
        Base::UnsignedHyper => "uint64_t",
        Base::Short => "int16_t",
        Base::UnsignedShort => "uint16_t",
        Base::Char => "int8_t",
        Base::UnsignedChar => "uint8_t",
        Base::Float => "float",
        Base::Double => "double",
        Base::Quadruple => "shunt_xdr_quadruple",
        Base::Bool => "int",
        Base::Opaque | Base::String => "char",
        Base::Named(name) => name,
    }
}

/// Whether it goes by value in C.
fn is_number(declaration: &Declaration) -> bool {
    declaration.shape == Shape::One
        && !matches!(declaration.base, Base::Named(_) | Base::Quadruple | Base::Opaque | Base::String | Base::Void)
}

/// A member, variable or typedef.
fn declared(declaration: &Declaration, name: &str) -> String {
    let kind = base(&declaration.base);
    match (&declaration.base, declaration.shape) {
        (Base::String, _) => format!("char *{name}"),
        (_, Shape::One) => format!("{kind} {name}"),
        (_, Shape::Optional) => format!("{kind} *{name}"),
        (_, Shape::Fixed(count)) => format!("{kind} {name}[{count}]"),
        (_, Shape::Variable(_)) => format!("struct {{ uint32_t {name}_len; {kind} *{name}_val; }} {name}"),
    }
}

/// Bytes of the longest value; `None`: no bound.
fn most(file: &File, declaration: &Declaration) -> Option<usize> {
    let padded = |bytes: usize| bytes.checked_next_multiple_of(4);
    let one = match &declaration.base {
        Base::Void => 0,
        Base::Hyper | Base::UnsignedHyper | Base::Double => 8,
        Base::Quadruple => 16,
        Base::Opaque | Base::String => {
            return match declaration.shape {
                Shape::Fixed(count) => padded(count as usize),
                Shape::Variable(count) => padded(count as usize)?.checked_add(4),
                Shape::One | Shape::Optional => None,
            }
        }
        Base::Named(name) => {
            if file.is_recursive(name) {
                return None;
            }
            let sum = |parts: &mut dyn Iterator<Item = &Declaration>| -> Option<usize> {
                let mut sum = 0usize;
                for part in parts {
                    sum = sum.checked_add(most(file, part)?)?;
                }
                Some(sum)
            };
            match file.definition(name)? {
                Definition::Enumeration(..) => 4,
                Definition::Structure(_, fields) => sum(&mut fields.iter())?,
                Definition::Typedef(other) => most(file, other)?,
                Definition::Union(union) => {
                    let arms = union.arms.iter().filter_map(|arm| arm.2.as_ref()).chain(union.default.iter().flatten());
                    let mut longest = 0;
                    for arm in arms {
                        longest = longest.max(most(file, arm)?);
                    }
                    4usize.checked_add(longest)?
                }
                Definition::Constant(..) | Definition::Text(..) | Definition::Program(_) => return None,
            }
        }
        _ => 4,
    };
    match declaration.shape {
        Shape::One => Some(one),
        Shape::Optional => one.checked_add(4),
        Shape::Fixed(count) => one.checked_mul(count as usize),
        Shape::Variable(count) => one.checked_mul(count as usize)?.checked_add(4),
    }
}

/// Bytes of the shortest value, to judge counts by: four, where nothing is known to be more.
fn least(declaration: &Base) -> usize {
    match declaration {
        Base::Hyper | Base::UnsignedHyper | Base::Double => 8,
        Base::Quadruple => 16,
        // A type without values of its own has none.
        Base::Named(_) => 1,
        _ => 4,
    }
}

/// A parameter of a caller's function, passed on.
fn passed(Parameter { way, declaration }: &Parameter) -> String {
    let field = &declaration.name;
    let counted = *way == Way::Value && matches!(declaration.shape, Shape::Variable(_)) && declaration.base != Base::String;
    if counted {
        format!(", {field}, {field}_len")
    } else {
        format!(", {field}")
    }
}

struct Writer<'f> {
    file: &'f File,
    header: String,
    source: String,
    /// Routines of elements that were written.
    elements: usize,
}

/// Both files; `name` is the header's.
///
/// # Errors
/// A type that C does not have.
pub fn generate(file: &File, name: &str) -> Result<C, String> {
    let guard: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let mut to = Writer { file, header: String::new(), source: String::new(), elements: 0 };
    put!(
        to.header,
        "/* Made by shunt-rpcgen: changes are lost. */\n#ifndef {guard}_H\n#define {guard}_H\n\n#include \"shunt_rpc.h\"\n"
    );
    put!(to.header, "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n");
    put!(to.source, "/* Made by shunt-rpcgen: changes are lost. */\n#include \"{name}.h\"\n");
    for definition in &file.definitions {
        match definition {
            Definition::Structure(name, _) => put!(to.header, "typedef struct {name} {name};"),
            Definition::Union(Union { name, .. }) => put!(to.header, "typedef struct {name} {name};"),
            _ => {}
        }
    }
    for definition in &file.definitions {
        to.definition(definition);
    }
    for program in file.programs() {
        for version in &program.versions {
            to.version(program, version);
        }
    }
    put!(to.header, "\n#ifdef __cplusplus\n}}\n#endif\n#endif");
    Ok(C { header: to.header, source: to.source })
}

impl Writer<'_> {
    fn definition(&mut self, definition: &Definition) {
        match definition {
            Definition::Constant(name, value) => put!(self.header, "#define {name} {value}"),
            Definition::Text(name, text) => put!(self.header, "#define {name} \"{text}\""),
            Definition::Enumeration(name, members) => {
                let all: Vec<String> = members.iter().map(|(member, value)| format!("{member} = {value}")).collect();
                put!(self.header, "typedef enum {name} {{ {} }} {name};", all.join(", "));
                self.open(name);
                let mut values: Vec<i64> = members.iter().map(|member| member.1).collect();
                values.sort_unstable();
                values.dedup();
                let test: Vec<String> = values.iter().map(|value| format!("number == {value}")).collect();
                put!(self.source, "    int32_t number = x->mode == SHUNT_XDR_ENCODE ? (int32_t)*v : 0;");
                put!(self.source, "    if (x->mode == SHUNT_XDR_FREE) return 1;\n    if (!shunt_xdr_i32(x, &number)) return 0;");
                put!(self.source, "    if (!({})) return 0;", test.join(" || "));
                put!(self.source, "    *v = ({name})number;\n    return 1;\n}}\n");
            }
            Definition::Structure(name, fields) => {
                put!(self.header, "struct {name} {{");
                fields.iter().for_each(|field| put!(self.header, "    {};", declared(field, &field.name)));
                if fields.is_empty() {
                    put!(self.header, "    char nothing;");
                }
                put!(self.header, "}};");
                if let Some(link) = self.file.link(name, fields) {
                    return self.list(name, &fields[..fields.len() - 1], &link.name);
                }
                let code: Vec<String> =
                    fields.iter().map(|field| self.code(field, &format!("v->{}", field.name), "    ")).collect();
                self.open(name);
                self.close(&code.concat());
            }
            Definition::Union(union) => self.union(union),
            Definition::Typedef(declaration) => {
                let name = &declaration.name;
                match (&declaration.base, declaration.shape) {
                    (Base::String, _) => put!(self.header, "typedef char *{name};"),
                    (_, Shape::Variable(_)) => {
                        let kind = base(&declaration.base);
                        put!(self.header, "typedef struct {name} {{ uint32_t {name}_len; {kind} *{name}_val; }} {name};");
                    }
                    _ => put!(self.header, "typedef {};", declared(declaration, name)),
                }
                let code = self.code(declaration, "(*v)", "    ");
                self.open(name);
                self.close(&code);
            }
            Definition::Program(_) => {}
        }
    }

    fn open(&mut self, name: &str) {
        put!(self.header, "int {name}_xdr(shunt_xdr *x, void *value);\n");
        put!(self.source, "int {name}_xdr(shunt_xdr *x, void *value) {{\n    {name} *v = ({name} *)value;");
    }

    fn close(&mut self, code: &str) {
        let unused = if code.is_empty() { "    (void)x, (void)v;\n" } else { "" };
        put!(self.source, "{unused}{code}    return 1;\n}}\n");
    }

    /// An element of a list, and all behind it: a list may be longer than a stack is deep.
    fn list(&mut self, name: &str, others: &[Declaration], link: &str) {
        let code: Vec<String> = others.iter().map(|field| self.code(field, &format!("v->{}", field.name), "        ")).collect();
        self.open(name);
        put!(self.source, "    for (;;) {{\n        void *p;\n        int more;\n{}        p = v->{link};", code.concat());
        put!(self.source, "        more = shunt_xdr_link(x, &p, sizeof({name}));");
        put!(self.source, "        v->{link} = x->mode == SHUNT_XDR_FREE ? NULL : ({name} *)p;");
        put!(self.source, "        if (x->mode == SHUNT_XDR_FREE && v != value) free(v);");
        put!(self.source, "        if (more <= 0) return more == 0;\n        v = ({name} *)p;\n    }}\n}}\n");
    }

    fn union(&mut self, union: &Union) {
        let Union { name, discriminant, arms, default } = union;
        put!(self.header, "struct {name} {{\n    {};\n    union {{", declared(discriminant, &discriminant.name));
        let mut members: Vec<&Declaration> = vec![];
        for arm in arms.iter().filter_map(|arm| arm.2.as_ref()).chain(default.iter().flatten()) {
            if !members.iter().any(|other| other.name == arm.name) {
                members.push(arm);
                put!(self.header, "        {};", declared(arm, &arm.name));
            }
        }
        if members.is_empty() {
            put!(self.header, "        char nothing;");
        }
        put!(self.header, "    }} {name}_u;\n}};");
        let mut code = self.code(discriminant, &format!("v->{}", discriminant.name), "    ");
        put!(code, "    switch (v->{}) {{", discriminant.name);
        let place = |arm: &Declaration| format!("v->{name}_u.{}", arm.name);
        for (_, value, arm) in arms {
            put!(code, "    case {value}:");
            if let Some(arm) = arm {
                code += &self.code(arm, &place(arm), "        ");
            }
            put!(code, "        break;");
        }
        put!(code, "    default:");
        match default {
            Some(Some(arm)) => code += &self.code(arm, &place(arm), "        "),
            Some(None) => {}
            // A value that was not decoded has nothing to free.
            None => put!(code, "        if (x->mode != SHUNT_XDR_FREE) return 0;"),
        }
        put!(code, "        break;\n    }}");
        self.open(name);
        self.close(&code);
    }

    /// A call that does one element, as a condition.
    fn one(kind: &Base, place: &str) -> String {
        match kind {
            Base::Void => "1".into(),
            Base::Int => format!("shunt_xdr_i32(x, &{place})"),
            Base::Unsigned => format!("shunt_xdr_u32(x, &{place})"),
            Base::Hyper => format!("shunt_xdr_i64(x, &{place})"),
            Base::UnsignedHyper => format!("shunt_xdr_u64(x, &{place})"),
            Base::Short => format!("shunt_xdr_i16(x, &{place})"),
            Base::UnsignedShort => format!("shunt_xdr_u16(x, &{place})"),
            Base::Char => format!("shunt_xdr_i8(x, &{place})"),
            Base::UnsignedChar => format!("shunt_xdr_u8(x, &{place})"),
            Base::Float => format!("shunt_xdr_float(x, &{place})"),
            Base::Double => format!("shunt_xdr_double(x, &{place})"),
            Base::Bool => format!("shunt_xdr_bool(x, &{place})"),
            Base::Quadruple => format!("shunt_xdr_opaque(x, &{place}, 16)"),
            Base::Opaque | Base::String => format!("shunt_xdr_string(x, &{place}, UINT32_MAX)"),
            Base::Named(name) => format!("{name}_xdr(x, &{place})"),
        }
    }

    /// A routine for elements of a type.
    fn element(&mut self, kind: &Base) -> String {
        if let Base::Named(name) = kind {
            return format!("{name}_xdr");
        }
        self.elements += 1;
        let name = format!("element_{}", self.elements);
        let code = Self::one(kind, &format!("(*({} *)value)", base(kind)));
        put!(self.source, "static int {name}(shunt_xdr *x, void *value) {{\n    return {code};\n}}\n");
        name
    }

    /// Statements that do a declaration whose value lies at `place`.
    fn code(&mut self, declaration: &Declaration, place: &str, indent: &str) -> String {
        let (kind, name) = (base(&declaration.base), &declaration.name);
        match (&declaration.base, declaration.shape) {
            (Base::Void, _) => String::new(),
            (Base::String, Shape::Variable(most)) => format!("{indent}if (!shunt_xdr_string(x, &{place}, {most}u)) return 0;\n"),
            (Base::Opaque, Shape::Fixed(count)) => format!("{indent}if (!shunt_xdr_opaque(x, {place}, {count}u)) return 0;\n"),
            (Base::Opaque, Shape::Variable(most)) => {
                format!("{indent}if (!shunt_xdr_bytes(x, &{place}.{name}_val, &{place}.{name}_len, {most}u)) return 0;\n")
            }
            (one, Shape::One) => format!("{indent}if (!{}) return 0;\n", Self::one(one, place)),
            (one, Shape::Fixed(count)) => {
                let each = Self::one(one, &format!("{place}[at]"));
                format!("{indent}{{\n{indent}    uint32_t at;\n{indent}    for (at = 0; at < {count}u; at++)\n{indent}        if (!{each}) return 0;\n{indent}}}\n")
            }
            (one, Shape::Variable(most)) => {
                let (routine, least) = (self.element(one), least(one));
                let at = format!("{place}.{name}_val");
                format!(
                    "{indent}{{\n{indent}    void *p = {at};\n{indent}    int done = shunt_xdr_array(x, &p, &{place}.{name}_len, {most}u, sizeof({kind}), {least}, {routine});\n{indent}    {at} = ({kind} *)p;\n{indent}    if (!done) return 0;\n{indent}}}\n"
                )
            }
            (one, Shape::Optional) => {
                let routine = self.element(one);
                format!(
                    "{indent}{{\n{indent}    void *p = {place};\n{indent}    int done = shunt_xdr_pointer(x, &p, sizeof({kind}), {routine});\n{indent}    {place} = ({kind} *)p;\n{indent}    if (!done) return 0;\n{indent}}}\n"
                )
            }
        }
    }

    fn version(&mut self, program: &Program, version: &Version) {
        let at = format!("{}_{}", program.name, version.number);
        put!(
            self.header,
            "\n/* {}, version {}. */\n#define {at}_PROGRAM {:#x}u\n#define {at}_VERSION {}u\n",
            program.name,
            version.number,
            program.number,
            version.number
        );
        for procedure in &version.procedures {
            self.arguments(procedure, version.number);
            self.caller(procedure, version.number);
        }
        self.server(program, version, &at);
    }

    fn arguments(&mut self, procedure: &Procedure, version: u32) {
        let name = format!("{}_{version}", procedure.name.to_lowercase());
        put!(self.header, "typedef struct {name}_arguments {{");
        let mut code = String::new();
        for Parameter { way, declaration } in &procedure.parameters {
            let field = &declaration.name;
            if *way == Way::Value {
                put!(self.header, "    {};", declared(declaration, field));
                code += &self.code(declaration, &format!("v->{field}"), "    ");
            } else {
                put!(self.header, "    uint32_t {field}[2]; /* by reference */");
                put!(code, "    if (!shunt_xdr_u32(x, &v->{field}[0]) || !shunt_xdr_u32(x, &v->{field}[1])) return 0;");
            }
        }
        if procedure.parameters.is_empty() {
            put!(self.header, "    char nothing;");
        }
        put!(self.header, "}} {name}_arguments;");
        self.open(&format!("{name}_arguments"));
        self.close(&code);
        let result = Declaration { name: "value".into(), ..procedure.result.clone() };
        if procedure.result.base == Base::Void {
            put!(self.header, "typedef struct {name}_result {{ char nothing; }} {name}_result;");
        } else {
            put!(self.header, "typedef struct {name}_result {{ {}; }} {name}_result;", declared(&result, "value"));
        }
        let code = self.code(&result, "v->value", "    ");
        self.open(&format!("{name}_result"));
        self.close(&code);
    }

    fn caller(&mut self, procedure: &Procedure, version: u32) {
        let name = format!("{}_{version}", procedure.name.to_lowercase());
        let (mut parameters, mut fill, mut lent) = (String::new(), String::new(), vec![]);
        for Parameter { way, declaration } in &procedure.parameters {
            let (field, kind) = (&declaration.name, base(&declaration.base));
            if *way != Way::Value {
                let _ = write!(parameters, ", shunt_rpc_buffer *{field}");
                put!(fill, "    shunt_rpc_buffer_name({field}, arguments.{field});");
                lent.push(format!("{{{field}, {}, {}}}", u8::from(*way != Way::Out), u8::from(*way != Way::In)));
                continue;
            }
            match (&declaration.base, declaration.shape) {
                (Base::String, _) => {
                    let _ = write!(parameters, ", const char *{field}");
                    put!(fill, "    arguments.{field} = (char *)(uintptr_t){field};");
                }
                (_, Shape::Variable(_)) => {
                    let _ = write!(parameters, ", const {kind} *{field}, uint32_t {field}_len");
                    put!(fill, "    arguments.{field}.{field}_val = ({kind} *)(uintptr_t){field};");
                    put!(fill, "    arguments.{field}.{field}_len = {field}_len;");
                }
                (_, Shape::Optional) => {
                    let _ = write!(parameters, ", const {kind} *{field}");
                    put!(fill, "    arguments.{field} = ({kind} *)(uintptr_t){field};");
                }
                _ if is_number(declaration) => {
                    let _ = write!(parameters, ", {kind} {field}");
                    put!(fill, "    arguments.{field} = {field};");
                }
                (_, Shape::Fixed(_)) => {
                    let _ = write!(parameters, ", const {kind} *{field}");
                    put!(fill, "    memcpy(&arguments.{field}, {field}, sizeof arguments.{field});");
                }
                _ => {
                    let _ = write!(parameters, ", const {kind} *{field}");
                    put!(fill, "    memcpy(&arguments.{field}, {field}, sizeof arguments.{field});");
                }
            }
        }
        let most = most(self.file, &procedure.result).map_or("SIZE_MAX".into(), |most| format!("{most}u"));
        let (number, mut place) = (procedure.number, String::new());
        if !lent.is_empty() {
            // Not an initialiser: C99 wants constants there.
            put!(place, "    shunt_rpc_lent lent[{}];", lent.len());
        }
        put!(place, "    memset(&arguments, 0, sizeof arguments);");
        place += &fill;
        for (at, loan) in lent.iter().enumerate() {
            let parts: Vec<&str> = loan.trim_matches(['{', '}']).split(", ").collect();
            let [buffer, to, from] = parts[..] else { unreachable!("three of them") };
            put!(place, "    lent[{at}].buffer = {buffer}, lent[{at}].to_server = {to}, lent[{at}].from_server = {from};");
        }
        let (loans, count) = if lent.is_empty() { ("NULL", 0) } else { ("lent", lent.len()) };
        let definition = crate::rust::definition(procedure);
        put!(self.header, "/* {definition}. Of *result, what was allocated is freed by shunt_xdr_free({name}_result_xdr, result). With a deadline of its");
        put!(
            self.header,
            " * own; and begun, to be finished later, when shunt_rpc_is_done, or by waiting. deadline_ms 0: the client's. */"
        );
        let begin = format!("int {name}_begin(shunt_rpc *client, uint32_t deadline_ms{parameters}, shunt_rpc_pending **pending)");
        let finish = format!("int {name}_finish(shunt_rpc_pending *pending, {name}_result *result)");
        let within = format!("int {name}_within(shunt_rpc *client, uint32_t deadline_ms{parameters}, {name}_result *result)");
        let call = format!("int {name}(shunt_rpc *client{parameters}, {name}_result *result)");
        for what in [&call, &within, &begin, &finish] {
            put!(self.header, "{what};");
        }
        let given: Vec<String> = procedure.parameters.iter().map(passed).collect();
        put!(self.source, "{within} {{\n    {name}_arguments arguments;\n{place}    return shunt_rpc_typed(client, {number}, deadline_ms, {name}_arguments_xdr, &arguments, {loans}, {count}, {most},");
        put!(self.source, "                           {name}_result_xdr, result, sizeof *result);\n}}\n");
        put!(self.source, "{call} {{\n    return {name}_within(client, 0{}, result);\n}}\n", given.concat());
        put!(self.source, "{begin} {{\n    {name}_arguments arguments;\n{place}    return shunt_rpc_begin_typed(client, {number}, deadline_ms, {name}_arguments_xdr, &arguments, {loans}, {count}, {most}, pending);\n}}\n");
        put!(
            self.source,
            "{finish} {{\n    return shunt_rpc_finish_typed(pending, {name}_result_xdr, result, sizeof *result);\n}}\n"
        );
        if procedure.result.base == Base::Void && lent.is_empty() {
            let tell = format!("int {name}_tell(shunt_rpc *client{parameters})");
            put!(self.header, "/* The same without an answer. */\n{tell};");
            put!(self.source, "{tell} {{\n    {name}_arguments arguments;\n{place}    return shunt_rpc_tell_typed(client, {number}, {name}_arguments_xdr, &arguments);\n}}\n");
        }
        put!(self.header, "");
    }

    fn server(&mut self, program: &Program, version: &Version, at: &str) {
        put!(self.header, "/* What a server does. Each fills in *result, with memory of malloc(3) where it holds pointers, which is freed when it");
        put!(self.header, " * has been sent; or calls shunt_rpc_answer_fault. */\ntypedef struct {at}_functions {{");
        let (mut cases, mut table) = (String::new(), String::new());
        for procedure in &version.procedures {
            let (field, name) = (procedure.name.to_lowercase(), format!("{}_{}", procedure.name.to_lowercase(), version.number));
            let (mut more, mut given, mut find, mut places) = (String::new(), String::new(), String::new(), String::new());
            for (number, Parameter { way, declaration }) in procedure.parameters.iter().enumerate() {
                if *way == Way::Value {
                    continue;
                }
                let kind = if declaration.base == Base::Opaque { "uint8_t" } else { base(&declaration.base) };
                let most = if let Shape::Variable(most) = declaration.shape { most } else { 0 };
                let of = &declaration.name;
                let _ = write!(more, ", {kind} *{of}, uint32_t {of}_count");
                let _ = write!(given, ", ({kind} *)p{number}, n{number}");
                put!(places, "        void *p{number};\n        uint32_t n{number};");
                put!(find, "        p{number} = shunt_rpc_request_memory(request, a.{of}, sizeof({kind}), {most}u, &n{number});");
                put!(find, "        if (p{number} == NULL) {{");
                put!(find, "            shunt_xdr_free({name}_arguments_xdr, &a);\n            return SHUNT_RPC_BAD_ARGUMENTS;\n        }}");
            }
            put!(self.header, "    void (*{field})(void *state, shunt_rpc_request *request, const {name}_arguments *arguments{more}, {name}_result *result);");
            let number = procedure.number;
            put!(cases, "    case {number}: {{\n        {name}_arguments a;\n        {name}_result r;\n{places}        memset(&a, 0, sizeof a);\n        memset(&r, 0, sizeof r);");
            put!(cases, "        if (!shunt_xdr_decode({name}_arguments_xdr, &a, arguments, length)) return SHUNT_RPC_BAD_ARGUMENTS;\n{find}        if (table->functions->{field} == NULL) {{");
            put!(
                cases,
                "            shunt_xdr_free({name}_arguments_xdr, &a);\n            return SHUNT_RPC_NO_PROCEDURE;\n        }}"
            );
            put!(cases, "        table->functions->{field}(table->state, request, &a{given}, &r);");
            put!(cases, "        shunt_rpc_answer_typed(request, {name}_result_xdr, &r);");
            put!(cases, "        shunt_xdr_free({name}_result_xdr, &r);\n        shunt_xdr_free({name}_arguments_xdr, &a);\n        return SHUNT_RPC_OK;\n    }}");
            put!(table, "    {{{number}, \"{}\", \"{}\"}},", procedure.name, crate::rust::definition(procedure));
        }
        put!(
            self.header,
            "}} {at}_functions;\nint {at}_serve(shunt_rpc_server *server, const {at}_functions *functions, void *state);"
        );
        put!(self.header, "/* For shunt_rpc_serve_all, beside others: the table stays as it is while it is served. */");
        put!(self.header, "typedef struct {at}_table {{ const {at}_functions *functions; void *state; }} {at}_table;");
        put!(self.header, "shunt_rpc_service {at}_service({at}_table *table);");
        put!(self.source, "static int {at}_dispatch(void *state, shunt_rpc_request *request, uint16_t procedure, const void *arguments, size_t length) {{");
        put!(self.source, "    const {at}_table *table = (const {at}_table *)state;\n    (void)table, (void)request, (void)arguments;\n    switch (procedure) {{\n{cases}");
        if !version.procedures.iter().any(|one| one.number == 0) {
            put!(self.source, "    case 0:\n        return length == 0 ? SHUNT_RPC_OK : SHUNT_RPC_BAD_ARGUMENTS;");
        }
        put!(self.source, "    default:\n        return SHUNT_RPC_NO_PROCEDURE;\n    }}\n}}\n");
        let count = version.procedures.len();
        put!(self.source, "static const shunt_rpc_procedure {at}_procedures[] = {{\n{table}    {{0, NULL, NULL}},\n}};\n");
        put!(
            self.source,
            "static const char {at}_definition[] = {};\nstatic const shunt_rpc_interface {at}_interface = {{{:#x}u, {}, \"{}\", {at}_procedures, {count}, {at}_definition}};\n",
            literal(&crate::write(self.file)),
            program.number,
            version.number,
            program.name
        );
        put!(self.source, "shunt_rpc_service {at}_service({at}_table *table) {{\n    shunt_rpc_service service;");
        put!(self.source, "    service.interface = &{at}_interface, service.dispatch = {at}_dispatch, service.state = table;");
        put!(self.source, "    return service;\n}}\n");
        put!(self.source, "int {at}_serve(shunt_rpc_server *server, const {at}_functions *functions, void *state) {{");
        put!(self.source, "    {at}_table table;\n    table.functions = functions, table.state = state;");
        put!(self.source, "    return shunt_rpc_serve(server, &{at}_interface, 1, {at}_dispatch, &table);\n}}\n");
    }
}

/// Text as an initialiser. C99 promises 4,095 bytes of a string and no more, so what is longer is numbers.
fn literal(text: &str) -> String {
    if text.len() > 4000 {
        let numbers: Vec<String> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
        let lines: Vec<String> = numbers.chunks(32).map(|line| line.join(",")).collect();
        return format!("{{\n{}}}", lines.join(",\n"));
    }
    let lines: Vec<String> = text.lines().map(|line| format!("\n    {:?}", format!("{line}\n"))).collect();
    if lines.is_empty() {
        "\"\"".into()
    } else {
        lines.concat()
    }
}
