//! What a new file breaks for programs built from an old one.

use crate::model::*;
use crate::rust::definition;

/// A type with all that it is made of, as words: two types with the same words have the same bytes.
fn shape(file: &File, declaration: &Declaration, open: &mut Vec<String>) -> String {
    let base = match &declaration.base {
        Base::Named(name) => {
            if let Some(depth) = open.iter().rev().position(|other| other == name) {
                format!("^{depth}")
            } else {
                open.push(name.clone());
                let words = match file.definition(name) {
                    Some(Definition::Enumeration(_, members)) => {
                        let mut values: Vec<i64> = members.iter().map(|member| member.1).collect();
                        values.sort_unstable();
                        format!("enum{values:?}")
                    }
                    Some(Definition::Structure(_, fields)) => {
                        let fields: Vec<String> = fields.iter().map(|field| shape(file, field, open)).collect();
                        format!("{{{}}}", fields.join(";"))
                    }
                    Some(Definition::Union(union)) => {
                        let mut arm =
                            |arm: &Option<Declaration>| arm.as_ref().map_or("void".into(), |arm| shape(file, arm, open));
                        let mut arms: Vec<String> =
                            union.arms.iter().map(|(_, value, one)| format!("{value}:{}", arm(one))).collect();
                        arms.sort();
                        let default = union.default.as_ref().map(arm);
                        format!("union[{}]{default:?}", arms.join(";"))
                    }
                    Some(Definition::Typedef(other)) => shape(file, other, open),
                    _ => String::new(),
                };
                open.pop();
                words
            }
        }
        // Strings are bytes.
        Base::String => "Opaque".into(),
        other => format!("{other:?}"),
    };
    match declaration.shape {
        Shape::One => base,
        shape => format!("{base} {shape:?}"),
    }
}

fn shape_of(file: &File, procedure: &Procedure) -> String {
    let parameters: Vec<String> =
        procedure.parameters.iter().map(|one| format!("{:?} {}", one.way, shape(file, &one.declaration, &mut vec![]))).collect();
    format!("{} ({})", shape(file, &procedure.result, &mut vec![]), parameters.join(", "))
}

/// One sentence for each procedure, version or program that is not there any more, or not as it was. New ones break nothing.
#[must_use]
pub fn breaks(old: &File, new: &File) -> Vec<String> {
    let mut all = vec![];
    for program in old.programs() {
        let Some(now) = new.programs().find(|other| other.number == program.number) else {
            all.push(format!("program {} ({:#x}) is gone", program.name, program.number));
            continue;
        };
        for version in &program.versions {
            let at = format!("{} version {}", program.name, version.number);
            let Some(now) = now.versions.iter().find(|other| other.number == version.number) else {
                all.push(format!("{at} is gone"));
                continue;
            };
            for procedure in &version.procedures {
                match now.procedures.iter().find(|other| other.number == procedure.number) {
                    None => all.push(format!("{at}: {} ({}) is gone", procedure.name, procedure.number)),
                    Some(now) if shape_of(old, procedure) != shape_of(new, now) => {
                        all.push(format!(
                            "{at}: `{}` is now `{}`, or a type in it changed",
                            definition(procedure),
                            definition(now)
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::{breaks, parse};

    #[test]
    fn what_breaks_callers_is_said() {
        let file = |text: &str| parse(text).unwrap();
        let old = file("struct s { int a; string b<>; }; program P { version V { s A(s) = 1; void B(int) = 2; } = 1; } = 9;");
        let renamed = "struct t { int x; opaque y<>; }; program Q { version W { t C(t) = 1; void B(int) = 2; int N(void) = 3; } = 1; } = 9;";
        assert!(breaks(&old, &file(renamed)).is_empty(), "names and new procedures break nothing");
        let changed = "struct s { int a; string b<9>; }; program P { version V { s A(s) = 1; } = 1; } = 9;";
        assert_eq!(breaks(&old, &file(changed)).len(), 2);
        assert_eq!(breaks(&old, &file("program P { version V { void A(void) = 1; } = 2; } = 9;")), ["P version 1 is gone"]);
    }
}
