//! Sends with MSG_ZEROCOPY from a program's own file of memory: what its peer reads is the file's, and nothing that the sender does to the file
//! meanwhile is a fault.

use super::referring::{catch_faults, LONG, ZERO_COPY};
use super::*;
use crate::error_queue;
use crate::options::effects;
use crate::pools::Looks;
use crate::references::keep;
use crate::references::lend::{self, Asked, Shown};
use shunt_segment::channel::references::{place, ShownPool, FILE};
use shunt_sys::{calls, mapping};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

const SIZE: usize = 2 << 20;
/// Where the part that is shown begins in its file.
const FROM: usize = 64 << 10;

/// A file of memory, mapped from [`FROM`] on.
struct Mapped {
    file: std::fs::File,
    bytes: &'static mut [u8],
}

impl Mapped {
    fn new() -> Mapped {
        let fd = calls::memfd_create(b"any\0", libc::MFD_CLOEXEC).expect("a memfd");
        // SAFETY: fresh.
        Mapped::of(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
    }

    fn of(file: std::fs::File) -> Mapped {
        file.set_len(SIZE as u64).expect("room");
        let base = mapping::shared_part(file.as_raw_fd(), FROM, SIZE - FROM).expect("a mapping");
        // SAFETY: as long, and never unmapped.
        let bytes = unsafe { std::slice::from_raw_parts_mut(base, SIZE - FROM) };
        bytes.copy_from_slice(&pattern(SIZE - FROM));
        Mapped { file, bytes }
    }

    fn asked(&self) -> Asked {
        let (address, length) = (self.bytes.as_ptr() as u64, self.bytes.len() as u64);
        Asked { address, descriptor: self.file.as_raw_fd(), reserved: 0, length, offset: FROM as u64 }
    }

    fn shown(&self) -> Shown {
        Shown::file(&self.asked(), std::process::id()).expect("a file of memory")
    }
}

/// What is listed of files is the process's, and other tests' files make room for each other there.
static LISTED: RwLock<()> = RwLock::new(());

/// A pair whose near end has shown such a file, and has been answered.
struct Lent {
    pair: Pair,
    memory: Mapped,
    _listed: RwLockReadGuard<'static, ()>,
}

impl Lent {
    fn of(memory: Mapped) -> Lent {
        catch_faults();
        let lent = Lent { pair: Pair::new(), memory, _listed: LISTED.read().unwrap_or_else(PoisonError::into_inner) };
        effects::apply(lent.near().socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1i32.to_ne_bytes());
        lend::show(lent.near().socket, lent.memory.shown()).expect("shown");
        lent.send(0);
        assert!(receive_whole(lent.far(), LONG) == lent.memory.bytes[..LONG]);
        assert_eq!(error_queue::take(lent.near().socket).expect("copied").ee_code, 1);
        lent
    }

    fn met() -> Lent {
        Lent::of(Mapped::new())
    }

    fn near(&self) -> &End {
        &self.pair.near
    }

    fn far(&self) -> &End {
        &self.pair.far
    }

    fn send(&self, from: usize) {
        assert_eq!(self.near().send(&self.memory.bytes[from..from + LONG], ZERO_COPY), Ok(LONG));
    }

    fn referred(&self) -> u64 {
        self.near().socket.connected.loans.bytes.load(Ordering::Relaxed)
    }
}

#[test]
fn bytes_go_by_reference_out_of_a_memfd_and_out_of_dev_shm() {
    let name = format!("/dev/shm/shunt-{}", std::process::id());
    let shared = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&name).expect("a file");
    std::fs::remove_file(&name).expect("its name");
    for memory in [Mapped::new(), Mapped::of(shared)] {
        let lent = Lent::of(memory);
        lent.send(12_345);
        assert_eq!(lent.referred(), LONG as u64);
        assert!(!error_queue::pending(lent.near().socket));
        // No copy was made: what Linux's rule forbids is seen.
        lent.memory.bytes[12_350] ^= 0xff;
        assert!(receive_whole(lent.far(), LONG) == lent.memory.bytes[12_345..12_345 + LONG]);
        assert_eq!(error_queue::take(lent.near().socket).expect("complete").ee_code, 0);
        // At the end of what is shown, and from a copy of it elsewhere.
        let last = lent.memory.bytes.len() - LONG;
        lent.send(last);
        assert_eq!((receive_whole(lent.far(), LONG), lent.referred()), (lent.memory.bytes[last..].to_vec(), 2 * LONG as u64));
        let elsewhere = lent.memory.bytes[..LONG].to_vec();
        assert_eq!(lent.near().send(&elsewhere, ZERO_COPY), Ok(LONG));
        assert_eq!((receive_whole(lent.far(), LONG).len(), lent.referred()), (LONG, 2 * LONG as u64));
    }
}

/// A program that has mapped another file where the first one was, without a word.
#[test]
fn what_was_shown_last_is_what_lies_there() {
    let (lent, other) = (Lent::met(), Mapped::new());
    other.bytes.fill(7);
    let there = Asked { descriptor: other.file.as_raw_fd(), ..lent.memory.asked() };
    lend::show(lent.near().socket, Shown::file(&there, std::process::id()).expect("a file of memory")).expect("shown");
    lent.send(0); // with the offer, which is copied
    receive_whole(lent.far(), LONG);
    lent.send(0);
    assert!(receive_whole(lent.far(), LONG) == other.bytes[..LONG]);
    // Again, and a third one: what was there before takes no place.
    for which in [&lent.memory, &Mapped::new()] {
        let there = Asked { descriptor: which.file.as_raw_fd(), ..lent.memory.asked() };
        lend::show(lent.near().socket, Shown::file(&there, std::process::id()).expect("a file of memory")).expect("shown");
        lent.send(0);
        receive_whole(lent.far(), LONG);
        lent.send(0);
        assert!(receive_whole(lent.far(), LONG) == which.bytes[..LONG]);
    }
    assert_eq!(lent.referred(), 3 * LONG as u64);
}

/// Behind the new end a mapping has zeros up to the next page, which a plain send sends.
#[test]
fn a_file_that_is_shorter_by_less_than_a_page_is_not_lent() {
    let lent = Lent::met();
    let (end, whole) = (lent.memory.bytes.len(), 64 << 10);
    lent.memory.file.set_len((SIZE - 100) as u64).expect("shorter");
    lent.pair.is_to_lend();
    let part = &lent.memory.bytes[end - whole..];
    assert_eq!(lent.near().send(part, NOW), Ok(whole));
    let socket = lent.near().socket;
    let records = &socket.page().head.references[socket.side()].records;
    assert!(records.iter().all(|record| record.place.load(Ordering::Relaxed) & place::LENT == 0));
    assert!(receive_whole(lent.far(), whole) == [&part[..whole - 100], &[0; 100]].concat());
    assert_eq!(lent.referred(), 0);
}

#[test]
fn the_sender_s_end_leaves_what_it_has_sent() {
    let lent = Lent::met();
    lent.send(0);
    let expected = lent.memory.bytes[..LONG].to_vec();
    lent.near().close(false);
    let Lent { pair, memory, _listed } = lent;
    let (base, size) = (memory.bytes.as_mut_ptr(), memory.bytes.len());
    drop(memory.file);
    calls::munmap(base, size).expect("unmapped");
    assert_eq!(receive_whole(&pair.far, LONG + 1), expected);
}

#[test]
fn a_file_that_gets_shorter_costs_the_connection_and_is_no_fault() {
    for left in [0, FROM + 50_001] {
        let lent = Lent::met();
        lent.send(0);
        lent.memory.file.set_len(left as u64).expect("shorter");
        assert_eq!(lent.far().receive(&mut vec![0; LONG], NOW), Err(Errno(libc::ECONNRESET)));
    }
    // What was received before is.
    let lent = Lent::met();
    lent.send(0);
    let expected = lent.memory.bytes[..50_000].to_vec();
    lent.memory.file.set_len((FROM + 50_000) as u64).expect("shorter");
    assert!(receive_whole(lent.far(), 50_000) == expected);
    assert_eq!(lent.far().receive(&mut [0], NOW), Err(Errno(libc::ECONNRESET)));
}

#[test]
fn pages_that_are_taken_out_are_zeros_and_stay_out() {
    let lent = Lent::met();
    lent.send(0);
    let file = lent.memory.file.as_raw_fd();
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::fallocate(file, mode, FROM as i64, 64 << 10) }, 0);
    let blocks = || calls::status_of(file).expect("open").st_blocks;
    let before = blocks();
    let got = receive_whole(lent.far(), LONG);
    assert!(got[..64 << 10].iter().all(|byte| *byte == 0) && blocks() == before);
    assert_eq!(got[64 << 10..], lent.memory.bytes[64 << 10..LONG]);
}

#[test]
fn what_is_shown_no_more_is_copied_and_what_is_under_way_arrives() {
    let lent = Lent::met();
    lent.send(0);
    assert_eq!(lend::hide(lent.near().socket, 12), Err(Errno(libc::EINVAL)));
    lend::hide(lent.near().socket, lent.memory.bytes.as_ptr() as u64).expect("it was shown");
    lent.send(LONG);
    assert_eq!(lent.referred(), LONG as u64);
    assert_eq!(receive_whole(lent.far(), 2 * LONG), lent.memory.bytes[..2 * LONG]);
    // Again.
    lend::show(lent.near().socket, lent.memory.shown()).expect("shown");
    lent.send(0);
    assert_eq!((receive_whole(lent.far(), LONG).len(), lent.referred()), (LONG, 2 * LONG as u64));
}

/// The longer one may be about to be unmapped, where the shorter one is not.
#[test]
fn what_is_shown_twice_from_one_address_on_is_hidden_as_a_whole() {
    let lent = Lent::met();
    lend::hide(lent.near().socket, lent.memory.bytes.as_ptr() as u64).expect("it was shown");
    for length in [2 * LONG as u64, lent.memory.asked().length] {
        let shown = Shown::file(&Asked { length, ..lent.memory.asked() }, std::process::id()).expect("a part");
        lend::show(lent.near().socket, shown).expect("shown");
    }
    lend::hide(lent.near().socket, lent.memory.bytes.as_ptr() as u64).expect("both were shown");
    for from in [3 * LONG, 4 * LONG] {
        lent.send(from);
        assert!(receive_whole(lent.far(), LONG) == lent.memory.bytes[from..from + LONG]);
    }
    assert_eq!(lent.referred(), 0);
}

#[test]
fn no_more_is_under_way_than_the_program_lets_be() {
    let lent = Lent::met();
    lent.near().socket.connected.loans.quota.store(LONG as u64 + 40_000, Ordering::Relaxed);
    lent.send(0);
    lent.send(LONG);
    assert_eq!(lent.referred(), LONG as u64 + 40_000);
    assert!(receive_whole(lent.far(), 2 * LONG) == lent.memory.bytes[..2 * LONG]);
    lent.near().socket.connected.loans.quota.store(0, Ordering::Relaxed);
    lent.send(0);
    assert_eq!(lent.referred(), LONG as u64 + 40_000);
    assert!(receive_whole(lent.far(), LONG) == lent.memory.bytes[..LONG]);
}

#[test]
fn a_side_that_gets_other_owners_needs_the_file_no_more() {
    let lent = Lent::met();
    for part in 0..3 {
        lent.send(part * LONG);
    }
    let expected = lent.memory.bytes[..3 * LONG].to_vec();
    lent.far().socket.share();
    keep::on_sharing(lent.far().socket);
    crate::pools::release(&lent.far().socket.connected.loans.views);
    lent.memory.file.set_len(0).expect("shorter");
    assert_eq!(receive_whole(lent.far(), 3 * LONG), expected);
}

#[test]
fn one_that_reads_in_place_is_told_to_copy() {
    let lent = Lent::met();
    lent.send(0);
    let next = crate::views::next(lent.far().socket, lent.far().fd, LONG);
    assert_eq!(next, Ok(crate::views::Next::Copied(LONG)));
    assert!(receive_whole(lent.far(), LONG) == lent.memory.bytes[..LONG]);
}

#[test]
fn a_record_outside_of_the_file_costs_its_connection() {
    for word in [place::of((1 << 36) - 1, LONG, 0), place::of((1 << 36) - 1, (1 << 25) - 1, 0), place::of(SIZE as u64, LONG, 0)] {
        let lent = Lent::met();
        lent.send(0);
        let head = &lent.near().socket.page().head;
        let records = &head.references[lent.near().socket.side()].records;
        records.iter().filter(|record| place::length(record.place.load(Ordering::Relaxed)) == LONG).for_each(|record| {
            record.place.store(word, Ordering::Relaxed);
        });
        assert_eq!(lent.far().receive(&mut vec![0; LONG], NOW), Err(Errno(libc::ECONNRESET)), "{word:#x}");
    }
}

#[test]
fn what_is_no_file_of_memory_is_not_shown() {
    let memory = Mapped::new();
    let asked = memory.asked();
    let refused = |asked: Asked, error: i32| assert_eq!(Shown::file(&asked, std::process::id()), Err(Errno(error)), "{asked:?}");
    refused(Asked { length: 0, ..asked }, libc::EINVAL);
    refused(Asked { length: asked.length + 1, ..asked }, libc::EINVAL);
    refused(Asked { offset: u64::MAX, ..asked }, libc::EINVAL);
    refused(Asked { length: u64::MAX, ..asked }, libc::EINVAL);
    refused(Asked { descriptor: -2, ..asked }, libc::EBADF);
    let null = std::fs::File::open("/dev/null").expect("open");
    refused(Asked { descriptor: null.as_raw_fd(), ..asked }, libc::EPROTO);
    let maps = std::fs::File::open("/proc/self/maps").expect("open");
    refused(Asked { descriptor: maps.as_raw_fd(), ..asked }, libc::EPROTO);
    assert_eq!(Shown::named(&asked, false, std::process::id()), Err(Errno(libc::EINVAL)), "no pool");
}

/// What a hostile peer could offer: descriptors of its own of any kind, of others', and places that are not locked.
#[test]
fn an_offer_opens_nothing_but_a_file_of_memory_that_its_offerer_has_claimed() {
    let memory = Mapped::new();
    let shown = memory.shown();
    let (at, looks) = (AtomicU32::new(0), Looks::new());
    // SAFETY: atomic words.
    let offer: ShownPool = unsafe { core::mem::zeroed() };
    let view = |pid: u32, descriptor: u32, secret: [u64; 2]| {
        offer.secret.iter().zip(secret).for_each(|(half, secret)| half.store(secret, Ordering::Relaxed));
        offer.pid.store(pid, Ordering::Relaxed);
        offer.descriptor.store(descriptor, Ordering::Relaxed);
        crate::pools::view(&at, &looks, &offer)
    };
    let (me, file) = (std::process::id(), memory.file.as_raw_fd() as u32);
    assert_eq!(view(me, file | FILE, shown.secret), None, "not claimed yet");
    shown.claim().expect("free");
    let other = Mapped::new();
    let maps = std::fs::File::open("/proc/self/maps").expect("open");
    let program = std::fs::File::open("/proc/self/exe").expect("open");
    let here = std::fs::File::open("/dev/shm").expect("open");
    for fd in [other.file.as_raw_fd(), maps.as_raw_fd(), program.as_raw_fd(), here.as_raw_fd(), -2] {
        assert_eq!(view(me, fd as u32 | FILE, shown.secret), None);
    }
    assert_eq!(view(me, file, shown.secret), None, "it is no pool");
    assert_eq!(view(me, file | FILE, [shown.secret[0] ^ 4, shown.secret[1]]), None, "another place");
    assert_eq!((view(1, file | FILE, shown.secret), view(0, file | FILE, shown.secret)), (None, None));
    let found = view(me, file | FILE, shown.secret).expect("claimed");
    assert!(found.file >= shunt_table::private::lowest() && found.size == SIZE);
    // Another number, as for a program that wants that one.
    crate::pools::moved(found.file, 5000);
    assert_eq!(view(me, file | FILE, shown.secret).expect("known").file, 5000);
    crate::pools::moved(5000, found.file);
    crate::pools::release(&[at, AtomicU32::new(0)]);
}

fn offered(fd: i32, secret: [u64; 2]) -> ShownPool {
    // SAFETY: atomic words.
    let offer: ShownPool = unsafe { core::mem::zeroed() };
    offer.secret.iter().zip(secret).for_each(|(half, secret)| half.store(secret, Ordering::Relaxed));
    offer.pid.store(std::process::id(), Ordering::Relaxed);
    offer.descriptor.store(fd as u32 | FILE, Ordering::Relaxed);
    offer
}

/// proc(5)'s `locks` shows the place of every lock to everybody, also to a stranger that may open none of the processes' files.
#[test]
fn the_place_of_a_lock_names_no_file() {
    let memory = Mapped::new();
    let (shown, fd) = (memory.shown(), memory.file.as_raw_fd());
    shown.claim().expect("free");
    let all = std::fs::read_to_string("/proc/locks").expect("proc");
    let inode = format!(":{}", calls::status_of(fd).expect("open").st_ino);
    let lock =
        all.lines().find(|line| line.contains("OFDLCK") && line.split(' ').any(|word| word.ends_with(&inode))).expect("seen");
    let place: u64 = lock.split(' ').next_back().expect("its end").parse().expect("a number");
    let (at, looks) = (AtomicU32::new(0), Looks::new());
    for secret in [[place, 0], [place << 2, 0], [0, place], [place << 2, place << 2], [place << 2, shown.secret[1]]] {
        assert_eq!(crate::pools::view(&at, &looks, &offered(fd, secret)), None);
    }
}

/// A pool stays mapped for the next connection; a program's own memory is to be free when the program has given it up.
#[test]
fn a_file_is_closed_with_the_last_stream_that_reads_it() {
    let memory = Mapped::new();
    let shown = memory.shown();
    shown.claim().expect("free");
    let offer = offered(memory.file.as_raw_fd(), shown.secret);
    let (first, second, looks) = ([const { AtomicU32::new(0) }; 2], [const { AtomicU32::new(0) }; 2], Looks::new());
    let found = crate::pools::view(&first[0], &looks, &offer).expect("claimed");
    assert_eq!(crate::pools::view(&second[0], &looks, &offer), Some(found));
    let is_open = || {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", found.file));
        let inode = |fd: i32| calls::status_of(fd).map(|status| status.st_ino);
        name.is_ok() && inode(found.file) == inode(memory.file.as_raw_fd())
    };
    crate::pools::release(&first);
    assert!(is_open());
    crate::pools::release(&second);
    assert!(!is_open());
}

/// In a child, as a process has no other limit of them.
#[test]
fn no_number_of_the_program_s_goes_to_a_peer_s_file() {
    let memory = Mapped::new();
    let shown = memory.shown();
    shown.claim().expect("free");
    let offer = offered(memory.file.as_raw_fd(), shown.secret);
    let (at, looks) = (AtomicU32::new(0), Looks::new());
    // SAFETY: the child makes system calls only.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            crate::pools::forked();
            let lowest = shunt_table::private::lowest();
            let limit = libc::rlimit { rlim_cur: lowest as u64 + 8, rlim_max: lowest as u64 + 8 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            while libc::fcntl(2, libc::F_DUPFD, lowest) >= 0 {}
            let without = crate::pools::view(&at, &looks, &offer).is_some();
            libc::close(lowest + 7);
            let with = crate::pools::view(&at, &looks, &offer).is_some();
            libc::_exit(i32::from(without) | i32::from(!with) << 1);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

#[test]
fn files_make_room_for_others_in_their_order() {
    let _listed = LISTED.write().unwrap_or_else(PoisonError::into_inner);
    let files: Vec<Mapped> = (0..40).map(|_| Mapped::new()).collect();
    let numbers: Vec<u32> = files.iter().map(|file| crate::pools::enter(file.shown()).expect("room")).collect();
    assert_eq!(crate::pools::enter(files[39].shown()), Ok(numbers[39]), "it is known");
    assert!(crate::pools::pool(numbers[39]).is_some() && crate::pools::pool(numbers[0]).is_none());
}
