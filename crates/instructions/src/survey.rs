//! All of an object's text: each `syscall` instruction, and each pair of bytes that may be one.

use crate::decode::{decode, Effect, Instruction, LONGEST};
use crate::functions::Functions;
use crate::values::{self, Places};
use crate::{find, number, Memory, Object};
use core::ops::{ControlFlow, Range};

/// A place in an object's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Where the two bytes lie.
    pub address: u64,
    /// The number of the call, where each way to it loads this one.
    pub number: Option<u32>,
    /// Whether an instruction begins there. False: not decided.
    pub decided: bool,
}

impl Site {
    /// Whether the call could meet a socket of the library's.
    pub fn concerns(&self) -> bool {
        self.number.is_none_or(number::concerns)
    }
}

/// The longest function that is decoded, in bytes: generated code knows functions of megabytes.
const FUNCTION_MOST: u64 = 1 << 20;

/// Text is looked at in pieces of so many bytes.
const PIECE: usize = 32 << 10;

/// Room for a survey's work, which a stack may not have.
pub struct Room {
    piece: [u8; PIECE],
    places: Places,
}

impl Room {
    /// Room for any object.
    pub const fn new() -> Room {
        Room { piece: [0; PIECE], places: Places::new() }
    }
}

impl Default for Room {
    fn default() -> Self {
        Room::new()
    }
}

/// Tells `tell` of each, until it has had enough. False: some of the text could not be read.
pub fn survey<M: Memory + ?Sized>(
    object: &Object<'_, M>,
    room: &mut Room,
    tell: &mut dyn FnMut(Site) -> ControlFlow<()>,
) -> bool {
    let Room { piece: buffer, places } = room;
    let functions = Functions::of(object.memory, object.unwind.clone());
    for text in object.text {
        let text = &code(text, object, functions.as_ref());
        let mut at = text.start;
        while at < text.end {
            let length = usize::try_from(text.end - at).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            if length < find::SYSCALL.len() {
                break;
            }
            // Segments may say that they are of any length.
            if !object.memory.read(at, &mut buffer[..length]) {
                return false;
            }
            let mut from = 0;
            while let Some(found) = find::syscall(&buffer[..length], from) {
                from = found + 1;
                let address = at + found as u64;
                let function = functions.as_ref().and_then(|functions| functions.around(address));
                let site = judge(object.memory, function, text, address, places);
                if site.is_some_and(|site| tell(site).is_break()) {
                    return true;
                }
            }
            // The two bytes may lie on the edge between two pieces.
            at += length as u64 - 1;
        }
    }
    true
}

/// Where code can lie in an executable segment: some linkers put constants into it, too, the table of functions among them. These
/// are around the functions.
fn code<M: Memory + ?Sized>(text: &Range<u64>, object: &Object<'_, M>, functions: Option<&Functions<'_, M>>) -> Range<u64> {
    let bounds = functions.filter(|_| text.contains(&object.unwind.start)).and_then(Functions::bounds);
    bounds.map_or(text.clone(), |bounds| bounds.start.max(text.start)..bounds.end.min(text.end))
}

/// Text, read a piece at a time.
pub(crate) struct Window<'a, M: Memory + ?Sized> {
    memory: &'a M,
    end: u64,
    bytes: [u8; 512],
    held: Range<u64>,
}

impl<'a, M: Memory + ?Sized> Window<'a, M> {
    fn new(memory: &'a M, end: u64) -> Window<'a, M> {
        Window { memory, end, bytes: [0; 512], held: 0..0 }
    }

    /// The bytes from `address` on: at least as many as an instruction has, unless the text ends.
    pub(crate) fn at(&mut self, address: u64) -> &[u8] {
        let ends = self.held.end == self.end;
        if !self.held.contains(&address) || (address + LONGEST as u64 > self.held.end && !ends) {
            let length = (self.end.saturating_sub(address)).min(self.bytes.len() as u64);
            let read = self.memory.read(address, &mut self.bytes[..length as usize]);
            self.held = address..if read { address + length } else { address };
        }
        &self.bytes[(address - self.held.start) as usize..(self.held.end - self.held.start) as usize]
    }
}

/// Whether an instruction begins at `address`. `None`: none does.
fn judge<M: Memory + ?Sized>(
    memory: &M,
    function: Option<Range<u64>>,
    text: &Range<u64>,
    address: u64,
    places: &mut Places,
) -> Option<Site> {
    let undecided = Site { address, number: None, decided: false };
    let Some(function) = function else {
        return outside(&mut Window::new(memory, text.end), text.start, address).then_some(undecided);
    };
    if function.end - function.start > FUNCTION_MOST {
        return Some(undecided);
    }
    let mut window = Window::new(memory, text.end.min(function.end));
    match arrives(&mut window, function.start, address, |_| true) {
        None => Some(undecided),
        Some(false) => None,
        Some(true) => Some(Site { address, number: values::eax(&mut window, &function, address, places), decided: true }),
    }
}

/// Whether one of the instructions that begin with that at `from` begins at `address`. `None`: one of them is not known, or not
/// `likely`.
fn arrives<M: Memory + ?Sized>(
    window: &mut Window<'_, M>,
    from: u64,
    address: u64,
    likely: impl Fn(&Instruction) -> bool,
) -> Option<bool> {
    let mut at = from;
    while at < address {
        at += decode(window.at(at)).filter(&likely)?.length as u64;
    }
    Some(at == address)
}

/// How far before two bytes outside of all functions one begins to decode: far enough to come into step with what is code, and to
/// meet what is no instruction in what is not.
const STEPS: Range<u64> = 48..64;
/// How near before them a number would be loaded.
const NEAR: u64 = 24;

/// Whether two bytes that are in no function that is known, as in constants and in what was written by hand, are likely to be an
/// instruction: most ways to decode what is before them that find instructions alone lead to them, or a number of a call is
/// loaded close by.
fn outside<M: Memory + ?Sized>(window: &mut Window<'_, M>, start: u64, address: u64) -> bool {
    let (mut to, mut past) = (0, 0);
    for step in STEPS {
        match arrives(window, address.saturating_sub(step).max(start), address, |instruction| !instruction.odd) {
            Some(true) => to += 1,
            Some(false) => past += 1,
            None => {}
        }
    }
    if to > past {
        return true;
    }
    (2..NEAR).any(|step| {
        let Some(from) = address.checked_sub(step).filter(|from| *from >= start) else { return false };
        let loads =
            decode(window.at(from)).is_some_and(|first| matches!(first.effect, Effect::Constant(0, number) if number < NUMBERS));
        loads && arrives(window, from, address, |instruction| !instruction.odd) == Some(true)
    })
}

/// Numbers of calls are below this.
const NUMBERS: u32 = 1024;
