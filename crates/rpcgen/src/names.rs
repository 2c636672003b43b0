//! Names of the language as names of Rust.

const RUST: &[&str] = &[
    "as", "break", "const", "continue", "crate", "else", "enum", "extern", "false", "fn", "for", "if", "impl", "in", "let",
    "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super", "trait", "true",
    "type", "unsafe", "use", "where", "while", "async", "await", "dyn", "abstract", "become", "box", "do", "final", "macro",
    "override", "priv", "typeof", "unsized", "virtual", "yield", "try", "gen",
];

/// Where a word of a name begins.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![];
    let mut before = '_';
    for character in name.chars() {
        if character == '_' {
            before = character;
            continue;
        }
        let begins = before == '_' || (character.is_ascii_uppercase() && !before.is_ascii_uppercase());
        if begins || words.is_empty() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(character.to_ascii_lowercase());
        }
        before = character;
    }
    words
}

/// A type or variant: `READ_ONLY` is `ReadOnly`.
pub(crate) fn kind(name: &str) -> String {
    let capital = |word: String| word[..1].to_ascii_uppercase() + &word[1..];
    let name: String = words(name).into_iter().map(capital).collect();
    match name.as_str() {
        "" => "Nameless".into(),
        "Self" => "Self_".into(),
        _ if name.starts_with(|c: char| c.is_ascii_digit()) => format!("N{name}"),
        _ => name,
    }
}

/// A field, parameter or procedure: `ReadOnly` is `read_only`.
pub(crate) fn field(name: &str) -> String {
    let name = words(name).join("_");
    match name.as_str() {
        "" => "nameless".into(),
        "self" | "super" | "crate" => format!("{name}_"),
        _ if RUST.contains(&name.as_str()) => format!("r#{name}"),
        _ if name.starts_with(|c: char| c.is_ascii_digit()) => format!("n{name}"),
        _ => name,
    }
}

/// A constant.
pub(crate) fn constant(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    if name.chars().all(|character| character == '_') {
        "NAMELESS".into()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_rust_does() {
        assert_eq!((kind("READ_ONLY"), kind("fileStat"), kind("self")), ("ReadOnly".into(), "FileStat".into(), "Self_".into()));
        assert_eq!((field("ReadAll"), field("type"), field("NAME2")), ("read_all".into(), "r#type".into(), "name2".into()));
    }
}
