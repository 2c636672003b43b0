//! What the benchmarks call.

use shunt_rpc::xdr::{Bytes, Decoder};
use shunt_rpc::{serve, Answer, Context, Interface, Reference, Refusal, Service};

/// Its program.
pub const PROGRAM: u32 = 0x2000_0001;
/// Bytes of a block at most.
pub const LONGEST: u32 = 256 << 10;

/// Opaque bytes.
pub type Block = Bytes<LONGEST>;

/// Procedures by number.
pub mod procedure {
    /// Nothing.
    pub const NULL: u16 = 0;
    /// A `u64` there and back.
    pub const WORD: u16 = 1;
    /// A block there and back.
    pub const ECHO: u16 = 2;
    /// A block, of which a number comes back.
    pub const TAKE: u16 = 3;
    /// The number alone.
    pub const NUMBER: u16 = 4;
    /// Elements by reference that stay as they are.
    pub const LOOK: u16 = 5;
    /// Elements by reference, each changed: `Shared::update`.
    pub const UPDATE: u16 = 6;
    /// The same, each read and written by itself.
    pub const ELEMENTS: u16 = 7;
}

/// The number that comes back.
pub const NUMBER: i32 = 7;

/// The service.
pub struct Called;

impl Service for Called {
    fn interfaces(&self) -> Vec<Interface> {
        vec![Interface { program: PROGRAM, version: 1, name: "BENCH", procedures: &[], text: "" }]
    }

    #[inline]
    fn call(
        &mut self,
        context: &Context<'_>,
        procedure: u16,
        arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal> {
        match procedure {
            procedure::NULL => serve(arguments, answer, |()| Ok(())),
            procedure::WORD => serve(arguments, answer, |word: u64| Ok(word)),
            procedure::ECHO => serve(arguments, answer, |block: Block| Ok(block)),
            procedure::TAKE => serve(arguments, answer, |_: Block| Ok(NUMBER)),
            procedure::NUMBER => serve(arguments, answer, |()| Ok(NUMBER)),
            procedure::LOOK => {
                serve(arguments, answer, |words: Reference<u64>| context.shared(words, LONGEST).map(drop).map_err(Into::into))
            }
            procedure::UPDATE => serve(arguments, answer, |words: Reference<u64>| {
                context.shared(words, LONGEST)?.update(|word| word.wrapping_add(1));
                Ok(())
            }),
            procedure::ELEMENTS => serve(arguments, answer, |words: Reference<u64>| {
                let mut words = context.shared(words, LONGEST)?;
                (0..words.len()).for_each(|at| words.set(at, words.get(at).wrapping_add(1)));
                Ok(())
            }),
            _ => Err(Refusal::NoProcedure),
        }
    }
}
