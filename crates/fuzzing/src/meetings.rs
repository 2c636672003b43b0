//! What ends say to hostd, and hostd to ends: any bytes are one message or none. And claims in any order: nobody meets an end of its own side, one that has left, or one
//! with other numbers, none is introduced again that was, and there are never more than there may be.

use shunt_hostd::table::{Came, Limits, Numbers, Side, Table};
use shunt_segment::meeting::{Answer, Counts, Request};

const MOST: usize = 8;

pub fn run(data: &[u8]) {
    if let Some(request) = Request::decode(data) {
        assert_eq!(request.encode(), data);
    }
    if let Some(answer) = Answer::decode(data) {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
    if let Some(counts) = Counts::decode(data) {
        assert_eq!(counts.encode(), data);
    }
    let mut table = Table::new(Limits { all: MOST, ..Limits::default() });
    let mut waiting: Vec<(u32, Side, Numbers)> = Vec::new();
    // By the client's numbers, as many as are known of at least.
    let mut spent: Vec<Numbers> = Vec::new();
    for (number, bytes) in data.chunks_exact(2).enumerate() {
        let number = number as u32;
        if bytes[0] >= 0xf0 && !waiting.is_empty() {
            let (number, side, numbers) = waiting.swap_remove(usize::from(bytes[1]) % waiting.len());
            table.forget(number, side, numbers);
            continue;
        }
        let side = if bytes[0] & 1 == 0 { Side::Client } else { Side::Server };
        let numbers = Numbers { sends: u32::from(bytes[1] & 7), expects: u32::from(bytes[1] >> 5) };
        let crosswise = Numbers { sends: numbers.expects, expects: numbers.sends };
        let place = |of: Side, with: Numbers| waiting.iter().position(|(_, side, numbers)| (*side, *numbers) == (of, with));
        let other = if side == Side::Client { Side::Server } else { Side::Client };
        let (same, opposite) = (place(side, numbers), place(other, crosswise));
        let of_client = if side == Side::Client { numbers } else { crosswise };
        let came = table.claim(number, side, numbers);
        if matches!(came, Came::Meets(_) | Came::Ambiguous(_)) {
            assert!(!spent.iter().rev().take(MOST / 2).any(|one| *one == of_client));
            spent.push(of_client);
        }
        match came {
            Came::Waits => {
                assert!(same.is_none() && opposite.is_none());
                waiting.push((number, side, numbers));
            }
            Came::Meets(met) => assert_eq!(opposite.map(|at| waiting.swap_remove(at).0), Some(met)),
            Came::Ambiguous(met) => assert_eq!(same.map(|at| waiting.swap_remove(at).0), Some(met)),
            Came::Spent => assert!(same.is_none() && opposite.is_none() && spent.contains(&of_client)),
            Came::Full => assert_eq!(waiting.len(), MOST),
        }
        assert_eq!(table.waiting(), waiting.len());
    }
}
