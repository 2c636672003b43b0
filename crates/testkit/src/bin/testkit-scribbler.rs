//! A hostile peer: it speaks over its connections and, at the same time, writes random words over every link segment
//! that its own process maps. A plain program but for that: it finds the segments by the name the kernel shows.
//!
//! ```text
//! testkit-scribbler conversations PORT SEED MILLISECONDS   a client of `testkit-peer serve`
//! testkit-scribbler redis PORT SEED MILLISECONDS           a client of a Redis server
//! testkit-scribbler http PORT SEED MILLISECONDS            a client of a web server with the files /0 to /2
//! testkit-scribbler serve PORT SEED MILLISECONDS           a server for `testkit-peer survive`
//! ```
//!
//! Says `scribbling` when it has found a segment, and `done WORDS` when the time is over. How its own connections fare
//! does not matter; it may even die of its own deeds.

use shunt_testkit::conversation::{read_header, suffer, write_header, Pattern};
use shunt_testkit::{wait_until, Random, SECOND};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

const LINK_SEGMENT: &str = "memfd:shunt-link";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, port, seed, milliseconds] = &arguments[..] else {
        panic!("usage: testkit-scribbler conversations|redis|http|serve PORT SEED MILLISECONDS")
    };
    let port = port.parse().expect("a port");
    let seed = seed.parse().expect("a seed");
    let duration = Duration::from_millis(milliseconds.parse().expect("milliseconds"));
    match role.as_str() {
        "conversations" => {
            for (pattern, seed) in Pattern::ALL.into_iter().zip(seed..) {
                thread::spawn(move || converse(port, pattern, seed));
            }
        }
        "redis" => {
            for _ in 0..3 {
                thread::spawn(move || ask_redis(port));
            }
        }
        "http" => {
            for file in 0..3 {
                thread::spawn(move || fetch(port, file));
            }
        }
        "serve" => serve(port),
        other => panic!("{other:?} is no role"),
    }
    let segments = wait_until(30 * SECOND, || {
        let segments = link_segments();
        (!segments.is_empty()).then_some(segments)
    });
    let segments = segments.expect("a connection over a link segment");
    println!("scribbling {}", segments.len());
    let words = scribble(seed, duration);
    println!("done {words}");
    // At once: its threads may be stuck, and its library's own ending is not under test.
    // SAFETY: _exit takes an integer and runs nothing.
    unsafe { libc::_exit(0) }
}

/// Either side of every pattern, again and again, whatever comes of it.
fn converse(port: u16, pattern: Pattern, seed: u64) {
    for round in 0_u64.. {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let _ = write_header(&mut stream, round % 2 == 0, pattern, seed);
        // Bounded, so that patterns that rest do not keep this thread; an error is as welcome as an answer.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        let _ = suffer_for_a_while(&mut stream, pattern);
    }
}

fn suffer_for_a_while(stream: &mut TcpStream, pattern: Pattern) -> std::io::Result<()> {
    let mut buffer = vec![0; 10_000];
    for _ in 0..200 {
        match pattern {
            Pattern::VictimSends => stream.write_all(&buffer)?,
            Pattern::Echo => {
                stream.write_all(&buffer[..1000])?;
                stream.read_exact(&mut buffer[..1000])?;
            }
            Pattern::SurvivorSends | Pattern::Quiet | Pattern::Unread => {
                stream.read_exact(&mut buffer)?;
            }
        }
    }
    Ok(())
}

fn ask_redis(port: u16) {
    loop {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        let mut answer = [0; 7];
        for _ in 0..1000 {
            if stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut answer)).is_err() {
                break;
            }
        }
    }
}

fn fetch(port: u16, file: u32) {
    let request = format!("GET /{file} HTTP/1.1\r\nHost: x\r\n\r\n");
    loop {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        let mut bytes = vec![0; 100_000];
        for _ in 0..100 {
            if stream.write_all(request.as_bytes()).and_then(|()| stream.read(&mut bytes)).is_err() {
                break;
            }
        }
    }
}

fn serve(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            thread::spawn(move || {
                if let Ok((_, pattern, seed)) = read_header(&mut stream) {
                    let _ = suffer(&mut stream, pattern, seed);
                }
            });
        }
    });
}

/// Address ranges of the link segments that this process maps for writing.
fn link_segments() -> Vec<(u64, u64)> {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    maps.lines()
        .filter(|line| line.contains(LINK_SEGMENT))
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (from, to) = fields.next()?.split_once('-')?;
            let writable = fields.next()?.contains('w');
            let range = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
            writable.then_some(range)
        })
        .collect()
}

/// Writes words until the time is over, and returns how many.
///
/// Through `/proc/self/mem`, where a segment that was unmapped meanwhile is an error and not the end.
fn scribble(seed: u64, duration: Duration) -> u64 {
    let memory: File = OpenOptions::new().read(true).write(true).open("/proc/self/mem").expect("our own memory");
    let mut random = Random::seeded(seed);
    let end = Instant::now() + duration;
    let mut words = 0;
    while Instant::now() < end {
        let segments = link_segments();
        if segments.is_empty() {
            // All connections are closed; the next is about to be made.
            thread::yield_now();
            continue;
        }
        for _ in 0..500 {
            let (from, to) = segments[random.below(segments.len() as u64) as usize];
            let address = from + place(&mut random, to - from);
            let mut word = [0; 8];
            let _ = memory.read_at(&mut word, address);
            let word = garbled(&mut random, u64::from_le_bytes(word)).to_le_bytes();
            let length = if random.below(2) == 0 { 4 } else { 8 };
            words += u64::from(memory.write_at(&word[..length], address).is_ok());
        }
    }
    words
}

/// An offset that is a multiple of four: half of them on the first pages, where headers are, and a quarter at the
/// beginnings of cache lines.
fn place(random: &mut Random, length: u64) -> u64 {
    const HEADERS: u64 = 16 * 4096;
    let range = if random.below(2) == 0 { HEADERS.min(length) } else { length };
    let offset = random.below(range - 8);
    offset & if random.below(4) == 0 { !63 } else { !3 }
}

/// What to write over a word: noise, extremes, or something almost right.
fn garbled(random: &mut Random, word: u64) -> u64 {
    match random.below(8) {
        0 => random.word(),
        1 => random.word() & 0xFFFF_FFFF,
        2 => 0,
        3 => u64::MAX,
        4 => word.wrapping_add(1 + random.below(64)),
        5 => word.wrapping_sub(1 + random.below(64)),
        6 => word ^ (1 << random.below(64)),
        _ => random.below(1 << 20),
    }
}
