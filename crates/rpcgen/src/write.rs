//! A file as text of the language again: what servers tell tools that ask what they serve.

use crate::model::*;
use crate::rust::{definition, written};
use std::fmt::Write as _;

/// The text, which [`crate::parse()`] reads as the same file: numbers in place of constants, no comments.
#[must_use]
pub fn write(file: &File) -> String {
    let mut text = String::new();
    macro_rules! line {
        ($($words:tt)*) => {{
            let _ = writeln!(text, $($words)*);
        }};
    }
    for one in &file.definitions {
        match one {
            Definition::Constant(name, value) => line!("const {name} = {value};"),
            Definition::Text(name, text) => line!("const {name} = \"{text}\";"),
            Definition::Enumeration(name, members) => {
                let members: Vec<String> = members.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                line!("enum {name} {{ {} }};", members.join(", "));
            }
            Definition::Structure(name, fields) => {
                line!("struct {name} {{");
                fields.iter().for_each(|field| line!("    {};", written(field)));
                line!("}};");
            }
            Definition::Union(union) => {
                line!("union {} switch ({}) {{", union.name, written(&union.discriminant));
                let arm = |arm: &Option<Declaration>| arm.as_ref().map_or_else(|| "void".into(), written);
                for (label, _, declaration) in &union.arms {
                    line!("case {label}: {};", arm(declaration));
                }
                if let Some(declaration) = &union.default {
                    line!("default: {};", arm(declaration));
                }
                line!("}};");
            }
            Definition::Typedef(declaration) => line!("typedef {};", written(declaration)),
            Definition::Program(program) => {
                line!("program {} {{", program.name);
                for version in &program.versions {
                    line!("    version {} {{", version.name);
                    version.procedures.iter().for_each(|procedure| line!("        {};", definition(procedure)));
                    line!("    }} = {};", version.number);
                }
                line!("}} = {:#x};", program.number);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::{parse, write};

    #[test]
    fn what_is_written_is_read_as_the_same_file() {
        let text = "const N = 0x10; enum e { A = -1, B }; typedef opaque o[5]; typedef string s<>; \
            struct t { e a; o b; int c<N>; t *d; char f; unsigned hyper g; bool h; };
            union u switch (e kind) { case A: t x; case B: void; }; union v switch (int n) { case 3: int y; default: s z<4>; };
            program P { version V { s F(INOUT opaque k<N>, u, v *w) = 1; void NULLPROC(void) = 0; t *G(string a<>) = 2; } = 1;
            version W { int H(int) = 1; } = 2; } = 0x20000001;";
        let file = parse(text).unwrap();
        assert_eq!(parse(&write(&file)), Ok(file));
        for text in [include_str!("../../../examples/log.x"), include_str!("../../rpc-examples/tests/torture.x")] {
            let file = parse(text).unwrap();
            assert_eq!(parse(&write(&file)), Ok(file));
        }
    }
}
