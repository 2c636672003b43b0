//! What is measured, as it is stored: for each contender, question and length a value in each round.

use serde::{Deserialize, Serialize};

use crate::statistics::{median, median_quotient};

/// The form of the stored document. Under one name fields are only added.
pub const SCHEMA: &str = "shunt.bench.rpc/1";

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Series {
    /// A cache line to and fro: a floor.
    Line,
    /// The bare endpoint, 32 bytes to and fro: a floor.
    Endpoint,
    /// libtirpc on the kernel.
    Kernel,
    /// libtirpc over the accelerated stream.
    Stream,
    /// libtirpc with its layers collapsed.
    Collapsed,
    /// `shunt-rpc`.
    Own,
}

impl Series {
    /// Those that answer calls.
    pub const CALLED: [Series; 4] = [Series::Kernel, Series::Stream, Series::Collapsed, Series::Own];

    /// The words of tables and pictures.
    pub fn title(self) -> &'static str {
        match self {
            Series::Line => "cache line",
            Series::Endpoint => "bare endpoint",
            Series::Kernel => "SunRPC, kernel",
            Series::Stream => "SunRPC, stream",
            Series::Collapsed => "SunRPC, collapsed",
            Series::Own => "shunt's RPC",
        }
    }
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// A round trip of a floor.
    Trip,
    /// A call with so many opaque bytes there and back; none: void.
    Echo,
    /// As many bytes by send and recv over a socket of the same kind.
    EchoBytes,
    /// A call with a string of so many letters that gives an int; none: void.
    Text,
    /// As many bytes by send and recv.
    TextBytes,
    /// A call with one word each way.
    Word,
    /// A call with so many bytes in and out by reference, which the caller fills and the server leaves as they are.
    Reference,
    /// The same, and the server changes each word.
    Changed,
    /// A section of an [`Question::Echo`] with clocks in it, in [`SECTIONS`]' order.
    Section(usize),
    /// That call's time.
    Sections,
}

/// The sections of a call, in time.
pub const SECTIONS: [&str; 9] = [
    "client: the call's head",
    "client: credentials and arguments encoded",
    "sent, moved, head read by the server",
    "server: arguments decoded",
    "server: the procedure",
    "server: the answer's head, results encoded",
    "sent, moved, head read by the client",
    "client: results decoded",
    "client: return",
];

/// Which of [`SECTIONS`] move bytes.
pub const MOVES: [usize; 2] = [2, 6];

/// One value of a round: what answered, the question, bytes, nanoseconds.
pub type Value = (Series, Question, usize, f64);

/// Values by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What answers.
    pub series: Series,
    /// What was asked.
    pub question: Question,
    /// Bytes.
    pub length: usize,
    /// Nanoseconds, one value a round.
    pub values: Vec<f64>,
}

/// What is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine.
    pub machine: String,
    /// The command that made it.
    pub command: String,
    /// How long it took.
    pub seconds: f64,
    /// What a reader must know of the run.
    pub remarks: Vec<String>,
    /// What was not measured, and why.
    pub missing: Vec<String>,
    /// What was.
    pub points: Vec<Point>,
}

impl Document {
    /// One without points.
    pub fn new(machine: String, command: String) -> Self {
        let schema = SCHEMA.into();
        Self { schema, machine, command, seconds: 0.0, remarks: vec![], missing: vec![], points: vec![] }
    }

    /// Adds a contender's values of a round.
    pub fn add(&mut self, values: Vec<Value>) {
        for (series, question, length, value) in values {
            let known = self.points.iter_mut().find(|p| (p.series, p.question, p.length) == (series, question, length));
            match known {
                Some(point) => point.values.push(value),
                None => self.points.push(Point { series, question, length, values: vec![value] }),
            }
        }
    }

    fn values(&self, series: Series, question: Question, length: usize) -> &[f64] {
        let found = self.points.iter().find(|p| (p.series, p.question, p.length) == (series, question, length));
        found.map_or(&[], |point| &point.values)
    }

    /// The median over the rounds, ns.
    pub fn at(&self, series: Series, question: Question, length: usize) -> Option<f64> {
        median(self.values(series, question, length))
    }

    /// The median of the rounds' own ratios of two.
    pub fn ratio(&self, above: (Series, Question, usize), below: (Series, Question, usize)) -> Option<f64> {
        let (above, below) = (self.values(above.0, above.1, above.2), self.values(below.0, below.1, below.2));
        median_quotient(above, below)
    }

    /// A contender's ratio to a floor.
    pub fn over(&self, floor: Series, series: Series, question: Question, length: usize) -> Option<f64> {
        self.ratio((series, question, length), (floor, Question::Trip, 0))
    }

    /// Lengths at which a question was put, to anything.
    pub fn lengths(&self, question: Question) -> Vec<usize> {
        let mut all: Vec<usize> = self.points.iter().filter(|p| p.question == question).map(|p| p.length).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two rounds: the second on cores twice as far from each other.
    pub fn document() -> Document {
        let mut document = Document::new("a machine".into(), "shunt bench papers --rpc".into());
        for far in [1.0, 2.0] {
            document
                .add(vec![(Series::Line, Question::Trip, 0, 100.0 * far), (Series::Endpoint, Question::Trip, 0, 200.0 * far)]);
            for (series, null, each) in [
                (Series::Kernel, 40_000.0, 1.0),
                (Series::Stream, 1600.0, 0.4),
                (Series::Collapsed, 500.0, 0.2),
                (Series::Own, 220.0, 0.3),
            ] {
                for length in [0, 1440, 65536] {
                    let time = (null + each * length as f64) * far;
                    document.add(vec![(series, Question::Echo, length, time), (series, Question::Text, length, time)]);
                    if series == Series::Own {
                        let by_reference = (null + 0.05 * length as f64) * far;
                        document.add(vec![
                            (series, Question::Reference, length, by_reference),
                            (series, Question::Changed, length, by_reference),
                        ]);
                        continue;
                    }
                    document.add(vec![
                        (series, Question::EchoBytes, length, time / 2.0),
                        (series, Question::TextBytes, length, time / 2.0),
                    ]);
                    let sections = (0..SECTIONS.len()).map(|part| (series, Question::Section(part), length, 10.0 * far));
                    document.add(sections.chain([(series, Question::Sections, length, 90.0 * far)]).collect());
                }
            }
            document.add(vec![(Series::Own, Question::Word, 8, 230.0 * far)]);
        }
        document
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let document = document();
        assert_eq!(document.at(Series::Own, Question::Echo, 0), Some(330.0));
        assert_eq!(document.over(Series::Endpoint, Series::Own, Question::Echo, 0), Some(1.1));
        assert_eq!(document.over(Series::Line, Series::Collapsed, Question::Echo, 0), Some(5.0));
        assert_eq!(document.over(Series::Line, Series::Own, Question::EchoBytes, 0), None);
        assert_eq!(document.lengths(Question::Echo), [0, 1440, 65536]);
    }

    #[test]
    fn a_document_is_read_again() {
        let text = serde_json::to_string(&document()).unwrap();
        assert!(text.starts_with(r#"{"schema":"shunt.bench.rpc/1","machine":"a machine""#), "{text}");
        let again: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(again.at(Series::Kernel, Question::Section(2), 1440), Some(15.0));
    }
}
