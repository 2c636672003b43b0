//! A process has a bounded number of mappings (vm.max_map_count): a write to a buffer that is being read is a legal write all the same.

mod common;

use common::{alone, joined, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::Port;
use shunt_region::{Audience, Pages, Pool, Region, Shape};

const PAGE: usize = 4096;

/// Mappings that nothing uses, as many as the process can have; some may be given back.
struct Filler {
    start: usize,
    pages: usize,
}

impl Filler {
    fn new() -> Filler {
        let most: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * most * PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let mut filler = Filler { start: start as usize, pages: 2 * most };
        // Every other page has a protection of its own, until there is no mapping left.
        let filled = (1..filler.pages).step_by(2).find(|page| !filler.protect(*page, libc::PROT_READ));
        filler.pages = filled.expect("a limit");
        filler
    }

    fn protect(&self, page: usize, protection: i32) -> bool {
        // SAFETY: a page of the mapping of this test's, which nothing uses.
        unsafe { libc::mprotect((self.start + page * PAGE) as *mut libc::c_void, PAGE, protection) == 0 }
    }

    /// Makes room for `count` mappings, two a page.
    fn give_back(&mut self, count: usize) {
        for _ in 0..count / 2 {
            self.pages -= 2;
            assert!(self.protect(self.pages, libc::PROT_NONE));
        }
    }
}

/// Not the compiler's to move.
fn write(region: &Region, at: usize, byte: u8) {
    assert!(at < region.size());
    // SAFETY: inside the region, which the test has.
    unsafe { region.pointer().add(at).write_volatile(byte) };
}

fn of_pages(units: usize) -> (Port, Port, Pool) {
    let (mut here, there) = Port::pair().unwrap();
    let pool = Pool::create(Shape { unit: PAGE, units }, Pages::Small, Audience::Anyone).unwrap();
    here.set_costs(Costs::USUAL);
    here.set_quota(1 << 30).unwrap();
    here.offer(&pool).unwrap();
    here.policy().tcow_from = PAGE;
    (here, there, pool)
}

/// Writes every other unit while all are being read, which is when `then` has been; what arrives is what was sent.
fn every_other_unit(units: usize, then: impl FnOnce()) {
    let (mut here, mut there, pool) = of_pages(units);
    let mut region = pool.allocate(units * PAGE).unwrap();
    let mut bytes = vec![0; units * PAGE];
    region.bytes_mut().fill(1);
    here.send(region.bytes(), true).unwrap();
    assert_eq!(here.lent().1, 1);
    then();
    for unit in (0..units).step_by(2) {
        write(&region, unit * PAGE, 9);
    }
    there.receive(&mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1));
    here.progress().unwrap();
    assert!((0..units).all(|unit| region.bytes()[unit * PAGE] == if unit % 2 == 0 { 9 } else { 1 }));
}

#[test]
fn a_program_that_writes_every_other_unit_keeps_most_of_its_mappings() {
    alone("a_program_that_writes_every_other_unit_keeps_most_of_its_mappings", || {
        let (mut here, _there, pool) = of_pages(16_384);
        let mut region = pool.allocate(16_384 * PAGE).unwrap();
        region.bytes_mut().fill(1);
        here.send(region.bytes(), true).unwrap();
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        for unit in (0..16_384).step_by(2) {
            write(&region, unit * PAGE, 9);
            if unit % 1024 == 0 {
                assert!(mappings() < 10_000, "after {unit} units");
            }
        }
        // Room for the next one.
        drop((here, region, pool));
        every_other_unit(1024, || {});
    });
}

#[test]
fn where_mappings_are_scarce_all_of_a_region_is_saved() {
    alone("where_mappings_are_scarce_all_of_a_region_is_saved", || every_other_unit(512, || Filler::new().give_back(64)));
}

/// A region that has its protection in common with those beside it, in a process that has no mapping left.
#[test]
fn a_region_among_others_is_written_without_a_mapping_more() {
    alone("a_region_among_others_is_written_without_a_mapping_more", || {
        for hidden in [None, Some(0), Some(4)] {
            for written in 1..4 {
                let (mut here, mut there, pool) = joined();
                let mut regions: Vec<_> = (0..5).map(|_| Some(pool.allocate(UNIT).unwrap())).collect();
                let mut bytes = vec![0; UNIT];
                for (fill, region) in regions.iter_mut().enumerate() {
                    region.as_mut().unwrap().bytes_mut().fill(fill as u8);
                    if hidden == Some(fill) {
                        let semantics = shunt_buffers::Semantics::EMULATED_MOVE;
                        here.send_region(region.take().unwrap(), UNIT, semantics).unwrap();
                    } else {
                        here.send(region.as_ref().unwrap().bytes(), true).unwrap();
                    }
                }
                assert_eq!(here.lent().1, 5);
                let filler = Filler::new();
                write(regions[written].as_ref().unwrap(), 7, 99);
                // SAFETY: the filler's own.
                unsafe { libc::munmap(filler.start as *mut libc::c_void, filler.pages * PAGE) };
                for fill in 0..5 {
                    there.receive(&mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == fill), "{written} of {fill}");
                }
                assert_eq!(regions[written].as_ref().unwrap().bytes()[7], 99);
            }
        }
    });
}
