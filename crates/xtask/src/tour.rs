//! Stops of docs/TOUR.md lead to functions.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
    }

    /// What stands between backquotes.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    #[test]
    fn each_stop_of_the_tour_is_a_function_of_that_file() {
        let text = fs::read_to_string(root().join("docs/TOUR.md")).unwrap();
        let mut stops = 0;
        for stop in quoted(&text).filter(|word| word.contains(".rs")) {
            let (file, function) = stop.split_once("::").map_or((stop, None), |(file, function)| (file, Some(function)));
            let code = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{stop}: {error}"));
            if let Some(function) = function {
                let named = [format!("fn {function}("), format!("fn {function}<")];
                assert!(named.iter().any(|name| code.contains(name)), "{stop}: no such function");
                stops += 1;
            }
        }
        assert!(stops > 40, "only {stops} stops");
    }
}
