//! What another host writes into the TCP connection beside a stream: tokens, records and bytes, in any order, cut anywhere.
//! Whatever it is, the program reads bytes of the other program's alone, each once and in order, and the other side gets the
//! program's from a position that it named itself.

use crate::handover::started;
use crate::input::Input;
use shunt_remote::alone::{paths, Alone, Nowhere, Standing};
use shunt_sys::{calls, libc};
use std::sync::OnceLock;

const RECORD: usize = 32;
/// The kind of a record that names bytes received by the engine, too.
const BY_ENGINE: u64 = 1;
/// Bytes of either program, at most.
const MOST: usize = 40_000;
/// Records and tokens that may be taken for what they are in one life.
const SKIPS: usize = 3;

/// The program's byte at a position; never 0xff, with which the record begins: this station's tokens are 0.
fn byte_at(position: usize) -> u8 {
    ((position as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57) as u8
}

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte_at).collect()
}

/// One life of a stream, and what is known of it.
struct Life {
    alone: Alone,
    peer: i32,
    /// What the program has sent, and whether its end is said.
    written: usize,
    finished: bool,
    /// What the engine brought, and what the peer wrote by TCP.
    brought: usize,
    came: Vec<u8>,
    /// What the program and the peer have read.
    read: Vec<u8>,
    carried: Vec<u8>,
    /// Positions that records named.
    named: Vec<u64>,
}

pub fn run(data: &[u8]) {
    static NOWHERE: OnceLock<Nowhere> = OnceLock::new();
    let _turn = started();
    let nowhere = *NOWHERE.get_or_init(|| Nowhere::new().expect("a station"));
    let _ = play(nowhere, Input(data));
}

fn play(nowhere: Nowhere, mut input: Input) -> Option<()> {
    let ways = [paths::PROVISIONAL, paths::BEGINNING, paths::CLAIMED, paths::FAST, paths::RESUMING, paths::TCP];
    let way = ways[usize::from(input.byte()?) % ways.len()];
    let mut pair = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    calls::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()).expect("a pair");
    let alone = Alone::new(nowhere, pair[0], way).expect("a stream");
    let mut life = Life {
        alone,
        peer: pair[1],
        written: 0,
        finished: false,
        brought: 0,
        came: vec![],
        read: vec![],
        carried: vec![],
        named: vec![],
    };
    let began = life.begin(way, &mut input);
    while life.act(&mut input).is_some() {}
    life.settle();
    life.check(way, began);
    if life.peer >= 0 {
        calls::close(life.peer).expect("an open descriptor");
    }
    Some(())
}

impl Life {
    /// What was before: gives the position behind which nothing was confirmed.
    fn begin(&mut self, way: u64, input: &mut Input) -> u64 {
        self.write(input.length(MOST).unwrap_or(0));
        let engine = matches!(way, paths::FAST | paths::RESUMING | paths::BEGINNING);
        let sent = if engine { input.length(self.written).unwrap_or(0) } else { 0 };
        let confirmed = match way {
            paths::FAST | paths::RESUMING => input.length(sent).unwrap_or(0),
            paths::BEGINNING => sent,
            _ => 0,
        };
        self.alone.given(sent as u64, confirmed as u64);
        if way == paths::BEGINNING {
            self.alone.begins_here();
        }
        if matches!(way, paths::FAST | paths::RESUMING) {
            let count = input.length(MOST).unwrap_or(0);
            self.brought = self.alone.arrives(&bytes(0, count));
        }
        confirmed as u64
    }

    fn write(&mut self, count: usize) {
        if !self.finished {
            self.written += self.alone.send(&bytes(self.written, count.min(MOST.saturating_sub(self.written))));
        }
    }

    /// The peer writes.
    fn put(&mut self, bytes: &[u8]) {
        if self.peer < 0 {
            return;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let put = calls::sendto(self.peer, bytes.as_ptr().cast(), bytes.len(), flags, core::ptr::null(), 0).unwrap_or(0);
        self.came.extend(&bytes[..put]);
    }

    fn record(&mut self, position: u64, kind: u64) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..16].copy_from_slice(&self.alone.token().map(|byte| !byte));
        record[16..24].copy_from_slice(&position.to_le_bytes());
        record[24..].copy_from_slice(&kind.to_le_bytes());
        self.named.push(position);
        record
    }

    /// A position that an honest peer could name, or one nearby.
    fn position(&self, input: &mut Input) -> Option<u64> {
        let Standing { sent, acknowledged, received, .. } = self.alone.standing();
        let near = [sent, acknowledged, received, self.written as u64, 0, 1 << 47, u64::MAX][usize::from(input.byte()?) % 7];
        Some(near.wrapping_add(u64::from(input.byte()?)).wrapping_sub(if near == 0 { 0 } else { 8 }))
    }

    /// One thing happens, and the keeper looks.
    fn act(&mut self, input: &mut Input) -> Option<()> {
        match input.byte()? % 12 {
            0 | 1 => {
                let count = input.length(4000)?;
                let mut more = input.bytes(count.min(64)).to_vec();
                more.extend(bytes(self.came.len(), count.saturating_sub(more.len())));
                self.put(&more);
            }
            2 => self.put(&self.alone.token()),
            3 | 4 => {
                let (position, kind) = (self.position(input)?, u64::from(input.byte()? % 5));
                let record = self.record(position, kind);
                self.put(&record);
            }
            5 => {
                let (position, cut) = (self.position(input)?, usize::from(input.byte()?) % RECORD);
                let record = self.record(position, BY_ENGINE);
                self.put(&record[..cut]);
                self.look(0);
                self.put(&record[cut..]);
            }
            6 => {
                let count = input.length(MOST)?;
                self.write(count);
            }
            7 => {
                let count = input.length(MOST)?;
                self.read(count);
            }
            8 => {
                let count = input.length(MOST)?;
                self.carry(count);
            }
            9 if self.peer >= 0 => match input.byte()? % 4 {
                0 => calls::close(core::mem::replace(&mut self.peer, -1)).expect("an open descriptor"),
                1 => {
                    let _ = calls::shutdown(self.peer, libc::SHUT_WR);
                }
                _ => {}
            },
            10 => {
                self.alone.finish();
                self.finished = true;
            }
            11 => self.alone.begin(self.position(input)? % (1 << 47)),
            _ => {}
        }
        self.look(u64::from(input.byte().unwrap_or(0)) * 20_000_000);
        Some(())
    }

    fn look(&mut self, after: u64) {
        let standing = self.alone.tend(after);
        assert!(standing.acknowledged <= standing.sent && standing.sent <= self.written as u64, "{standing:?}");
        assert!(standing.passed >= standing.acknowledged, "{standing:?}");
        if standing.reset {
            assert!(self.alone.tells_reset(), "{standing:?}");
        }
    }

    fn read(&mut self, most: usize) {
        let mut room = vec![0; most.min(MOST)];
        let got = self.alone.receive(&mut room);
        self.read.extend(&room[..got]);
    }

    fn carry(&mut self, most: usize) {
        let mut room = vec![0; most.min(MOST)];
        if self.peer >= 0 {
            let (at, length) = (room.as_mut_ptr().cast(), room.len());
            let null = core::ptr::null_mut();
            let got = calls::recvfrom(self.peer, at, length, libc::MSG_DONTWAIT, null, null.cast()).unwrap_or(0);
            self.carried.extend(&room[..got]);
        }
    }

    /// Until nothing moves.
    fn settle(&mut self) {
        for _ in 0..12 {
            self.look(0);
            self.read(MOST);
            self.carry(MOST);
        }
    }

    fn check(&self, way: u64, confirmed: u64) {
        let standing = self.alone.standing();
        // The program's: what the engine brought, then what the peer wrote but for tokens and records.
        let (by_engine, by_tcp) = self.read.split_at(self.read.len().min(self.brought));
        assert_eq!(by_engine, bytes(0, by_engine.len()), "what the engine brought");
        let whole = standing.way == paths::TCP && !standing.reset && !standing.ended && self.peer >= 0;
        assert!(consists_of(by_tcp, &self.came, SKIPS, whole), "{} bytes by TCP, {standing:?}", by_tcp.len());
        // The peer's: what went by TCP from the beginning; one record; what follows the position that the peer named.
        let at = self.carried.iter().position(|byte| *byte == 0xff).unwrap_or(self.carried.len());
        let (before, rest) = self.carried.split_at(at);
        let behind = rest.get(RECORD..).unwrap_or_default();
        let first = if matches!(way, paths::PROVISIONAL | paths::CLAIMED | paths::TCP) { 0 } else { confirmed };
        let from = |position: u64, part: &[u8]| {
            position >= confirmed.min(first)
                && position as usize + part.len() <= self.written
                && bytes(position as usize, part.len()) == part
        };
        let start = |part: &[u8]| {
            part.is_empty() || from(first, part) || self.named.iter().any(|named| *named < MOST as u64 && from(*named, part))
        };
        assert!(start(before), "{} bytes before a record, {standing:?}", before.len());
        assert!(start(behind) || from(0, behind), "{} bytes behind a record, {standing:?}", behind.len());
        if whole {
            assert_eq!(standing.sent, self.written as u64, "everything is the kernel's: {standing:?}");
        }
    }
}

/// Whether `part` is `whole` (or, unless all of it is to be there, its beginning) without at most `skips` tokens and records.
fn consists_of(part: &[u8], whole: &[u8], skips: usize, all: bool) -> bool {
    let same = part.iter().zip(whole).take_while(|(a, b)| a == b).count();
    if same == part.len() && (!all || whole.len() - same < RECORD) {
        return true;
    }
    // What was skipped begins at `same`, or before, where it looks like what follows it.
    skips > 0
        && (0..=same).rev().any(|at| {
            [16, RECORD].into_iter().any(|length| {
                whole.len() >= at + length
                    && (whole[at..at + 16] == [0; 16] || whole[at..at + 16] == [0xff; 16])
                    && consists_of(&part[at..], &whole[at + length..], skips - 1, all)
            })
        })
}
