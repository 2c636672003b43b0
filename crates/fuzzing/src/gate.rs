//! Datagrams at a gate: whatever they say, one answer of the same size at most, and nothing is passed on without a cookie.

use shunt_segment::address::Address;
use shunt_station::discovery_packet::{Datagram, Kind, SIZE};
use shunt_station::Judge;

pub fn run(data: &[u8]) {
    let gate = Judge::new([1, 2]);
    let (asker, now) = (Address::v4([10, 0, 0, 1], 999), 7);
    let mut found = None;
    let answer = gate.judge(now, data, &asker, &mut |_| Some(1), &mut found);
    assert!(found.is_none(), "a cookie was guessed");
    let Some(answer) = answer else { return };
    let question = Datagram::parse(data).expect("what is answered is a question");
    assert_eq!((question.kind, answer.kind, data.len()), (Kind::Ask, Kind::Cookie, SIZE));
    assert_eq!((answer.nonce, answer.refusal), (question.nonce, None));
    // With the cookie it is passed on, if it comes from where it says, and answered with a refusal if not.
    let again = Datagram { cookie: answer.cookie, ..question };
    let judged = gate.judge(now, &again.emit(), &asker, &mut |_| Some(1), &mut found);
    let true_source = question.four.client.ip == asker.ip;
    assert_eq!((found == Some(1), judged.is_none()), (true_source, true_source));
}
