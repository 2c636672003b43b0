//! The targets of `fuzz/` over their corpora, and over mutations of these: always the same ones.

use std::path::Path;

/// Mutations of each file of a corpus.
const MUTATIONS: u64 = 300;

/// xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit.max(1) as u64) as usize
    }
}

/// Some bytes changed, cut, doubled, or taken from another file.
fn mutated(files: &[Vec<u8>], which: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = files[which].clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 | 1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 => bytes.truncate(at),
            4 => {
                let other = &files[random.below(files.len())];
                let from = random.below(other.len());
                bytes.splice(at.min(bytes.len()).., other[from.min(other.len())..].iter().copied());
            }
            _ => bytes.extend((0..random.below(24)).map(|_| [0, 0xff, 1, 0x80][random.below(4)]).collect::<Vec<u8>>()),
        }
    }
    bytes
}

fn run(target: &str) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut names: Vec<_> = std::fs::read_dir(&corpus).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
    names.sort();
    assert!(!names.is_empty(), "{} is empty", corpus.display());
    let files: Vec<Vec<u8>> = names.iter().map(|name| std::fs::read(name).expect("a file")).collect();
    for (bytes, name) in files.iter().zip(&names) {
        println!("{}", name.display());
        shunt_fuzzing::run(target, bytes);
    }
    for seed in 1..=MUTATIONS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for (which, name) in names.iter().enumerate() {
            let bytes = mutated(&files, which, &mut random);
            let path = std::env::temp_dir().join(format!("shunt-fuzzing-{target}-{}", std::process::id()));
            let outcome = std::panic::catch_unwind(|| shunt_fuzzing::run(target, &bytes));
            if outcome.is_err() {
                std::fs::write(&path, &bytes).expect("room for what failed");
                panic!("{target}: seed {seed} of {}: kept in {}", name.display(), path.display());
            }
        }
    }
}

/// One after the other: targets count descriptors, which are the process's.
#[test]
fn corpora() {
    for (target, _) in shunt_fuzzing::TARGETS {
        run(target);
    }
}
