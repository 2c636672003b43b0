//! The text formats of OpenMetrics and of Prometheus.
use std::fmt::Write;

/// What a family's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They go up and down.
    Gauge,
    /// They only grow.
    Counter,
}

/// Samples of one name.
#[derive(Debug)]
pub struct Family {
    /// Without the suffix that the kind asks for.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// A sentence.
    pub help: &'static str,
    /// Labels and numbers.
    pub rows: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// How the numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    Open,
    /// Prometheus's older one, version 0.0.4, which collectors of files read.
    Plain,
}

impl Format {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All of it.
pub fn text(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for Family { name, kind, help, rows } in families {
        let (kind, suffix) = match kind {
            Kind::Gauge => ("gauge", ""),
            Kind::Counter => ("counter", "_total"),
        };
        // Of a counter, the older format names what is counted as its samples are named.
        let family = if format == Format::Open { (*name).to_owned() } else { format!("{name}{suffix}") };
        let _ = writeln!(text, "# HELP {family} {}\n# TYPE {family} {kind}", escaped(help));
        for unit in ["bytes", "seconds"] {
            if format == Format::Open && name.strip_suffix(unit).is_some_and(|name| name.ends_with('_')) {
                let _ = writeln!(text, "# UNIT {family} {unit}");
            }
        }
        for (labels, value) in rows {
            let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(text, "{name}{suffix}{{{}}} {value}", labels.join(","));
        }
    }
    text + if format == Format::Open { "# EOF\n" } else { "" }
}

/// Programs may call themselves anything.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_as_the_format_has_it() {
        let row = (vec![("program", "a\"b\\\n".to_owned()), ("port", "80".to_owned())], 3.0);
        let family = |name, kind| Family { name, kind, help: "Some.", rows: vec![row.clone()] };
        let families = [family("x_bytes", Kind::Gauge), family("y", Kind::Counter)];
        assert_eq!(
            text(&families, Format::Open),
            "# HELP x_bytes Some.\n# TYPE x_bytes gauge\n# UNIT x_bytes bytes\nx_bytes{program=\"a\\\"b\\\\\\n\",port=\"80\"} 3\n\
             # HELP y Some.\n# TYPE y counter\ny_total{program=\"a\\\"b\\\\\\n\",port=\"80\"} 3\n# EOF\n"
        );
        assert_eq!(
            text(&families[1..], Format::Plain),
            "# HELP y_total Some.\n# TYPE y_total counter\ny_total{program=\"a\\\"b\\\\\\n\",port=\"80\"} 3\n"
        );
    }
}
