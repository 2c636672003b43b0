//! The functions of OpenSHMEM 1.5 as a table: from it follow `include/shmem.h` (a test holds them together) and the library's
//! symbols, `shmem_` and `pshmem_` alike.
//!
//! In a row, `T` stands for the C type, `NAME` for the function's name as a string, and `CTX` for the context: the argument `ctx` in functions
//! that have one, the default context in the others.

use std::fmt::Write;

/// A function of C.
pub struct Function {
    /// Without `shmem_`.
    pub name: String,
    result: String,
    /// Type and name.
    parameters: Vec<(String, String)>,
    /// An expression of Rust.
    body: String,
    /// `fn` of the prefix gives a whole item instead, for what `extern "C"` of Rust cannot say.
    item: Option<&'static str>,
}

/// A type by the name that functions have for it, in C, and in Rust.
type Type = (&'static str, &'static str, &'static str);

const FLOAT: Type = ("float", "float", "f32");
const DOUBLE: Type = ("double", "double", "f64");
const LONG_DOUBLE: Type = ("longdouble", "long double", "LongDouble");
const SHORT: Type = ("short", "short", "i16");
const INT: Type = ("int", "int", "i32");
const LONG: Type = ("long", "long", "i64");
const LONG_LONG: Type = ("longlong", "long long", "i64");
const USHORT: Type = ("ushort", "unsigned short", "u16");
const COMPLEX_F: Type = ("complexf", "SHUNT_COMPLEX_FLOAT", "Complex<f32>");
const COMPLEX_D: Type = ("complexd", "SHUNT_COMPLEX_DOUBLE", "Complex<f64>");

/// Table 5 of the specification: types of put, get and collectives.
const STANDARD: [Type; 24] = [
    FLOAT,
    DOUBLE,
    LONG_DOUBLE,
    ("char", "char", "i8"),
    ("schar", "signed char", "i8"),
    SHORT,
    INT,
    LONG,
    LONG_LONG,
    ("uchar", "unsigned char", "u8"),
    USHORT,
    ("uint", "unsigned int", "u32"),
    ("ulong", "unsigned long", "u64"),
    ("ulonglong", "unsigned long long", "u64"),
    ("int8", "int8_t", "i8"),
    ("int16", "int16_t", "i16"),
    ("int32", "int32_t", "i32"),
    ("int64", "int64_t", "i64"),
    ("uint8", "uint8_t", "u8"),
    ("uint16", "uint16_t", "u16"),
    ("uint32", "uint32_t", "u32"),
    ("uint64", "uint64_t", "u64"),
    ("size", "size_t", "usize"),
    ("ptrdiff", "ptrdiff_t", "isize"),
];

fn named(names: &[&str]) -> Vec<Type> {
    let all = STANDARD.iter().chain([&COMPLEX_F, &COMPLEX_D]);
    all.filter(|row| names.contains(&row.0)).copied().collect()
}

/// Table 6: types of atomic operations.
fn atomic() -> Vec<Type> {
    named(&["int", "long", "longlong", "uint", "ulong", "ulonglong", "int32", "int64", "uint32", "uint64", "size", "ptrdiff"])
}

/// Table 7: those that are read, written and exchanged besides.
fn extended() -> Vec<Type> {
    let mut types = vec![FLOAT, DOUBLE];
    types.extend(atomic());
    types
}

/// Table 8, with the signed ones that other libraries have, too.
fn bitwise() -> Vec<Type> {
    named(&["int", "long", "longlong", "uint", "ulong", "ulonglong", "int32", "int64", "uint32", "uint64"])
}

/// Table 9, with the short ones of older versions.
fn waited() -> Vec<Type> {
    let mut types = vec![SHORT, USHORT];
    types.extend(atomic());
    types
}

/// Types of `and`, `or` and `xor` reductions of a team: all whole numbers, as other libraries have it.
fn reduced_bits() -> Vec<Type> {
    let without = ["float", "double", "longdouble", "char", "schar"];
    STANDARD.into_iter().filter(|row| !without.contains(&row.0)).collect()
}

/// The deprecated reductions of active sets: which types each operation has.
fn of_active_sets(operation: &str) -> Vec<Type> {
    let mut types = vec![SHORT, INT, LONG, LONG_LONG];
    if !["and", "or", "xor"].contains(&operation) {
        types.extend([FLOAT, DOUBLE, LONG_DOUBLE]);
    }
    if ["sum", "prod"].contains(&operation) {
        types.extend([COMPLEX_F, COMPLEX_D]);
    }
    types
}

/// Words of bits, and what stands for them in Rust.
const SIZES: [(&str, &str); 5] = [("8", "u8"), ("16", "u16"), ("32", "u32"), ("64", "u64"), ("128", "[u64; 2]")];

fn parsed(parameters: &str) -> Vec<(String, String)> {
    let parts = parameters.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let at = part.rfind([' ', '*']).expect("type and name") + 1;
            (part[..at].trim().to_owned(), part[at..].to_owned())
        })
        .collect()
}

/// A C type in Rust.
fn rust_type(c: &str) -> String {
    if let Some(target) = c.strip_suffix('*') {
        // Of waits and locks, as older programs declare their variables.
        let target = target.trim();
        let target = target.strip_prefix("volatile ").unwrap_or(target);
        return match target.strip_prefix("const ") {
            Some("void") => "*const c_void".into(),
            Some(target) => format!("*const {}", rust_type(target)),
            None if target == "void" => "*mut c_void".into(),
            None => format!("*mut {}", rust_type(target)),
        };
    }
    let found = STANDARD.iter().chain([&COMPLEX_F, &COMPLEX_D]).find(|row| row.1 == c);
    match (c, found) {
        ("size_t", _) => "usize".into(),
        ("ptrdiff_t", _) => "isize".into(),
        ("shmem_ctx_t", _) => "Ctx".into(),
        ("shmem_team_t", _) => "Team".into(),
        ("shmem_team_config_t", _) => "TeamConfig".into(),
        (_, Some(row)) => row.2.into(),
        _ => panic!("no type of Rust for {c}"),
    }
}

/// The whole table.
pub struct Table {
    /// All functions.
    pub functions: Vec<Function>,
}

impl Table {
    fn row(&mut self, result: &str, name: &str, parameters: &str, body: &str) {
        let function = Function {
            name: name.to_owned(),
            result: result.to_owned(),
            parameters: parsed(parameters),
            body: body.replace("CTX", "DEFAULT").replace("NAME", &format!("\"shmem_{name}\"")),
            item: None,
        };
        self.functions.push(function);
    }

    /// With and without a context.
    fn both(&mut self, result: &str, name: &str, parameters: &str, body: &str) {
        self.row(result, name, parameters, body);
        let name = format!("ctx_{name}");
        self.row(result, &name, &format!("shmem_ctx_t ctx, {parameters}"), &body.replace("CTX", "ctx"));
    }

    fn typed(&mut self, types: &[Type], context: bool, result: &str, name: &str, parameters: &str, body: &str) {
        for (type_name, c, _) in types {
            let with = |text: &str| text.split(' ').map(|word| if word == "T" { c } else { word }).collect::<Vec<_>>().join(" ");
            let (result, parameters) = (with(result), with(parameters));
            let name = format!("{type_name}_{name}");
            if context {
                self.both(&result, &name, &parameters, body);
            } else {
                self.row(&result, &name, &parameters, body);
            }
        }
    }

    /// The last function, and the one with a context before it, are written by hand in Rust.
    fn by_hand(&mut self, name: &str, item: &'static str) {
        for function in self.functions.iter_mut().filter(|function| function.name == name) {
            function.item = Some(item);
        }
    }
}

const REDUCTIONS: [&str; 7] = ["and", "or", "xor", "max", "min", "sum", "prod"];

/// OpenSHMEM 1.5, with what is deprecated in it and some of 1.6.
pub fn table() -> Table {
    let mut t = Table { functions: Vec::new() };
    setup(&mut t);
    memory(&mut t);
    teams(&mut t);
    transfers(&mut t);
    atomics(&mut t);
    signals(&mut t);
    collectives(&mut t);
    waits(&mut t);
    t
}

fn setup(t: &mut Table) {
    t.row("void", "init", "", "setup::init(NAME)");
    t.row("int", "init_thread", "int requested, int *provided", "setup::init_thread(NAME, requested, provided)");
    t.row("void", "query_thread", "int *provided", "setup::query_thread(provided)");
    t.row("void", "query_initialized", "int *initialized", "setup::query_initialized(initialized)");
    t.row("void", "finalize", "", "setup::finalize(NAME)");
    t.row("void", "global_exit", "int status", "setup::global_exit(status)");
    t.row("int", "my_pe", "", "World::current().me() as c_int");
    t.row("int", "n_pes", "", "World::current().ranks() as c_int");
    t.row("int", "pe_accessible", "int pe", "setup::pe_accessible(pe)");
    t.row("int", "addr_accessible", "const void *addr, int pe", "setup::addr_accessible(addr as usize, pe)");
    t.row("void *", "ptr", "const void *dest, int pe", "setup::ptr(dest as usize, pe)");
    t.row("void *", "team_ptr", "shmem_team_t team, const void *dest, int pe", "teams::ptr(team, dest as usize, pe)");
    t.row("void", "info_get_version", "int *major, int *minor", "setup::version(major, minor)");
    t.row("void", "info_get_name", "char *name", "setup::name(name)");
    t.row("void", "pcontrol", "int level", "let _ = level;");
    t.row("void", "fence", "", "World::current().fence()");
    t.row("void", "ctx_fence", "shmem_ctx_t ctx", "let _ = ctx; World::current().fence()");
    t.row("void", "quiet", "", "setup::or_fail(NAME, World::current().complete())");
    t.row("void", "ctx_quiet", "shmem_ctx_t ctx", "let _ = ctx; setup::or_fail(NAME, World::current().complete())");
    t.row("void", "set_lock", "volatile long *lock", "setup::set_lock(NAME, lock as usize)");
    t.row("void", "clear_lock", "volatile long *lock", "setup::clear_lock(NAME, lock as usize)");
    t.row("int", "test_lock", "volatile long *lock", "setup::test_lock(NAME, lock as usize)");
    for name in ["clear_cache_inv", "set_cache_inv", "udcflush"] {
        t.row("void", name, "", "");
    }
    for name in ["clear_cache_line_inv", "set_cache_line_inv", "udcflush_line"] {
        t.row("void", name, "void *dest", "let _ = dest;");
    }
}

fn memory(t: &mut Table) {
    t.row("void *", "malloc", "size_t size", "memory::malloc(NAME, size, 1)");
    t.row("void *", "calloc", "size_t count, size_t size", "memory::calloc(NAME, count, size)");
    t.row("void *", "align", "size_t alignment, size_t size", "memory::malloc(NAME, size, alignment)");
    t.row("void *", "malloc_with_hints", "size_t size, long hints", "{ let _ = hints; memory::malloc(NAME, size, 1) }");
    t.row("void *", "realloc", "void *ptr, size_t size", "memory::realloc(NAME, ptr, size)");
    t.row("void", "free", "void *ptr", "memory::free(NAME, ptr)");
}

fn teams(t: &mut Table) {
    t.row("int", "team_my_pe", "shmem_team_t team", "teams::my_pe(team)");
    t.row("int", "team_n_pes", "shmem_team_t team", "teams::n_pes(team)");
    let parameters = "shmem_team_t team, long config_mask, shmem_team_config_t *config";
    t.row("int", "team_get_config", parameters, "teams::get_config(team, config_mask, config)");
    let parameters = "shmem_team_t src_team, int src_pe, shmem_team_t dest_team";
    t.row("int", "team_translate_pe", parameters, "teams::translate(src_team, src_pe, dest_team)");
    t.row(
        "int",
        "team_split_strided",
        "shmem_team_t parent_team, int start, int stride, int size, const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team",
        "teams::split_strided(NAME, parent_team, (start, stride, size), config, config_mask, new_team)",
    );
    t.row(
        "int",
        "team_split_2d",
        "shmem_team_t parent_team, int xrange, const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team, \
         const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team",
        "teams::split_2d(NAME, parent_team, xrange, (xaxis_config, xaxis_mask, xaxis_team), (yaxis_config, yaxis_mask, yaxis_team))",
    );
    t.row("void", "team_destroy", "shmem_team_t team", "teams::destroy(team)");
    t.row("int", "team_sync", "shmem_team_t team", "teams::sync(NAME, team)");
    t.row("int", "ctx_create", "long options, shmem_ctx_t *ctx", "contexts::create(teams::WORLD, options, ctx)");
    t.row("int", "team_create_ctx", "shmem_team_t team, long options, shmem_ctx_t *ctx", "contexts::create(team, options, ctx)");
    t.row("void", "ctx_destroy", "shmem_ctx_t ctx", "contexts::destroy(ctx)");
    t.row("int", "ctx_get_team", "shmem_ctx_t ctx, shmem_team_t *team", "contexts::get_team(ctx, team)");
}

fn transfers(t: &mut Table) {
    let many = [("put", "put"), ("get", "get"), ("put_nbi", "put"), ("get_nbi", "get_nbi")];
    for (name, body) in many {
        let body = format!("transfers::{body}(NAME, CTX, dest, source, nelems, pe)");
        t.typed(&STANDARD, true, "void", name, "T *dest, const T *source, size_t nelems, int pe", &body);
        let nbi = if name.ends_with("_nbi") { "_nbi" } else { "" };
        let base = &name[..3];
        for (bits, rust) in SIZES {
            let body = body.replace("dest,", &format!("dest.cast::<{rust}>(),"));
            let body = body.replace("source,", &format!("source.cast::<{rust}>(),"));
            t.both("void", &format!("{base}{bits}{nbi}"), "void *dest, const void *source, size_t nelems, int pe", &body);
        }
        let body = body.replace("dest,", "dest.cast::<u8>(),").replace("source,", "source.cast::<u8>(),");
        t.both("void", &format!("{base}mem{nbi}"), "void *dest, const void *source, size_t nelems, int pe", &body);
    }
    t.typed(&STANDARD, true, "void", "p", "T *dest, T value, int pe", "transfers::p(NAME, CTX, dest, value, pe)");
    t.typed(&STANDARD, true, "T", "g", "const T *source, int pe", "transfers::g(NAME, CTX, source, pe)");
    t.by_hand("longdouble_p", "long_double_p!");
    t.by_hand("ctx_longdouble_p", "long_double_ctx_p!");
    t.by_hand("longdouble_g", "long_double_g!");
    t.by_hand("ctx_longdouble_g", "long_double_ctx_g!");
    for name in ["iput", "iget"] {
        let body = format!("transfers::{name}(NAME, CTX, dest, source, (dst, sst), nelems, pe)");
        let parameters = "T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe";
        t.typed(&STANDARD, true, "void", name, parameters, &body);
        for (bits, rust) in SIZES {
            let body = body.replace("dest,", &format!("dest.cast::<{rust}>(),"));
            let body = body.replace("source,", &format!("source.cast::<{rust}>(),"));
            let parameters = "void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe";
            t.both("void", &format!("{name}{bits}"), parameters, &body);
        }
    }
}

fn atomics(t: &mut Table) {
    let extended = extended();
    t.typed(&extended, true, "T", "atomic_fetch", "const T *source, int pe", "atomics::fetch(NAME, CTX, source, pe)");
    t.typed(&extended, true, "void", "atomic_set", "T *dest, T value, int pe", "atomics::set(NAME, CTX, dest, value, pe)");
    t.typed(&extended, true, "T", "atomic_swap", "T *dest, T value, int pe", "atomics::swap(NAME, CTX, dest, value, pe)");
    let parameters = "T *fetch, const T *source, int pe";
    t.typed(&extended, true, "void", "atomic_fetch_nbi", parameters, "*fetch = atomics::fetch(NAME, CTX, source, pe)");
    let parameters = "T *fetch, T *dest, T value, int pe";
    t.typed(&extended, true, "void", "atomic_swap_nbi", parameters, "*fetch = atomics::swap(NAME, CTX, dest, value, pe)");

    let body = "atomics::compare_swap(NAME, CTX, dest, cond, value, pe)";
    t.typed(&atomic(), true, "T", "atomic_compare_swap", "T *dest, T cond, T value, int pe", body);
    let body = format!("*fetch = {body}");
    t.typed(&atomic(), true, "void", "atomic_compare_swap_nbi", "T *fetch, T *dest, T cond, T value, int pe", &body);
    let body = "atomics::fetch_add(NAME, CTX, dest, Word::from_bits(1), pe)";
    let inc = "atomics::update(NAME, CTX, dest, shunt_pgas::Operation::Add, Word::from_bits(1), pe)";
    t.typed(&atomic(), true, "T", "atomic_fetch_inc", "T *dest, int pe", body);
    t.typed(&atomic(), true, "void", "atomic_inc", "T *dest, int pe", inc);
    t.typed(&atomic(), true, "void", "atomic_fetch_inc_nbi", "T *fetch, T *dest, int pe", &format!("*fetch = {body}"));
    for (operation, how) in [("add", "Add"), ("and", "And"), ("or", "Or"), ("xor", "Xor")] {
        let types = if operation == "add" { atomic() } else { bitwise() };
        let body = format!("atomics::fetch_{operation}(NAME, CTX, dest, value, pe)");
        t.typed(&types, true, "T", &format!("atomic_fetch_{operation}"), "T *dest, T value, int pe", &body);
        let update = format!("atomics::update(NAME, CTX, dest, shunt_pgas::Operation::{how}, value, pe)");
        t.typed(&types, true, "void", &format!("atomic_{operation}"), "T *dest, T value, int pe", &update);
        let nbi = format!("atomic_fetch_{operation}_nbi");
        t.typed(&types, true, "void", &nbi, "T *fetch, T *dest, T value, int pe", &format!("*fetch = {body}"));
    }

    // What 1.4 renamed; for all types, as other libraries have it.
    let (whole, with_floats) = (atomic(), extended);
    t.typed(&with_floats, false, "T", "fetch", "const T *source, int pe", "atomics::fetch(NAME, CTX, source, pe)");
    t.typed(&with_floats, false, "void", "set", "T *dest, T value, int pe", "atomics::set(NAME, CTX, dest, value, pe)");
    t.typed(&with_floats, false, "T", "swap", "T *dest, T value, int pe", "atomics::swap(NAME, CTX, dest, value, pe)");
    let body = "atomics::compare_swap(NAME, CTX, dest, cond, value, pe)";
    t.typed(&whole, false, "T", "cswap", "T *dest, T cond, T value, int pe", body);
    let body = "atomics::fetch_add(NAME, CTX, dest, Word::from_bits(1), pe)";
    t.typed(&whole, false, "T", "finc", "T *dest, int pe", body);
    t.typed(&whole, false, "void", "inc", "T *dest, int pe", inc);
    let body = "atomics::fetch_add(NAME, CTX, dest, value, pe)";
    t.typed(&whole, false, "T", "fadd", "T *dest, T value, int pe", body);
    let add = "atomics::update(NAME, CTX, dest, shunt_pgas::Operation::Add, value, pe)";
    t.typed(&whole, false, "void", "add", "T *dest, T value, int pe", add);
    // shmem_swap(long *...) of the first versions.
    t.row("long", "swap", "long *dest, long value, int pe", "atomics::swap(NAME, CTX, dest, value, pe)");
}

fn signals(t: &mut Table) {
    for nbi in ["", "_nbi"] {
        let body = "signals::put(NAME, CTX, dest, source, nelems, sig_addr, (signal, sig_op), pe)";
        let of = |first: &str| format!("{first}, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe");
        t.typed(&STANDARD, true, "void", &format!("put_signal{nbi}"), &of("T *dest, const T *source"), body);
        let untyped = of("void *dest, const void *source");
        for (bits, rust) in SIZES {
            let body = body.replace("dest,", &format!("dest.cast::<{rust}>(),"));
            let body = body.replace("source,", &format!("source.cast::<{rust}>(),"));
            t.both("void", &format!("put{bits}_signal{nbi}"), &untyped, &body);
        }
        let body = body.replace("dest,", "dest.cast::<u8>(),").replace("source,", "source.cast::<u8>(),");
        t.both("void", &format!("putmem_signal{nbi}"), &untyped, &body);
    }
    t.row("uint64_t", "signal_fetch", "const uint64_t *sig_addr", "signals::fetch(NAME, sig_addr)");
    let parameters = "uint64_t *sig_addr, int cmp, uint64_t cmp_value";
    t.row("uint64_t", "signal_wait_until", parameters, "signals::wait_until(NAME, sig_addr, cmp, cmp_value)");
    // Of 1.6.
    t.both("void", "signal_set", "uint64_t *sig_addr, uint64_t signal, int pe", "atomics::set(NAME, CTX, sig_addr, signal, pe)");
    let body = "atomics::update(NAME, CTX, sig_addr, shunt_pgas::Operation::Add, signal, pe)";
    t.both("void", "signal_add", "uint64_t *sig_addr, uint64_t signal, int pe", body);
}

fn collectives(t: &mut Table) {
    const SET: &str = "int PE_start, int logPE_stride, int PE_size, long *pSync";
    const OF: &str = "{ let _ = pSync; collectives::active_set(NAME, PE_start, logPE_stride, PE_size) }";
    t.row("void", "barrier_all", "", "collectives::barrier_all(NAME)");
    t.row("void", "sync_all", "", "collectives::sync_all(NAME)");
    for name in ["barrier", "sync"] {
        t.row("void", name, SET, &format!("collectives::{name}(NAME, {OF})"));
    }
    // Each: name, parameters between source and team or set, arguments; bytes of an element are `size`.
    let kinds = [
        ("broadcast", "size_t nelems, int PE_root", "nelems, PE_root"),
        ("collect", "size_t nelems", "nelems"),
        ("fcollect", "size_t nelems", "nelems"),
        ("alltoall", "size_t nelems", "nelems"),
        ("alltoalls", "ptrdiff_t dst, ptrdiff_t sst, size_t nelems", "(dst, sst), nelems"),
    ];
    for (name, more, arguments) in kinds {
        let call = |size: &str| {
            format!("collectives::{name}(NAME, collectives::of_team(team), dest as usize, source as usize, {size}, {arguments})")
        };
        for row in STANDARD {
            let parameters = format!("shmem_team_t team, {c} *dest, const {c} *source, {more}", c = row.1);
            t.row("int", &format!("{}_{name}", row.0), &parameters, &call(&format!("size_of::<{}>()", row.2)));
        }
        t.row("int", &format!("{name}mem"), &format!("shmem_team_t team, void *dest, const void *source, {more}"), &call("1"));
        // The roots of active sets get no copy.
        let of_set = if name == "broadcast" { "broadcast_to_others" } else { name };
        for bits in [32, 64] {
            let call =
                format!("let _ = collectives::{of_set}(NAME, {OF}, dest as usize, source as usize, {}, {arguments});", bits / 8);
            t.row("void", &format!("{name}{bits}"), &format!("void *dest, const void *source, {more}, {SET}"), &call);
        }
    }
    let in_rust = ["bit_and", "bit_or", "bit_xor", "largest", "smallest", "plus", "times"];
    for (operation, method) in REDUCTIONS.into_iter().zip(in_rust) {
        let types = match operation {
            "and" | "or" | "xor" => reduced_bits(),
            "sum" | "prod" => [&STANDARD[..], &[COMPLEX_D, COMPLEX_F]].concat(),
            _ => STANDARD.to_vec(),
        };
        for (type_name, c, rust) in types {
            let body = format!(
                "collectives::reduce::<{rust}>(NAME, collectives::of_team(team), dest, source, nreduce, Number::{method})"
            );
            let parameters = format!("shmem_team_t team, {c} *dest, const {c} *source, size_t nreduce");
            t.row("int", &format!("{type_name}_{operation}_reduce"), &parameters, &body);
        }
        for (type_name, c, rust) in of_active_sets(operation) {
            let body = format!(
                "let _ = pWrk; let _ = collectives::reduce::<{rust}>(NAME, {OF}, dest, source, nreduce.max(0) as usize, Number::{method});"
            );
            let parameters = format!(
                "{c} *dest, const {c} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {c} *pWrk, long *pSync"
            );
            t.row("void", &format!("{type_name}_{operation}_to_all"), &parameters, &body);
        }
    }
}

fn waits(t: &mut Table) {
    let types = waited();
    let one = "volatile T *ivar, int cmp, T cmp_value";
    t.typed(&types, false, "void", "wait_until", one, "waits::wait_until(NAME, ivar, cmp, cmp_value)");
    t.typed(&types, false, "int", "test", one, "waits::test(NAME, ivar, cmp, cmp_value)");
    for (suffix, last, value) in
        [("", "T cmp_value", "waits::One(cmp_value)"), ("_vector", "T *cmp_values", "waits::Each(cmp_values)")]
    {
        let each = format!("volatile T *ivars, size_t nelems, const int *status, int cmp, {last}");
        let some = format!("volatile T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, {last}");
        for (kind, wait_result, test_result) in
            [("all", "void", "int"), ("any", "size_t", "size_t"), ("some", "size_t", "size_t")]
        {
            let (parameters, indices) = if kind == "some" { (&some, "indices, ") } else { (&each, "") };
            let arguments = format!("NAME, (ivars, nelems, status), {indices}cmp, {value}");
            let body = format!("waits::wait_until_{kind}({arguments})");
            t.typed(&types, false, wait_result, &format!("wait_until_{kind}{suffix}"), parameters, &body);
            let body = format!("waits::test_{kind}({arguments})");
            t.typed(&types, false, test_result, &format!("test_{kind}{suffix}"), parameters, &body);
        }
    }
    t.row("void", "wait_until", "volatile long *ivar, int cmp, long cmp_value", "waits::wait_until(NAME, ivar, cmp, cmp_value)");
    t.row("void", "wait", "volatile long *ivar, long cmp_value", "waits::wait_until(NAME, ivar, waits::NE, cmp_value)");
    for row in [SHORT, INT, LONG, LONG_LONG] {
        t.typed(
            &[row],
            false,
            "void",
            "wait",
            "volatile T *ivar, T cmp_value",
            "waits::wait_until(NAME, ivar, waits::NE, cmp_value)",
        );
    }
}

/// Names without `shmem_` before them, of the first versions: result, name, parameters, body.
const OLD: [(&str, &str, &str, &str); 9] = [
    ("void", "start_pes", "int npes", "{ let _ = npes; setup::init(NAME) }"),
    ("int", "_my_pe", "", "World::current().me() as c_int"),
    ("int", "_num_pes", "", "World::current().ranks() as c_int"),
    ("int", "my_pe", "", "World::current().me() as c_int"),
    ("int", "num_pes", "", "World::current().ranks() as c_int"),
    ("void *", "shmalloc", "size_t size", "memory::malloc(NAME, size, 1)"),
    ("void", "shfree", "void *ptr", "memory::free(NAME, ptr)"),
    ("void *", "shrealloc", "void *ptr, size_t size", "memory::realloc(NAME, ptr, size)"),
    ("void *", "shmemalign", "size_t alignment, size_t size", "memory::malloc(NAME, size, alignment)"),
];

/// The functions in Rust.
pub fn rust() -> String {
    let mut text = String::from("// Made by build.rs from table.rs.\n");
    let mut item = |name: &str, function: &Function| {
        if let Some(by_hand) = function.item {
            writeln!(text, "{by_hand}({name});").unwrap();
            return;
        }
        let parameters: Vec<String> = function.parameters.iter().map(|(c, name)| format!("{name}: {}", rust_type(c))).collect();
        let result = if function.result == "void" { String::new() } else { format!(" -> {}", rust_type(&function.result)) };
        writeln!(
            text,
            "#[no_mangle]\npub unsafe extern \"C\" fn {name}({}){result} {{ {} }}",
            parameters.join(", "),
            function.body
        )
        .unwrap();
    };
    for function in table().functions {
        for prefix in ["shmem", "pshmem"] {
            item(&format!("{prefix}_{}", function.name), &function);
        }
    }
    for (result, name, parameters, body) in OLD {
        let body = body.replace("NAME", &format!("\"{name}\""));
        let (result, parameters) = (result.to_owned(), parsed(parameters));
        let function = Function { name: name.to_owned(), result, parameters, body, item: None };
        for prefix in ["", "p"] {
            // `my_pe` and `num_pes` are words that programs have for themselves: declared nowhere, so not exported.
            if !["my_pe", "num_pes"].contains(&name) {
                item(&format!("{prefix}{name}"), &function);
            }
        }
    }
    text
}

fn prototype(function: &Function, prefix: &str) -> String {
    let mut parameters: Vec<String> =
        function.parameters.iter().map(|(c, name)| format!("{c}{}{name}", if c.ends_with('*') { "" } else { " " })).collect();
    if function.name == "pcontrol" {
        parameters.push("...".into());
    }
    if parameters.is_empty() {
        parameters.push("void".into());
    }
    let gap = if function.result.ends_with('*') { "" } else { " " };
    let no_return = if function.name == "global_exit" { " SHUNT_NORETURN" } else { "" };
    format!("{}{gap}{prefix}{}({}){no_return};", function.result, function.name, parameters.join(", "))
}

/// Rows of `_Generic`: one for each distinct type of C.
fn rows(text: &mut String, name: &str, types: &[&str]) {
    let rows: Vec<String> = types
        .iter()
        .map(|wanted| {
            let row = STANDARD.iter().chain([&COMPLEX_F, &COMPLEX_D]).find(|row| row.0 == *wanted).unwrap();
            format!("SHUNT_ROW({}, a##_{}_##b)", row.1, row.0)
        })
        .collect();
    writeln!(text, "#define SHUNT_ROWS_{name}(a, b) \\\n    {}", rows.join(", \\\n    ")).unwrap();
}

const WHOLE: [&str; 6] = ["int", "long", "longlong", "uint", "ulong", "ulonglong"];
const PLAIN: [&str; 14] = [
    "float",
    "double",
    "longdouble",
    "char",
    "schar",
    "short",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
];

/// The macros that choose a function by the type of an argument.
fn generics(text: &mut String) {
    text.push_str(GENERIC_HEAD);
    rows(text, "STANDARD", &PLAIN);
    rows(text, "ATOMIC", &WHOLE);
    rows(text, "EXTENDED", &[&["float", "double"], &WHOLE[..]].concat());
    rows(text, "WAITED", &[&["short", "ushort"], &WHOLE[..]].concat());
    rows(text, "REDUCED_BITS", &["short", "int", "long", "longlong", "uchar", "ushort", "uint", "ulong", "ulonglong", "int8"]);
    rows(text, "SUMMED", &[&PLAIN[..], &["complexf", "complexd"]].concat());
    let mut with_context = |rows: &str, name: &str| {
        writeln!(text, "#define shmem_{name}(...) SHUNT_WITH_CONTEXT({rows}, {name}, __VA_ARGS__)").unwrap();
    };
    for name in ["put", "get", "p", "g", "iput", "iget", "put_nbi", "get_nbi", "put_signal", "put_signal_nbi"] {
        with_context("STANDARD", name);
    }
    for name in ["fetch", "set", "swap", "fetch_nbi", "swap_nbi"] {
        with_context("EXTENDED", &format!("atomic_{name}"));
    }
    for name in ["compare_swap", "compare_swap_nbi", "fetch_inc", "inc", "fetch_inc_nbi", "fetch_add", "add", "fetch_add_nbi"] {
        with_context("ATOMIC", &format!("atomic_{name}"));
    }
    for name in ["and", "or", "xor"] {
        for name in [format!("fetch_{name}"), name.to_owned(), format!("fetch_{name}_nbi")] {
            with_context("ATOMIC", &format!("atomic_{name}"));
        }
    }
    let mut by_first = |rows: &str, name: &str| {
        writeln!(text, "#define shmem_{name}(...) SHUNT_BY_FIRST({rows}, {name}, __VA_ARGS__)").unwrap();
    };
    for name in ["wait_until", "test"] {
        by_first("WAITED", name);
        for kind in ["all", "any", "some"] {
            by_first("WAITED", &format!("{name}_{kind}"));
            by_first("WAITED", &format!("{name}_{kind}_vector"));
        }
    }
    for name in ["cswap", "finc", "inc", "fadd", "add"] {
        by_first("ATOMIC", name);
    }
    for name in ["fetch", "set", "swap"] {
        by_first("EXTENDED", name);
    }
    let mut by_second = |rows: &str, name: &str| {
        writeln!(text, "#define shmem_{name}(...) SHUNT_BY_SECOND({rows}, {name}, __VA_ARGS__)").unwrap();
    };
    for name in ["broadcast", "collect", "fcollect", "alltoall", "alltoalls"] {
        by_second("STANDARD", name);
    }
    for operation in REDUCTIONS {
        let rows = match operation {
            "and" | "or" | "xor" => "REDUCED_BITS",
            "sum" | "prod" => "SUMMED",
            _ => "STANDARD",
        };
        by_second(rows, &format!("{operation}_reduce"));
    }
    text.push_str("#define shmem_sync(...) _Generic((SHUNT_FIRST(__VA_ARGS__)), shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)\n");
    text.push_str("#endif\n\n");
}

const GENERIC_HEAD: &str = r"/* Names that choose by type. The library has some of them as functions, too, for C99 and C++. */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
/* Called for a type that the operation does not have: it takes no arguments, so the call does not compile. */
extern void shunt_shmem_has_no_such_type(void);
#define SHUNT_FIRST_(a, ...) a
#define SHUNT_FIRST(...) SHUNT_FIRST_(__VA_ARGS__, 0)
#define SHUNT_SECOND_(a, b, ...) b
#define SHUNT_SECOND(...) SHUNT_SECOND_(__VA_ARGS__, 0, 0)
#define SHUNT_ROW(type, function) \
    type *: function, const type *: function, volatile type *: function, const volatile type *: function
#define SHUNT_BY(argument, rows, prefix, name) \
    _Generic((argument), SHUNT_ROWS_##rows(prefix, name), default: shunt_shmem_has_no_such_type)
#define SHUNT_BY_FIRST(rows, name, ...) SHUNT_BY(SHUNT_FIRST(__VA_ARGS__), rows, shmem, name)(__VA_ARGS__)
#define SHUNT_BY_SECOND(rows, name, ...) SHUNT_BY(SHUNT_SECOND(__VA_ARGS__), rows, shmem, name)(__VA_ARGS__)
#define SHUNT_WITH_CONTEXT(rows, name, ...) \
    _Generic((SHUNT_FIRST(__VA_ARGS__)), \
        shmem_ctx_t: SHUNT_BY(SHUNT_SECOND(__VA_ARGS__), rows, shmem_ctx, name), \
        default: SHUNT_BY(SHUNT_FIRST(__VA_ARGS__), rows, shmem, name))(__VA_ARGS__)
";

const HEAD: &str = include_str!("head.h");

/// `shmem.h`.
pub fn header() -> String {
    let mut text = String::from(HEAD);
    let functions = table().functions;
    for function in &functions {
        writeln!(text, "{}", prototype(function, "shmem_")).unwrap();
    }
    text.push_str("\n/* Of the first versions. */\n");
    let old = OLD.iter().filter(|(_, name, ..)| !["my_pe", "num_pes"].contains(name));
    let old: Vec<Function> = old
        .map(|(result, name, parameters, _)| Function {
            name: (*name).into(),
            result: (*result).into(),
            parameters: parsed(parameters),
            body: String::new(),
            item: None,
        })
        .collect();
    old.iter().for_each(|function| writeln!(text, "{}", prototype(function, "")).unwrap());
    text.push_str("\n/* The profiling interface: the same functions, for a library that takes the names above. */\n");
    for function in &functions {
        writeln!(text, "{}", prototype(function, "pshmem_")).unwrap();
    }
    old.iter().for_each(|function| writeln!(text, "{}", prototype(function, "p")).unwrap());
    text.push('\n');
    generics(&mut text);
    text.push_str("#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    text
}
