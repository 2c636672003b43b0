//! The word of a region: generation, state and counts of references, changed as one.
//!
//! The owner alone keeps it, in private memory. Its threads, and a handler of a fault, change it by compare-exchange, so there is
//! no order in which a region is given away while an output of it begins, or freed twice.

use crate::limit::Limit;
use crate::state::{Event, State};
use shunt_segment::sync::{AtomicU64, Ordering};

const OUTPUTS: u64 = 0xffff;
const INPUT: u64 = 1 << 16;
const INPUTS: u64 = 0xff << 16;
const STATE_SHIFT: u32 = 24;
const STATE: u64 = 0xf << STATE_SHIFT;
/// Its bytes are not to be seen by the process that gets it next.
const POISONED: u64 = 1 << 28;
const GENERATION_SHIFT: u32 = 32;

/// What a word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value(pub u64);

impl Value {
    /// Where the region is in its life.
    pub fn state(self) -> State {
        State::ALL[((self.0 & STATE) >> STATE_SHIFT) as usize & 7]
    }
    /// Counts whatever was allocated here; never 0 for a region.
    pub fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }
    /// Outputs that are not completed.
    pub fn outputs(self) -> u32 {
        (self.0 & OUTPUTS) as u32
    }
    /// Inputs that are not completed.
    pub fn inputs(self) -> u32 {
        ((self.0 & INPUTS) >> 16) as u32
    }
    /// Whether its bytes must be wiped before anyone else sees them.
    pub fn is_poisoned(self) -> bool {
        self.0 & POISONED != 0
    }

    fn with(self, state: State) -> Value {
        Value(self.0 & !STATE | (state as u64) << STATE_SHIFT)
    }

    /// Removed, and nothing refers to it: free, under the next generation.
    fn settled(self) -> Value {
        if self.state() == State::Removed && self.outputs() == 0 && self.inputs() == 0 {
            let generation = (self.generation().wrapping_add(1)).max(1);
            Value((generation as u64) << GENERATION_SHIFT | self.0 & POISONED)
        } else {
            self
        }
    }
}

/// What a reference is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The bytes are read.
    Output,
    /// Bytes are written there.
    Input,
}

/// The word.
#[derive(Debug)]
pub struct Word(AtomicU64);

impl Word {
    /// A free one.
    pub fn new() -> Word {
        Word(AtomicU64::new(1 << GENERATION_SHIFT))
    }

    /// What it says now.
    #[inline]
    pub fn load(&self) -> Value {
        Value(self.0.load(Ordering::SeqCst))
    }

    fn change(&self, change: impl Fn(Value) -> Result<Value, Limit>) -> Result<Value, Limit> {
        let mut before = self.load();
        loop {
            let after = change(before)?;
            match self.0.compare_exchange(before.0, after.0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(after),
                Err(now) => before = Value(now),
            }
        }
    }

    /// `event` happens to the region of `generation`.
    ///
    /// # Errors
    /// [`Limit::Stale`]: it is another region by now. [`Limit::State`]: it cannot happen.
    pub fn apply(&self, generation: u32, event: Event) -> Result<Value, Limit> {
        self.change(|before| {
            if before.generation() != generation {
                return Err(Limit::Stale);
            }
            let after = before.state().after(event).ok_or(Limit::State)?;
            // What is not to be moved while bytes come in is not, whatever the table says (input-disabled copy-on-write).
            if event == Event::MarkMovingOut && before.inputs() != 0 {
                return Err(Limit::State);
            }
            Ok(before.with(after).settled())
        })
    }

    /// A free word becomes a region; gives what it says, and whether its bytes must be wiped first.
    ///
    /// # Errors
    /// [`Limit::State`]: it is not free.
    pub fn begin(&self, event: Event) -> Result<(Value, bool), Limit> {
        let mut poisoned = false;
        let before = self.load();
        let value = self.change(|before| {
            let after = before.state().after(event).ok_or(Limit::State)?;
            match before.state() {
                State::Free => Ok(Value(before.with(after).0 & !POISONED)),
                _ => Err(Limit::State),
            }
        })?;
        poisoned |= before.is_poisoned();
        Ok((value, poisoned))
    }

    /// One more output or input of the region of `generation`.
    ///
    /// # Errors
    /// [`Limit::Stale`], [`Limit::State`]: it is removed, or moved out. [`Limit::References`]: as many as are counted.
    pub fn reference(&self, generation: u32, kind: Use) -> Result<Value, Limit> {
        self.change(|before| {
            if before.generation() != generation {
                return Err(Limit::Stale);
            }
            match (kind, before.state()) {
                (_, State::Free | State::Removed | State::MovedOut | State::WeaklyMovedOut) => Err(Limit::State),
                (Use::Output, State::MovingIn) => Err(Limit::State),
                (Use::Input, State::MovingOut) => Err(Limit::State),
                (Use::Output, _) if before.outputs() as u64 == OUTPUTS => Err(Limit::References),
                (Use::Input, _) if before.inputs() as u64 == INPUTS >> 16 => Err(Limit::References),
                (Use::Output, _) => Ok(Value(before.0 + 1)),
                (Use::Input, _) => Ok(Value(before.0 + INPUT)),
            }
        })
    }

    /// One less. A result that is [`State::Free`]: the caller frees the units.
    ///
    /// # Errors
    /// [`Limit::Stale`]; [`Limit::References`]: there was none.
    pub fn unreference(&self, generation: u32, kind: Use) -> Result<Value, Limit> {
        self.change(|before| {
            if before.generation() != generation {
                return Err(Limit::Stale);
            }
            match kind {
                Use::Output if before.outputs() > 0 => Ok(Value(before.0 - 1).settled()),
                Use::Input if before.inputs() > 0 => Ok(Value(before.0 - INPUT).settled()),
                _ => Err(Limit::References),
            }
        })
    }

    /// Its bytes are indeterminate, or another's: they are wiped before the units are a region again.
    pub fn poison(&self, generation: u32) {
        let _ = self.change(|before| match before.generation() == generation {
            true => Ok(Value(before.0 | POISONED)),
            false => Err(Limit::Stale),
        });
    }
}

impl Default for Word {
    fn default() -> Word {
        Word::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_while_being_read_is_free_when_it_has_been() {
        let word = Word::new();
        let (value, poisoned) = word.begin(Event::Allocate).unwrap();
        let generation = value.generation();
        assert!(!poisoned && value.state() == State::MovedIn);
        word.reference(generation, Use::Output).unwrap();
        word.reference(generation, Use::Output).unwrap();
        assert_eq!(word.apply(generation, Event::Remove).unwrap().state(), State::Removed);
        assert_eq!(word.begin(Event::Allocate), Err(Limit::State));
        assert_eq!(word.reference(generation, Use::Output), Err(Limit::State));
        word.poison(generation);
        assert_eq!(word.unreference(generation, Use::Output).unwrap().state(), State::Removed);
        let free = word.unreference(generation, Use::Output).unwrap();
        assert_eq!((free.state(), free.generation()), (State::Free, generation + 1));
        assert_eq!(word.unreference(generation, Use::Output), Err(Limit::Stale));
        assert!(word.begin(Event::Allocate).unwrap().1);
        assert!(!word.load().is_poisoned());
    }

    #[test]
    fn a_region_with_input_under_way_is_not_moved_out() {
        let word = Word::new();
        let generation = word.begin(Event::Allocate).unwrap().0.generation();
        word.reference(generation, Use::Input).unwrap();
        assert_eq!(word.apply(generation, Event::MarkMovingOut), Err(Limit::State));
        word.unreference(generation, Use::Input).unwrap();
        word.apply(generation, Event::MarkMovingOut).unwrap();
        assert_eq!(word.reference(generation, Use::Input), Err(Limit::State));
    }
}
