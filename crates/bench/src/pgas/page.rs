//! The page of a run everywhere: pictures and tables of one host, and of two over each device.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Heading, and what is behind the names of the files.
const PLACES: [(&str, &str); 3] = [("One host", ""), ("Two hosts, UDP", "-udp"), ("Two hosts, AF_XDP", "-xdp")];

const HEAD: &str = "# The global address space, measured

Written by `shunt bench pgas --with-oshmem --everywhere`, or by that of each place, which its table names; [BENCHMARKS](../../../BENCHMARKS.md#other-hosts) says what is measured, and how the columns of
CM-5, CS-2 and U-Net are modelled. Hosts are network namespaces of one machine, so that ranks and keepers of two hosts share its processors.
";

/// Writes README.md if there is a table of each place.
///
/// # Errors
/// In words.
pub fn write(output: &Path) -> Result<(), String> {
    if PLACES.iter().any(|(_, suffix)| !output.join(format!("pgas{suffix}.txt")).exists()) {
        return Ok(());
    }
    let mut text = HEAD.to_owned();
    for (place, suffix) in PLACES {
        let name = format!("pgas{suffix}.txt");
        let table = fs::read_to_string(output.join(&name)).map_err(|error| format!("{name}: {error}"))?;
        let _ = write!(text, "\n## {place}\n");
        for picture in ["figure5", "figure5-machines"].map(|picture| format!("{picture}{suffix}.svg")) {
            if output.join(&picture).exists() {
                let _ = write!(text, "\n![{picture}]({picture})\n");
            }
        }
        let _ = write!(text, "\n```text\n{}\n```\n", table.trim_end());
    }
    super::write(output, "README.md", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_table_and_the_pictures_that_there_are() {
        let output = std::env::temp_dir().join(format!("shunt-bench-page-{}", std::process::id()));
        let file = |name: &str, text: &str| super::super::write(&output, name, text).unwrap();
        file("pgas.txt", "one\n");
        file("pgas-udp.txt", "two\n");
        write(&output).unwrap();
        let is_early = output.join("README.md").exists();
        file("pgas-xdp.txt", "three\n");
        file("figure5-udp.svg", "");
        write(&output).unwrap();
        let page = fs::read_to_string(output.join("README.md")).unwrap();
        fs::remove_dir_all(&output).unwrap();
        assert!(!is_early);
        assert!(
            page.contains("```text\none\n```") && page.contains("![figure5-udp.svg](figure5-udp.svg)\n\n```text\ntwo\n```"),
            "{page}"
        );
        assert!(!page.contains("figure5-xdp.svg") && page.ends_with("three\n```\n"), "{page}");
    }
}
