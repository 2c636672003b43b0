//! What one epoll_wait(2) tells, where Linux promises less than it does.
//!
//! A connection that goes back to its kernel enters the program's sets anew, some of whose other connections are still taken. Two things may then differ, and
//! nothing else of an answer: in which order it names what is ready, and that it tells of an edge (EPOLLET) once more. The second only where what is
//! told holds: the scenario asks poll(2) at once, and marks the event. What the kernel told must be in the same answer, with the same bits: neither hides an event
//! that is missing, late, or of something that is not so. An event that goes but once (EPOLLONESHOT) is never marked.

/// Behind the bits of an edge that holds, where the trial asks for it ([`MARKS`]): in a list of events, and where each of several sets tells of its own one.
const HOLDS: &str = "!}";
const ONE_HOLDS: char = '!';

/// The variable by which a scenario is asked for marks.
pub const MARKS: &str = "LABORATORY_EDGES";

/// A line that shows an answer: what stands before the number of events, and these.
fn answer(line: &str) -> Option<(&str, Vec<&str>)> {
    let (head, events) = line.split_at(line.find(" {").unwrap_or(line.len()));
    let events: Vec<&str> = events.split_inclusive('}').map(str::trim_start).collect();
    let label = head.strip_suffix(&events.len().to_string())?;
    let shaped = events.iter().all(|event| event.starts_with('{') && event.ends_with('}') && !event[1..].contains('{'));
    (shaped && label.ends_with(' ')).then_some((label, events))
}

/// A line without marks.
fn unmarked(line: &str) -> String {
    let one = |word: &str| word.strip_suffix(ONE_HOLDS).filter(|word| word.contains('>')).unwrap_or(word).to_owned();
    line.replace(HOLDS, "}").split(' ').map(one).collect::<Vec<_>>().join(" ")
}

/// Whether the lines show what sets that ask for one thing each tell (`IN>IN OUT>nothing`), and differ in edges alone that hold.
fn each_tells(expected: &str, got: &str) -> bool {
    let tells = |(expected, got): (&str, &str)| {
        let more =
            got.split_once('>').is_some_and(|(asked, _)| got.ends_with(ONE_HOLDS) && expected == format!("{asked}>nothing"));
        more || expected == unmarked(got)
    };
    expected.split(' ').count() == got.split(' ').count() && expected.split(' ').zip(got.split(' ')).all(tells)
}

/// Whether `got` tells all that `expected` does, in whatever order, and beside it edges alone that hold.
fn tells(expected: &str, got: &str) -> bool {
    let (Some((label, expected)), Some((same, mut more))) = (answer(expected), answer(got)) else { return false };
    let all = expected.iter().all(|event| {
        let found = more.iter().position(|told| told.replace(HOLDS, "}") == **event);
        found.map(|at| more.swap_remove(at)).is_some()
    });
    label == same && all && more.iter().all(|event| event.ends_with(HOLDS))
}

/// The transcript `got` without marks, and with the lines of `expected` where it tells as much.
pub fn settled(expected: &[String], got: &[String]) -> Vec<String> {
    let same_length = expected.len() == got.len();
    let line = |(at, line): (usize, &String)| match expected
        .get(at)
        .filter(|expected| same_length && (tells(expected, line) || each_tells(expected, line)))
    {
        Some(expected) => expected.clone(),
        None => unmarked(line),
    };
    got.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settles(expected: &str, got: &str) -> bool {
        let lines = [expected, got].map(|text| vec!["before".to_owned(), text.to_owned()]);
        settled(&lines[0], &lines[1]) == lines[0]
    }

    #[test]
    fn the_order_of_one_answer_is_not_compared() {
        assert!(settles("close 2: 2 {1: IN|RDHUP} {0: IN}", "close 2: 2 {0: IN} {1: IN|RDHUP}"));
        assert!(settles("close 2: 2 {1: IN|RDHUP} {0: IN}", "close 2: 2 {0: IN!} {1: IN|RDHUP!}"));
        assert!(!settles("close 2: 2 {1: IN} {0: IN}", "close 2: 2 {0: IN} {0: IN}"), "another event twice");
        assert!(!settles("close 2: 2 {1: IN} {0: IN}", "closed: 2 {0: IN} {1: IN}"), "another call");
        assert!(!settles("close 2: 2 {1: IN|RDHUP} {0: IN}", "close 2: 2 {0: IN} {1: IN}"), "other bits");
    }

    #[test]
    fn an_edge_that_holds_may_be_told_once_more() {
        assert!(settles("set: epoll_wait = 0", "set: epoll_wait = 1 {8: IN|OUT!}"));
        assert!(settles("set: epoll_wait = 1 {a: IN}", "set: epoll_wait = 2 {8: IN|OUT!} {a: IN}"));
        assert!(!settles("set: epoll_wait = 0", "set: epoll_wait = 1 {8: IN|OUT}"), "a level, or it does not hold");
        assert!(!settles("set: epoll_wait = 1 {a: IN}", "set: epoll_wait = 1 {8: IN|OUT!}"), "one is missing");
        assert!(!settles("set: epoll_wait = 1 {a: IN}", "set: epoll_wait = 0"), "one is missing");
        assert!(!settles("set: epoll_wait = -1 EINTR", "set: epoll_wait = 1 {8: IN!}"));
    }

    #[test]
    fn each_of_several_sets_may_tell_of_its_edge_once_more() {
        assert!(settles("bytes: IN>IN OUT>nothing ->nothing", "bytes: IN>IN! OUT>OUT! ->nothing"));
        assert!(!settles("bytes: IN>IN OUT>nothing", "bytes: IN>IN! OUT>OUT"), "it does not hold");
        assert!(!settles("bytes: IN>IN OUT>nothing", "bytes: IN>nothing OUT>OUT!"), "one is missing");
        assert!(!settles("bytes: IN>IN OUT>nothing", "bytes: IN>IN|HUP! OUT>nothing"), "other bits");
    }

    #[test]
    fn marks_are_no_differences_and_lines_stay_in_their_places() {
        assert!(settles("set: epoll_wait = 1 {8: IN}", "set: epoll_wait = 1 {8: IN!}"));
        let late = ["set: epoll_wait = 1 {8: IN}", "set: epoll_wait = 0"].map(str::to_owned);
        let early = ["set: epoll_wait = 0", "set: epoll_wait = 1 {8: IN!}"].map(str::to_owned);
        assert_ne!(settled(&late, &early), late, "what comes an answer later was missing from the first");
        let more = ["set: epoll_wait = 1 {8: IN!}", "more"].map(str::to_owned);
        assert_eq!(settled(&late[..1], &more), ["set: epoll_wait = 1 {8: IN}", "more"]);
    }
}
