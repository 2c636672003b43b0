//! Documents that follow from tables in the code: the coverage of calls, the options, and the reasons.
//!
//! ```text
//! cargo run -p shunt-xtask              writes those that are stale
//! cargo run -p shunt-xtask -- --check   only says which are, with exit status 1
//! cargo run -p shunt-xtask -- --figures target/demo/demo.txt
//!                                       puts the table of a measured run into docs/reference/MEASURED.md; so does
//!                                       target/applications/applications.txt
//! cargo run -p shunt-xtask -- layers    which room of a crate takes names from which other, see `layers`
//! ```
//!
//! The same check is a test, so a table and its document cannot part. This crate owns the form of the documents; what
//! they say belongs to `shunt-calls`, `shunt-config` and `shunt-segment`.

mod coverage;
mod document;
mod layers;
mod manual;
mod options;
mod prose;
mod reasons;
#[allow(dead_code)] // the functions in Rust are build.rs's
#[path = "../../shmem/table.rs"]
mod shmem;
mod tour;

use document::Document;
use std::process::ExitCode;

fn documents() -> Vec<Document> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manual = |page: &manual::Page| {
        let text = std::fs::read_to_string(root.join(page.header)).unwrap_or_default();
        Document::whole(page.path, manual::render(page, &text))
    };
    let mut documents = vec![
        Document::whole("docs/reference/COVERAGE.md", coverage::render()),
        Document::whole("docs/reference/OPTIONS.md", options::render()),
        Document::whole("crates/shmem/include/shmem.h", shmem::header()),
        Document::part("docs/reference/REASONS.md", "reasons", reasons::render()),
        Document::part("docs/reference/REASONS.md", "limits", reasons::limits()),
        Document::part("docs/reference/REASONS.md", "sunrpc", reasons::sunrpc()),
    ];
    documents.extend(manual::PAGES.iter().map(manual));
    documents
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => bring_up_to_date(false),
        ["--check"] => bring_up_to_date(true),
        ["--figures", table] => figures(table),
        ["layers", ref words @ ..] => layers::main(words),
        _ => {
            eprintln!("usage: xtask [layers ... | --check | --figures target/demo/demo.txt]");
            ExitCode::from(2)
        }
    }
}

/// Writes every stale document, or with `check` only names it.
fn bring_up_to_date(check: bool) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for document in documents() {
        let outcome = match (document.is_fresh(), check) {
            (Ok(true), _) => continue,
            (Ok(false), true) => Err("is stale; run: cargo run -p shunt-xtask".to_owned()),
            (Ok(false), false) => document.write(),
            (Err(error), _) => Err(error),
        };
        tell(&document, outcome, &mut status);
    }
    status
}

/// Puts the table that `shunt bench demo` or `shunt bench applications` wrote into docs/reference/MEASURED.md. It is measured, so no test can say
/// that it is stale.
fn figures(table: &str) -> ExitCode {
    let text = match std::fs::read_to_string(table) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("xtask: {table}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let of_applications = std::path::Path::new(table).file_stem().is_some_and(|stem| stem == "applications");
    let part = if of_applications { "applications" } else { "figures" };
    let document = Document::part("docs/reference/MEASURED.md", part, format!("```text\n{}\n```\n", text.trim_end()));
    let mut status = ExitCode::SUCCESS;
    let outcome = document.write();
    tell(&document, outcome, &mut status);
    status
}

fn tell(document: &Document, outcome: Result<(), String>, status: &mut ExitCode) {
    match outcome {
        Ok(()) => println!("xtask: wrote {}", document.path),
        Err(error) => {
            eprintln!("xtask: {}: {error}", document.path);
            *status = ExitCode::FAILURE;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_document_follows_its_table() {
        for document in super::documents() {
            let fresh = document.is_fresh().unwrap_or_else(|error| panic!("{}: {error}", document.path));
            assert!(fresh, "{} is stale; run: cargo run -p shunt-xtask", document.path);
        }
    }
}
