//! The names that modules define and import.

use super::source::{self, word, Texts, Tree};
use std::collections::BTreeMap;
use syn::{Item, UseTree};

/// A crate of this repository, as far as paths need it.
pub struct Crate {
    /// The package's name, as `shunt-sockets`.
    pub package: String,
    /// The names under which its sources know other crates of the repository, and those crates' packages.
    pub dependencies: BTreeMap<String, String>,
    pub tree: Tree,
    /// For each module of the tree, its names.
    pub scopes: Vec<Scope>,
    pub defined: Vec<Defined>,
}

/// A module's names.
#[derive(Default)]
pub struct Scope {
    pub defines: BTreeMap<String, Vec<usize>>,
    pub imports: BTreeMap<String, Vec<Import>>,
    pub globs: Vec<Import>,
    /// Macros are called between its items.
    pub makes: bool,
}

/// An item with a name.
pub struct Defined {
    pub name: String,
    pub module: usize,
    pub kind: Kind,
    /// An enum's variants, which a glob may import.
    pub variants: Vec<String>,
    /// Methods of `impl` blocks in other files than the item's own, and in which.
    pub abroad: BTreeMap<String, usize>,
}

/// In which spaces of names an item is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Type,
    /// A struct, which may be a constructor, too.
    Both,
    Value,
    Macro,
}

/// Where a path is looked up: in which of the language's spaces of names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Types,
    Values,
    Macros,
    Any,
}

impl Space {
    /// Whether an item of this kind is found here.
    pub fn has(self, kind: Kind) -> bool {
        match self {
            Space::Any => true,
            Space::Types => matches!(kind, Kind::Type | Kind::Both),
            Space::Values => matches!(kind, Kind::Value | Kind::Both),
            Space::Macros => kind == Kind::Macro,
        }
    }
}

/// A path as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// It begins with `::`.
    pub outside: bool,
    pub names: Vec<String>,
}

/// One leaf of a `use` tree: the name it makes (`*` for a glob, `_` for none), its path, and its line.
pub struct Leaf {
    pub name: String,
    pub import: Import,
    pub line: usize,
}

/// The leaves of a `use` tree.
pub fn leaves(item: &syn::ItemUse) -> Vec<Leaf> {
    let mut all = Vec::new();
    collect(&item.tree, item.leading_colon.is_some(), &mut Vec::new(), &mut all);
    all
}

fn collect(tree: &UseTree, outside: bool, before: &mut Vec<String>, all: &mut Vec<Leaf>) {
    let leaf = |name: String, last: Option<String>, before: &[String], line: usize| {
        let names = before.iter().cloned().chain(last).collect();
        Leaf { name, import: Import { outside, names }, line }
    };
    match tree {
        UseTree::Path(path) => {
            before.push(word(&path.ident));
            collect(&path.tree, outside, before, all);
            before.pop();
        }
        // `{self}` imports the path before it.
        UseTree::Name(name) if name.ident == "self" => {
            let own = before.last().cloned().unwrap_or_default();
            all.push(leaf(own, None, before, name.ident.span().start().line));
        }
        UseTree::Name(name) => {
            all.push(leaf(word(&name.ident), Some(word(&name.ident)), before, name.ident.span().start().line));
        }
        UseTree::Rename(name) => {
            let last = (name.ident != "self").then(|| word(&name.ident));
            all.push(leaf(word(&name.rename), last, before, name.ident.span().start().line));
        }
        UseTree::Glob(glob) => all.push(leaf("*".into(), None, before, glob.star_token.spans[0].start().line)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, outside, before, all)),
    }
}

impl Crate {
    /// A crate of these texts.
    ///
    /// # Errors
    /// A sentence, if they cannot be parsed.
    pub fn new(package: &str, directory: &str, dependencies: BTreeMap<String, String>, texts: &Texts) -> Result<Crate, String> {
        let tree = source::read(texts).map_err(|error| format!("{directory}/src: {error}"))?;
        let mut made = Crate {
            package: package.to_owned(),
            dependencies,
            scopes: tree.modules.iter().map(|_| Scope::default()).collect(),
            tree,
            defined: Vec::new(),
        };
        let modules = std::mem::take(&mut made.tree.modules);
        for (at, module) in modules.iter().enumerate() {
            for item in &module.items {
                made.define(at, item);
            }
        }
        made.tree.modules = modules;
        Ok(made)
    }

    fn define(&mut self, at: usize, item: &Item) {
        let mut variants = Vec::new();
        let (name, kind) = match item {
            Item::Const(item) => (&item.ident, Kind::Value),
            Item::Static(item) => (&item.ident, Kind::Value),
            Item::Fn(item) => (&item.sig.ident, Kind::Value),
            Item::Struct(item) => (&item.ident, Kind::Both),
            Item::Union(item) => (&item.ident, Kind::Type),
            Item::Trait(item) => (&item.ident, Kind::Type),
            Item::TraitAlias(item) => (&item.ident, Kind::Type),
            Item::Type(item) => (&item.ident, Kind::Type),
            Item::Enum(item) => {
                variants = item.variants.iter().map(|variant| word(&variant.ident)).collect();
                (&item.ident, Kind::Type)
            }
            Item::Macro(item) => {
                let Some(name) = &item.ident else {
                    self.scopes[at].makes = true;
                    return;
                };
                if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) && at != 0 {
                    let own = self.add(at, name, Kind::Macro, Vec::new());
                    self.scopes[0].defines.entry(word(name)).or_default().push(own);
                    return;
                }
                (name, Kind::Macro)
            }
            Item::ForeignMod(block) => {
                for item in &block.items {
                    match item {
                        syn::ForeignItem::Fn(item) => self.add(at, &item.sig.ident, Kind::Value, Vec::new()),
                        syn::ForeignItem::Static(item) => self.add(at, &item.ident, Kind::Value, Vec::new()),
                        syn::ForeignItem::Type(item) => self.add(at, &item.ident, Kind::Type, Vec::new()),
                        _ => continue,
                    };
                }
                return;
            }
            Item::Use(item) => {
                for leaf in leaves(item) {
                    let scope = &mut self.scopes[at];
                    match leaf.name.as_str() {
                        "_" => {}
                        "*" => scope.globs.push(leaf.import),
                        _ => scope.imports.entry(leaf.name).or_default().push(leaf.import),
                    }
                }
                return;
            }
            _ => return,
        };
        self.add(at, name, kind, variants);
    }

    fn add(&mut self, module: usize, name: &proc_macro2::Ident, kind: Kind, variants: Vec<String>) -> usize {
        let own = self.defined.len();
        let name = word(name);
        self.scopes[module].defines.entry(name.clone()).or_default().push(own);
        self.defined.push(Defined { name, module, kind, variants, abroad: BTreeMap::new() });
        own
    }

    /// The file that holds a module, below `src`.
    pub fn file_of(&self, module: usize) -> usize {
        self.tree.modules[module].file
    }
}

/// A path of the syntax tree as names.
pub fn import_of(path: &syn::Path) -> Import {
    Import { outside: path.leading_colon.is_some(), names: path.segments.iter().map(|segment| word(&segment.ident)).collect() }
}
