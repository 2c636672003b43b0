//! Round trips of iceoryx2's publish-subscribe: `iceoryx2-latency CORE PEER-CORE COUNT` prints the median in nanoseconds.
//!
//! The same loop as in iceoryx2's own benchmark, which no registry has: two threads with a publisher and a subscriber each, a
//! payload handed to and fro, both asking without sleeping. What is timed is one round, by one clock reading.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use iceoryx2::config::Config;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// As many bytes as sockperf's smallest message has.
type Payload = [u8; 14];
type Failure = Box<dyn std::error::Error + Send + Sync>;

const WARM_UP: usize = 10_000;

fn main() -> ExitCode {
    let words: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let &[core, peer_core, count] = words.as_slice() else {
        eprintln!("usage: iceoryx2-latency CORE PEER-CORE COUNT");
        return ExitCode::from(2);
    };
    match measure(core, peer_core, count) {
        Ok(median) => {
            println!("{median}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("iceoryx2-latency: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The median of `count` round trips in nanoseconds.
fn measure(core: usize, peer_core: usize, count: usize) -> Result<u64, Failure> {
    set_log_level(LogLevel::Error);
    let place = Place::new()?;
    let (start, rounds) = (Barrier::new(2), count + WARM_UP);
    let answer = |trip: &Trip| (0..rounds).try_for_each(|_| trip.answer());
    let ask = |trip: &Trip| {
        let mut times = Vec::with_capacity(rounds);
        let mut last = Instant::now();
        for _ in 0..rounds {
            trip.ask()?;
            let now = Instant::now();
            times.push((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(times.split_off(WARM_UP))
    };
    let mut times = std::thread::scope(|scope| {
        let there = scope.spawn(|| side(&place, peer_core, "there", "back", &start, answer));
        let times = side(&place, core, "back", "there", &start, ask);
        there.join().expect("no panic")?;
        times
    })?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Names of this process alone, for files and shared memory; nothing of them is left when it ends.
struct Place {
    config: Config,
    directory: PathBuf,
    prefix: String,
}

impl Place {
    fn new() -> Result<Self, Failure> {
        let prefix = format!("iceoryx2-latency-{}-", std::process::id());
        let directory = std::env::temp_dir().join(&prefix);
        let mut config = Config::default();
        config.global.prefix = FileName::new(prefix.as_bytes())?;
        config.global.set_root_path(&Path::new(directory.as_os_str().as_encoded_bytes())?);
        Ok(Place { config, directory, prefix })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.prefix) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

struct Trip {
    publisher: Publisher<ipc::Service, Payload, ()>,
    subscriber: Subscriber<ipc::Service, Payload, ()>,
}

impl Trip {
    fn ask(&self) -> Result<(), Failure> {
        self.send()?;
        self.receive()
    }

    fn answer(&self) -> Result<(), Failure> {
        self.receive()?;
        self.send()
    }

    fn send(&self) -> Result<(), Failure> {
        self.publisher.loan_uninit()?.write_payload([7; 14]).send()?;
        Ok(())
    }

    fn receive(&self) -> Result<(), Failure> {
        while self.subscriber.receive()?.is_none() {}
        Ok(())
    }
}

/// One of the two threads: pinned, listening to one service and publishing to the other.
fn side<R>(
    place: &Place,
    core: usize,
    hears: &str,
    says: &str,
    start: &Barrier,
    work: impl FnOnce(&Trip) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // Whoever cannot begin must not leave the other waiting.
    let begun = pin(core).and_then(|()| ports(place, hears, says)).unwrap_or_else(|error| {
        eprintln!("iceoryx2-latency: {error}");
        std::process::exit(1)
    });
    start.wait();
    work(&begun.1)
}

fn ports(place: &Place, hears: &str, says: &str) -> Result<(Node<ipc::Service>, Trip), Failure> {
    let node = NodeBuilder::new().config(&place.config).create::<ipc::Service>()?;
    let service = |name: &str| {
        let builder = node.service_builder(&ServiceName::new(name)?).publish_subscribe::<Payload>();
        Ok::<_, Failure>(builder.history_size(0).subscriber_max_buffer_size(1).enable_safe_overflow(true).open_or_create()?)
    };
    let (heard, said) = (service(hears)?, service(says)?);
    let trip = Trip { publisher: said.publisher_builder().create()?, subscriber: heard.subscriber_builder().create()? };
    Ok((node, trip))
}

fn pin(core: usize) -> Result<(), Failure> {
    // SAFETY: all bytes zero is an empty set, CPU_SET checks its index, and the set outlives the call.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    (done == 0).then_some(()).ok_or_else(|| std::io::Error::last_os_error().into())
}
