//! Tables for terminals: columns as wide as their widest cell.

/// The rows, with `heading` above them; the last column is not padded.
pub fn text_table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    let heading: Vec<String> = heading.iter().map(|cell| cell.to_string()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Bytes in the unit that leaves few digits: `512`, `64K`, `3.2M`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // 1023.95 would be printed as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 { format!("{value}") } else { format!("{value:.1}") };
    format!("{}{}", digits.strip_suffix(".0").unwrap_or(&digits), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".into(), "long cell".into(), "x".into()], vec!["bb".into(), "µ".into(), "".into()]];
        assert_eq!(text_table(&["A", "B", "C"], &rows), "A   B          C\na   long cell  x\nbb  µ\n");
    }

    #[test]
    fn bytes() {
        let texts = [(0, "0"), (1023, "1023"), (1024, "1K"), (1536, "1.5K"), (1 << 20, "1M"), ((1 << 20) - 1, "1M")];
        for (bytes, text) in texts {
            assert_eq!(bytes_text(bytes), text);
        }
        assert_eq!(bytes_text(u64::MAX), "16384P");
    }
}
