//! Memory cgroups that are small: whose memory a message is, and that nobody is ended for another's.

mod common;

use common::{alone, with_child, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::record::{Kind, Record};
use shunt_buffers::Semantics;
use shunt_region::shown::{Asked, Shown, View};
use shunt_region::{Audience, Limit, Pages, Pool, Reference, Shape, Violation};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SMALL: usize = 24 << 20;

/// A cgroup of this test's own, removed with it.
struct Group(PathBuf);

impl Group {
    /// One that may have [`SMALL`] bytes. Or why not: this process may not make one, or no hierarchy has memory.
    fn small() -> Result<Group, String> {
        let name = format!("shunt-test-{}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let one = own.lines().find_map(|line| line.split_once(":memory:")).map(|(_, path)| path.trim_start_matches('/'));
        let (parent, file) = match one {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes"),
            None => (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Group(parent.join(name));
        let made = fs::create_dir(&group.0).and_then(|()| fs::write(group.0.join(file), SMALL.to_string()));
        // Else what does not fit goes there.
        let _ = fs::write(group.0.join("memory.swap.max"), "0").or_else(|_| fs::write(group.0.join("memory.swappiness"), "0"));
        made.map_err(|error| format!("no memory cgroup can be made in {}: {error}", parent.display())).map(|()| group)
    }

    /// This process is in it from now on.
    fn enter(&self) {
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process leaves it a moment after its end.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs `body` in a process of its own, with a small group.
fn with_group(name: &str, body: impl FnOnce(&Group)) {
    if let Err(why) = Group::small() {
        // The harness keeps what goes through `eprintln!`; a skipped test must be seen.
        let mut terminal = fs::OpenOptions::new().write(true).open("/proc/self/fd/2").unwrap();
        let _ = writeln!(terminal, "SKIPPED {name}: {why}");
        return;
    }
    alone(name, || body(&Group::small().unwrap()));
}

fn pool(bytes: usize) -> Result<Pool, Limit> {
    Pool::create(Shape { unit: UNIT, units: bytes / UNIT }, Pages::Small, Audience::Anyone)
}

fn is_filled(bytes: &[u8], fill: u8) -> bool {
    bytes.iter().all(|byte| *byte == fill)
}

/// Its peer's pool is larger than all that it may have.
#[test]
fn what_a_reader_reads_is_its_sender_s_memory() {
    with_group("what_a_reader_reads_is_its_sender_s_memory", |group| {
        const LENGTH: usize = 1 << 20;
        const MESSAGES: u8 = 128;
        let child = |fd: i32| {
            group.enter();
            let mut port = Port::accept(fd).unwrap();
            let mut own = vec![0; LENGTH];
            for fill in 0..MESSAGES {
                if fill % 2 == 0 {
                    let message = port.receive_reference().unwrap();
                    let (start, length) = message.in_place().expect("in place");
                    // SAFETY: as many bytes are there, until it is given back.
                    assert!(is_filled(unsafe { std::slice::from_raw_parts(start, length) }, fill));
                    port.give_back(message).unwrap();
                } else {
                    assert_eq!(port.receive(&mut own), Ok(LENGTH));
                    assert!(is_filled(&own, fill));
                }
                port.send(b"k", false).unwrap();
            }
        };
        with_child(child, |fd, kill| {
            let mut port = Port::connect(fd).unwrap();
            port.set_costs(Costs::USUAL);
            let pool = pool(3 * SMALL).unwrap();
            port.offer(&pool).unwrap();
            for fill in 0..MESSAGES {
                let mut region = pool.allocate(LENGTH).unwrap();
                region.bytes_mut().fill(fill);
                port.send_region(region, LENGTH, Semantics::EMULATED_WEAK_MOVE).unwrap();
                // One that had been ended would be gone.
                port.receive(&mut [0]).unwrap();
            }
            assert_eq!(port.copied(Limit::Memory), 0);
            kill();
        });
    });
}

/// As the peer of a plain socket has them: a pool, and a program's own file, of which half is a hole. All of both is more than the reader may have.
#[test]
fn what_is_read_of_a_plain_socket_s_peer_is_the_peer_s_memory() {
    with_group("what_is_read_of_a_plain_socket_s_peer_is_the_peer_s_memory", |group| {
        const LENGTH: usize = 64 << 10;
        const WORDS: usize = 4;
        let child = |fd: i32| {
            group.enter();
            // SAFETY: the child's own.
            let mut stream = unsafe { UnixStream::from_raw_fd(fd) };
            let mut own = vec![0; LENGTH];
            for fill in [7, 8] {
                let mut offer = [[0u8; 8]; WORDS];
                stream.read_exact(offer.as_flattened_mut()).unwrap();
                let [owner, name, first, second] = offer.map(u64::from_le_bytes);
                let view = View::open(owner as u32, name as u32, [first, second], Ok).unwrap();
                assert!(fill == 7 || view.base != 0, "a file is mapped, too");
                for at in (0..3 * SMALL).step_by(LENGTH) {
                    // SAFETY: as long.
                    let got = unsafe { view.place(at as u64, LENGTH).unwrap().copy(own.as_mut_ptr(), LENGTH) };
                    let is_hole = fill == 8 && at >= 3 * SMALL / 2;
                    assert_eq!((got, is_filled(&own, if is_hole { 0 } else { fill })), (Ok(LENGTH), true), "{fill}, {at}");
                }
                stream.write_all(b"k").unwrap();
            }
        };
        with_child(child, |fd, kill| {
            // SAFETY: this end is this process's.
            let mut stream = unsafe { UnixStream::from_raw_fd(fd) };
            let owner = std::process::id();
            let pool = pool(3 * SMALL).unwrap();
            let mut region = pool.allocate(3 * SMALL).unwrap();
            region.bytes_mut().fill(7);
            // SAFETY: plain calls.
            let file = unsafe { libc::memfd_create(c"own".as_ptr(), libc::MFD_CLOEXEC) };
            let half = vec![8u8; 3 * SMALL / 2];
            // SAFETY: as many bytes; a number of this process's, which stays open.
            unsafe {
                assert_eq!(libc::ftruncate(file, 3 * SMALL as i64), 0);
                assert_eq!(libc::write(file, half.as_ptr().cast(), half.len()), half.len() as isize);
            }
            let asked = Asked { address: 1 << 20, descriptor: file, length: 3 * SMALL as u64, ..Asked::default() };
            let shown = [Shown::at(pool.address(), pool.descriptor(), owner).unwrap(), Shown::file(&asked, owner).unwrap()];
            for shown in shown {
                shown.claim().unwrap();
                let offer = [u64::from(owner), u64::from(shown.name()), shown.secret[0], shown.secret[1]];
                stream.write_all(offer.map(u64::to_le_bytes).as_flattened()).unwrap();
                // One that had been ended would be gone.
                stream.read_exact(&mut [0]).unwrap();
            }
            kill();
        });
    });
}

#[test]
fn holes_of_a_hostile_peer_s_pool_are_nobody_s_memory() {
    with_group("holes_of_a_hostile_peer_s_pool_are_nobody_s_memory", |group| {
        let child = |fd: i32| {
            group.enter();
            let mut port = Port::accept(fd).unwrap();
            let mut own = vec![0; 64 << 10];
            for _ in 0..10 {
                assert_eq!(port.receive(&mut own[..1]), Err(Error::Violation(Violation::Hole)));
            }
            port.send(b"k", false).unwrap();
        };
        with_child(child, |fd, kill| {
            let mut port = Port::connect(fd).unwrap();
            port.set_costs(Costs::USUAL);
            let pool = pool(3 * SMALL).unwrap();
            port.offer(&pool).unwrap();
            let reference = Reference { offset: 0, length: 2 * SMALL as u64, generation: 1, pool: 0, ticket: 1 };
            let record = Record { kind: Kind::Region, semantics: Semantics::EMULATED_SHARE, serial: 0, reference, source: 0 };
            port.put_raw(0, &record.to_bytes()).unwrap();
            port.receive(&mut [0]).unwrap();
            kill();
        });
    });
}

/// What a sender cannot have as a pool is copied, and said; what it can have it can use to the last page.
#[test]
fn a_sender_has_pools_that_fit_or_copies() {
    with_group("a_sender_has_pools_that_fit_or_copies", |group| {
        let child = |fd: i32| {
            group.enter();
            let mut port = Port::accept(fd).unwrap();
            port.set_costs(Costs::USUAL);
            assert_eq!(pool(2 * SMALL).map(|_| ()), Err(Limit::Memory));
            port.send(&vec![1; UNIT], false).unwrap();
            let pool = pool(SMALL / 3).unwrap();
            port.offer(&pool).unwrap();
            assert_eq!(self::pool(SMALL / 3).map(|_| ()), Err(Limit::Memory), "all of them together");
            // Three times round.
            for _ in 0..3 * pool.shape().units {
                let mut region = pool.allocate(UNIT).unwrap();
                region.bytes_mut().fill(2);
                port.send_region(region, UNIT, Semantics::EMULATED_MOVE).unwrap();
                port.receive(&mut [0]).unwrap();
            }
        };
        with_child(child, |fd, kill| {
            let mut port = Port::connect(fd).unwrap();
            let mut own = vec![0; UNIT];
            assert_eq!((port.receive(&mut own), is_filled(&own, 1)), (Ok(UNIT), true));
            for _ in 0..3 * (SMALL / 3 / UNIT) {
                assert_eq!((port.receive(&mut own), is_filled(&own, 2)), (Ok(UNIT), true));
                port.send(b"k", false).unwrap();
            }
            kill();
        });
    });
}
