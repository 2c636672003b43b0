//! What a path means: the names that modules define and import, and a path followed to the file that defines its end.

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
    scopes: Vec<Scope>,
    pub defined: Vec<Defined>,
}

/// A module's names.
#[derive(Default)]
pub struct Scope {
    defines: BTreeMap<String, Vec<usize>>,
    imports: BTreeMap<String, Vec<Import>>,
    globs: Vec<Import>,
}

/// An item with a name.
pub struct Defined {
    pub name: String,
    pub module: usize,
    kind: Kind,
    /// An enum's variants, which a glob may import.
    variants: Vec<String>,
    /// Methods of `impl` blocks in other files than the item's own, and in which.
    abroad: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
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
    fn has(self, kind: Kind) -> bool {
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

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Module {
        package: usize,
        module: usize,
    },
    Item {
        package: usize,
        item: usize,
    },
    /// A method that stands in another file than its type.
    Method {
        package: usize,
        item: usize,
        name: String,
        file: usize,
    },
}

/// All crates that are looked at.
#[derive(Default)]
pub struct World {
    pub crates: Vec<Crate>,
}

/// A name that is being looked up in a module of a crate: asked for again on the way, it leads nowhere.
type Question = (usize, usize, Space, String);

/// The names that a block of a function makes: leaves of its `use` items, and `None` for its own items.
pub type Block = (BTreeMap<String, Option<Import>>, Vec<Import>);

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
                let Some(name) = &item.ident else { return };
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

impl World {
    /// Adds a crate. Crates whose names its paths begin with may come before or after it.
    pub fn add(&mut self, made: Crate) {
        self.crates.push(made);
    }

    /// Notes which methods stand in other files than their types; call it when all crates are there.
    pub fn place_methods(&mut self) {
        for package in 0..self.crates.len() {
            let mut found = Vec::new();
            let of = &self.crates[package];
            for (at, module) in of.tree.modules.iter().enumerate() {
                for item in &module.items {
                    let Item::Impl(block) = item else { continue };
                    if block.trait_.is_some() {
                        continue;
                    }
                    let syn::Type::Path(path) = &*block.self_ty else { continue };
                    let import = import_of(&path.path);
                    for target in self.resolve(package, at, &import, Space::Types, &[]) {
                        let Target::Item { package: owner, item } = target else { continue };
                        if owner != package || of.file_of(of.defined[item].module) == module.file {
                            continue;
                        }
                        found.extend(block.items.iter().filter_map(|inner| {
                            let name = match inner {
                                syn::ImplItem::Fn(inner) => &inner.sig.ident,
                                syn::ImplItem::Const(inner) => &inner.ident,
                                _ => return None,
                            };
                            Some((item, word(name), module.file))
                        }));
                    }
                }
            }
            for (item, name, file) in found {
                self.crates[package].defined[item].abroad.insert(name, file);
            }
        }
    }

    /// What a path in a module leads to, with the names that blocks around it make (the innermost last). Nothing: to
    /// no crate of this repository.
    pub fn resolve(&self, package: usize, at: usize, path: &Import, space: Space, blocks: &[Block]) -> Vec<Target> {
        let mut found = self.follow(package, at, path, space, blocks, &mut Vec::new());
        if found.iter().any(|target| !matches!(target, Target::Module { .. })) {
            found.retain(|target| !matches!(target, Target::Module { .. }));
        }
        found.sort();
        found.dedup();
        found
    }

    fn follow(
        &self,
        package: usize,
        at: usize,
        path: &Import,
        space: Space,
        blocks: &[Block],
        busy: &mut Vec<Question>,
    ) -> Vec<Target> {
        let Some(first) = path.names.first() else { return Vec::new() };
        let only = if path.names.len() == 1 { space } else { Space::Types };
        let mut rest = &path.names[1..];
        let mut current = match first.as_str() {
            _ if path.outside => self.named_crate(package, first),
            "crate" | "$crate" => vec![Target::Module { package, module: 0 }],
            "self" => vec![Target::Module { package, module: at }],
            "super" => {
                let mut module = self.crates[package].tree.modules[at].parent;
                while rest.first().is_some_and(|name| name == "super") {
                    module = module.and_then(|module| self.crates[package].tree.modules[module].parent);
                    rest = &rest[1..];
                }
                module.map(|module| Target::Module { package, module }).into_iter().collect()
            }
            _ => self.first_name(package, at, first, only, blocks, busy),
        };
        for (index, name) in rest.iter().enumerate() {
            let space = if index + 1 == rest.len() { space } else { Space::Types };
            current = current.into_iter().flat_map(|target| self.step(target, name, space, busy)).collect();
        }
        current
    }

    fn first_name(
        &self,
        package: usize,
        at: usize,
        name: &str,
        space: Space,
        blocks: &[Block],
        busy: &mut Vec<Question>,
    ) -> Vec<Target> {
        for (depth, (named, globs)) in blocks.iter().enumerate().rev() {
            match named.get(name) {
                Some(None) => return Vec::new(),
                Some(Some(import)) => {
                    // A block's import of a name by itself (`use a::a`) must not be asked for itself again.
                    return self.follow(package, at, import, space, &blocks[..depth], busy);
                }
                None => {}
            }
            for glob in globs {
                let modules = self.follow(package, at, glob, Space::Types, &blocks[..depth], busy);
                let found: Vec<Target> = modules.into_iter().flat_map(|target| self.step(target, name, space, busy)).collect();
                if !found.is_empty() {
                    return found;
                }
            }
        }
        let found = self.look_up(package, at, name, space, busy);
        if found.is_empty() && matches!(space, Space::Types | Space::Any) {
            return self.named_crate(package, name);
        }
        found
    }

    fn named_crate(&self, package: usize, name: &str) -> Vec<Target> {
        let Some(of) = self.crates[package].dependencies.get(name) else { return Vec::new() };
        let found = self.crates.iter().position(|candidate| candidate.package == *of);
        found.map(|package| Target::Module { package, module: 0 }).into_iter().collect()
    }

    /// One name further. What follows a type is a part of it, unless it is a method that stands elsewhere.
    fn step(&self, from: Target, name: &str, space: Space, busy: &mut Vec<Question>) -> Vec<Target> {
        match from {
            Target::Module { package, module } => self.look_up(package, module, name, space, busy),
            Target::Item { package, item } => match self.crates[package].defined[item].abroad.get(name) {
                Some(file) => vec![Target::Method { package, item, name: name.to_owned(), file: *file }],
                None => vec![Target::Item { package, item }],
            },
            method => vec![method],
        }
    }

    /// A name in a module: its own first, then its imports, then what its globs bring.
    fn look_up(&self, package: usize, at: usize, name: &str, space: Space, busy: &mut Vec<Question>) -> Vec<Target> {
        let asked = (package, at, space, name.to_owned());
        if busy.contains(&asked) {
            return Vec::new();
        }
        let of = &self.crates[package];
        let scope = &of.scopes[at];
        let mut found = Vec::new();
        if let (Space::Types | Space::Any, Some(module)) = (space, of.tree.modules[at].children.get(name)) {
            found.push(Target::Module { package, module: *module });
        }
        let own = scope.defines.get(name).into_iter().flatten();
        found.extend(own.filter(|item| space.has(of.defined[**item].kind)).map(|item| Target::Item { package, item: *item }));
        busy.push(asked);
        for import in scope.imports.get(name).into_iter().flatten() {
            found.extend(self.follow(package, at, import, space, &[], busy));
        }
        if found.is_empty() {
            for glob in &scope.globs {
                for target in self.follow(package, at, glob, Space::Types, &[], busy) {
                    match target {
                        Target::Module { package, module } => found.extend(self.look_up(package, module, name, space, busy)),
                        Target::Item { package, item }
                            if self.crates[package].defined[item].variants.iter().any(|variant| variant == name) =>
                        {
                            found.push(Target::Item { package, item });
                        }
                        _ => {}
                    }
                }
            }
        }
        busy.pop();
        found
    }

    /// The methods that stand in other files than their types, and those files.
    pub fn methods_abroad(&self, package: usize) -> Vec<(Target, usize)> {
        let all = self.crates[package].defined.iter().enumerate();
        all.flat_map(|(item, defined)| {
            defined
                .abroad
                .iter()
                .map(move |(name, file)| (Target::Method { package, item, name: name.clone(), file: *file }, *file))
        })
        .collect()
    }

    /// Whether a module has this name otherwise than by a glob or not at all.
    pub fn names_itself(&self, package: usize, at: usize, name: &str) -> bool {
        let of = &self.crates[package];
        let scope = &of.scopes[at];
        scope.imports.contains_key(name) || scope.defines.contains_key(name) || of.tree.modules[at].children.contains_key(name)
    }

    /// The crate and the file in which a target stands.
    pub fn place(&self, target: &Target) -> (usize, usize) {
        match target {
            Target::Module { package, module } => (*package, self.crates[*package].file_of(*module)),
            Target::Item { package, item } => {
                (*package, self.crates[*package].file_of(self.crates[*package].defined[*item].module))
            }
            Target::Method { package, file, .. } => (*package, *file),
        }
    }

    /// A target's whole name below its crate, as `remote::near::kick`.
    pub fn name(&self, target: &Target) -> String {
        let with = |package: usize, module: usize, more: &[&str]| {
            let path = &self.crates[package].tree.modules[module].path;
            let all: Vec<&str> = path.iter().map(String::as_str).chain(more.iter().copied()).collect();
            all.join("::")
        };
        match target {
            Target::Module { package, module: 0 } => with(*package, 0, &["crate"]),
            Target::Module { package, module } => with(*package, *module, &[]),
            Target::Item { package, item } | Target::Method { package, item, .. } => {
                let defined = &self.crates[*package].defined[*item];
                match target {
                    Target::Method { name, .. } => with(*package, defined.module, &[&defined.name, name]),
                    _ => with(*package, defined.module, &[&defined.name]),
                }
            }
        }
    }

    /// The name of a target within its file, as an assignment of single items writes it.
    pub fn short_name(&self, target: &Target) -> String {
        match target {
            Target::Module { .. } => String::new(),
            Target::Item { package, item } => self.crates[*package].defined[*item].name.clone(),
            Target::Method { package, item, name, .. } => format!("{}::{name}", self.crates[*package].defined[*item].name),
        }
    }
}

/// A path of the syntax tree as names.
pub fn import_of(path: &syn::Path) -> Import {
    Import { outside: path.leading_colon.is_some(), names: path.segments.iter().map(|segment| word(&segment.ident)).collect() }
}
