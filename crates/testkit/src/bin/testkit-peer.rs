//! One end, or many, of the conversations of the crash tests. A plain program: nothing in it knows of shunt.
//!
//! ```text
//! testkit-peer serve PORT                     one thread a connection; tells of every connection
//! testkit-peer connect PORT LETTERS SEED      one connection a letter, all at once, as the victim
//! testkit-peer survive HONEST_PORT            reads "PORT LETTER SEED" lines, one connection a line, as the survivor,
//!                                             and all the while is a bystander at HONEST_PORT;
//!                                             a line "PORT visit SEED" is one short conversation
//! testkit-peer bystander PORT                 echoes, checking every byte, until its input ends
//! testkit-peer outlive PORT LETTER SEED       one connection, as the survivor
//! testkit-peer serve-urgent PORT              as serve, for those of the next line
//! testkit-peer urgent PORT SEED               rounds with an urgent byte each, until its input ends
//! testkit-peer fork PORT SEED                 as bystander; each second round is a child's
//! testkit-peer visit PORT                     one short conversation, which it ends itself
//! testkit-peer listen                         for each line of its input listens anywhere for a moment; tells of its descriptors
//! ```
//!
//! The server's address is 127.0.0.1, or the variable `TESTKIT_ADDRESS`.
//!
//! Lines on standard output: `open N`, `suffers SEED`, `rest SEED`, `close N SEED LETTER BYTES END`, `connected SEED`,
//! `fine ROUNDS`, `heard ROUNDS`, `descriptors COUNT`. A connection whose header never came closes with seed 0 and letter `-`.

use shunt_testkit::conversation::{forks, read_header, suffer, survive, urgent, write_header, Bytes, Pattern};
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Set when standard input ends, which tells bystanders to stop.
static INPUT_ENDED: AtomicBool = AtomicBool::new(false);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", port] => serve(listen(number(port) as u16)),
        ["serve-shared", port] => {
            let listener = listen(number(port) as u16);
            hold_in_a_child();
            serve(listener);
        }
        ["connect", port, letters, seed] => connect(number(port) as u16, letters, number(seed)),
        ["survive", port] => {
            let port = number(port) as u16;
            let bystander = thread::spawn(move || bystander(port));
            for line in io::stdin().lock().lines() {
                let line = line.expect("standard input is text");
                thread::spawn(move || survive_one(&line));
            }
            INPUT_ENDED.store(true, Ordering::Relaxed);
            bystander.join().expect("the bystander was not disturbed");
        }
        ["bystander", port] => {
            thread::spawn(|| {
                let _ = io::stdin().lock().read_to_end(&mut Vec::new());
                INPUT_ENDED.store(true, Ordering::Relaxed);
            });
            bystander(number(port) as u16);
        }
        ["listen"] => io::stdin().lock().lines().for_each(|_| listen_for_a_moment()),
        ["outlive", port, letter, seed] => survive_one(&format!("{port} {letter} {seed}")),
        ["serve-urgent", port] => serve_urgent(&listen(number(port) as u16)),
        ["urgent", port, seed] => until_input_ends(number(port) as u16, |mut stream, ended| urgent::send(&mut stream, number(seed), ended)),
        ["fork", port, seed] => until_input_ends(number(port) as u16, |mut stream, ended| {
            write_header(&mut stream, false, Pattern::Echo, number(seed))?;
            forks::converse(&mut stream, number(seed), ended)
        }),
        ["visit", port] => drop(visit(number(port) as u16, 1)),
        ["visit-in-a-row", port] => {
            drop(visit(number(port) as u16, 1));
            drop(visit(number(port) as u16, 2));
            // The last one ends with the process.
            std::mem::forget(visit(number(port) as u16, 3));
        }
        _ => panic!("usage: serve PORT | serve-shared PORT | visit-in-a-row PORT | connect PORT LETTERS SEED | survive PORT | outlive PORT LETTER SEED | bystander PORT | visit PORT | serve-urgent PORT | urgent PORT SEED | fork PORT SEED"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// Where the server is: `TESTKIT_ADDRESS`, or this host.
fn address() -> String {
    std::env::var("TESTKIT_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_string())
}

fn pattern(letter: char) -> Pattern {
    Pattern::from_letter(letter).unwrap_or_else(|| panic!("no pattern has the letter {letter:?}"))
}

/// Standard output's lock keeps lines of threads whole.
fn say(line: String) {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("standard output is a file");
}

fn listen(port: u16) -> TcpListener {
    TcpListener::bind((address().as_str(), port)).expect("the port is free")
}

fn listen_for_a_moment() {
    drop(TcpListener::bind("0.0.0.0:0").expect("a listener"));
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("a directory").count();
    say(format!("descriptors {descriptors}"));
}

/// A child that has the listener, too, and does nothing: it goes when this process does.
fn hold_in_a_child() {
    // SAFETY: this process has one thread, and the child makes system calls only.
    unsafe {
        let parent = libc::getpid();
        if libc::fork() == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The parent may have ended before that.
            while libc::getppid() == parent {
                libc::pause();
            }
            libc::_exit(0);
        }
    }
}

fn serve(listener: TcpListener) {
    for id in 0_u64.. {
        // A client killed before it is accepted may be reported here (accept(2): ECONNABORTED); it is no connection.
        let Ok((mut stream, _)) = listener.accept() else { continue };
        say(format!("open {id}"));
        thread::spawn(move || match read_header(&mut stream) {
            Err(_) => say(format!("close {id} 0 - 0 end-of-stream")),
            Ok((true, pattern, seed)) => {
                let (bytes, end) = survive(&mut stream, pattern, seed, || say(format!("rest {seed}")));
                drop(stream);
                say(format!("close {id} {seed} {} {bytes} {end}", pattern.letter()));
            }
            Ok((false, pattern, seed)) => {
                say(format!("suffers {seed}"));
                let _ = suffer(&mut stream, pattern, seed);
                drop(stream);
                say(format!("close {id} {seed} {} 0 end-of-stream", pattern.letter()));
            }
        });
    }
}

fn serve_urgent(listener: &TcpListener) {
    for id in 0_u64.. {
        let Ok((mut stream, _)) = listener.accept() else { continue };
        say(format!("open {id}"));
        thread::spawn(move || match urgent::receive(&mut stream) {
            Ok(rounds) => say(format!("heard {rounds}")),
            Err(error) => say(format!("close {id}: {error}")),
        });
    }
}

/// A conversation that takes a question whether standard input has ended.
fn until_input_ends(port: u16, converse: impl FnOnce(TcpStream, &dyn Fn() -> bool) -> io::Result<u64>) {
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        INPUT_ENDED.store(true, Ordering::Relaxed);
    });
    let stream = TcpStream::connect((address().as_str(), port)).expect("the server listens");
    say("connected".to_string());
    let rounds = converse(stream, &|| INPUT_ENDED.load(Ordering::Relaxed)).expect("nothing is lost, repeated or misplaced");
    say(format!("fine {rounds}"));
}

fn connect(port: u16, letters: &str, seed: u64) {
    let threads: Vec<_> = letters
        .chars()
        .zip(seed..)
        .map(|(letter, seed)| {
            thread::spawn(move || -> io::Result<()> {
                let mut stream = TcpStream::connect((address().as_str(), port))?;
                write_header(&mut stream, true, pattern(letter), seed)?;
                say(format!("connected {seed}"));
                suffer(&mut stream, pattern(letter), seed)
            })
        })
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
}

fn survive_one(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let (port, letter, seed) = (number(words[0]) as u16, words[1], number(words[2]));
    if letter == "visit" {
        visit(port, seed);
        return say(format!("close 0 {seed} - 0 end-of-stream"));
    }
    let pattern = pattern(letter.chars().next().expect("one letter"));
    let opened = TcpStream::connect((address().as_str(), port)).and_then(|mut stream| {
        write_header(&mut stream, false, pattern, seed)?;
        Ok(stream)
    });
    let Ok(mut stream) = opened else {
        // The victim died first, which is no conversation but must not take long either.
        return say(format!("close 0 {seed} - 0 end-of-stream"));
    };
    say(format!("connected {seed}"));
    let (bytes, end) = survive(&mut stream, pattern, seed, || say(format!("rest {seed}")));
    drop(stream);
    say(format!("close 0 {seed} {letter} {bytes} {end}"));
}

fn visit(port: u16, seed: u64) -> TcpStream {
    let mut stream = TcpStream::connect((address().as_str(), port)).expect("the server listens");
    write_header(&mut stream, false, Pattern::Echo, seed).expect("the server reads");
    let mut buffer = [7; 3000];
    stream.write_all(&buffer).and_then(|()| stream.read_exact(&mut buffer)).expect("the server answers");
    stream
}

fn bystander(port: u16) {
    let mut stream = TcpStream::connect((address().as_str(), port)).expect("the server listens");
    let seed = u64::from(std::process::id()) << 32;
    write_header(&mut stream, false, Pattern::Echo, seed).expect("the server reads");
    let (mut sent, mut expected) = (Bytes::new(seed), Bytes::new(seed));
    let mut rounds = 0_u64;
    let mut buffer = vec![0; 40_000];
    say(format!("connected {seed}"));
    while !INPUT_ENDED.load(Ordering::Relaxed) {
        let length = 1 + (rounds as usize * 7919) % buffer.len();
        sent.fill(&mut buffer[..length]);
        stream.write_all(&buffer[..length]).expect("the server lives");
        stream.read_exact(&mut buffer[..length]).expect("the server answers");
        expected.check(&buffer[..length]).expect("the server returns what was sent");
        rounds += 1;
        // Leaves the processors to the others: what counts is that it goes on, not how fast.
        thread::sleep(Duration::from_millis(1));
    }
    say(format!("fine {rounds}"));
}
