//! The taxonomy: section 2, figure 1.

/// What decides where a buffer is (section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Allocation {
    /// The application, which keeps its buffers.
    Application,
    /// The system: an output takes the buffer away, an input brings one.
    System,
}

/// What is guaranteed while a message is under way (section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Integrity {
    /// The receiver gets what was there when the output was called for, and no input is seen half done.
    Strong,
    /// Neither.
    Weak,
}

/// How it is realised (section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Level {
    /// As it is defined.
    Basic,
    /// By whatever looks the same and costs less.
    Emulated,
}

/// One point of the taxonomy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Semantics {
    /// What decides where a buffer is.
    pub allocation: Allocation,
    /// What is guaranteed.
    pub integrity: Integrity,
    /// How it is realised.
    pub level: Level,
}

macro_rules! semantics {
    ($($constant:ident = $allocation:ident $integrity:ident $level:ident, $name:literal;)*) => {
        impl Semantics {
            $(
                #[doc = concat!("The paper's \"", $name, "\".")]
                pub const $constant: Semantics = Semantics {
                    allocation: Allocation::$allocation,
                    integrity: Integrity::$integrity,
                    level: Level::$level,
                };
            )*
            /// All eight, in the order of the paper's tables.
            pub const ALL: [Semantics; 8] = [$(Semantics::$constant),*];

            /// The paper's name.
            pub fn name(self) -> &'static str {
                $(if self == Semantics::$constant { return $name; })*
                unreachable!()
            }
        }
    };
}

semantics! {
    COPY = Application Strong Basic, "copy";
    EMULATED_COPY = Application Strong Emulated, "emulated copy";
    SHARE = Application Weak Basic, "share";
    EMULATED_SHARE = Application Weak Emulated, "emulated share";
    MOVE = System Strong Basic, "move";
    EMULATED_MOVE = System Strong Emulated, "emulated move";
    WEAK_MOVE = System Weak Basic, "weak move";
    EMULATED_WEAK_MOVE = System Weak Emulated, "emulated weak move";
}

impl Semantics {
    /// Its place in the tables, and its number in C.
    pub const fn index(self) -> usize {
        let system = matches!(self.allocation, Allocation::System) as usize;
        let weak = matches!(self.integrity, Integrity::Weak) as usize;
        let emulated = matches!(self.level, Level::Emulated) as usize;
        4 * system + 2 * weak + emulated
    }

    /// By its number.
    pub fn of_index(index: usize) -> Option<Semantics> {
        Semantics::ALL.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (index, semantics) in Semantics::ALL.into_iter().enumerate() {
            assert_eq!((semantics.index(), Semantics::of_index(index)), (index, Some(semantics)));
        }
        assert_eq!(Semantics::of_index(8), None);
    }
}
