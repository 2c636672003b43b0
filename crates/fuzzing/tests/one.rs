#[test]
fn one() {
    let Ok(target) = std::env::var("TARGET") else { return };
    let files: Vec<Vec<u8>> = std::fs::read_dir(format!("../../fuzz/corpus/{target}"))
        .unwrap()
        .map(|f| std::fs::read(f.unwrap().path()).unwrap())
        .collect();
    let mut seed = 1u64;
    let mut random = |n: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        ((seed >> 11) % n.max(1) as u64) as usize
    };
    let rounds: usize = std::env::var("ROUNDS").map_or(200, |r| r.parse().unwrap());
    for round in 0..rounds {
        let mut bytes = files[random(files.len())].clone();
        if round >= files.len() * 3 {
            for _ in 0..1 + random(8) {
                let other = &files[random(files.len())];
                let at = random(bytes.len());
                match random(5) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] ^= 1 << random(8),
                    2 => bytes.truncate(at + 1),
                    _ => {
                        let from = random(other.len());
                        bytes.splice(at.., other[from..].iter().copied());
                    }
                }
            }
        }
        std::fs::write("/tmp/w-refs-last", &bytes).unwrap();
        shunt_fuzzing::run(&target, &bytes);
    }
    println!(
        "descriptors {} maps {}",
        std::fs::read_dir("/proc/self/fd").unwrap().count(),
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
    );
}
