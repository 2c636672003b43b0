//! Instructions: how long they are, and what they do to registers and to the flow (Intel's manual, volume 2, appendix A).
//!
//! No operand is decoded that is not asked about. That lengths are right is tested against another decoder.

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// In bytes: 1 to 15.
    pub length: usize,
    /// What becomes of the general registers.
    pub effect: Effect,
    /// Where it goes on.
    pub flow: Flow,
    /// Whether programs have no use for it: it is the system's, or of segments, or older than 64 bits.
    pub odd: bool,
}

/// What an instruction writes to the lower halves of the general registers, which have the numbers that instructions give them:
/// eax is 0. The stack's pointer (4) is not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// A constant to one.
    Constant(u8, u32),
    /// The second to the first.
    Copy(u8, u8),
    /// Something to one.
    One(u8),
    /// What a function may write that keeps to the calling convention.
    Call,
    /// What the kernel writes.
    SystemCall,
    /// Something to any, or it was not asked.
    Any,
}

/// What comes behind an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The next one.
    Next,
    /// The next one, or that at this distance from the next one.
    Branch(i32),
    /// That at this distance from the next one.
    Jump(i32),
    /// One whose address is computed.
    Computed,
    /// None that is known: a return, a trap.
    End,
}

/// Longest instruction, in bytes.
pub const LONGEST: usize = 15;

/// What follows an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Nothing.
    None,
    /// A byte of operands (ModRM), with what it asks for.
    Operands,
    /// The same, and a constant of so many bytes.
    OperandsAnd(usize),
    /// A constant of so many bytes.
    Constant(usize),
    /// A constant of 4 bytes, or 2 with a prefix.
    Sized,
    /// Operands, and such a constant.
    OperandsAndSized,
    /// No instruction, or none that is known here.
    Unknown,
}

/// Opcodes of one byte.
fn tail(opcode: u8) -> Tail {
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => Tail::Operands,
            4 => Tail::Constant(1),
            5 => Tail::Sized,
            _ => Tail::Unknown,
        },
        0x63 => Tail::Operands,
        0x68 => Tail::Sized,
        0x69 => Tail::OperandsAndSized,
        0x6a => Tail::Constant(1),
        0x6b => Tail::OperandsAnd(1),
        0x70..=0x7f => Tail::Constant(1),
        0x80 | 0x83 => Tail::OperandsAnd(1),
        0x81 => Tail::OperandsAndSized,
        0x84..=0x8f => Tail::Operands,
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => Tail::None,
        0xa8 => Tail::Constant(1),
        0xa9 => Tail::Sized,
        0xb0..=0xb7 => Tail::Constant(1),
        0xb8..=0xbf => Tail::Sized,
        0xc0 | 0xc1 => Tail::OperandsAnd(1),
        0xc2 | 0xca => Tail::Constant(2),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 => Tail::None,
        0xc6 => Tail::OperandsAnd(1),
        0xc7 => Tail::OperandsAndSized,
        0xc8 => Tail::Constant(3),
        0xcd => Tail::Constant(1),
        0xd0..=0xd3 | 0xd8..=0xdf => Tail::Operands,
        0xe0..=0xe7 | 0xeb => Tail::Constant(1),
        0xe8 | 0xe9 => Tail::Constant(4),
        0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => Tail::None,
        // With a constant for two of their eight operations.
        0xf6 | 0xf7 | 0xfe | 0xff => Tail::Operands,
        _ => Tail::Unknown,
    }
}

/// Opcodes behind 0f.
fn tail_0f(opcode: u8) -> Tail {
    match opcode {
        0x00..=0x03 | 0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 => Tail::Operands,
        // Not 78, which is AMD's insertq with two constants, or Intel's vmread, by its prefixes.
        0x79 | 0x7c..=0x7f | 0x90..=0x9f => Tail::Operands,
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x35 | 0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => Tail::None,
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Tail::OperandsAnd(1),
        0x80..=0x8f => Tail::Constant(4),
        0xa3 | 0xa5 | 0xab | 0xad..=0xb9 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xff => Tail::Operands,
        _ => Tail::Unknown,
    }
}

/// Opcodes of vector instructions, by their map.
fn tail_of_vectors(map: u8, opcode: u8) -> Tail {
    match map {
        1 => match opcode {
            0x77 => Tail::None,
            0x70..=0x73 | 0xc2 | 0xc4..=0xc6 => Tail::OperandsAnd(1),
            0x10..=0x17 | 0x28..=0x2f | 0x41..=0x6f | 0x74..=0x76 | 0x78..=0x7f | 0x90..=0x99 | 0xae | 0xd0..=0xfe => {
                Tail::Operands
            }
            _ => Tail::Unknown,
        },
        2 | 5 | 6 => Tail::Operands,
        3 => Tail::OperandsAnd(1),
        _ => Tail::Unknown,
    }
}

/// Which table an opcode is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Map {
    One,
    Two,
    /// 0f 38, 0f 3a, and all of vectors: what they do to registers is not asked.
    Others,
}

/// What is before an opcode.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    /// 66: constants of 2 bytes.
    short: bool,
    /// 67: addresses of 4 bytes.
    narrow: bool,
    /// 40 to 4f.
    rex: u8,
}

impl Prefixes {
    fn wide(self) -> bool {
        self.rex & 8 != 0
    }
    /// Adds the fourth bit of the register in the operands' middle.
    fn register(self, operands: u8) -> u8 {
        operands >> 3 & 7 | (self.rex & 4) << 1
    }
    /// Adds the fourth bit of the register in the operands' last bits, or in the opcode's.
    fn base(self, bits: u8) -> u8 {
        bits & 7 | (self.rex & 1) << 3
    }
}

/// Decodes what begins at the beginning of `bytes`. `None`: no instruction that is known here, or it goes on behind the end.
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let mut at = 0;
    let mut prefixes = Prefixes::default();
    let first = loop {
        let byte = *bytes.get(at)?;
        at += 1;
        match byte {
            0x66 => prefixes.short = true,
            0x67 => prefixes.narrow = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 => {}
            0x40..=0x4f => {
                prefixes.rex = byte;
                continue;
            }
            other => break other,
        }
        // A REX prefix that another one follows says nothing.
        prefixes.rex = 0;
    };
    let (map, opcode, tail) = match first {
        0x0f => {
            let opcode = *bytes.get(at)?;
            at += 1;
            match opcode {
                0x38 | 0x3a => {
                    let opcode_there = *bytes.get(at)?;
                    at += 1;
                    (Map::Others, opcode_there, if opcode == 0x38 { Tail::Operands } else { Tail::OperandsAnd(1) })
                }
                _ => (Map::Two, opcode, tail_0f(opcode)),
            }
        }
        0xc5 => {
            let opcode = *bytes.get(at + 1)?;
            at += 2;
            (Map::Others, opcode, tail_of_vectors(1, opcode))
        }
        0xc4 => {
            let (map, opcode) = (*bytes.get(at)? & 0x1f, *bytes.get(at + 2)?);
            at += 3;
            (Map::Others, opcode, if map <= 3 { tail_of_vectors(map, opcode) } else { Tail::Unknown })
        }
        0x62 => {
            let (map, opcode) = (*bytes.get(at)? & 7, *bytes.get(at + 3)?);
            at += 4;
            (Map::Others, opcode, tail_of_vectors(map, opcode))
        }
        // Another family's vectors (XOP).
        0x8f if bytes.get(at)? >> 3 & 7 != 0 => return None,
        other => (Map::One, other, tail(other)),
    };

    let size = if prefixes.short && !prefixes.wide() { 2 } else { 4 };
    let (has_operands, mut constant) = match tail {
        Tail::None => (false, 0),
        Tail::Operands => (true, 0),
        Tail::OperandsAnd(constant) => (true, constant),
        Tail::Constant(constant) => (false, constant),
        Tail::Sized => (false, size),
        Tail::OperandsAndSized => (true, size),
        Tail::Unknown if map == Map::One && (0xa0..=0xa3).contains(&opcode) => (false, if prefixes.narrow { 4 } else { 8 }),
        Tail::Unknown => return None,
    };
    let mut operands = 0;
    if has_operands {
        operands = *bytes.get(at)?;
        at += 1;
        // Control and debug registers are no memory, whatever is said.
        if !(map == Map::Two && (0x20..=0x23).contains(&opcode)) {
            at += displacement(operands, bytes.get(at).copied())?;
        }
        if map == Map::One && operands >> 3 & 7 < 2 {
            match opcode {
                0xf6 => constant = 1,
                0xf7 => constant = size,
                _ => {}
            }
        }
    }
    if map == Map::One && (0xb8..=0xbf).contains(&opcode) && prefixes.wide() {
        constant = 8;
    }
    let value = bytes.get(at..at + constant)?;
    at += constant;
    if at > LONGEST {
        return None;
    }
    let value = match *value {
        [a] => a as i8 as i32,
        [a, b, c, d, ..] => i32::from_le_bytes([a, b, c, d]),
        [a, b, ..] => i16::from_le_bytes([a, b]).into(),
        [] => 0,
    };
    let effect = if map == Map::Others { Effect::Any } else { effect(map, opcode, operands, prefixes, value) };
    let flow = match map {
        Map::One => flow(opcode, operands, value),
        Map::Two if (0x80..=0x8f).contains(&opcode) => Flow::Branch(value),
        Map::Two if matches!(opcode, 0x07 | 0x0b | 0x35 | 0xb9 | 0xff) => Flow::End,
        _ => Flow::Next,
    };
    Some(Instruction { length: at, effect, flow, odd: map == Map::One && is_odd(opcode, operands) })
}

/// How many bytes an address in memory takes behind its operands' byte; `next` is the first of them.
fn displacement(operands: u8, next: Option<u8>) -> Option<usize> {
    let (mode, base) = (operands >> 6, operands & 7);
    if mode == 3 {
        return Some(0);
    }
    let mut bytes = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    if base == 4 {
        bytes += 1;
        if mode == 0 && next? & 7 == 5 {
            bytes += 4;
        }
    }
    Some(bytes)
}

fn flow(opcode: u8, operands: u8, value: i32) -> Flow {
    match opcode {
        0x70..=0x7f | 0xe0..=0xe3 => Flow::Branch(value),
        0xe9 | 0xeb => Flow::Jump(value),
        0xc2 | 0xc3 | 0xca | 0xcb | 0xcc | 0xcf | 0xf1 | 0xf4 => Flow::End,
        0xff if matches!(operands >> 3 & 7, 4 | 5) => Flow::Computed,
        _ => Flow::Next,
    }
}

fn is_odd(opcode: u8, operands: u8) -> bool {
    match opcode {
        // Ports; interrupts and halting; far calls and returns; segments; xlat, enter, loop.
        0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef => true,
        0xcf | 0xf1 | 0xf4 | 0xfa | 0xfb | 0xca | 0xcb | 0x8c | 0x8e | 0xd7 | 0xc8 | 0xe0..=0xe2 => true,
        0xff => matches!(operands >> 3 & 7, 3 | 5 | 7),
        _ => false,
    }
}

/// What is certain of registers.
fn effect(map: Map, opcode: u8, operands: u8, prefixes: Prefixes, value: i32) -> Effect {
    let (operation, register) = (operands >> 3 & 7, prefixes.register(operands));
    let in_memory = operands >> 6 != 3;
    let base = prefixes.base(operands);
    // ah to bh are numbered behind the registers' lowest bytes, where there is no REX prefix.
    let byte = |number: u8| if prefixes.rex == 0 { number & 3 } else { number };
    let to_operand = if in_memory { Effect::None } else { Effect::One(base) };
    let to_byte_operand = if in_memory { Effect::None } else { Effect::One(byte(base)) };
    let constant = |register: u8, value: i32| {
        if prefixes.short {
            Effect::One(register)
        } else {
            Effect::Constant(register, value as u32)
        }
    };
    let copy = |to: u8, from: u8| if prefixes.short { Effect::One(to) } else { Effect::Copy(to, from) };
    match (map, opcode) {
        // xor and sub of a register with itself.
        (Map::One, 0x29 | 0x2b | 0x31 | 0x33) if !in_memory && base == register => constant(base, 0),
        (Map::One, 0x89) if !in_memory => copy(base, register),
        (Map::One, 0x8b) if !in_memory => copy(register, base),
        (Map::One, 0xb0..=0xb7) => Effect::One(byte(prefixes.base(opcode))),
        (Map::One, 0xb8..=0xbf) => constant(prefixes.base(opcode), value),
        (Map::One, 0xc7) if operation != 0 => Effect::Any,
        (Map::One, 0xc7) if !in_memory => constant(base, value),
        // cmp and test.
        (Map::One, 0x38..=0x3d | 0x84 | 0x85 | 0xa8 | 0xa9) => Effect::None,
        (Map::One, 0x80 | 0x81 | 0x83) if operation == 7 => Effect::None,
        (Map::One, 0xf6 | 0xf7) if operation < 2 => Effect::None,
        // Into the operand that may be memory.
        (Map::One, 0x01 | 0x09 | 0x11 | 0x19 | 0x21 | 0x29 | 0x31 | 0x81 | 0x83 | 0x89 | 0xc1 | 0xc7 | 0xd1 | 0xd3) => to_operand,
        (Map::One, 0xf7) if operation < 4 => to_operand,
        (Map::One, 0xff) if operation < 2 => to_operand,
        (Map::One, 0x00 | 0x08 | 0x10 | 0x18 | 0x20 | 0x28 | 0x30 | 0x80 | 0x88 | 0xc0 | 0xc6 | 0xd0 | 0xd2) => to_byte_operand,
        // Into the register.
        (Map::One, 0x03 | 0x0b | 0x13 | 0x1b | 0x23 | 0x2b | 0x33 | 0x63 | 0x69 | 0x6b | 0x8b | 0x8d) => Effect::One(register),
        (Map::One, 0x02 | 0x0a | 0x12 | 0x1a | 0x22 | 0x2a | 0x32 | 0x8a) => Effect::One(byte(register)),
        // Into eax.
        (Map::One, 0x04 | 0x05 | 0x0c | 0x0d | 0x14 | 0x15 | 0x1c | 0x1d | 0x24 | 0x25 | 0x2c | 0x2d | 0x34 | 0x35 | 0x98) => {
            Effect::One(0)
        }
        // Onto the stack.
        (Map::One, 0x50..=0x57 | 0x68 | 0x6a) => Effect::None,
        // From there. That the stack's register changes, too, is of no use to a caller.
        (Map::One, 0x58..=0x5f) => Effect::One(prefixes.base(opcode)),
        (Map::One, 0x70..=0x7f | 0xeb | 0xe9) => Effect::None,
        (Map::One, 0x90) if prefixes.rex & 1 == 0 => Effect::None,
        (Map::One, 0xe8) => Effect::Call,
        (Map::One, 0xff) if operation == 2 => Effect::Call,
        (Map::Two, 0x05) => Effect::SystemCall,
        (Map::Two, 0x40..=0x4f | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf) => Effect::One(register),
        (Map::Two, 0x90..=0x9f) => to_byte_operand,
        // A hint, but for rdssp, which gives the shadow stack's pointer where there is one (Intel SDM, volume 2).
        (Map::Two, 0x1e) if operation == 1 => to_operand,
        // Hints, vectors in registers of their own, branches.
        (Map::Two, 0x10 | 0x11 | 0x1e | 0x1f | 0x28 | 0x29 | 0x57 | 0x6f | 0x7f | 0x80..=0x8f | 0xef) => Effect::None,
        // xadd, and xchg: the register gets what the memory held.
        (Map::Two, 0xc1) | (Map::One, 0x87) if in_memory => Effect::One(register),
        // cmpxchg: eax is compared with the operand, and gets it.
        (Map::Two, 0xb1) if in_memory => Effect::One(0),
        _ => Effect::Any,
    }
}
