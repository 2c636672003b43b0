//! Limits of a process, met at each step: a message comes all the same, copied for a reason that has a name, or there is an error that says
//! what is missing. Nothing ends the program, and no descriptor is lost.

mod common;

use common::{alone, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::Semantics;
use shunt_region::{Audience, Limit, Pages, Pool, Shape};

/// The limits that say that the process, or its host, has no more.
const SCARCE: [Limit; 5] = [Limit::Memory, Limit::Descriptors, Limit::Locked, Limit::NoHugePages, Limit::Refused];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// By reference, all that can be.
    Shared,
    /// All came, copied, as this was missing.
    Copied(Limit),
    /// This was missing at an end of the port, and no message went.
    Refused(Error),
}

/// Whether an error says that something is scarce.
fn is_clear(error: Error) -> bool {
    match error {
        Error::Limit(limit) => SCARCE.contains(&limit),
        Error::System(errno) => [libc::EMFILE, libc::ENOMEM, libc::EFBIG, libc::EPERM, libc::ENOSYS].contains(&errno.0),
        _ => false,
    }
}

fn pool(pages: Pages) -> Result<Pool, Limit> {
    let audience = if pages == Pages::Small { Audience::Anyone } else { Audience::Trusted };
    Pool::create(Shape { unit: UNIT, units: 64 }, pages, audience)
}

/// Sends `fill` by each of the semantics, from a region if there is a pool that was offered, and else from memory of its own.
fn exchange((mut here, mut there): (Port, Port), pages: Pages) -> Outcome {
    here.trust();
    there.trust();
    here.set_costs(Costs::USUAL);
    here.policy().tcow_from = UNIT;
    let offered = pool(pages).map_err(Error::Limit).and_then(|pool| here.offer(&pool).map(|()| pool));
    let mut bytes = vec![0; UNIT];
    let mut outcome = Outcome::Shared;
    for fill in 1..=24u8 {
        let semantics = Semantics::ALL[fill as usize % 8];
        match &offered {
            Err(error) => {
                assert!(is_clear(*error), "{error:?}");
                here.send(&vec![fill; UNIT], true).unwrap();
            }
            Ok(pool) => {
                let mut region = pool.allocate(UNIT).unwrap();
                region.bytes_mut()[..UNIT].fill(fill);
                match semantics.index() {
                    0 | 1 => drop(here.send(&region.bytes()[..UNIT], semantics.index() == 1).unwrap()),
                    2 | 3 => drop(here.send_shared(&region, UNIT, semantics).unwrap()),
                    _ => drop(here.send_region(region, UNIT, semantics).unwrap()),
                }
            }
        }
        match there.receive(&mut bytes) {
            Ok(length) => assert!(length == UNIT && bytes.iter().all(|byte| *byte == fill), "{fill}"),
            // It is the same when it is asked for again.
            Err(error) => {
                assert!(is_clear(error) && there.receive(&mut bytes) == Err(error), "{error:?}");
                return Outcome::Refused(error);
            }
        }
        here.progress().unwrap();
    }
    if let Err(error) = offered {
        outcome = Outcome::Copied(if let Error::Limit(limit) = error { limit } else { Limit::Private });
    } else if here.copied(Limit::Locked) > 0 {
        outcome = Outcome::Copied(Limit::Locked);
    }
    outcome
}

fn descriptors() -> usize {
    // SAFETY: a look at numbers.
    (0..256).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1).count()
}

/// What comes of an exchange in a child that has called `limit`, before it made its port or after that.
fn under(limit: &dyn Fn(), early: bool, pages: Pages) -> Outcome {
    let answer = common::shared_word();
    // SAFETY: a child of a program with one thread (`alone`), which ends here.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let made = if early { Err(()) } else { Ok(Port::pair().unwrap()) };
                limit();
                let before = descriptors();
                let outcome = match made.map_or_else(|()| Port::pair(), Ok) {
                    Ok(ports) => exchange(ports, pages),
                    Err(error) => {
                        assert!(is_clear(error), "{error:?}");
                        Outcome::Refused(error)
                    }
                };
                // What tells of limits stays open, and nothing else; a port that was made before has gone.
                let after = descriptors();
                assert!(after <= before + 1, "{before} descriptors, then {after}");
                outcome
            }));
            let code = match done {
                Ok(Outcome::Shared) => 0,
                Ok(Outcome::Copied(limit)) => 100 + limit as u32,
                Ok(Outcome::Refused(Error::Limit(limit))) => 200 + limit as u32,
                Ok(Outcome::Refused(Error::System(errno))) => 1000 + errno.0 as u32,
                _ => u32::MAX,
            };
            answer.write_volatile(code);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        assert_eq!(status, 0, "the child was ended");
        match answer.read_volatile() {
            0 => Outcome::Shared,
            code @ 100..200 => Outcome::Copied(Limit::ALL[code as usize - 100]),
            code @ 200..300 => Outcome::Refused(Error::Limit(Limit::ALL[code as usize - 200])),
            code @ 1000..2000 => Outcome::Refused(Error::System(shunt_sys::Errno(code as i32 - 1000))),
            _ => panic!("an assertion in the child"),
        }
    }
}

/// Each value of a limit, from the tightest to one that is enough: what is missing then, and that nothing is with the last.
fn steps(what: &str, resource: libc::__rlimit_resource_t, values: &[u64], missing: &[Outcome]) {
    let mut seen = Vec::new();
    for pages in [Pages::Small, Pages::HugeIfPossible] {
        for early in [true, false] {
            for value in values {
                let bound = libc::rlimit { rlim_cur: *value, rlim_max: *value };
                // SAFETY: a plain call.
                let outcome = under(&|| assert_eq!(unsafe { libc::setrlimit(resource, &bound) }, 0), early, pages);
                println!("{what} {value}, {pages:?}, {}: {outcome:?}", if early { "early" } else { "late" });
                seen.push(outcome);
            }
            assert_eq!(seen.last(), Some(&Outcome::Shared), "{what}: enough");
        }
    }
    for outcome in missing {
        assert!(seen.contains(outcome), "{what}: never {outcome:?}");
    }
}

#[test]
fn of_descriptors() {
    alone("of_descriptors", || {
        let (refused, copied) = (Error::System(shunt_sys::Errno(libc::EMFILE)), Outcome::Copied(Limit::Descriptors));
        let missing = [Outcome::Refused(refused), Outcome::Refused(Error::Limit(Limit::Descriptors)), copied];
        steps("RLIMIT_NOFILE", libc::RLIMIT_NOFILE, &(0..24).collect::<Vec<u64>>(), &missing);
    });
}

#[test]
fn of_file_sizes() {
    alone("of_file_sizes", || {
        let refused = Error::System(shunt_sys::Errno(libc::EFBIG));
        let sizes: Vec<u64> = [0].into_iter().chain((12..36).step_by(2).map(|power| 1 << power)).collect();
        steps("RLIMIT_FSIZE", libc::RLIMIT_FSIZE, &sizes, &[Outcome::Refused(refused), Outcome::Copied(Limit::Memory)]);
    });
}

#[test]
fn of_address_space() {
    alone("of_address_space", || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let own = text.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
        // The heap's growth is the program's; from 4 MiB on there is enough for it.
        let spaces: Vec<u64> = (2..20).map(|step| own + (step << 21)).chain([1 << 36]).collect();
        let missing = [Outcome::Refused(Error::System(shunt_sys::Errno(libc::ENOMEM))), Outcome::Copied(Limit::Memory)];
        steps("RLIMIT_AS", libc::RLIMIT_AS, &spaces, &missing);
    });
}

/// Basic semantics lock pages while they are sent.
#[test]
fn of_locked_memory() {
    alone("of_locked_memory", || {
        // Root may lock whatever the limit says.
        // SAFETY: plain calls, in a process of this test's own.
        unsafe {
            if libc::geteuid() == 0 {
                assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
            }
        }
        steps("RLIMIT_MEMLOCK", libc::RLIMIT_MEMLOCK, &[0, 4096, 32768, 8 << 20], &[Outcome::Copied(Limit::Locked)]);
    });
}

/// From here on this process's `number` fails with `errno`, where its first argument has one of these bits, or always.
fn forbid(number: i64, bits: u32, errno: i32) {
    const ALLOW: u32 = 0x7fff_0000;
    const ERROR: u32 = 0x0005_0000;
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, set, give) = (0x20, 0x15, 0x45, 0x06);
    let last = if bits == 0 { step(give, ERROR | errno as u32, 0, 0) } else { step(set, bits, 0, 1) };
    let mut filter = [
        step(load, 0, 0, 0),
        step(equal, number as u32, 0, 3),
        step(load, 16, 0, 0),
        last,
        step(give, ERROR | errno as u32, 0, 0),
        step(give, ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the filter.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn no_memory_that_can_be_shared() {
    alone("no_memory_that_can_be_shared", || {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let limit = || forbid(libc::SYS_memfd_create, 0, errno);
            let refused = Outcome::Refused(Error::System(shunt_sys::Errno(errno)));
            assert_eq!(under(&limit, true, Pages::Small), refused);
            assert_eq!(under(&limit, false, Pages::Small), Outcome::Copied(Limit::Refused));
        }
        let full = || forbid(libc::SYS_ftruncate, 0, libc::ENOSPC);
        assert_eq!(under(&full, false, Pages::Small), Outcome::Copied(Limit::Memory));
    });
}

#[test]
fn no_user_namespaces() {
    alone("no_user_namespaces", || {
        let limit = || forbid(libc::SYS_clone, libc::CLONE_NEWUSER as u32, libc::EPERM);
        assert_eq!(under(&limit, false, Pages::Huge), Outcome::Copied(Limit::NoHugePages));
        assert_eq!(under(&limit, true, Pages::HugeIfPossible), Outcome::Shared, "small ones");
    });
}
