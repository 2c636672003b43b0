//! Sends with MSG_ZEROCOPY from a pool that the peer was shown: what goes by reference is what was sent, whatever comes between.

use super::*;
use crate::error_queue;
use crate::options::effects;
use crate::pools::Looks;
use crate::references::{keep, lend};
use proptest::prelude::*;
use shunt_region::{Audience, Pages, Pool, Region, Shape};
use shunt_segment::channel::references::{at, place};
use shunt_segment::channel::word;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) const ZERO_COPY: i32 = libc::MSG_ZEROCOPY | NOW;
pub(super) const LONG: usize = 100_000;

/// A pair whose near end has shown a pool, and a region of that.
pub(super) struct Lent {
    pub pair: Pair,
    pub pool: Pool,
    pub region: Region,
}

fn pool(units: usize) -> Pool {
    Pool::create(Shape { unit: 64 << 10, units }, Pages::Small, Audience::Anyone).expect("a pool")
}

pub(super) fn shown(pool: &Pool) -> lend::Shown {
    lend::Shown::at(pool.address(), pool.descriptor(), std::process::id()).expect("a pool")
}

unsafe extern "C" fn handler(number: i32, information: *mut libc::siginfo_t, context: *mut core::ffi::c_void) {
    // SAFETY: the kernel's structures; with the default action in place, a fault that is not the copies' ends the test.
    unsafe {
        if !shunt_sys::user::resolve(information, context.cast()) {
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// A pool of another test may be gone when it is looked for: what is read there faults.
pub(super) fn catch_faults() {
    // SAFETY: installs the handler above.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut()), 0);
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut()), 0);
    }
}

impl Lent {
    pub fn fresh() -> Lent {
        catch_faults();
        let (pair, pool) = (Pair::new(), pool(32));
        effects::apply(pair.near.socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1i32.to_ne_bytes());
        lend::show(pair.near.socket, shown(&pool)).expect("shown");
        let mut region = pool.allocate(1 << 20).expect("a region");
        region.bytes_mut().copy_from_slice(&pattern(1 << 20));
        Lent { pair, pool, region }
    }

    /// The same, behind the first send, which offers the pool.
    pub fn met() -> Lent {
        let lent = Lent::fresh();
        let sent = lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY).expect("room");
        assert_eq!(receive_whole(&lent.pair.far, sent), lent.region.bytes()[..sent]);
        let told = error_queue::take(lent.near().socket).expect("copied, and complete");
        assert_eq!((told.ee_info, told.ee_data, told.ee_code), (0, 0, 1));
        lent
    }

    pub fn near(&self) -> &End {
        &self.pair.near
    }

    pub fn far(&self) -> &End {
        &self.pair.far
    }

    pub fn referred(&self) -> u64 {
        self.near().socket.connected.loans.bytes.load(Ordering::Relaxed)
    }
}

#[test]
fn what_went_by_reference_is_complete_when_it_is_received() {
    let lent = Lent::met();
    assert_eq!(lent.referred(), 0);
    assert_eq!(lent.near().send(&lent.region.bytes()[1000..1000 + LONG], ZERO_COPY), Ok(LONG));
    assert_eq!(lent.referred(), LONG as u64);
    assert!(!error_queue::pending(lent.near().socket) && error_queue::take(lent.near().socket).is_none());
    assert_eq!(lent.near().socket.outgoing().unacknowledged(), LONG as u64, "SIOCOUTQ");
    assert_eq!(lent.far().socket.incoming().look().1, LONG, "FIONREAD");
    let mut bytes = vec![0; LONG];
    assert_eq!(lent.far().receive(&mut bytes[..10], 0), Ok(10));
    assert_eq!(lent.far().receive(&mut bytes[10..], libc::MSG_WAITALL), Ok(LONG - 10));
    assert_eq!(bytes, lent.region.bytes()[1000..1000 + LONG]);
    assert_eq!(lent.near().events(0), libc::POLLERR);
    let told = error_queue::take(lent.near().socket).expect("complete");
    assert_eq!((told.ee_info, told.ee_data, told.ee_code), (1, 1, 0));
    assert_eq!(lent.near().events(0), 0);
}

#[test]
fn a_receiver_that_is_at_work_meanwhile_has_met_the_pool_behind_the_first_send() {
    for round in 0..25 {
        let lent = Lent::fresh();
        std::thread::scope(|scope| {
            let far = lent.pair.far;
            let receiver = scope.spawn(move || {
                let first = receive_whole(&far, LONG);
                far.send(b"k", 0).expect("room");
                (first, receive_whole(&far, LONG))
            });
            let part = &lent.region.bytes()[..LONG];
            assert_eq!(lent.near().send(part, libc::MSG_ZEROCOPY), Ok(LONG));
            assert_eq!(lent.near().receive(&mut [0; 1], 0), Ok(1));
            let before = lent.referred();
            assert_eq!(lent.near().send(part, libc::MSG_ZEROCOPY), Ok(LONG));
            assert_eq!(lent.referred(), before + LONG as u64, "round {round}");
            let (first, second) = receiver.join().expect("received");
            assert!(first == part && second == part);
        });
    }
}

#[test]
fn it_is_read_where_it_lies() {
    let mut lent = Lent::met();
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    // What Linux's rule forbids: no copy was made, so the change is seen.
    lent.region.bytes_mut()[5] ^= 0xff;
    assert_eq!(receive_whole(lent.far(), LONG), lent.region.bytes()[..LONG]);
}

#[test]
fn looks_and_vectors_go_across_what_is_referred_to() {
    let lent = Lent::met();
    let whole = [&b"head"[..], &lent.region.bytes()[..LONG], b"tail"].concat();
    assert_eq!(lent.near().send(b"head", NOW), Ok(4));
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    assert_eq!(lent.near().send(b"tail", NOW), Ok(4));
    assert_eq!(lent.referred(), LONG as u64);
    let mut seen = vec![0; LONG + 100];
    assert_eq!(lent.far().receive(&mut seen, libc::MSG_PEEK), Ok(LONG + 8));
    assert_eq!(seen[..LONG + 8], whole);
    assert_eq!(lent.far().receive(&mut seen, libc::MSG_PEEK), Ok(LONG + 8), "a second time");
    let got = lent.far().receive_all(&[2, LONG, 100], 0).expect("bytes").concat();
    assert_eq!(got, whole);
}

#[test]
fn one_call_has_pieces_of_both_kinds() {
    let lent = Lent::met();
    let parts = [&b"header"[..], &lent.region.bytes()[7..7 + LONG], &lent.region.bytes()[..40], &lent.region.bytes()[..LONG]];
    assert_eq!(lent.near().send_all(&parts, ZERO_COPY), Ok(2 * LONG + 46));
    assert_eq!(receive_whole(lent.far(), 2 * LONG + 46), parts.concat());
    assert!(lent.referred() >= LONG as u64);
    let told = error_queue::take(lent.near().socket).expect("complete");
    assert_eq!((told.ee_info, told.ee_data, told.ee_code), (1, 1, 0));
}

#[test]
fn the_peer_s_end_completes_what_it_never_takes() {
    let lent = Lent::met();
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    assert!(!error_queue::pending(lent.near().socket));
    lent.far().close(false);
    assert!(error_queue::pending(lent.near().socket));
    let told = error_queue::take(lent.near().socket).expect("complete");
    assert_eq!((told.ee_info, told.ee_code), (1, 0));
}

#[test]
fn the_end_of_the_sender_leaves_what_it_has_sent() {
    let lent = Lent::met();
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    let expected = lent.region.bytes()[..LONG].to_vec();
    lent.near().close(false);
    let Lent { pair, pool, region } = lent;
    drop((pool, region));
    assert_eq!(receive_whole(&pair.far, LONG + 1), expected);
}

#[test]
fn what_is_no_pool_s_any_more_is_copied() {
    let lent = Lent::met();
    // Memory that only looks as if it were the pool's.
    let plain = pattern(LONG);
    assert_eq!(lent.near().send(&plain, ZERO_COPY), Ok(LONG));
    assert_eq!(lent.referred(), 0);
    assert_eq!(receive_whole(lent.far(), LONG), plain);
    assert_eq!(error_queue::take(lent.near().socket).expect("complete").ee_code, 1);
}

#[test]
fn a_side_that_gets_other_owners_needs_the_pool_no_more() {
    let lent = Lent::met();
    for part in 0..3 {
        assert_eq!(lent.near().send(&lent.region.bytes()[part * LONG..(part + 1) * LONG], ZERO_COPY), Ok(LONG));
    }
    assert_eq!(lent.referred(), 3 * LONG as u64);
    let expected = lent.region.bytes()[..4 * LONG].to_vec();
    let mut first = vec![0; 1000];
    assert_eq!(lent.far().receive(&mut first, 0), Ok(1000));
    lent.far().socket.share();
    keep::on_sharing(lent.far().socket);
    crate::pools::release(&lent.far().socket.connected.loans.views);
    // From now on all is copied.
    assert_eq!(lent.near().send(&lent.region.bytes()[3 * LONG..4 * LONG], ZERO_COPY), Ok(LONG));
    assert_eq!(lent.referred(), 3 * LONG as u64);
    let Lent { pair, pool, mut region } = lent;
    region.bytes_mut().fill(0);
    drop((region, pool));
    assert_eq!([first, receive_whole(&pair.far, 4 * LONG - 1000)].concat(), expected);
}

#[test]
fn as_much_as_can_be_is_under_way_and_the_rest_is_copied() {
    let lent = Lent::met();
    let mut expected = Vec::new();
    loop {
        match lent.near().send(lent.region.bytes(), ZERO_COPY) {
            Ok(sent) => expected.extend_from_slice(&lent.region.bytes()[..sent]),
            Err(error) => {
                assert_eq!(error, EAGAIN);
                break;
            }
        }
        assert!(expected.len() < 64 << 20);
    }
    assert!((2 << 20..=4 << 20).contains(&lent.referred()), "{}", lent.referred());
    assert_eq!(lent.near().events(libc::POLLOUT), 0, "as a send says");
    assert!(receive_whole(lent.far(), expected.len()) == expected);
    assert_eq!(lent.near().events(libc::POLLOUT) & libc::POLLOUT, libc::POLLOUT);
}

#[test]
fn a_record_that_no_honest_sender_writes_costs_its_connection() {
    for word in [
        place::of(0, 0, 0),
        place::of((1 << 36) - 1, LONG, 0),
        place::of((32 << 16) - 1, LONG, 0),
        place::of(0, LONG, place::POOL),
        place::of(0, (1 << 25) - 1, 0),
        place::of(7, LONG, place::OFFER),
        u64::MAX ^ place::KEPT,
    ] {
        let lent = Lent::met();
        assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
        let head = &lent.near().socket.page().head;
        let tag = u64::from(head.generation.load(Ordering::Relaxed) & 0xffff) << at::GENERATION_SHIFT;
        let position = lent.far().socket.own().receive.position.load(Ordering::Relaxed);
        for record in &head.references[lent.near().socket.side()].records {
            if record.at.load(Ordering::Relaxed) == tag | position {
                record.place.store(word, Ordering::Relaxed);
            }
        }
        let mut bytes = vec![0; LONG];
        let got = lent.far().receive(&mut bytes, NOW);
        assert_eq!(got, Err(Errno(libc::ECONNRESET)), "{word:#x}");
    }
    // None at all.
    let lent = Lent::met();
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    lent.near().socket.page().head.references.iter().flat_map(|side| &side.records).for_each(|record| {
        record.at.store(0, Ordering::Relaxed);
        record.place.store(0, Ordering::Relaxed);
    });
    assert_eq!(lent.far().receive(&mut [0; 10], NOW), Err(Errno(libc::ECONNRESET)));
}

/// The bytes that the near end's side has in the link for those that get other owners.
fn kept(lent: &Lent, at: u64, length: usize) -> Vec<u8> {
    let socket = lent.near().socket;
    let file = shunt_link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize);
    let base = shunt_segment::area::kept_offset(socket.channel(), socket.side());
    let (mut bytes, at) = (vec![0; length], base + at as usize % shunt_segment::area::KEPT_SIZE);
    assert_eq!(shunt_sys::calls::pread(file, bytes.as_mut_ptr().cast(), length, at as i64), Ok(length));
    bytes
}

#[test]
fn a_record_that_the_peer_has_changed_shows_it_no_other_memory_of_the_sender() {
    let lent = Lent::met();
    let shown = shown(&lent.pool);
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    let records = &lent.near().socket.page().head.references[lent.near().socket.side()].records;
    let taken = lent.near().socket.outgoing().taken();
    let record = records.iter().find(|record| record.at.load(Ordering::Relaxed) & word::POSITION == taken).expect("one");
    let before = record.place.load(Ordering::Relaxed);
    // Just behind the units, and far away: pages that are there, so that a copy of them would not fail.
    for offset in [shown.bytes as u64 - 100, shown.bytes as u64, (1 << 36) - 4096] {
        record.place.store(place::of(offset, LONG, 0), Ordering::Relaxed);
        lend::keep_own(lent.near().socket, 0, &shown);
        assert_eq!(record.place.load(Ordering::Relaxed) & place::KEPT, 0, "{offset:#x}");
    }
    record.place.store(before, Ordering::Relaxed);
    lend::keep_own(lent.near().socket, 0, &shown);
    assert_eq!(record.place.load(Ordering::Relaxed), before | place::KEPT);
    assert_eq!(kept(&lent, taken, LONG), lent.region.bytes()[..LONG]);
}

#[test]
fn what_is_received_by_reference_and_nothing_else_earns_looks() {
    let lent = Lent::met();
    let earned = || lent.far().socket.connected.loans.looks.earned();
    assert_eq!(earned(), 0, "the offer, and what was copied");
    for _ in 0..11 {
        assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
        assert_eq!(lent.far().receive(&mut vec![0; LONG], libc::MSG_PEEK), Ok(LONG));
        receive_whole(lent.far(), LONG);
        assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], NOW), Ok(LONG));
        receive_whole(lent.far(), LONG);
    }
    assert_eq!(earned(), 11 * LONG as i64);
}

#[test]
fn a_peer_that_offers_pool_after_pool_has_few_of_them_mapped() {
    let pools: Vec<Pool> = (0..33).map(|_| pool(1)).collect();
    let (at, looks) = (AtomicU32::new(0), Looks::new());
    // SAFETY: atomic words.
    let offer: shunt_segment::channel::references::ShownPool = unsafe { core::mem::zeroed() };
    let view = |pool: &Pool| {
        let shown = shown(pool);
        offer.secret.iter().zip(shown.secret).for_each(|(half, secret)| half.store(secret, Ordering::Relaxed));
        offer.pid.store(std::process::id(), Ordering::Relaxed);
        offer.descriptor.store(pool.descriptor() as u32, Ordering::Relaxed);
        crate::pools::view(&at, &looks, &offer)
    };
    assert!(pools[..32].iter().all(|pool| view(pool).is_some() && view(pool).is_some()));
    assert_eq!(view(&pools[32]), None);
    assert!(view(&pools[31]).is_some(), "it has that");
    // As many bytes as a look costs are worth another one, however they come.
    looks.earn((1 << 20) - 1);
    assert_eq!(view(&pools[32]), None);
    looks.earn(1);
    assert!(view(&pools[32]).is_some());
    assert_eq!(view(&pools[0]), None);
    crate::pools::release(&[at, AtomicU32::new(0)]);
}

#[derive(Clone, Debug)]
enum Step {
    Plain(usize),
    Refer(usize, usize),
    Both(usize, usize),
    Receive(usize),
    Look(usize),
    Vector(usize, usize),
    Completions,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let long = || prop_oneof![1usize..50, 30_000..40_000usize, 60_000..300_000usize, Just(1 << 20)];
    let step = prop_oneof![
        2 => long().prop_map(Step::Plain),
        4 => (0usize..500_000, long()).prop_map(|(from, length)| Step::Refer(from, length)),
        1 => (1usize..100, long()).prop_map(|(head, length)| Step::Both(head, length)),
        4 => long().prop_map(Step::Receive),
        1 => long().prop_map(Step::Look),
        1 => (long(), long()).prop_map(|(first, second)| Step::Vector(first, second)),
        1 => Just(Step::Completions),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_row_of_sends_and_receives_moves_the_bytes_and_completes_each_send_once(steps in steps()) {
        let lent = Lent::met();
        let bytes = lent.region.bytes();
        let mut under_way: VecDeque<u8> = VecDeque::new();
        let mut told = 0u32;
        let mut sends = 1u32;
        let take = |told: &mut u32| {
            while let Some(range) = error_queue::take(lent.near().socket) {
                assert_eq!(range.ee_info, *told + 1);
                *told = range.ee_data;
            }
        };
        for step in steps {
            match step {
                Step::Plain(length) => {
                    if let Ok(sent) = lent.near().send(&bytes[..length], NOW) {
                        under_way.extend(&bytes[..sent]);
                    }
                }
                Step::Refer(from, length) => {
                    let part = &bytes[from..(from + length).min(bytes.len())];
                    if let Ok(sent) = lent.near().send(part, ZERO_COPY) {
                        under_way.extend(&part[..sent]);
                        sends += 1;
                    }
                }
                Step::Both(head, length) => {
                    if let Ok(sent) = lent.near().send_all(&[&bytes[..head], &bytes[3..3 + length.min(1 << 19)], &bytes[..9]], ZERO_COPY) {
                        let all = [&bytes[..head], &bytes[3..3 + length.min(1 << 19)], &bytes[..9]].concat();
                        under_way.extend(&all[..sent]);
                        sends += 1;
                    }
                }
                Step::Receive(length) => {
                    let mut got = vec![0; length];
                    let count = lent.far().receive(&mut got, NOW).unwrap_or(0);
                    prop_assert_eq!(count, length.min(under_way.len()));
                    prop_assert!(under_way.drain(..count).eq(got[..count].iter().copied()));
                }
                Step::Look(length) => {
                    let mut got = vec![0; length];
                    let count = lent.far().receive(&mut got, NOW | libc::MSG_PEEK).unwrap_or(0);
                    prop_assert_eq!(count, length.min(under_way.len()));
                    prop_assert!(under_way.iter().take(count).eq(&got[..count]));
                }
                Step::Vector(first, second) => {
                    let got = lent.far().receive_all(&[first, second], NOW).map_or(Vec::new(), |parts| parts.concat());
                    prop_assert_eq!(got.len(), (first + second).min(under_way.len()));
                    prop_assert!(under_way.drain(..got.len()).eq(got));
                }
                Step::Completions => take(&mut told),
            }
            prop_assert_eq!(lent.far().socket.incoming().look().1, under_way.len());
            prop_assert_eq!(lent.near().socket.outgoing().unacknowledged(), under_way.len() as u64);
        }
        let rest: Vec<u8> = under_way.into_iter().collect();
        prop_assert!(receive_whole(lent.far(), rest.len()) == rest);
        take(&mut told);
        prop_assert_eq!(told + 1, sends, "each send is complete when all is taken");
        let _ = &lent.pool;
    }
}
