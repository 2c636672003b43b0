//! Documents that follow from tables in the code: the coverage of calls, the options, and the reasons in the README.
//!
//! ```text
//! cargo run -p shunt-xtask              writes those that are stale
//! cargo run -p shunt-xtask -- --check   only says which are, with exit status 1
//! ```
//!
//! The same check is a test, so a table and its document cannot part. This crate owns the form of the documents; what
//! they say belongs to `shunt-calls`, `shunt-options` and `shunt-segment`.

mod coverage;
mod document;
mod options;
mod reasons;

use document::Document;
use std::process::ExitCode;

fn documents() -> Vec<Document> {
    vec![
        Document::whole("docs/COVERAGE.md", coverage::render()),
        Document::whole("docs/OPTIONS.md", options::render()),
        Document::part("README.md", "reasons", reasons::render()),
    ]
}

fn main() -> ExitCode {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            eprintln!("xtask: {other} is not an argument; --check is the only one");
            return ExitCode::from(2);
        }
    };
    let mut status = ExitCode::SUCCESS;
    for document in documents() {
        let outcome = match (document.is_fresh(), check) {
            (Ok(true), _) => continue,
            (Ok(false), true) => Err("is stale; run: cargo run -p shunt-xtask".to_owned()),
            (Ok(false), false) => document.write(),
            (Err(error), _) => Err(error),
        };
        match outcome {
            Ok(()) => println!("xtask: wrote {}", document.path),
            Err(error) => {
                eprintln!("xtask: {}: {error}", document.path);
                status = ExitCode::FAILURE;
            }
        }
    }
    status
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
