//! Plain sends from a pool that lend their bytes while they last: whatever is written behind them, what was sent is what is received.

use super::referring::{Lent, LONG};
use super::*;
use crate::put;
use crate::references::{emulated, keep};
use crate::views::{self, Next};
use proptest::prelude::*;
use shunt_segment::area::KEPT_SIZE;
use shunt_segment::channel::references::{at, place, Record};
use shunt_segment::channel::{arm, state, word};
use shunt_sys::calls;
use std::sync::atomic::Ordering::Relaxed;

const KILO: usize = 1 << 10;

/// The near end lends from now on, and each of its large sends is one that may.
fn lending() -> Lent {
    let lent = Lent::met();
    lent.pair.is_to_lend();
    lent
}

/// The record of the bytes that the near end sent last, and its word, if they were lent. Nothing of them is taken.
fn last(lent: &Lent) -> Option<(&'static Record, u64)> {
    let socket = lent.near().socket;
    let head = &socket.page().head;
    let generation = u64::from(head.generation.load(Relaxed) & 0xffff);
    let position = socket.outgoing().taken();
    let start = |record: &Record| record.at.load(Relaxed);
    let found = head.references[socket.side()]
        .records
        .iter()
        .find(|record| start(record) >> at::GENERATION_SHIFT == generation && start(record) & word::POSITION == position)?;
    let word = found.place.load(Relaxed);
    (word & place::LENT != 0).then_some((found, word))
}

/// A page that faults, until this is dropped.
struct Unreadable(*mut u8);

const PAGE: usize = 4096;

impl Unreadable {
    fn page_of(address: *mut u8) -> Unreadable {
        let page = address.wrapping_sub(address as usize % PAGE);
        calls::mprotect(page, PAGE, libc::PROT_NONE).expect("a page");
        Unreadable(page)
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        let _ = calls::mprotect(self.0, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    }
}

/// Sends the first `length` bytes of the region, which nobody receives meanwhile, and writes them anew; gives them.
fn send_and_write_anew(lent: &mut Lent, length: usize, salt: u8) -> Vec<u8> {
    let sent: Vec<u8> = pattern(length).iter().map(|byte| byte.wrapping_add(salt)).collect();
    lent.region.bytes_mut()[..length].copy_from_slice(&sent);
    assert_eq!(lent.near().send(&lent.region.bytes()[..length], 0), Ok(length));
    lent.region.bytes_mut()[..length].fill(0xee);
    sent
}

#[test]
fn what_nobody_takes_is_taken_back_and_may_be_written_anew() {
    let mut lent = lending();
    // Round the place in the link, too.
    for (salt, length) in [32 * KILO, 40_001, 64 * KILO, LONG, 200_001, 256 * KILO, 250_000].iter().cycle().take(40).enumerate() {
        lent.pair.is_to_lend();
        let sent = send_and_write_anew(&mut lent, *length, salt as u8);
        let (_, word) = last(&lent).expect("lent");
        assert_eq!((word & place::KEPT, place::length(word)), (place::KEPT, *length));
        assert_eq!(lent.far().socket.incoming().look().1, *length, "FIONREAD");
        assert_eq!(lent.far().events(libc::POLLIN), libc::POLLIN);
        let mut bytes = vec![0; *length];
        assert_eq!(lent.far().receive(&mut bytes, libc::MSG_PEEK), Ok(*length));
        assert!(bytes == sent, "looked at: {length}");
        assert_eq!(lent.far().receive(&mut bytes[..10], 0), Ok(10));
        assert_eq!(lent.far().receive_all(&[7, *length], 0).map(|parts| parts.concat()), Ok(sent[10..].to_vec()));
        assert_eq!(bytes[..10], sent[..10]);
    }
    assert!(lent.near().socket.outgoing().announced() & word::POSITION > KEPT_SIZE as u64);
    assert_eq!(lent.referred(), 0, "none was received from where it lay");
    assert_ne!(lent.near().socket.own().receive.state.load(Relaxed) & state::KEEPS, 0);
}

/// Receives as much as there is, as soon as there is any: awake, as a sender lends nothing to a sleeper.
fn receive_awake(end: &End, into: &mut [u8], flags: i32) -> usize {
    loop {
        match end.receive(into, NOW | flags) {
            Ok(count) => return count,
            Err(error) => assert_eq!(error, EAGAIN),
        }
    }
}

/// Receives so many bytes in steps of some kind.
fn receive_somehow(end: &End, length: usize, way: usize) -> Vec<u8> {
    let (mut bytes, mut got) = (vec![0; length], 0);
    let mut looked_at = Vec::new();
    if way % 4 == 1 {
        let seen = receive_awake(end, &mut bytes, libc::MSG_PEEK);
        looked_at = bytes[..seen].to_vec();
    }
    while got < length {
        let most = match way % 4 {
            2 if got == 0 => 1,
            3 => (got + 20_000).min(length),
            _ => length,
        };
        got += receive_awake(end, &mut bytes[got..most], 0);
    }
    assert!(bytes.starts_with(&looked_at), "what was looked at is received");
    bytes
}

/// The property that all of this is for. It fails when what is not taken stays in the sender's memory, and when a receiver believes what it has
/// copied without another look at the word. On a machine that others use nearly all is taken back, so it goes on until something is not.
#[test]
fn a_receiver_at_work_gets_what_was_sent_however_soon_it_is_written_anew() {
    assert!((0..20).any(|_| received_while_lent() > 0));
}

/// How many of some thousand messages were.
fn received_while_lent() -> u32 {
    let mut lent = lending();
    let (sizes, rounds) = ([32 * KILO, 64 * KILO, LONG, 40_000, 256 * KILO], 3000);
    let (far, near) = (lent.pair.far, lent.pair.near);
    let mut in_time = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..rounds {
                let length = sizes[round % sizes.len()];
                // Often about as late as its sender is patient, so that bytes are taken back in the middle of its copy.
                let (since, late) = (std::time::Instant::now(), 2 + length / 3000 + round * 7 % 16);
                while round > rounds / 2 && since.elapsed().as_micros() < late as u128 {}
                let got = receive_somehow(&far, length, round / 7);
                let is_sound = got.iter().all(|byte| *byte == round as u8);
                far.send(if is_sound { b"k" } else { b"x" }, 0).expect("room");
                if !is_sound {
                    return;
                }
            }
        });
        for round in 0..rounds {
            let length = sizes[round % sizes.len()];
            lent.region.bytes_mut()[..length].fill(round as u8);
            lent.pair.is_to_lend();
            let before = lent.referred();
            assert_eq!(near.send(&lent.region.bytes()[..length], 0), Ok(length));
            lent.region.bytes_mut()[..length].fill(!(round as u8));
            in_time += u32::from(lent.referred() != before);
            assert_eq!(near.text(1, 0).as_deref(), Ok("k"), "round {round}");
        }
    });
    println!("{in_time} of {rounds} were received while they were lent");
    in_time
}

#[test]
fn both_ends_may_send_first() {
    let lent = lending();
    let (near, far) = (lent.pair.near, lent.pair.far);
    let other = Lent::fresh(); // a pool for the far end
    crate::references::lend::show(far.socket, super::referring::shown(&other.pool)).expect("shown");
    far.socket.connected.loans.lending.wanted.store(1, Relaxed);
    for round in 0..200 {
        lent.pair.is_to_lend();
        far.socket.connected.loans.lending.heard.store(u64::MAX, Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(far.send(&other.region.bytes()[..LONG], 0), Ok(LONG));
                assert!(receive_whole(&far, LONG) == lent.region.bytes()[..LONG], "round {round}");
            });
            assert_eq!(near.send(&lent.region.bytes()[..LONG], 0), Ok(LONG));
            assert!(receive_whole(&near, LONG) == other.region.bytes()[..LONG], "round {round}");
        });
    }
}

#[test]
fn a_head_goes_before_a_message_in_one_call() {
    let mut lent = lending();
    let head = *b"head";
    let parts: [&[u8]; 3] = [&head, &lent.region.bytes()[..LONG], b"tail"];
    let sent = parts.concat();
    assert_eq!(lent.near().send_all(&parts, 0), Ok(LONG + 8));
    let generation = u64::from(lent.near().socket.page().head.generation.load(Relaxed) & 0xffff);
    let records = &lent.near().socket.page().head.references[lent.near().socket.side()].records;
    let is_lent = |record: &Record| {
        record.at.load(Relaxed) >> at::GENERATION_SHIFT == generation && record.place.load(Relaxed) & place::LENT != 0
    };
    assert!(records.iter().any(is_lent));
    lent.region.bytes_mut().fill(0);
    assert!(receive_whole(lent.far(), LONG + 8) == sent);
}

/// A call is one step as long as there is room, whatever of it goes by reference: another thread's bytes come before or behind it.
#[test]
fn no_other_thread_s_bytes_come_between_the_parts_of_a_call() {
    const CALLS: usize = 500;
    let lent = lending();
    let (pair, bodies, size) = (&lent.pair, lent.region.bytes(), 40_000);
    let together = std::sync::Barrier::new(3);
    let call = |which: u8| [vec![which; 5], bodies[usize::from(which)..][..size].to_vec(), vec![which; 9]].concat();
    let torn = std::thread::scope(|scope| {
        for which in [0u8, 1] {
            let together = &together;
            scope.spawn(move || {
                for _ in 0..CALLS {
                    together.wait();
                    pair.is_to_lend();
                    let parts: [&[u8]; 3] = [&[which; 5], &bodies[usize::from(which)..][..size], &[which; 9]];
                    assert_eq!(pair.near.send_all(&parts, 0), Ok(size + 14));
                    together.wait();
                }
            });
        }
        let mut torn = 0;
        for _ in 0..CALLS {
            together.wait();
            let (mut got, mut done) = (vec![0; 2 * (size + 14)], 0);
            while done < got.len() {
                done += receive_awake(&pair.far, &mut got[done..], 0);
            }
            torn += usize::from(got != [call(0), call(1)].concat() && got != [call(1), call(0)].concat());
            together.wait();
        }
        torn
    });
    assert_eq!(torn, 0, "of {CALLS}");
    println!("{} bytes were received while they were lent", lent.referred());
}

/// The first send from a pool offers it, with its first bytes: the others follow at once.
#[test]
fn an_offer_goes_in_one_step_with_the_rest() {
    for _ in 0..200 {
        let lent = Lent::fresh();
        lent.pair.is_to_lend();
        let (near, far) = (lent.pair.near, lent.pair.far);
        std::thread::scope(|scope| {
            scope.spawn(move || near.send(&[0xaa; 1000], 0).expect("room"));
            assert_eq!(near.send(&lent.region.bytes()[..LONG], 0), Ok(LONG));
        });
        let got = receive_whole(&far, LONG + 1000);
        let (plain, body) = (&[0xaa; 1000][..], &lent.region.bytes()[..LONG]);
        assert!(got == [plain, body].concat() || got == [body, plain].concat());
    }
}

/// What was taken back is memory until the connection ends, whatever its record is used for again.
#[test]
fn the_memory_of_what_was_taken_back_goes_with_the_connection() {
    let mut lent = lending();
    send_and_write_anew(&mut lent, LONG, 1);
    receive_whole(lent.far(), LONG);
    let socket = lent.near().socket;
    let index = socket.connected.link_index.load(Relaxed) as usize;
    let (file, channel) = (shunt_link::descriptor_unlocked(index), socket.channel());
    let at = shunt_segment::area::kept_offset(channel, socket.side()) as i64;
    // SAFETY: a plain system call.
    let holds = || (at..at + KEPT_SIZE as i64).contains(&unsafe { libc::lseek(file, at, libc::SEEK_DATA) });
    assert!(holds());
    // The record tells of something else by now.
    let head = &socket.page().head;
    head.references[socket.side()].records.iter().for_each(|record| record.place.store(place::of(0, 1, 0), Relaxed));
    for side in &socket.page().sides {
        side.released.store(shunt_segment::channel::release::CLOSED, Relaxed);
    }
    {
        let _setup = shunt_table::global::SETUP.lock();
        shunt_link::leave(index, channel, false, false);
    }
    assert!(!holds());
}

/// Bytes that can be taken back from nowhere are an error of the copy, as ever.
#[test]
fn memory_that_ends_before_its_mapping_is_not_lent() {
    let mut lent = lending();
    let held = Unreadable::page_of(lent.region.bytes_mut()[LONG - 1..].as_mut_ptr());
    let sent = lent.near().send(&lent.region.bytes()[..LONG], NOW).unwrap_or(0);
    assert!(sent < LONG && last(&lent).is_none());
    drop(held);
    assert!(receive_whole(lent.far(), sent) == lent.region.bytes()[..sent]);
}

/// A receiver that falls asleep as bytes are announced which cannot be taken back, and threads of the sender's own, are told.
#[test]
fn bytes_that_are_lost_end_the_connection_for_all_who_sleep() {
    let mut lent = lending();
    let (near, far) = (lent.pair.near, lent.pair.far);
    let middle = lent.region.bytes_mut()[LONG / 2..].as_mut_ptr();
    let vector = [libc::iovec { iov_base: lent.region.bytes().as_ptr().cast_mut().cast(), iov_len: LONG }];
    let part = pair::pieces(&vector);
    let loan = emulated::begin(near.socket, &part, 0).expect("it lends");
    const ERROR: Errno = Errno(libc::ECONNRESET);
    std::thread::scope(|scope| {
        let sleepers = [near, far].map(|end| {
            scope.spawn(move || match end.receive(&mut vec![0; LONG], 0) {
                Ok(0) => None,
                Ok(_) => panic!("bytes that were lost"),
                Err(error) => Some(error),
            })
        });
        for end in [near, far] {
            while end.socket.own().wait.armed.load(Relaxed) & arm::IN == 0 {
                std::thread::yield_now();
            }
        }
        let held = Unreadable::page_of(middle);
        // SAFETY: the region's bytes.
        let sent = unsafe { put::put_loan(near.socket, near.fd, &part, &loan, 0) };
        drop(held);
        assert_eq!(sent, Err(ERROR));
        // What is written now nobody takes for what was sent.
        let records = &near.socket.page().head.references[near.socket.side()].records;
        assert!(records.iter().all(|record| record.place.load(Relaxed) & place::LENT == 0));
        // The sender's own have its call's error, or the end behind it.
        let [own, peer] = sleepers.map(|sleeper| sleeper.join().expect("told"));
        assert_eq!((own.unwrap_or(ERROR), peer), (ERROR, Some(ERROR)));
    });
}

#[test]
fn it_is_copied_where_it_would_not_pay() {
    type Change = fn(&Lent);
    let changes: [(&str, Change); 7] = [
        ("not asked for", |lent| lent.near().socket.connected.loans.lending.wanted.store(0, Relaxed)),
        ("on one processor", |lent| lent.near().socket.own().wait.processor.store(2, Relaxed)),
        ("a sleeper", |lent| {
            let _ = lent.far().socket.own().wait.armed.fetch_or(arm::IN, Relaxed);
        }),
        ("a sleeper in a set", |lent| {
            let _ = lent.far().socket.own().wait.armed.fetch_or(arm::IN << arm::SET_SHIFT, Relaxed);
        }),
        ("no answer", |lent| {
            let socket = lent.near().socket;
            socket.connected.loans.lending.heard.store(socket.own().receive.position.load(Relaxed), Relaxed);
        }),
        ("taken back lately", |lent| lent.near().socket.connected.loans.lending.skipped.store(1, Relaxed)),
        ("shared", |lent| {
            let _ = lent.far().socket.own().receive.state.fetch_or(state::SHARED, Relaxed);
        }),
    ];
    for (why, change) in changes {
        let lent = lending();
        change(&lent);
        assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], 0), Ok(LONG));
        assert!(last(&lent).is_none(), "{why}");
        assert!(receive_whole(lent.far(), LONG) == lent.region.bytes()[..LONG]);
    }
    let lent = lending();
    for length in [32 * KILO - 1, emulated::MOST + 1] {
        lent.pair.is_to_lend();
        let sent = pattern(length);
        assert_eq!(lent.near().send(&sent, 0), Ok(length));
        assert!(last(&lent).is_none(), "{length}");
        assert!(receive_whole(lent.far(), length) == sent);
    }
    // Unread bytes before it.
    assert_eq!(lent.near().send(b"x", 0), Ok(1));
    lent.pair.is_to_lend();
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], 0), Ok(LONG));
    assert!(last(&lent).is_none());
    assert_eq!(receive_whole(lent.far(), LONG + 1).len(), LONG + 1);
}

#[test]
fn the_more_is_taken_back_the_less_is_lent() {
    let mut lent = lending();
    let mut skipped = Vec::new();
    for _ in 0..9 {
        lent.pair.is_to_lend();
        send_and_write_anew(&mut lent, LONG, 1);
        skipped.push(lent.near().socket.connected.loans.lending.skipped.load(Relaxed));
        receive_whole(lent.far(), LONG);
    }
    assert_eq!(skipped, [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
    // As many are copied.
    for left in (4092..4096).rev() {
        lent.near().socket.connected.loans.lending.heard.store(u64::MAX, Relaxed);
        assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], 0), Ok(LONG));
        assert!(last(&lent).is_none());
        assert_eq!(lent.near().socket.connected.loans.lending.skipped.load(Relaxed), left);
        receive_whole(lent.far(), LONG);
    }
}

/// As the stream is when its sender is killed in the middle of a send: announced, and not taken back.
fn abandoned(length: usize) -> (Lent, &'static Record) {
    let lent = lending();
    assert_eq!(lent.near().send(&lent.region.bytes()[..length], 0), Ok(length));
    let (record, word) = last(&lent).expect("lent");
    let socket = lent.near().socket;
    let file = shunt_link::descriptor_unlocked(socket.connected.link_index.load(Relaxed) as usize);
    let at = shunt_segment::area::kept_offset(socket.channel(), socket.side()) as i64;
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    shunt_sys::calls::fallocate(file, how, at, KEPT_SIZE as i64).expect("a hole");
    record.place.store(word & !place::KEPT, Relaxed);
    (lent, record)
}

#[test]
fn what_a_killed_sender_has_lent_is_received_from_where_it_lies() {
    let (lent, _) = abandoned(LONG);
    assert!(receive_whole(lent.far(), LONG) == lent.region.bytes()[..LONG]);
}

#[test]
fn other_owners_of_the_receiving_side_find_what_is_lent_in_the_link() {
    let (mut lent, record) = abandoned(LONG);
    let sent = lent.region.bytes()[..LONG].to_vec();
    lent.far().socket.share();
    keep::on_sharing(lent.far().socket);
    assert_ne!(record.place.load(Relaxed) & place::KEPT, 0);
    lent.region.bytes_mut().fill(0);
    assert!(receive_whole(lent.far(), LONG) == sent);
}

#[test]
fn nothing_that_is_lent_is_read_in_place() {
    let (lent, _) = abandoned(LONG);
    assert_eq!(views::next(lent.far().socket, lent.far().fd, LONG), Ok(Next::Copied(LONG)));
    let mut lent = lending();
    send_and_write_anew(&mut lent, LONG, 1);
    assert_eq!(views::next(lent.far().socket, lent.far().fd, LONG), Ok(Next::Copied(LONG)));
}

/// The word changes between the two looks of a receiver: here it is another one than any honest sender's from the start of its copy on.
#[test]
fn a_word_that_changes_otherwise_costs_the_connection() {
    let (lent, record) = abandoned(emulated::MOST);
    let word = record.place.load(Relaxed);
    let far = lent.pair.far;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut bytes = vec![0; emulated::MOST];
            loop {
                match far.receive(&mut bytes, NOW | libc::MSG_PEEK) {
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        });
        while !receiver.is_finished() {
            record.place.store(word ^ 4096, Relaxed);
            record.place.store(word, Relaxed);
        }
        assert_eq!(receiver.join().expect("an error"), Errno(libc::ECONNRESET));
    });
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize, usize),
    Plain(usize),
    Receive(usize),
    Look(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let long = || prop_oneof![1usize..50, 30_000..40_000usize, 60_000..300_000usize];
    let step = prop_oneof![
        4 => (0usize..500_000, long()).prop_map(|(from, length)| Step::Send(from, length)),
        1 => long().prop_map(Step::Plain),
        4 => long().prop_map(Step::Receive),
        1 => long().prop_map(Step::Look),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_row_of_sends_and_receives_moves_the_bytes_as_they_were(steps in steps()) {
        let mut lent = lending();
        let mut under_way = std::collections::VecDeque::new();
        let plain = pattern(300_000);
        for (salt, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send(from, length) => {
                    lent.pair.is_to_lend();
                    lent.region.bytes_mut().fill(salt as u8);
                    let sent = lent.near().send(&lent.region.bytes()[from..from + length], NOW).unwrap_or(0);
                    under_way.extend(std::iter::repeat_n(salt as u8, sent));
                }
                Step::Plain(length) => {
                    let sent = lent.near().send(&plain[..length], NOW).unwrap_or(0);
                    under_way.extend(&plain[..sent]);
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
            }
            prop_assert_eq!(lent.far().socket.incoming().look().1, under_way.len());
        }
        let rest: Vec<u8> = under_way.into_iter().collect();
        prop_assert!(receive_whole(lent.far(), rest.len()) == rest);
    }
}
