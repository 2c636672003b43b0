//! `docs/reference/COVERAGE.md`: every intercepted symbol, by group, with the call that it is a variant of.

use shunt_calls::{Call, CALLS, VARIADIC};
use std::fmt::Write;

const HEAD: &str = "\
# Intercepted calls

Generated from the list in `crates/calls/src/lib.rs` by `cargo run -p shunt-xtask`; do not edit.

These are the symbols that a program finds in `libshunt.so` instead of the C library's. A call on a descriptor that is not
accelerated goes on to the C library's own function. Variants (fortified, internal, 64-bit) share the body of their
call. `syscall` looks at the number: those of the calls below are answered in the same way.

A program that enters the kernel by its own instruction, and the C library where it calls itself, use none of these
symbols; `docs/SEMANTICS.md` says what follows.
";

/// Every row: those with prototypes, then those with variable arguments.
fn calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(VARIADIC)
}

/// The call that `symbol` is a spelling of: itself, or one without underscores, `_chk` or `64` that is on the list too.
fn call_of(symbol: &'static str) -> &'static str {
    let listed = |name: &str| calls().any(|call| call.symbol == name);
    let bare = symbol.trim_start_matches('_');
    let plain = bare.strip_suffix("_chk").unwrap_or(bare);
    let plain = plain.strip_suffix("64").filter(|shorter| listed(shorter)).unwrap_or(plain);
    if listed(plain) {
        plain
    } else {
        symbol
    }
}

/// The document.
pub fn render() -> String {
    let mut text = HEAD.to_owned();
    let _ = writeln!(text, "\n{} symbols.", calls().count());
    let mut groups: Vec<&str> = Vec::new();
    for call in calls() {
        if !groups.contains(&call.group) {
            groups.push(call.group);
        }
    }
    for group in groups {
        let _ = writeln!(text, "\n## {group}\n\n| call | variants |\n|---|---|");
        for call in calls().filter(|call| call.group == group && call_of(call.symbol) == call.symbol) {
            let variants: Vec<String> = calls()
                .filter(|other| other.symbol != call.symbol && call_of(other.symbol) == call.symbol)
                .map(|other| format!("`{}`", other.symbol))
                .collect();
            let _ = writeln!(text, "| `{}` | {} |", call.symbol, variants.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_symbol_stands_in_the_table_once() {
        let text = render();
        let tables = &text[HEAD.len()..];
        for call in calls() {
            assert_eq!(tables.matches(&format!("`{}`", call.symbol)).count(), 1, "{}", call.symbol);
        }
    }

    #[test]
    fn variants_are_told_from_calls() {
        assert_eq!(call_of("__read_chk"), "read");
        assert_eq!(call_of("fcntl64"), "fcntl");
        assert_eq!(call_of("accept4"), "accept4");
    }

    /// The library's slots follow from the list by themselves; its hooks are written by hand, and one that is missing
    /// would leave calls to the C library in silence.
    #[test]
    fn the_library_has_a_hook_for_each_symbol() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../preload/src"))];
        let mut sources = String::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    sources.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        for call in calls() {
            // Entry points with variable arguments are made by macros whose names end in `_call`; those that differ by their
            // names alone by a macro that lists them.
            let forms = [format!("fn {}(", call.symbol), format!("_call!({},", call.symbol)];
            let listed = sources.lines().filter_map(|line| line.strip_suffix(");")?.split_once("!(")).any(|(name, list)| {
                name.bytes().all(|byte| byte.is_ascii_lowercase()) && list.split(", ").any(|symbol| symbol == call.symbol)
            });
            assert!(listed || forms.iter().any(|form| sources.contains(form.as_str())), "no hook for {}", call.symbol);
        }
    }
}
