//! An object that was loaded may be odd: its text is surveyed, and each place that is told of holds the two bytes.

use shunt_instructions::elf::File;
use shunt_instructions::survey::{survey, Room};
use shunt_instructions::{Memory, Object};
use std::ops::ControlFlow;

fn look<M: Memory + ?Sized>(object: &Object<'_, M>) {
    let mut last = None;
    survey(object, &mut Box::new(Room::new()), &mut |site| {
        let mut bytes = [0; 2];
        assert!(object.memory.read(site.address, &mut bytes) && bytes == [0x0f, 0x05], "{site:?}");
        let segments = object.text.iter().filter(|text| text.contains(&site.address)).count();
        assert!(segments > 0, "{site:?}");
        // Once for each of them: those of an odd file lie over each other.
        assert!(last.replace(site.address) != Some(site.address) || segments > 1, "{site:?}");
        ControlFlow::Continue(())
    });
}

/// A file; or what begins by other bytes: how long the text is (two bytes), the text, a table of functions.
pub fn run(data: &[u8]) {
    if let Some(file) = File::new(data) {
        return look(&file.object(&mut [const { 0..0 }; 8]));
    }
    let [low, high, memory @ ..] = data else { return };
    let length = u64::from(u16::from_le_bytes([*low, *high])).min(memory.len() as u64);
    let text = 0..length;
    look(&Object { memory, text: core::slice::from_ref(&text), unwind: length..memory.len() as u64 });
    look(&Object { memory, text: core::slice::from_ref(&text), unwind: 0..0 });
}
