//! Direct access over memory and over frames, and upcalls.

use shunt_endpoint::conformance::connect;
use shunt_endpoint::conformance::direct::{import, AREA};
use shunt_endpoint::device::shm::{Options as ShmOptions, Shm};
use shunt_endpoint::upcall::{Condition, Gate};
use shunt_endpoint::{Area, DirectAccess, DirectError, Endpoint, Key, Message, Rights, SendError};

fn shm() -> (Shm, Shm) {
    let make = || Shm::new(ShmOptions::default()).unwrap();
    (make(), make())
}

#[test]
fn a_mapped_region_propagates_stores() {
    let (mut a, mut b) = shm();
    let (to_b, to_a) = connect(&mut a, &mut b);
    let key = b.export(to_a, AREA, Rights::Write).unwrap();
    let import = import(&mut a, to_b, key);
    let mapped = import.mapped().expect("one host");
    for value in 0..=255u8 {
        // SAFETY: inside the import.
        unsafe { mapped.add(1000).write_volatile(value) };
        let mut byte = [0];
        assert!(b.segment().read(Area::new(AREA.offset + 1000, 1), &mut byte));
        assert_eq!(byte, [value]);
    }
    b.close(to_a);
    // SAFETY: still mapped here; the export is gone.
    unsafe { mapped.add(1000).write_volatile(7) };
    let mut byte = [0];
    assert!(b.segment().read(Area::new(AREA.offset + 1000, 1), &mut byte));
    assert_eq!(byte, [255], "closing the channel takes the export back");
}

#[test]
fn what_is_for_reading_cannot_be_written() {
    let (mut a, mut b) = shm();
    let (to_b, to_a) = connect(&mut a, &mut b);
    let key = b.export(to_a, AREA, Rights::Read).unwrap();
    assert!(b.segment().write(AREA, b"look"));
    let import = import(&mut a, to_b, key);
    let mapped = import.mapped().expect("one host");
    // SAFETY: inside the import.
    let bytes: Vec<u8> = (0..4).map(|k| unsafe { mapped.add(k).read_volatile() }).collect();
    assert_eq!(bytes, b"look");
    assert_eq!(a.update(&import, 0, b"x"[..].into(), false).map(|_| ()), Err(SendError::Area));
    // Not even by asking the kernel for more.
    // SAFETY: changes the protection of the import's own pages, if it were allowed to.
    let status = unsafe { shunt_sys::syscall!(shunt_sys::libc::SYS_mprotect, mapped, AREA.length, 3) };
    assert!(status < 0, "the exporter's memory became writable");
}

#[test]
fn exports_are_refused_and_foreign_ones_do_not_exist() {
    let (mut a, mut b) = shm();
    let mut stranger = Shm::new(ShmOptions::default()).unwrap();
    let (to_b, to_a) = connect(&mut a, &mut b);
    let (to_b_too, _) = connect(&mut stranger, &mut b);
    for area in [Area::new(1, 4096), Area::new(4096, 100), Area::new(0, 0), Area::new(1 << 20, 4096), Area::new(!4095, 4096)] {
        assert_eq!(b.export(to_a, area, Rights::Write), Err(DirectError::Area), "{area:?}");
    }
    let key = b.export(to_a, AREA, Rights::Write).unwrap();
    assert_eq!(b.export(to_a, Area::new(AREA.offset + 4096, 4096), Rights::Write), Err(DirectError::Area), "twice");
    let _ = import(&mut a, to_b, key);
    assert_eq!(a.import(to_b, Key(key.0 ^ 1), AREA.length).map(|_| ()), Err(DirectError::NoResource));
    assert_eq!(a.import(to_b, key, AREA.length / 2).map(|_| ()), Err(DirectError::Area));
    assert_eq!(stranger.import(to_b_too, key, AREA.length).map(|_| ()), Err(DirectError::NoResource), "offered to another");
}

#[test]
fn upcalls_take_everything_and_are_held_back() {
    let (mut a, mut b) = shm();
    let (to_b, _) = connect(&mut a, &mut b);
    let gate = Gate::new();
    let send = |a: &mut Shm, count: usize| {
        for _ in 0..count {
            a.send(&Message::small(to_b, b"x")).unwrap();
        }
    };
    send(&mut a, 100);
    let mut seen = 0;
    assert_eq!(gate.deliver(&mut b, Condition::NonEmpty, |_, _| seen += 1), 100);
    gate.disable();
    send(&mut a, 5);
    assert_eq!(gate.deliver(&mut b, Condition::NonEmpty, |_, _| seen += 1), 0, "a critical section");
    assert!(gate.enable(), "one was held back");
    assert_eq!(gate.deliver(&mut b, Condition::NonEmpty, |_, _| seen += 1), 5);
    gate.disable();
    assert!(!gate.enable(), "none was");
    send(&mut a, 100);
    assert_eq!(gate.deliver(&mut b, Condition::AlmostFull(75), |_, _| seen += 1), 0);
    send(&mut a, 120);
    assert_eq!(gate.deliver(&mut b, Condition::AlmostFull(75), |_, _| seen += 1), 220);
    assert_eq!(seen, 325);
}
