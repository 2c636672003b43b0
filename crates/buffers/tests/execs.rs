//! A process that becomes another program while its outputs are under way, or starts one: what it sent arrives as it was, both ends' pools are whole,
//! and the other program has nothing of theirs.

mod common;

use common::{with_child, SHAPE, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port, AT_ONCE};
use shunt_buffers::{Allocation, Integrity, Semantics};
use shunt_region::{Audience, Pages, Pool, Region};
use std::ffi::CString;

const LENGTH: usize = 2 * UNIT;

/// The descriptors of whatever program this is go to a file.
fn look(path: &str) -> Vec<CString> {
    let script = format!("ls -l /proc/$$/fd > {path}.new; mv {path}.new {path}; exec sleep 1000");
    ["/bin/sh", "-c", &script].map(|word| CString::new(word).unwrap()).into()
}

fn becomes(words: &[CString]) -> ! {
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(core::ptr::null());
    // SAFETY: words that end, and a list that does.
    unsafe {
        libc::execv(pointers[0], pointers.as_ptr());
        libc::_exit(1)
    }
}

/// A program's socket as it may be: not closed by exec.
fn stays_open(fd: i32) -> i32 {
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
    fd
}

fn file(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("execs-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path.to_str().unwrap().into()
}

/// What the other program has open.
fn seen(path: &str) -> String {
    while !std::path::Path::new(path).exists() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let list = std::fs::read_to_string(path).unwrap();
    std::fs::remove_file(path).unwrap();
    list
}

fn sender(fd: i32) -> (Port, Pool) {
    let mut port = Port::connect(fd).unwrap();
    let pool = Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap();
    port.set_costs(Costs::USUAL);
    port.offer(&pool).unwrap();
    port.policy().tcow_from = UNIT;
    port.policy().waiting_from = usize::MAX;
    (port, pool)
}

/// Under way afterwards, but for the basic copy. Gives the region, if it is still the sender's.
fn output(port: &mut Port, pool: &Pool, semantics: Semantics) -> Option<Region> {
    let mut region = pool.allocate(LENGTH).unwrap();
    region.bytes_mut().fill(semantics.index() as u8 + 1);
    let ticket = if semantics.allocation == Allocation::System {
        let ticket = port.send_region(region, LENGTH, semantics).unwrap();
        assert_ne!(ticket, AT_ONCE);
        return None;
    } else if semantics.integrity == Integrity::Weak {
        port.send_shared(&region, LENGTH, semantics).unwrap()
    } else {
        port.send(region.bytes(), semantics == Semantics::EMULATED_COPY).unwrap()
    };
    assert_eq!(ticket == AT_ONCE, semantics == Semantics::COPY);
    Some(region)
}

/// All messages, in order, by each of the ways to receive them.
fn receive_all(port: &mut Port) {
    for semantics in Semantics::ALL {
        let expected = vec![semantics.index() as u8 + 1; LENGTH];
        match semantics.index() % 3 {
            0 => {
                let mut buffer = vec![0; LENGTH];
                assert_eq!(port.receive(&mut buffer), Ok(LENGTH));
                assert!(buffer == expected, "{}", semantics.name());
            }
            1 => {
                let message = port.receive_reference().unwrap();
                assert!(message.to_vec() == expected, "{}", semantics.name());
                port.give_back(message).unwrap();
            }
            _ => {
                let (region, length) = port.receive_region(Semantics::EMULATED_WEAK_MOVE).unwrap();
                assert!(region.bytes()[..length] == expected, "{}", semantics.name());
            }
        }
    }
}

#[test]
fn a_sender_that_becomes_another_program_has_sent_what_it_sent() {
    common::alone("a_sender_that_becomes_another_program_has_sent_what_it_sent", || {
        let path = file("sender");
        with_child(
            |fd| {
                let (mut port, pool) = sender(stays_open(fd));
                let mut kept: Vec<Region> =
                    Semantics::ALL.into_iter().filter_map(|semantics| output(&mut port, &pool, semantics)).collect();
                // Armed, and written: what was there is in the spare.
                kept[1].bytes_mut()[..10].fill(0xff);
                becomes(&look(&path));
            },
            |fd, kill| {
                let mut port = Port::accept(fd).unwrap();
                let list = seen(&path);
                assert!(!list.contains("shunt") && !list.contains("socket:"), "{list}");
                // It has gone, and what it sent is received.
                let pool = Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap();
                port.offer(&pool).unwrap();
                receive_all(&mut port);
                assert_eq!(port.receive(&mut [0]), Err(Error::Gone));
                drop(port);
                assert_eq!(pool.free(), SHAPE.units);
                kill();
            },
        );
    });
}

#[test]
fn a_receiver_that_becomes_another_program_holds_nothing() {
    common::alone("a_receiver_that_becomes_another_program_holds_nothing", || {
        let path = file("receiver");
        with_child(
            |fd| {
                let mut port = Port::accept(stays_open(fd)).unwrap();
                // In place, and never given back; copied; and the rest is under way.
                std::mem::forget(port.receive_reference().unwrap());
                std::mem::forget(port.receive_reference().unwrap());
                port.receive(&mut vec![0; LENGTH]).unwrap();
                becomes(&look(&path));
            },
            |fd, kill| {
                let (mut port, pool) = sender(fd);
                let mut kept: Vec<Region> =
                    Semantics::ALL.into_iter().filter_map(|semantics| output(&mut port, &pool, semantics)).collect();
                let list = seen(&path);
                assert!(!list.contains("shunt") && !list.contains("socket:"), "{list}");
                assert_eq!(port.receive(&mut [0]), Err(Error::Gone));
                port.abandon();
                assert_eq!(port.lent(), (0, 0));
                kept.iter_mut().for_each(|region| region.bytes_mut().fill(9));
                drop((kept, port));
                assert_eq!(pool.free(), SHAPE.units);
                kill();
            },
        );
    });
}

/// By vfork, in whose child the memory is still this process's, and by fork.
#[test]
fn a_program_that_a_sender_starts_changes_nothing() {
    common::alone("a_program_that_a_sender_starts_changes_nothing", || {
        let (mut here, mut there, pool) = common::joined();
        let others = common::pool();
        there.offer(&others).unwrap();
        here.policy().waiting_from = usize::MAX;
        for turn in 0..4 {
            let mut kept: Vec<Region> =
                Semantics::ALL.into_iter().filter_map(|semantics| output(&mut here, &pool, semantics)).collect();
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", "ls -l /proc/$$/fd"]);
            if turn % 2 == 1 {
                use std::os::unix::process::CommandExt as _;
                // SAFETY: it does nothing; the standard library forks for it.
                unsafe { command.pre_exec(|| Ok(())) };
            }
            let list = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert!(!list.contains("shunt"), "{list}");
            for region in &mut kept[..2] {
                region.bytes_mut().fill(0xff);
            }
            receive_all(&mut there);
            here.progress().unwrap();
            assert_eq!(here.lent(), (0, 0));
            drop(kept);
        }
        drop((here, there));
        assert_eq!((pool.free(), others.free()), (64, 64));
    });
}
