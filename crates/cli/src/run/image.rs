//! What kind of program a file is: an ELF image, a script, or something else.
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

/// What execve(2) looks at to choose how to start a program.
const HEAD_BYTES: u64 = 256;

/// The machine this command was built for.
const NATIVE_MACHINE: u16 = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };

/// A program's file.
#[derive(Debug, PartialEq, Eq)]
pub enum Image {
    /// An ELF image.
    Elf(ElfImage),
    /// A text that begins with `#!`.
    Script {
        /// The program that reads the script.
        interpreter: PathBuf,
        /// The rest of the line, which the interpreter gets as one argument.
        argument: Option<OsString>,
    },
    /// Anything else.
    Other {
        /// Whether the first line holds no zero byte.
        first_line_is_text: bool,
    },
}

/// The parts of an ELF image that decide whether a library can be preloaded into it.
#[derive(Debug, PartialEq, Eq)]
pub struct ElfImage {
    /// 32 or 64.
    pub bits: u8,
    /// One of the `EM_` constants.
    pub machine: u16,
    /// PT_INTERP: the dynamic loader. None for a static program.
    pub interpreter: Option<PathBuf>,
    /// Whether the Go linker made it.
    pub go: bool,
}

impl ElfImage {
    /// Whether it is of the preload library's own architecture.
    pub fn is_native(&self) -> bool {
        self.bits == 64 && self.machine == NATIVE_MACHINE
    }

    /// The architecture in words.
    pub fn architecture(&self) -> String {
        let name = match self.machine {
            elf::EM_386 => "x86",
            elf::EM_X86_64 if self.bits == 32 => "x32",
            elf::EM_X86_64 => "x86-64",
            elf::EM_ARM => "ARM",
            elf::EM_AARCH64 => "AArch64",
            elf::EM_RISCV => "RISC-V",
            elf::EM_PPC64 => "PowerPC",
            elf::EM_S390 => "S/390",
            other => return format!("{}-bit machine number {other}", self.bits),
        };
        format!("{}-bit {name}", self.bits)
    }
}

impl Image {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read: a program may be executable and not readable.
    pub fn read(path: &Path) -> std::io::Result<Image> {
        let mut file = File::open(path)?;
        let mut head = Vec::new();
        file.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            return Ok(script(line));
        }
        let data = ReadCache::new(file);
        let elf = match (head.starts_with(&elf::ELFMAG), head.get(4)) {
            (true, Some(&elf::ELFCLASS32)) => elf_image::<FileHeader32<Endianness>>(&data, 32),
            (true, Some(&elf::ELFCLASS64)) => elf_image::<FileHeader64<Endianness>>(&data, 64),
            _ => None,
        };
        Ok(elf.map_or_else(|| Image::Other { first_line_is_text: !first_line(&head).contains(&0) }, Image::Elf))
    }
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// The kernel's rules (fs/binfmt_script.c): blanks around both parts are dropped, everything after the first word is
/// one argument.
fn script(line: &[u8]) -> Image {
    let line = first_line(line).trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    Image::Script {
        interpreter: PathBuf::from(OsStr::from_bytes(interpreter)),
        argument: (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned()),
    }
}

/// None if the headers are damaged: the kernel will refuse the program, and says so better.
fn elf_image<Header: FileHeader<Endian = Endianness>>(data: &ReadCache<File>, bits: u8) -> Option<ElfImage> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let interpreter = header
        .program_headers(endian, data)
        .ok()?
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok().flatten())
        .map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)));
    // A stripped section table hides Go's mark; then the program is taken for an ordinary one.
    let go = header.sections(endian, data).is_ok_and(|sections| {
        sections
            .iter()
            .any(|section| matches!(sections.section_name(endian, section), Ok(b".note.go.buildid" | b".go.buildinfo")))
    });
    Some(ElfImage { bits, machine: header.e_machine(endian), interpreter, go })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_of(bytes: &[u8]) -> Image {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Image::read(file.path()).unwrap()
    }

    #[test]
    fn this_test_is_a_native_dynamic_program() {
        match Image::read(&std::env::current_exe().unwrap()).unwrap() {
            Image::Elf(elf) => {
                assert!(elf.is_native() && !elf.go, "{elf:?}");
                assert!(elf.interpreter.unwrap().to_str().unwrap().contains("ld-"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn first_lines_of_scripts() {
        let script = |text: &[u8]| match image_of(text) {
            Image::Script { interpreter, argument } => {
                (interpreter.to_str().unwrap().to_owned(), argument.map(|argument| argument.into_string().unwrap()))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(script(b"#!/bin/sh\necho"), ("/bin/sh".into(), None));
        assert_eq!(script(b"#! /usr/bin/env  python3 -u \nx"), ("/usr/bin/env".into(), Some("python3 -u".into())));
        assert_eq!(script(b"#!"), ("".into(), None));
    }

    #[test]
    fn texts_and_junk() {
        assert_eq!(image_of(b"echo hello\n\0"), Image::Other { first_line_is_text: true });
        assert_eq!(image_of(b"\0\x01\x02"), Image::Other { first_line_is_text: false });
        assert_eq!(image_of(b""), Image::Other { first_line_is_text: true });
    }

    #[test]
    fn damaged_headers_do_not_panic() {
        let whole = std::fs::read("/bin/true").unwrap();
        for length in (0..whole.len().min(4096)).step_by(7) {
            image_of(&whole[..length]);
        }
        for position in 4..64 {
            for byte in [0x00, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[position] = byte;
                image_of(&damaged);
            }
        }
    }
}
