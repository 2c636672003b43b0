//! A path followed to what it leads to, through re-exports, globs and other crates.

use super::names::{import_of, Crate, Import, Space};
use super::source::word;
use std::collections::BTreeMap;
use syn::Item;

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
    /// What a macro's call in a module seems to make, as no item there has this name.
    Made {
        package: usize,
        module: usize,
        name: String,
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
            Target::Module { package, module } => {
                let found = self.look_up(package, module, name, space, busy);
                if found.is_empty() && self.crates[package].scopes[module].makes {
                    return vec![Target::Made { package, module, name: name.to_owned() }];
                }
                found
            }
            Target::Item { package, item } => match self.crates[package].defined[item].abroad.get(name) {
                Some(file) => vec![Target::Method { package, item, name: name.to_owned(), file: *file }],
                None => vec![Target::Item { package, item }],
            },
            whole => vec![whole],
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
            Target::Module { package, module } | Target::Made { package, module, .. } => {
                (*package, self.crates[*package].file_of(*module))
            }
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
            Target::Made { package, module, name } => with(*package, *module, &[name]),
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
            Target::Made { name, .. } => name.clone(),
            Target::Item { package, item } => self.crates[*package].defined[*item].name.clone(),
            Target::Method { package, item, name, .. } => format!("{}::{name}", self.crates[*package].defined[*item].name),
        }
    }
}
