//! `kill -9` of the program, the agent, its guard, or agent and guard at once, at random moments under load: the peer sees what Linux would have shown it,
//! and nothing stays. `SHUNT_TEST_KILLS` says how often.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use shunt_testkit::conversation::{survive, write_header, Bytes, Pattern};
use shunt_testkit::Random;

use crate::site::{until, within, Running, Site};
use crate::traces::{connections, has_program, is_over, map_is_empty, odd_sockets};

/// Connections of a round.
const CONNECTIONS: u64 = 3;
/// Where agent and guard are gone a process waits 75 s for the end of a give-back that had begun.
const LAST: Duration = Duration::from_secs(400);
/// Rounds that a conversation goes on after a kill that is none of its affair.
const ON: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Program,
    Agent,
    Guard,
    /// Agent and guard.
    Both,
}

/// An echo that goes on until it is told to stop; every byte is compared. Its end, if that is not as it should be.
fn echo(mut stream: TcpStream, seed: u64, rounds: &AtomicU64, stop: &AtomicBool) -> std::io::Result<()> {
    let mut random = Random::seeded(seed);
    let (mut sent, mut expected) = (Bytes::new(seed), Bytes::new(seed));
    let mut buffer = vec![0; 6000];
    write_header(&mut stream, false, Pattern::Echo, seed)?;
    while !stop.load(Relaxed) {
        let most = if random.below(20) == 0 { buffer.len() as u64 } else { 100 };
        let length = 1 + random.below(most) as usize;
        sent.fill(&mut buffer[..length]);
        stream.write_all(&buffer[..length])?;
        stream.read_exact(&mut buffer[..length])?;
        expected.check(&buffer[..length])?;
        rounds.fetch_add(1, Relaxed);
    }
    stream.shutdown(Shutdown::Write)?;
    match stream.read(&mut buffer)? {
        0 => Ok(()),
        _ => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// Conversations stop when this goes, also where a test has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What the rounds have in common.
struct Trial {
    site: Site,
    random: Random,
    server: Option<Running>,
    /// Rounds in which connections were taken at the moment of the kill.
    taken: u32,
}

impl Trial {
    fn serve(&mut self) {
        if self.server.is_none() {
            let site = &self.site;
            let variable = format!("TESTKIT_ADDRESS={}", site.address(0));
            let peer = PathBuf::from(env!("CARGO_BIN_EXE_testkit-peer")).display().to_string();
            self.server = Some(site.start(0, 7000, "server", Path::new("/usr/bin/env"), &[&variable, &peer, "serve", "7000"]));
            site.wait_for_listener(0, 7000);
        }
        if self.site.agent.is_none() {
            self.site.start_agent();
        }
    }

    fn connect(&self) -> TcpStream {
        let address = (self.site.hosts[0].addresses[0], 7000);
        let stream = self.site.hosts[1].enter(|| TcpStream::connect(address)).expect("the server listens");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(LAST)).expect("a limit");
        stream.set_write_timeout(Some(LAST)).expect("a limit");
        stream
    }

    fn moment(&mut self) {
        thread::sleep(Duration::from_micros(self.random.below(25_000)));
        self.taken += u32::from(self.site.agent_says()["connections"]["taken"].as_u64().is_some_and(|taken| taken > 0));
        thread::sleep(Duration::from_micros(self.random.below(2_000)));
    }

    /// The program is killed: its peers hear its bytes, and then the end or a reset, as Linux would have it.
    fn kill_the_program(&mut self) {
        let all: Vec<(Pattern, u64)> =
            (0..CONNECTIONS).map(|_| (Pattern::ALL[self.random.below(5) as usize], self.random.word())).collect();
        thread::scope(|scope| {
            let running: Vec<_> = all
                .iter()
                .map(|&(pattern, seed)| {
                    let mut stream = self.connect();
                    write_header(&mut stream, false, pattern, seed).expect("the server is there");
                    scope.spawn(move || survive(&mut stream, pattern, seed, || {}))
                })
                .collect();
            self.moment();
            let mut server = self.server.take().expect("it runs");
            server.child.kill().expect("killed");
            server.child.wait().expect("ended");
            for ((pattern, seed), thread) in all.iter().zip(running) {
                let (bytes, end) = thread.join().expect("no panic");
                assert!(pattern.allows(end, bytes), "{pattern:?} {seed}: {end} after {bytes}");
            }
        });
    }

    /// Agent, guard or both are killed: conversations go on. With both at once they may end, by a reset; no byte is wrong.
    fn kill(&mut self, victim: Victim) {
        let rounds: Vec<AtomicU64> = (0..CONNECTIONS).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            let streams: Vec<TcpStream> = rounds.iter().map(|_| self.connect()).collect();
            let seeds: Vec<u64> = rounds.iter().map(|_| self.random.word()).collect();
            let running: Vec<_> = (rounds.iter().zip(&streams).zip(seeds))
                .map(|((rounds, stream), seed)| {
                    let (stream, stop) = (stream.try_clone().expect("a number"), &stop);
                    scope.spawn(move || echo(stream, seed, rounds, stop))
                })
                .collect();
            until("each has begun", || rounds.iter().all(|count| count.load(Relaxed) > 0));
            self.moment();
            let guard = self.site.agent_says()["connections"]["guard"].as_i64().expect("a guard") as i32;
            if victim != Victim::Agent {
                // SAFETY: takes numbers; the agent's child, which that has not waited for.
                assert_eq!(unsafe { libc::kill(guard, libc::SIGKILL) }, 0);
            }
            if victim != Victim::Guard {
                drop(self.site.agent.take());
            }
            let then: Vec<u64> = rounds.iter().map(|count| count.load(Relaxed)).collect();
            let goes_on = || rounds.iter().zip(&then).map(|(count, then)| count.load(Relaxed) >= then + ON);
            let server = self.server.as_ref().expect("it runs").child.id();
            match victim {
                Victim::Both => {
                    within(LAST, "each goes on, or its program has ended it", || {
                        connections(&self.site.hosts[0]) <= goes_on().filter(|goes_on| *goes_on).count()
                    });
                    // A peer hears of it by its next segment.
                    let halted = streams.iter().zip(goes_on()).filter(|(_, goes_on)| !goes_on);
                    halted.for_each(|(mut stream, _)| _ = stream.write_all(b"?"));
                }
                _ => until("each goes on", || goes_on().all(|goes_on| goes_on)),
            }
            if victim == Victim::Agent {
                until("no socket has a filter or is in repair", || odd_sockets(server) == 0);
            }
            if victim == Victim::Guard {
                // Nothing is taken any more, since nobody would give it back; it is served all the same.
                until("the guard is gone", || is_over(guard));
                let server = self.server.as_ref().expect("it runs");
                let count = |reason| self.site.count(server, reason);
                let [refused, taken] = ["inet-guard", "taken"].map(count);
                // Something else may stand in the way of one, where the machine is crowded.
                until("a connection is left alone for want of a guard", || {
                    let (count, done) = (AtomicU64::new(0), AtomicBool::new(false));
                    let stream = self.connect();
                    thread::scope(|scope| {
                        let _stop = Stop(&done);
                        let other = scope.spawn(|| echo(stream, 7, &count, &done));
                        until("a new one", || count.load(Relaxed) > ON);
                        done.store(true, Relaxed);
                        other.join().expect("no panic").expect("it is served");
                    });
                    self.site.count(server, "inet-guard") > refused
                });
                assert_eq!(count("taken"), taken);
            }
            stop.store(true, Relaxed);
            for thread in running {
                let end = thread.join().expect("no panic");
                let is_reset = end.as_ref().is_err_and(|error| {
                    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
                    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
                });
                assert!(end.is_ok() || victim == Victim::Both && is_reset, "{victim:?}: {end:?}");
            }
            if victim != Victim::Guard {
                until("the guard is gone", || is_over(guard));
                until("no program is at the interface", || !has_program(&self.site.hosts[0]));
            }
        });
        // A process that had an agent that is gone has no other, and what has no guard takes nothing.
        drop(self.server.take());
        if let Some(agent) = self.site.agent.take() {
            agent.stop();
        }
    }

    /// Nothing is taken, and no connection is there.
    fn is_clean(&self) {
        if let Some(agent) = &self.site.agent {
            until("nothing is taken", || self.site.agent_says()["connections"]["taken"] == 0);
            until("the map is empty", || map_is_empty(agent.id()));
            assert_eq!(self.site.agent_says()["connections"]["lost"], 0);
        }
        if self.server.is_none() {
            until("no connection is left", || connections(&self.site.hosts[0]) == 0);
        }
    }
}

#[test]
fn killed_at_random_moments() {
    let kills: u32 = std::env::var("SHUNT_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    let Some(site) = Site::new("plain-kills") else { return };
    let mut trial = Trial { site, random: Random::for_test(), server: None, taken: 0 };
    let mut counts = [0; 4];
    for kill in 0..kills {
        let victim = match trial.random.below(64) {
            // One of each, whatever is drawn; both at once takes seconds.
            _ if kill == 0 => Victim::Guard,
            _ if kill == 1 => Victim::Agent,
            _ if kill == 2 => Victim::Both,
            0 => Victim::Both,
            1..8 => Victim::Guard,
            8..24 => Victim::Agent,
            _ => Victim::Program,
        };
        counts[victim as usize] += 1;
        trial.serve();
        match victim {
            Victim::Program => trial.kill_the_program(),
            other => trial.kill(other),
        }
        trial.is_clean();
        if kill % 100 == 99 {
            println!("{} kills: {counts:?} of program, agent, guard, both; in {} connections were taken", kill + 1, trial.taken);
        }
    }
    println!("{kills} kills: {counts:?} of program, agent, guard, both; in {} connections were taken", trial.taken);
    assert!(trial.taken * 2 > kills, "of {kills} only {} met connections that were taken", trial.taken);
    let Trial { site, server, .. } = trial;
    drop(server);
    let Site { hosts, agent, .. } = site;
    if let Some(agent) = agent {
        agent.stop();
    }
    until("no process is left", || hosts.iter().all(|host| host.processes().is_empty()));
}
