//! Which calls objects could make past the C library: `survey FILE...`, a line for each that could make any.

use shunt_instructions::elf::File;
use shunt_instructions::find;
use shunt_instructions::survey::{survey, Room};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

fn main() {
    let (mut files, mut with_bytes, mut with_sites, mut with_concern) = (0, 0, 0, 0);
    let mut room = Box::new(Room::new());
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Some(file) = File::new(&bytes) else { continue };
        let mut texts = [const { 0..0 }; 8];
        let object = file.object(&mut texts);
        let mut sites = Vec::new();
        survey(&object, &mut room, &mut |site| {
            sites.push(site);
            ControlFlow::Continue(())
        });
        let concern: Vec<_> = sites.iter().filter(|site| site.concerns()).collect();
        files += 1;
        with_bytes += usize::from(find::syscall(&bytes, 0).is_some());
        with_sites += usize::from(!sites.is_empty());
        with_concern += usize::from(!concern.is_empty());
        if let Some(first) = concern.first() {
            let numbers: BTreeSet<u32> = concern.iter().filter_map(|site| site.number).collect();
            let unknown = concern.iter().filter(|site| site.number.is_none()).count();
            println!(
                "{path}: {} calls, {} concern connections: numbers {numbers:?}, {unknown} of unknown number; the first at {:#x}",
                sites.len(),
                concern.len(),
                first.address
            );
        }
    }
    println!("{files} objects: {with_bytes} hold the bytes, {with_sites} calls, {with_concern} calls that concern connections");
}
