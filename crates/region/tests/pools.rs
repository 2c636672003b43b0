//! Pools, their owner and a peer: what is lent, saved, hidden, and comes back.

use shunt_region::state::{Event, State};
use shunt_region::word::Use;
use shunt_region::{
    before_kernel_writes, may_inspect, Access, Account, Attached, Audience, Limit, Pages, Pool, Reference, Shape, Violation,
};
use shunt_sys::{calls, libc};

const SHAPE: Shape = Shape { unit: 64 << 10, units: 8 };

fn small() -> Pool {
    Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap()
}

#[test]
fn a_peer_reads_what_it_was_lent_and_no_more_than_its_quota() {
    let pool = small();
    let mut region = pool.allocate(SHAPE.unit).unwrap();
    region.bytes_mut().fill(3);
    let mut account = Account::new(2 * SHAPE.unit).unwrap();
    let first = account.lend(&pool, &region, 0, SHAPE.unit).unwrap();
    let second = account.lend(&pool, &region, 1, SHAPE.unit - 1).unwrap();
    assert_eq!(account.lend(&pool, &region, 0, 2), Err(Limit::Quota));
    assert_eq!(account.lend(&pool, &region, 2, SHAPE.unit), Err(Limit::Outside));
    assert_eq!(Account::new(10).unwrap().lend(&pool, &region, 0, 2), Err(Limit::OtherPeer));
    let attached = Attached::map(pool.descriptor(), Audience::Anyone).unwrap();
    let mut bytes = vec![0; SHAPE.unit];
    assert_eq!(attached.check(&first).unwrap().copy_to(0, &mut bytes), SHAPE.unit);
    assert!(bytes.iter().all(|byte| *byte == 3));
    drop(region);
    assert_eq!(pool.free(), SHAPE.units - 1, "it is being read");
    account.give_back(first.ticket).unwrap();
    assert_eq!(account.give_back(first.ticket).unwrap_err(), Violation::Ticket);
    assert_eq!(account.give_back(u64::MAX).unwrap_err(), Violation::Ticket);
    account.give_back(second.ticket).unwrap();
    assert_eq!((pool.free(), account.lent(), account.held()), (SHAPE.units, 0, 0));
}

#[test]
fn a_dead_peer_holds_nothing_and_poisoned_bytes_are_not_seen_again() {
    let pool = small();
    let mut account = Account::new(1 << 30).unwrap();
    for _ in 0..3 {
        let mut region = pool.allocate(2 * SHAPE.unit).unwrap();
        region.bytes_mut().fill(9);
        account.lend(&pool, &region, 0, 1).unwrap();
        let at = region.located();
        pool.poison(&at);
    }
    assert_eq!(pool.free(), SHAPE.units - 6);
    let mut count = 0;
    account.forfeit(|returned| {
        assert_eq!(returned.value.state(), State::Free);
        count += 1;
    });
    assert_eq!((count, pool.free()), (3, SHAPE.units));
    let all = pool.allocate(SHAPE.bytes()).unwrap();
    assert!(all.bytes().iter().all(|byte| *byte == 0));
}

/// Faults of this thread that needed no disk.
fn faults() -> i64 {
    // SAFETY: plain integers, and room for them.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        shunt_sys::check(shunt_sys::syscall!(libc::SYS_getrusage, 1, &raw mut usage)).unwrap();
        usage.ru_minflt
    }
}

#[test]
fn what_is_read_of_a_populated_pool_faults_nowhere() {
    let shape = Shape { unit: 64 << 10, units: 64 };
    for (populated, audience) in [(true, Audience::Anyone), (true, Audience::Trusted), (false, Audience::Anyone)] {
        let pool = Pool::create(shape, Pages::Small, audience).unwrap();
        if populated {
            pool.populate();
        }
        let attached = Attached::map(pool.descriptor(), audience).unwrap();
        let region = pool.allocate(shape.bytes()).unwrap();
        let mut account = Account::new(1 << 30).unwrap();
        let reference = account.lend(&pool, &region, 0, shape.bytes()).unwrap();
        let span = attached.check(&reference).unwrap();
        let mut bytes = vec![1; shape.unit];
        let before = faults();
        (0..shape.units).for_each(|unit| assert_eq!(span.copy_to(unit * shape.unit, &mut bytes), shape.unit));
        // Sixteen pages a fault, where the kernel looks around.
        let some = (shape.bytes() / 4096 / 16) as i64;
        assert_eq!(faults() - before >= some, !populated, "{populated} {audience:?}");
        assert!(populated || pool.shape() == shape);
    }
}

#[test]
fn an_armed_region_keeps_its_bytes_for_the_reader() {
    let pool = small();
    let mut region = pool.allocate(2 * SHAPE.unit).unwrap();
    region.bytes_mut().fill(1);
    let at = region.located();
    let mut account = Account::new(1 << 30).unwrap();
    account.room(&pool, region.size()).unwrap();
    pool.reference(&at, Use::Output).unwrap();
    pool.arm(&at).unwrap();
    let reference = account.enter(&pool, &at, region.size());
    let attached = Attached::map(pool.descriptor(), Audience::Anyone).unwrap();
    // The kernel's writes fail while it is armed, and are preceded by this.
    let mut pipe = [0; 2];
    calls::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC).unwrap();
    calls::write(pipe[1], [2u8; 16].as_ptr().cast(), 16).unwrap();
    let target = region.pointer();
    assert_eq!(calls::read(pipe[0], target.cast(), 16), Err(shunt_sys::Errno(libc::EFAULT)));
    before_kernel_writes(target as usize, 16);
    assert_eq!(calls::read(pipe[0], target.cast(), 16), Ok(16));
    assert_eq!(region.bytes()[0], 2);
    let mut bytes = vec![0; region.size()];
    attached.check(&reference).unwrap().copy_to(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 1), "as they were when it was output");
    assert_eq!(account.lend(&pool, &region, 0, 1), Err(Limit::Redirected));
    account.give_back(reference.ticket).unwrap();
    pool.disarm(&at);
    let later = account.lend(&pool, &region, 0, 1).unwrap();
    attached.check(&later).unwrap().copy_to(0, &mut bytes[..1]);
    assert_eq!(bytes[0], 2, "what was saved for one output is not another's");
}

#[test]
fn states_bind_the_handles() {
    let pool = small();
    let (pool, at) = pool.allocate(10).unwrap().leave();
    assert_eq!(pool.apply(&at, Event::MarkMovedOut), Err(Limit::State));
    pool.apply(&at, Event::MarkMovingOut).unwrap();
    pool.access(&at, Access::None).unwrap();
    before_kernel_writes(pool.pointer(&at) as usize, 1);
    let mut byte = 0u8;
    let mut pipe = [0; 2];
    calls::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC).unwrap();
    calls::write(pipe[1], (&raw mut byte).cast(), 1).unwrap();
    assert!(calls::read(pipe[0], pool.pointer(&at).cast(), 1).is_err(), "hidden is hidden");
    pool.apply(&at, Event::MarkMovedOut).unwrap();
    assert_eq!(pool.reference(&at, Use::Output), Err(Limit::State));
    pool.apply(&at, Event::MarkMovingIn).unwrap();
    pool.access(&at, Access::Write).unwrap();
    pool.apply(&at, Event::MarkMovedIn).unwrap();
    let region = shunt_region::Region::regain(pool.clone(), at).unwrap();
    drop(region);
    assert!(shunt_region::Region::regain(pool.clone(), at).is_err());
    assert_eq!(pool.free(), SHAPE.units);
}

#[test]
fn a_peer_can_neither_write_nor_shrink_a_pool_for_anyone() {
    let pool = small();
    let fd = pool.descriptor();
    assert!(calls::ftruncate(fd, 0).is_err());
    assert!(shunt_sys::mapping::shared(fd, 4096).is_err());
    assert!(calls::pwrite(fd, [1u8].as_ptr().cast(), 1, 0).is_err());
    let plain = calls::memfd_create(b"plain\0", libc::MFD_CLOEXEC).unwrap();
    calls::ftruncate(plain, 1 << 20).unwrap();
    assert_eq!(Attached::map(plain, Audience::Anyone).unwrap_err(), Limit::Unsealed);
    assert_eq!(Attached::map(plain, Audience::Trusted).unwrap_err(), Limit::Shape);
    assert_eq!(Attached::map(0, Audience::Trusted).map(|_| ()).unwrap_err(), Limit::Unsealed);
}

#[test]
fn huge_pages_where_there_are_user_namespaces() {
    let shape = Shape { unit: 64 << 10, units: 128 };
    assert_eq!(Pool::create(shape, Pages::Huge, Audience::Anyone).unwrap_err(), Limit::Untrusted);
    match Pool::create(shape, Pages::Huge, Audience::Trusted) {
        Ok(pool) => {
            assert_eq!((pool.shape().unit, pool.shape().units), (2 << 20, 4));
            pool.populate();
            let pages = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let of_pool = |line: &&str| line.starts_with("ShmemPmdMapped:") && !line.contains(" 0 kB");
            assert!(pages.lines().any(|line| of_pool(&line)), "no huge page was mapped");
        }
        Err(limit) => assert_eq!(limit, Limit::NoHugePages),
    }
    assert!(Pool::create(shape, Pages::HugeIfPossible, Audience::Anyone).is_ok());
}

#[test]
fn a_process_inspects_itself_and_nobody_that_is_not_there() {
    assert!(may_inspect(std::process::id() as i32));
    assert!(!may_inspect(0) && !may_inspect(i32::MAX));
}

/// A pool as a hostile process may make one, with its own mapping of it; nothing but its front has been written.
fn forged(shape: Shape, seals: i32) -> (i32, *mut u8) {
    let fd = calls::memfd_create(b"forged\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
    calls::ftruncate(fd, shape.file() as i64).unwrap();
    let base = shunt_sys::mapping::shared(fd, shape.file()).unwrap();
    // SAFETY: the file's first pages.
    unsafe {
        base.write_bytes(0, 8192);
        base.cast::<u64>().write(u64::from_le_bytes(*b"shuntpol"));
        base.add(8).cast::<[u32; 3]>().write([2, shape.unit as u32, shape.units as u32]);
    }
    calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize).unwrap();
    (fd, base)
}

const SIZE_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
const FUTURE_WRITE: i32 = 0x10;

/// Pages of a file that are memory.
fn pages(fd: i32) -> i64 {
    calls::status_of(fd).unwrap().st_blocks / 8
}

#[test]
fn a_reader_pays_for_no_page_of_its_peer_s_pool() {
    let shape = Shape { unit: 16 << 10, units: 8 };
    let (fd, base) = forged(shape, SIZE_SEALS | FUTURE_WRITE);
    let attached = Attached::map(fd, Audience::Anyone).unwrap();
    // SAFETY: pages of the mapping: of units 1 and 2 all, of unit 4 the second and third.
    let write = |offset: usize, length: usize| unsafe { base.add(shape.front() + offset).write_bytes(7, length) };
    write(shape.unit, 2 * shape.unit);
    write(4 * shape.unit + 4096, 8192);
    let reference = |offset: usize, length: usize| Reference {
        offset: offset as u64,
        length: length as u64,
        generation: 1,
        pool: 0,
        ticket: 1,
    };
    let before = pages(fd);
    let mut bytes = vec![0; shape.bytes()];
    let unit = shape.unit;
    for (offset, length) in [
        (0, 1),
        (unit - 1, 2),
        (unit, 2 * unit + 1),
        (3 * unit, unit),
        (4 * unit + 4095, 2),
        (4 * unit + 12287, 2),
        (0, shape.bytes()),
    ] {
        assert_eq!(attached.check(&reference(offset, length)).map(|_| ()), Err(Violation::Hole), "{offset} {length}");
    }
    for (offset, length) in [(unit, 2 * unit), (2 * unit + 5, 100), (4 * unit + 4096, 8192), (4 * unit + 12287, 1), (3 * unit, 0)]
    {
        let span = attached.check(&reference(offset, length)).unwrap();
        assert_eq!(span.copy_to(0, &mut bytes), length);
        assert!(bytes[..length].iter().all(|byte| *byte == 7));
    }
    // A redirect to a spare that is a hole: bytes that the peer could have sent.
    // SAFETY: the redirect of unit 1, behind the header.
    unsafe { base.add(4096 + 8).cast::<u32>().write_volatile(1) };
    assert_eq!(attached.check(&reference(unit, unit)).unwrap().copy_to(0, &mut bytes), unit);
    assert_eq!(pages(fd), before);
    // What its owner writes later is read.
    write(0, unit);
    assert!(attached.check(&reference(0, 3 * unit)).is_ok());
}

#[test]
fn a_pool_whose_owner_could_take_pages_out_of_it_is_not_mapped() {
    let shape = Shape { unit: 16 << 10, units: 8 };
    for (seals, sound) in [(SIZE_SEALS, false), (SIZE_SEALS | FUTURE_WRITE, true)] {
        let (fd, base) = forged(shape, seals);
        let mapped = Attached::map(fd, Audience::Anyone);
        assert_eq!(mapped.map(|_| ()).err(), (!sound).then_some(Limit::Unsealed));
        const MADV_REMOVE: i32 = 9;
        // SAFETY: a page of the mapping.
        let page = unsafe { base.add(shape.front()) };
        assert_eq!(calls::madvise(page, 4096, MADV_REMOVE).is_err(), sound, "what the seal is for");
    }
    // Nor one whose front is a hole.
    for front in [0, 4096] {
        let fd = calls::memfd_create(b"hole\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
        calls::ftruncate(fd, shape.file() as i64).unwrap();
        let header: [u32; 5] =
            [u32::from_le_bytes(*b"shun"), u32::from_le_bytes(*b"tpol"), 2, shape.unit as u32, shape.units as u32];
        calls::pwrite(fd, header.as_ptr().cast(), front.min(20), 0).unwrap();
        calls::fcntl(fd, libc::F_ADD_SEALS, (SIZE_SEALS | FUTURE_WRITE) as usize).unwrap();
        let before = pages(fd);
        assert_eq!(Attached::map(fd, Audience::Anyone).map(|_| ()), Err(Limit::Unsealed));
        assert_eq!(pages(fd), before);
    }
}

/// What is lent is memory, whoever has written how much of it: an honest owner's references are read.
#[test]
fn what_is_lent_was_touched() {
    let pool = small();
    let attached = Attached::map(pool.descriptor(), Audience::Anyone).unwrap();
    let mut account = Account::new(1 << 30).unwrap();
    let mut region = pool.allocate(2 * SHAPE.unit).unwrap();
    region.bytes_mut()[0] = 5;
    let reference = account.lend(&pool, &region, 0, region.size()).unwrap();
    let mut bytes = vec![1; region.size()];
    attached.check(&reference).unwrap().copy_to(0, &mut bytes);
    assert!(bytes[0] == 5 && bytes[1..].iter().all(|byte| *byte == 0));
    let before = pages(pool.descriptor());
    account.lend(&pool, &region, 0, region.size()).unwrap();
    assert_eq!(pages(pool.descriptor()), before);
}

/// A region from which writing was taken away is made memory of by reading, not by writes that its handler would mend; one that is hidden
/// cannot be, and says so.
#[test]
fn what_is_protected_is_touched_without_a_write() {
    let pool = Pool::create(Shape { unit: 64 << 10, units: 8 }, Pages::Small, Audience::Anyone).unwrap();
    let region = pool.allocate(4 * (64 << 10)).unwrap();
    let at = region.located();
    pool.touch(&at, 10).unwrap();
    pool.reference(&at, Use::Output).unwrap();
    pool.arm(&at).unwrap();
    pool.touch(&at, 3 * (64 << 10)).unwrap();
    assert!(pool.is_armed(&at));
    pool.unreference(&at, Use::Output).unwrap();
    pool.disarm(&at);
    pool.access(&at, Access::None).unwrap();
    assert_eq!(pool.touch(&at, 4 * (64 << 10)), Err(Limit::Protection));
    pool.access(&at, Access::Write).unwrap();
}
