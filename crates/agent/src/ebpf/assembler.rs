//! An assembler for the few eBPF instructions that the program needs.
//!
//! Why not a compiler: eBPF from Rust needs a nightly toolchain and bpf-linker, from C it needs clang, and either would have
//! to be there on each machine that builds. The program has some ninety instructions and changes hardly ever, so it is a
//! table in Rust: it is built by whatever builds the rest, and the kernel's verifier judges it at each start.
//!
//! Encodings: Documentation/bpf/standardization/instruction-set.rst.

/// One of the machine's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    /// Return values.
    R0,
    /// First argument of a call; lost by it, as are those up to `R5`.
    R1,
    /// Second argument.
    R2,
    /// Third argument.
    R3,
    /// Fourth argument.
    R4,
    /// Fifth argument.
    R5,
    /// Kept by calls, as are those up to `R9`.
    R6,
    /// Kept by calls.
    R7,
    /// Kept by calls.
    R8,
    /// Kept by calls.
    R9,
    /// The end of the stack, 512 bytes below it are ours.
    Frame,
}

/// How many bytes an instruction loads or stores.
#[derive(Clone, Copy)]
pub enum Size {
    /// One.
    Byte = 0x10,
    /// Two.
    Half = 0x08,
    /// Four.
    Word = 0x00,
    /// Eight.
    Double = 0x18,
}

/// What a jump compares, without sign.
#[derive(Clone, Copy)]
pub enum Test {
    /// Left equals right.
    Equal = 0x10,
    /// Left is more than right.
    More = 0x20,
    /// They share a bit.
    AnyBit = 0x40,
    /// Left differs from right.
    Differs = 0x50,
}

/// A place that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program under construction.
#[derive(Default)]
pub struct Assembler {
    code: Vec<u64>,
    /// Where each label stands, once it does.
    labels: Vec<Option<usize>>,
    /// Instructions whose distance waits for a label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label that stands nowhere yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts `label` before the next instruction.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    fn emit(&mut self, code: u8, target: Register, source: u8, offset: i16, immediate: i32) {
        let registers = (target as u8) | source << 4;
        let word =
            u64::from(code) | u64::from(registers) << 8 | u64::from(offset as u16) << 16 | u64::from(immediate as u32) << 32;
        self.code.push(word);
    }

    /// target = source
    pub fn copy(&mut self, target: Register, source: Register) {
        self.emit(0xbf, target, source as u8, 0, 0);
    }

    /// target = value, with its sign
    pub fn set(&mut self, target: Register, value: i32) {
        self.emit(0xb7, target, 0, 0, value);
    }

    /// target += value
    pub fn add(&mut self, target: Register, value: i32) {
        self.emit(0x07, target, 0, 0, value);
    }

    /// target = its lowest two bytes, which were in network order
    pub fn half_from_network(&mut self, target: Register) {
        self.emit(0xdc, target, 0, 0, 16);
    }

    /// target = *(source + offset), without sign
    pub fn load(&mut self, size: Size, target: Register, source: Register, offset: i16) {
        self.emit(0x61 | size as u8, target, source as u8, offset, 0);
    }

    /// *(target + offset) = source
    pub fn store(&mut self, size: Size, target: Register, offset: i16, source: Register) {
        self.emit(0x63 | size as u8, target, source as u8, offset, 0);
    }

    /// *(target + offset) = value
    pub fn store_value(&mut self, size: Size, target: Register, offset: i16, value: i32) {
        self.emit(0x62 | size as u8, target, 0, offset, value);
    }

    /// target = the map behind the descriptor `fd` (two instructions long)
    pub fn map(&mut self, target: Register, fd: i32) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.emit(0x18, target, PSEUDO_MAP_FD, 0, fd);
        self.emit(0, Register::R0, 0, 0, 0);
    }

    /// R0 = helper(R1, R2, R3, R4, R5)
    pub fn call(&mut self, helper: i32) {
        self.emit(0x85, Register::R0, 0, 0, helper);
    }

    /// Returns R0.
    pub fn exit(&mut self) {
        self.emit(0x95, Register::R0, 0, 0, 0);
    }

    /// Goes on at `label`.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.emit(0x05, Register::R0, 0, 0, 0);
    }

    /// Goes on at `label` if left and right compare so.
    pub fn jump_if(&mut self, left: Register, test: Test, right: Register, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.emit(0x0d | test as u8, left, right as u8, 0, 0);
    }

    /// Goes on at `label` if left and value (with its sign) compare so.
    pub fn jump_if_value(&mut self, left: Register, test: Test, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.emit(0x05 | test as u8, left, 0, 0, value);
    }

    /// The instructions.
    ///
    /// # Panics
    /// If a jump leads to a label that was never placed, or too far: a mistake in the program's table.
    pub fn finish(mut self) -> Vec<u64> {
        for (from, label) in &self.jumps {
            let to = self.labels[label.0].expect("a label that jumps lead to is placed");
            let distance = i16::try_from(to as i64 - *from as i64 - 1).expect("jumps are short");
            self.code[*from] |= u64::from(distance as u16) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_as_the_standard_says() {
        let mut program = Assembler::default();
        let out = program.label();
        program.load(Size::Word, Register::R2, Register::R1, 4);
        program.jump_if(Register::R2, Test::More, Register::R3, out);
        program.store(Size::Double, Register::Frame, -8, Register::R2);
        program.place(out);
        program.set(Register::R0, 2);
        program.exit();
        let code = program.finish();
        let bytes: Vec<[u8; 8]> = code.iter().map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[0], [0x61, 0x12, 4, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[1], [0x2d, 0x32, 1, 0, 0, 0, 0, 0], "over one instruction");
        assert_eq!(bytes[2], [0x7b, 0x2a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes[3], [0xb7, 0x00, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[4], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }
}
