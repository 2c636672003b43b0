//! What a file of the language says.

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// In the file's order.
    pub definitions: Vec<Definition>,
}

/// One definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// `const NAME = value;`
    Constant(String, i64),
    /// `const NAME = "text";`
    Text(String, String),
    /// `enum NAME { ... };`
    Enumeration(String, Vec<(String, i64)>),
    /// `struct NAME { ... };`
    Structure(String, Vec<Declaration>),
    /// `union NAME switch (...) { ... };`
    Union(Union),
    /// `typedef ...;`
    Typedef(Declaration),
    /// `program NAME { ... } = number;`
    Program(Program),
}

impl Definition {
    /// The name of the type that it defines, if it does.
    #[must_use]
    pub fn type_name(&self) -> Option<&String> {
        match self {
            Self::Enumeration(name, _) | Self::Structure(name, _) => Some(name),
            Self::Union(union) => Some(&union.name),
            Self::Typedef(declaration) => Some(&declaration.name),
            Self::Constant(..) | Self::Text(..) | Self::Program(_) => None,
        }
    }

    /// The types that it names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let all: Vec<&Declaration> = match self {
            Self::Structure(_, fields) => fields.iter().collect(),
            Self::Union(union) => {
                let arms = union.arms.iter().filter_map(|(_, _, arm)| arm.as_ref());
                arms.chain(union.default.iter().flatten()).chain([&union.discriminant]).collect()
            }
            Self::Typedef(declaration) => vec![declaration],
            _ => vec![],
        };
        let name = |one: &Declaration| if let Base::Named(name) = &one.base { Some(name.clone()) } else { None };
        all.into_iter().filter_map(name).collect()
    }
}

/// A discriminated union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// Its name.
    pub name: String,
    /// What decides.
    pub discriminant: Declaration,
    /// Labels as they are written, with their numbers, and what they choose; `None`: void.
    pub arms: Vec<(String, i64, Option<Declaration>)>,
    /// What all others choose, where they may be.
    pub default: Option<Option<Declaration>>,
}

/// A type and a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Empty for parameters and results without one.
    pub name: String,
    /// The type of one element.
    pub base: Base,
    /// How many.
    pub shape: Shape,
}

/// A type of the language, or one that the file defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing.
    Void,
    /// `int`, `long`.
    Int,
    /// `unsigned int`, `unsigned long`.
    Unsigned,
    /// `hyper`.
    Hyper,
    /// `unsigned hyper`.
    UnsignedHyper,
    /// rpcgen's `short`.
    Short,
    /// rpcgen's `unsigned short`.
    UnsignedShort,
    /// rpcgen's `char`.
    Char,
    /// rpcgen's `unsigned char`.
    UnsignedChar,
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// `quadruple`.
    Quadruple,
    /// `bool`.
    Bool,
    /// `opaque`, always of some shape.
    Opaque,
    /// `string`, always of variable length.
    String,
    /// Another definition.
    Named(String),
}

/// How many of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One.
    One,
    /// One or none.
    Optional,
    /// So many.
    Fixed(u32),
    /// Up to so many.
    Variable(u32),
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its versions.
    pub versions: Vec<Version>,
}

/// A version of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its procedures.
    pub procedures: Vec<Procedure>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// What it gives.
    pub result: Declaration,
    /// What it takes.
    pub parameters: Vec<Parameter>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// By value, or the caller's memory.
    pub way: Way,
    /// Its type and name.
    pub declaration: Declaration,
}

/// How a parameter goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Encoded.
    Value,
    /// By reference: the server reads the caller's memory.
    In,
    /// By reference: it writes there.
    Out,
    /// By reference: both.
    InOut,
}

impl File {
    /// The definition of a type.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.definitions.iter().find(|definition| match definition {
            Definition::Enumeration(found, _) | Definition::Structure(found, _) => found == name,
            Definition::Union(union) => union.name == name,
            Definition::Typedef(declaration) => declaration.name == name,
            Definition::Constant(..) | Definition::Text(..) | Definition::Program(_) => false,
        })
    }

    /// All programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.definitions.iter().filter_map(|definition| match definition {
            Definition::Program(program) => Some(program),
            _ => None,
        })
    }

    /// Declarations that a type is made of.
    fn parts(&self, name: &str) -> Vec<&Declaration> {
        match self.definition(name) {
            Some(Definition::Structure(_, fields)) => fields.iter().collect(),
            Some(Definition::Union(union)) => {
                let arms = union.arms.iter().filter_map(|(_, _, arm)| arm.as_ref());
                arms.chain(union.default.iter().flatten()).collect()
            }
            Some(Definition::Typedef(declaration)) => vec![declaration],
            _ => vec![],
        }
    }

    /// Whether values of a type may hold values of that type.
    #[must_use]
    pub fn is_recursive(&self, name: &str) -> bool {
        self.reaches(name, name, &|_| true)
    }

    /// Whether they hold them without a pointer or a length between, so that none has an end.
    #[must_use]
    pub fn is_endless(&self, name: &str) -> bool {
        self.reaches(name, name, &|part| matches!(part.shape, Shape::One | Shape::Fixed(_)))
    }

    /// The field that makes lists of a structure: its last one, if that is an optional value of the structure's own type.
    #[must_use]
    pub fn link<'a>(&'a self, name: &str, fields: &'a [Declaration]) -> Option<&'a Declaration> {
        let last = fields.last()?;
        let mut at = last;
        // Names of names end: no definition is endless.
        loop {
            let Base::Named(found) = &at.base else { return None };
            match (at.shape, self.definition(found)) {
                (Shape::Optional, _) if found == name => return Some(last),
                (Shape::One, Some(Definition::Typedef(of))) => at = of,
                _ => return None,
            }
        }
    }

    fn reaches(&self, from: &str, to: &str, follow: &dyn Fn(&Declaration) -> bool) -> bool {
        let mut seen: Vec<&str> = vec![];
        let mut open: Vec<&str> = vec![from];
        while let Some(name) = open.pop() {
            for part in self.parts(name).into_iter().filter(|part| follow(part)) {
                if let Base::Named(next) = &part.base {
                    if next == to {
                        return true;
                    }
                    if !seen.contains(&next.as_str()) {
                        seen.push(next);
                        open.push(next);
                    }
                }
            }
        }
        false
    }
}
