//! A crate's tree of modules as the compiler would see it, without what only tests see.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::spanned::Spanned;
use syn::{Attribute, Item};

/// The texts of a crate, by the path below its `src`.
pub type Texts = BTreeMap<String, String>;

/// One module: a file, or a part of a file between braces.
pub struct Module {
    /// The names that lead here from the crate's root; none for the root.
    pub path: Vec<String>,
    /// The module around it; `None` for the root.
    pub parent: Option<usize>,
    /// Which of the tree's files holds it.
    pub file: usize,
    /// What stands in it, without tests; modules among it stand in `children`.
    pub items: Vec<Item>,
    pub children: BTreeMap<String, usize>,
}

/// One file.
pub struct File {
    /// Below the crate's `src`.
    pub path: String,
    pub lines: usize,
    /// Of these, lines that only tests see.
    pub of_tests: usize,
}

/// A crate's modules; the first is its root.
#[derive(Default)]
pub struct Tree {
    pub modules: Vec<Module>,
    pub files: Vec<File>,
}

/// Reads the modules that the root `lib.rs`, or else `main.rs`, declares.
///
/// # Errors
/// A sentence that names the file that cannot be parsed or is missing.
pub fn read(texts: &Texts) -> Result<Tree, String> {
    let root = ["lib.rs", "main.rs"].into_iter().find(|root| texts.contains_key(*root));
    let root = root.ok_or("has neither src/lib.rs nor src/main.rs")?;
    let mut tree = Tree::default();
    read_file(&mut tree, texts, root, Vec::new(), None, "")?;
    Ok(tree)
}

/// `below` is the directory in which files of its child modules stand, with a slash at its end.
fn read_file(
    tree: &mut Tree,
    texts: &Texts,
    path: &str,
    names: Vec<String>,
    parent: Option<usize>,
    below: &str,
) -> Result<usize, String> {
    let text = &texts[path];
    let parsed = syn::parse_file(text).map_err(|error| format!("{path}:{}: {error}", error.span().start().line))?;
    let file = tree.files.len();
    tree.files.push(File { path: path.to_owned(), lines: text.lines().count(), of_tests: 0 });
    read_items(tree, texts, parsed.items, file, names, parent, below)
}

fn read_items(
    tree: &mut Tree,
    texts: &Texts,
    items: Vec<Item>,
    file: usize,
    names: Vec<String>,
    parent: Option<usize>,
    below: &str,
) -> Result<usize, String> {
    let this = tree.modules.len();
    tree.modules.push(Module { path: names.clone(), parent, file, items: Vec::new(), children: BTreeMap::new() });
    for item in items {
        if only_in_tests(attributes(&item)) {
            let span = item.span();
            tree.files[file].of_tests += span.end().line - span.start().line + 1;
            continue;
        }
        let Item::Mod(module) = item else {
            tree.modules[this].items.push(item);
            continue;
        };
        let name = word(&module.ident);
        let mut path = names.clone();
        path.push(name.clone());
        let inside = format!("{below}{name}/");
        let child = match module.content {
            Some((_, items)) => read_items(tree, texts, items, file, path, Some(this), &inside)?,
            None => {
                let of = &tree.files[file].path;
                let beside = of.rsplit_once('/').map_or("", |(directory, _)| directory);
                let places = match named_file(&module.attrs) {
                    Some(named) if beside.is_empty() => vec![named],
                    Some(named) => vec![format!("{beside}/{named}")],
                    None => vec![format!("{below}{name}.rs"), format!("{below}{name}/mod.rs")],
                };
                let found = places.into_iter().find(|place| texts.contains_key(place));
                let found = found.ok_or_else(|| format!("{of}: the file of `mod {name}` is missing"))?;
                read_file(tree, texts, &found, path, Some(this), &inside)?
            }
        };
        tree.modules[this].children.insert(name, child);
    }
    Ok(this)
}

/// An identifier without `r#`.
pub fn word(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map(str::to_owned).unwrap_or(text)
}

fn named_file(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
    Some(text.value())
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether what has these attributes is compiled for tests alone.
pub fn only_in_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(list) if holds_without_tests(&list.tokens) == Some(false))
    })
}

/// What a `cfg` predicate is where `test` is false; `None`: that depends on something else.
fn holds_without_tests(predicate: &TokenStream) -> Option<bool> {
    let tokens: Vec<TokenTree> = predicate.clone().into_iter().collect();
    match &tokens[..] {
        [TokenTree::Ident(name)] if name == "test" => Some(false),
        [TokenTree::Ident(name), TokenTree::Group(group)] => {
            let parts = split_at_commas(group.stream());
            let answers: Vec<Option<bool>> = parts.iter().map(holds_without_tests).collect();
            match name.to_string().as_str() {
                "not" => answers.first().copied().flatten().map(|answer| !answer),
                "all" if answers.contains(&Some(false)) => Some(false),
                "all" if answers.iter().all(|answer| *answer == Some(true)) => Some(true),
                "any" if answers.contains(&Some(true)) => Some(true),
                "any" if answers.iter().all(|answer| *answer == Some(false)) => Some(false),
                _ => None,
            }
        }
        _ => None,
    }
}

fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ',' => parts.push(Vec::new()),
            token => parts.last_mut().expect("never empty").push(token),
        }
    }
    parts.into_iter().filter(|part| !part.is_empty()).map(|part| part.into_iter().collect()).collect()
}
