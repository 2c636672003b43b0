//! Where a file names what stands elsewhere.

use super::names::{import_of, leaves, Import, Space};
use super::paths::{Block, Target, World};
use super::source::{attributes, only_in_tests, word};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::Item;

/// One place at which a name is used.
pub struct Reference {
    pub file: usize,
    /// The item around it: a function, a type, `Type::method`; empty where a `use` stands by itself.
    pub within: String,
    pub line: usize,
    pub target: Target,
}

/// All that a crate's files name, and what they keep.
#[derive(Default)]
pub struct Found {
    pub references: Vec<Reference>,
    /// Files and lines of `static` items.
    pub statics: Vec<(usize, usize, String)>,
    /// Calls of methods: file, item around them, line and name.
    pub calls: Vec<(usize, String, usize, String)>,
    /// Definitions of methods in `impl` and `trait` blocks: name, file, `Type::method`.
    pub methods: Vec<(String, usize, String)>,
}

/// Reads what the files of a crate name.
pub fn find(world: &World, package: usize) -> Found {
    let mut found = Found::default();
    for (at, module) in world.crates[package].tree.modules.iter().enumerate() {
        let mut walk = Walk {
            world,
            package,
            at,
            file: module.file,
            within: String::new(),
            depth: 0,
            bound: BTreeSet::new(),
            blocks: Vec::new(),
            found: &mut found,
            imported: Vec::new(),
        };
        for item in &module.items {
            walk.visit_item(item);
        }
        walk.keep_imports();
    }
    drop_modules_on_the_way(world, &mut found);
    found
}

/// A module that a file names only to reach what is in it is no name of its own.
fn drop_modules_on_the_way(world: &World, found: &mut Found) {
    let mut reached = BTreeSet::new();
    for reference in &found.references {
        let (package, mut module) = match &reference.target {
            Target::Module { package, module } => (*package, world.crates[*package].tree.modules[*module].parent),
            Target::Made { package, module, .. } => (*package, Some(*module)),
            Target::Item { package, item } | Target::Method { package, item, .. } => {
                (*package, Some(world.crates[*package].defined[*item].module))
            }
        };
        while let Some(at) = module {
            reached.insert((reference.file, package, at));
            module = world.crates[package].tree.modules[at].parent;
        }
    }
    found.references.retain(|reference| match reference.target {
        Target::Module { package, module } => !reached.contains(&(reference.file, package, module)),
        _ => true,
    });
}

struct Walk<'a> {
    world: &'a World,
    package: usize,
    at: usize,
    file: usize,
    within: String,
    /// How many items are around what is visited.
    depth: usize,
    /// Names of variables in the function around what is visited.
    bound: BTreeSet<String>,
    blocks: Vec<Block>,
    found: &'a mut Found,
    imported: Vec<(usize, String, Target)>,
}

impl Walk<'_> {
    fn note(&mut self, path: &Import, space: Space, line: usize) {
        if let ([name], false) = (&path.names[..], path.outside) {
            if self.bound.contains(name) && matches!(space, Space::Values | Space::Any) {
                return;
            }
        }
        for target in self.world.resolve(self.package, self.at, path, space, &self.blocks) {
            self.add(target, line);
        }
    }

    fn add(&mut self, target: Target, line: usize) {
        if self.world.place(&target) != (self.package, self.file) {
            self.found.references.push(Reference { file: self.file, within: self.within.clone(), line, target });
        }
    }

    /// A `use` counts for itself only if nothing in its file uses what it names: re-exports, and uses that this reader cannot see.
    fn keep_imports(&mut self) {
        let seen: BTreeSet<Target> = self
            .found
            .references
            .iter()
            .filter(|reference| reference.file == self.file)
            .map(|reference| reference.target.clone())
            .collect();
        for (line, within, target) in std::mem::take(&mut self.imported) {
            let covered = match &target {
                // The method of a type that is named brings the type along.
                Target::Item { package, item } => {
                    seen.contains(&target)
                        || seen
                            .iter()
                            .any(|other| matches!(other, Target::Method { package: p, item: i, .. } if p == package && i == item))
                }
                _ => seen.contains(&target),
            };
            if !covered {
                self.within = within;
                self.add(target, line);
            }
        }
    }

    fn import(&mut self, item: &syn::ItemUse) {
        for leaf in leaves(item) {
            for target in self.world.resolve(self.package, self.at, &leaf.import, Space::Any, &[]) {
                self.imported.push((leaf.line, self.within.clone(), target));
            }
        }
    }

    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.within, name);
        visit(self);
        self.within = before;
    }

    /// Paths among the tokens of a macro's call or rules.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mark = |at: usize, mark: char| matches!(tokens.get(at), Some(TokenTree::Punct(found)) if found.as_char() == mark);
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) if !(at > 0 && mark(at - 1, '\'')) => {
                    let field = at > 0 && mark(at - 1, '.') && !(at > 1 && mark(at - 2, '.'));
                    if first == "static" {
                        self.static_among_tokens(&tokens[at + 1..]);
                    }
                    let outside = at > 1 && mark(at - 1, ':') && mark(at - 2, ':');
                    let mut names = vec![word(first)];
                    while mark(at + 1, ':') && mark(at + 2, ':') {
                        let Some(TokenTree::Ident(next)) = tokens.get(at + 3) else { break };
                        names.push(word(next));
                        at += 3;
                    }
                    let called = mark(at + 1, '!');
                    let line = first.span().start().line;
                    // A word by itself may be anything; only what the module names is taken for a path.
                    let alone = names.len() == 1 && !self.world.names_itself(self.package, self.at, &names[0]);
                    let space = if called { Space::Macros } else { Space::Any };
                    if field {
                        self.found.calls.push((self.file, self.within.clone(), line, names.remove(0)));
                    } else if !alone {
                        self.note(&Import { outside, names }, space, line);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn static_among_tokens(&mut self, after: &[TokenTree]) {
        let mut after =
            after.iter().skip_while(|token| matches!(token, TokenTree::Ident(word) if word == "mut" || word == "ref"));
        let name = match after.next() {
            Some(TokenTree::Ident(name)) => name,
            // `static $name: ...` in a macro's rules.
            Some(TokenTree::Punct(mark)) if mark.as_char() == '$' => match after.next() {
                Some(TokenTree::Ident(name)) => name,
                _ => return,
            },
            _ => return,
        };
        if matches!(after.next(), Some(TokenTree::Punct(mark)) if mark.as_char() == ':') {
            self.found.statics.push((self.file, name.span().start().line, name.to_string()));
        }
    }

    fn function(&mut self, signature: &syn::Signature, body: Option<&syn::Block>, visit: impl FnOnce(&mut Self)) {
        let outer = self.bound.clone();
        let mut names = Bound(BTreeSet::new());
        names.visit_signature(signature);
        if let Some(body) = body {
            names.visit_block(body);
        }
        self.bound.extend(names.0);
        visit(self);
        self.bound = outer;
    }

    fn method(&mut self, owner: &str, name: &str) -> String {
        let whole = if owner.is_empty() { name.to_owned() } else { format!("{owner}::{name}") };
        self.found.methods.push((name.to_owned(), self.file, whole.clone()));
        whole
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if only_in_tests(attributes(item)) {
            return;
        }
        let name = match item {
            Item::Use(item) => return self.import(item),
            Item::Const(item) => word(&item.ident),
            Item::Static(item) => {
                self.found.statics.push((self.file, item.ident.span().start().line, word(&item.ident)));
                word(&item.ident)
            }
            Item::Fn(item) => word(&item.sig.ident),
            Item::Struct(item) => word(&item.ident),
            Item::Union(item) => word(&item.ident),
            Item::Enum(item) => word(&item.ident),
            Item::Trait(item) => word(&item.ident),
            Item::Type(item) => word(&item.ident),
            Item::Macro(item) => item.ident.as_ref().map(word).unwrap_or_default(),
            Item::Impl(item) => match &*item.self_ty {
                syn::Type::Path(path) => path.path.segments.last().map(|last| word(&last.ident)).unwrap_or_default(),
                _ => String::new(),
            },
            _ => String::new(),
        };
        self.depth += 1;
        if self.depth == 1 {
            self.inside(name, |walk| visit::visit_item(walk, item));
        } else {
            visit::visit_item(self, item);
        }
        self.depth -= 1;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, Some(&item.block), |walk| visit::visit_item_fn(walk, item));
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let of_tests = match item {
            syn::ImplItem::Fn(item) => only_in_tests(&item.attrs),
            syn::ImplItem::Const(item) => only_in_tests(&item.attrs),
            syn::ImplItem::Type(item) => only_in_tests(&item.attrs),
            _ => false,
        };
        if !of_tests {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let before = self.found.methods.len();
        visit::visit_item_impl(self, item);
        // Methods of traits stand with the trait.
        if item.trait_.is_some() {
            self.found.methods.truncate(before);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let owner = self.within.clone();
        let name = self.method(&owner, &word(&item.sig.ident));
        self.inside(name, |walk| walk.function(&item.sig, Some(&item.block), |walk| visit::visit_impl_item_fn(walk, item)));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let owner = self.within.clone();
        self.method(&owner, &word(&item.sig.ident));
        self.function(&item.sig, item.default.as_ref(), |walk| visit::visit_trait_item_fn(walk, item));
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !only_in_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !only_in_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let mut own: Block = (BTreeMap::new(), Vec::new());
        for statement in &block.stmts {
            match statement {
                syn::Stmt::Item(Item::Use(item)) => {
                    for leaf in leaves(item) {
                        match leaf.name.as_str() {
                            "*" => own.1.push(leaf.import),
                            _ => drop(own.0.insert(leaf.name, Some(leaf.import))),
                        }
                    }
                }
                syn::Stmt::Item(Item::Fn(item)) => drop(own.0.insert(word(&item.sig.ident), None)),
                syn::Stmt::Item(Item::Const(item)) => drop(own.0.insert(word(&item.ident), None)),
                syn::Stmt::Item(Item::Static(item)) => drop(own.0.insert(word(&item.ident), None)),
                syn::Stmt::Item(Item::Struct(item)) => drop(own.0.insert(word(&item.ident), None)),
                syn::Stmt::Item(Item::Enum(item)) => drop(own.0.insert(word(&item.ident), None)),
                _ => {}
            }
        }
        self.blocks.push(own);
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let line = path.path.segments.first().map_or(0, |first| first.ident.span().start().line);
        self.note(&import_of(&path.path), Space::Values, line);
        if let Some(of) = &path.qself {
            self.visit_qself(of);
        }
        path.path.segments.iter().for_each(|segment| self.visit_path_arguments(&segment.arguments));
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        let line = path.path.segments.first().map_or(0, |first| first.ident.span().start().line);
        self.note(&import_of(&path.path), Space::Types, line);
        if let Some(of) = &path.qself {
            self.visit_qself(of);
        }
        path.path.segments.iter().for_each(|segment| self.visit_path_arguments(&segment.arguments));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.segments.first().map_or(0, |first| first.ident.span().start().line);
        self.note(&import_of(path), Space::Any, line);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.found.calls.push((self.file, self.within.clone(), call.method.span().start().line, word(&call.method)));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let line = call.path.segments.first().map_or(0, |first| first.ident.span().start().line);
        self.note(&import_of(&call.path), Space::Macros, line);
        self.tokens(call.tokens.clone());
    }

    // What is visible where, and what is derived, is no use of anything.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Names of variables.
struct Bound(BTreeSet<String>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = word(&pattern.ident);
        // A constant in a pattern looks like a variable.
        if name.starts_with(|first: char| first.is_lowercase() || first == '_') {
            self.0.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }
}
