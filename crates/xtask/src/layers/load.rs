//! The repository's crates, as far as those that are asked for need them.

use super::names::Crate;
use super::paths::World;
use super::source::Texts;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A manifest that matters here.
struct Manifest {
    directory: String,
    /// The name in sources, and the package.
    dependencies: BTreeMap<String, String>,
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Reads the crates of these packages and those that they depend on.
///
/// # Errors
/// A sentence that names the file.
pub fn world(packages: &[String]) -> Result<World, String> {
    let manifests = manifests()?;
    let mut world = World::default();
    let mut wanted: Vec<String> = packages.to_vec();
    let mut at = 0;
    while at < wanted.len() {
        let package = wanted[at].clone();
        let manifest =
            manifests.get(&package).ok_or_else(|| format!("there is no package `{package}` in crates/* or preload"))?;
        for dependency in manifest.dependencies.values() {
            if !wanted.contains(dependency) {
                wanted.push(dependency.clone());
            }
        }
        let texts = texts(&root().join(&manifest.directory).join("src"))?;
        world.add(Crate::new(&package, &manifest.directory, manifest.dependencies.clone(), &texts)?);
        at += 1;
    }
    world.place_methods();
    Ok(world)
}

/// The names of all packages.
///
/// # Errors
/// A sentence that names the file.
pub fn packages() -> Result<Vec<String>, String> {
    Ok(manifests()?.into_keys().collect())
}

fn manifests() -> Result<BTreeMap<String, Manifest>, String> {
    let mut directories = vec!["preload".to_owned()];
    let all = std::fs::read_dir(root().join("crates")).map_err(|error| format!("crates: {error}"))?;
    directories.extend(all.flatten().map(|entry| format!("crates/{}", entry.file_name().to_string_lossy())));
    let mut found = BTreeMap::new();
    for directory in directories {
        let path = root().join(&directory).join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let table: toml::Table = toml::from_str(&text).map_err(|error| format!("{directory}/Cargo.toml: {error}"))?;
        let Some(package) = table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str) else {
            continue;
        };
        let mut dependencies = BTreeMap::new();
        let listed = table.get("dependencies").and_then(toml::Value::as_table).into_iter().flatten();
        for (name, dependency) in listed {
            if dependency.get("path").is_some() {
                let package = dependency.get("package").and_then(toml::Value::as_str).unwrap_or(name);
                dependencies.insert(name.replace('-', "_"), package.to_owned());
            }
        }
        found.insert(package.to_owned(), Manifest { directory, dependencies });
    }
    Ok(found)
}

fn texts(source: &Path) -> Result<Texts, String> {
    let mut texts = Texts::new();
    let mut ahead = vec![source.to_owned()];
    while let Some(directory) = ahead.pop() {
        let all = std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in all.flatten() {
            let path = entry.path();
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let below = path.strip_prefix(source).expect("below its directory").to_string_lossy().into_owned();
                texts.insert(below, text);
            }
        }
    }
    Ok(texts)
}
