//! `shunt cut`: connections between network namespaces go back to their TCP connections.
//!
//! The command asks, by a word in the memory that both ends share, and waits; the ends agree by themselves (`shunt_ring::cut`).
use std::time::{Duration, Instant};

use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use shunt_ring::cut as steps;
use shunt_segment::channel::cut::{is_moved, why, Why, ASKED, HEARD, LEFT};
use shunt_segment::channel::{arm, life, state, word, ChannelPage};
use shunt_segment::link;
use shunt_segment::sync::Ordering;

use crate::failure::Failure;
use crate::filter::Filter;
use crate::inspect::connection::{self, socket_text, Connection, Party};
use crate::inspect::link::NAME;
use crate::inspect::processes::{self, Target};
use crate::output::{print, print_json};
use crate::shared_link::SharedLink;
use crate::ss::seen;
use crate::text_table::text_table;

/// As clap sees it.
pub fn command() -> Command {
    Command::new("cut")
        .about("Put connections between network namespaces back on their TCP connections (of your processes; of all, for root)")
        .override_usage("shunt cut [OPTIONS] [FILTER]...")
        .arg(Arg::new("json").long("json").help("Write JSON").action(ArgAction::SetTrue))
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("SECONDS")
                .default_value("3")
                .help("Ask no longer than so long")
                .value_parser(value_parser!(u64).range(1..=3600)),
        )
        .arg(
            Arg::new("filter")
                .value_name("FILTER")
                .help("Only these, as shunt ss takes it: dport = :6379 [default: all between network namespaces]")
                .num_args(0..),
        )
        .after_help(
            "For those who are about to detach a network, to apply a firewall or to look with tcpdump. Both programs go on, and no byte is lost, doubled or out\n\
             of order; afterwards the kernel carries the connection (cut, in shunt why), and filters and captures see its bytes. There is no way back for it; new\n\
             connections are accelerated as before.\n\n\
             A connection goes back at a moment at which neither end has a byte under way. For 0.1 of each 0.6 seconds its ends send nothing behind bytes\n\
             that were not received. RESULT is cut; moving, where the kernel has it and an end has made no call yet, which finds it there; or kept, and WHY:\n\
             busy (bytes are always under way: try again), unheard (an end waits for something else than sockets, as in sleep(3), and hears of it when it sends next), not-near (there is no TCP connection\n\
             beside a connection of one network namespace), and what an end says: shared, half-closed, signals, timestamps, lent, urgent, watched, seccomp,\n\
             no-descriptors, unaccepted, peek-offset, no-tcp.\n\
             Exit status: 0 if all of them went back, 1 if any is kept, or there is none.",
        )
}

/// What became of one.
#[derive(Serialize)]
struct Outcome<'a> {
    /// cut, moving or kept.
    result: &'static str,
    /// Why it is kept.
    why: Option<&'static str>,
    client: &'a Party,
    server: &'a Party,
}

#[derive(Serialize)]
struct Report<'a> {
    /// Fields are added under one number, never changed.
    schema: &'static str,
    connections: Vec<Outcome<'a>>,
}

/// How often the ends are looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How often they are reminded, so that they hold back what they send once more.
const AGAIN: Duration = Duration::from_millis(300);
/// How long both ends may take to have their descriptors changed, behind the move.
const FOLLOWS: Duration = Duration::from_millis(200);

/// Asks, and tells what became of it.
///
/// # Errors
/// If the filter has a mistake, processes are not shown here, or no connection is meant.
pub fn cut(matches: &ArgMatches) -> Result<u8, Failure> {
    let words: Vec<String> = matches.get_many::<String>("filter").into_iter().flatten().cloned().collect();
    let filter = Filter::parse(&words)?;
    let wait = Duration::from_secs(*matches.get_one("wait").expect("it has a default"));
    processes::are_shown()?;
    let pids = processes::all();
    let links = links(&pids);
    let mut connections = connection::of_processes(&pids);
    connections.retain(|connection| !connection.ended && filter.holds(&seen(connection)));
    let mut asked: Vec<(&Connection, Option<Asked<'_>>)> =
        connections.iter().map(|connection| (connection, Asked::find(&links, connection))).collect();
    if filter == Filter::All {
        asked.retain(|(_, asked)| asked.is_some());
    }
    if asked.is_empty() {
        return Err(Failure::of_environment("no connection between network namespaces is meant"));
    }
    for asked in asked.iter().filter_map(|(_, asked)| asked.as_ref()) {
        asked.ask();
    }
    let end = Instant::now() + wait;
    let is_pending = |asked: &Asked<'_>| !asked.has_moved() && asked.refusal().is_none();
    let mut again = Instant::now() + AGAIN;
    while Instant::now() < end && asked.iter().filter_map(|(_, asked)| asked.as_ref()).any(is_pending) {
        std::thread::sleep(LOOK);
        if Instant::now() >= again {
            again += AGAIN;
            asked.iter().filter_map(|(_, asked)| asked.as_ref()).filter(|asked| is_pending(asked)).for_each(Asked::remind);
        }
    }
    let why: Vec<Option<&'static str>> =
        asked.iter().map(|(_, asked)| asked.as_ref().map_or(Some("not-near"), Asked::conclude)).collect();
    let follows = Instant::now() + FOLLOWS;
    let has_left = |asked: &Asked<'_>| !asked.has_moved() || asked.has_left();
    while Instant::now() < follows && !asked.iter().filter_map(|(_, asked)| asked.as_ref()).all(has_left) {
        std::thread::sleep(LOOK);
    }
    let outcomes: Vec<Outcome<'_>> = asked
        .iter()
        .zip(&why)
        .map(|((connection, asked), why)| Outcome {
            result: match (why, asked) {
                (Some(_), _) => "kept",
                (None, Some(asked)) if !asked.has_left() => "moving",
                (None, _) => "cut",
            },
            why: *why,
            client: &connection.client,
            server: &connection.server,
        })
        .collect();
    let status = u8::from(why.iter().any(Option::is_some));
    if matches.get_flag("json") {
        print_json(&Report { schema: "shunt.cut/1", connections: outcomes })?;
        return Ok(status);
    }
    let heading = ["RESULT", "WHY", "CLIENT", "PROGRAM", "SERVER", "PROGRAM"];
    print(&text_table(&heading, &outcomes.iter().map(row).collect::<Vec<_>>()))?;
    Ok(status)
}

fn row(outcome: &Outcome<'_>) -> Vec<String> {
    let process = |party: &Party| match party.pid {
        Some(pid) => format!("{}/{pid}", party.program),
        None => format!("{}/?", party.program),
    };
    let address = |party: &Party| socket_text(&party.address, party.port);
    let (client, server) = (outcome.client, outcome.server);
    let why = outcome.why.unwrap_or("-").to_owned();
    vec![outcome.result.to_owned(), why, address(client), process(client), address(server), process(server)]
}

/// The links of these processes that lead to other network namespaces.
fn links(pids: &[u32]) -> Vec<SharedLink> {
    let mut keys = std::collections::BTreeSet::new();
    let mut links = Vec::new();
    for &pid in pids {
        for descriptor in processes::descriptors(pid).unwrap_or_default() {
            if descriptor.target != Target::Memory(NAME.to_owned()) {
                continue;
            }
            let Ok(memory) = processes::memory(pid, descriptor.number) else { continue };
            if keys.insert(memory.key) {
                links.extend(memory.open(true).ok().and_then(|file| SharedLink::new(&file)));
            }
        }
    }
    links.retain(|link| link.header().near.load(Ordering::Relaxed) != 0);
    links
}

/// A connection that is asked to go back.
struct Asked<'a> {
    header: &'a link::LinkHeader,
    page: &'a ChannelPage,
    /// Which of the connections that used the channel.
    uses: u32,
}

impl<'a> Asked<'a> {
    fn find(links: &'a [SharedLink], connection: &Connection) -> Option<Asked<'a>> {
        let (place, uses) = connection.key;
        links.iter().find_map(|link| {
            let header = link.header();
            let named = (header.nonce.load(Ordering::Relaxed), header.sequence.load(Ordering::Relaxed));
            let (_, page) = link.pages().find(|(channel, _)| *channel == usize::from(place.channel))?;
            (named == (place.nonce, place.sequence)).then_some(Asked { header, page, uses }).filter(Asked::is_it)
        })
    }

    /// Whether the channel is this connection's still.
    fn is_it(&self) -> bool {
        let head = &self.page.head;
        head.generation.load(Ordering::Acquire) == self.uses && head.state.load(Ordering::Acquire) == life::ACCEPTED
    }

    fn ask(&self) {
        if steps::ask(&self.page.head).is_err() {
            return;
        }
        if !self.is_it() {
            steps::take_back(&self.page.head); // another connection has the channel by now, and is not meant
            return;
        }
        self.remind();
    }

    fn remind(&self) {
        // A thread that sleeps looks at the one, one that sends at the other.
        for side in &self.page.sides {
            side.wait.armed.fetch_or(arm::CUT, Ordering::SeqCst);
        }
        self.header.cuts.fetch_add(1, Ordering::AcqRel);
    }

    fn word(&self) -> u32 {
        self.page.head.cut.load(Ordering::SeqCst)
    }

    fn has_moved(&self) -> bool {
        is_moved(self.word())
    }

    /// Whether both ends have it as the kernel's.
    fn has_left(&self) -> bool {
        self.word() & (LEFT[0] | LEFT[1]) == LEFT[0] | LEFT[1]
    }

    /// What an end says against it; a connection that has ended has nothing to say.
    fn refusal(&self) -> Option<&'static str> {
        let word = self.word();
        let said = (0..2).find_map(|side| why(word, side)).or_else(|| self.shown()).map(Why::word);
        said.or_else(|| (!self.is_it() || word & ASKED == 0).then_some("half-closed"))
    }

    /// What is seen of it from here, also of an end that makes no call.
    fn shown(&self) -> Option<Why> {
        let sides = &self.page.sides;
        let ends = word::FIN | word::CLOSED | word::RST;
        if sides.iter().any(|side| side.post.word.load(Ordering::Acquire) & ends != 0) {
            Some(Why::Ended)
        } else if sides.iter().any(|side| side.receive.state.load(Ordering::Acquire) & state::SHARED != 0) {
            Some(Why::Shared)
        } else {
            sides.iter().any(|side| side.urgent.load(Ordering::Acquire) != 0).then_some(Why::Urgent)
        }
    }

    /// Asks no longer; why the connection is kept.
    fn conclude(&self) -> Option<&'static str> {
        if self.has_moved() {
            return None;
        }
        let (word, refusal) = (self.word(), self.refusal());
        for side in &self.page.sides {
            side.wait.armed.fetch_and(!arm::CUT, Ordering::SeqCst);
        }
        if self.is_it() && !steps::take_back(&self.page.head) {
            return None; // at the last moment
        }
        let both = HEARD[0] | HEARD[1];
        Some(refusal.unwrap_or(if word & both == both { "busy" } else { "unheard" }))
    }
}
