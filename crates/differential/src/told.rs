//! What one epoll_wait(2) tells, where Linux promises less than it does.
//!
//! A connection that goes back to its kernel enters the program's sets anew, some of whose other connections are still taken. Two things may then differ, and
//! nothing else of an answer: in which order it names what is ready, and that it tells of an edge (EPOLLET) once more. The second only where what is
//! told holds: the scenario asks poll(2) at once, and marks the event. What the kernel told must be in the same answer, with the same bits: neither hides an event
//! that is missing, late, or of something that is not so. An event that goes but once (EPOLLONESHOT) is never marked.

/// Behind the bits of an edge that holds, where the trial asks for it ([`MARKS`]).
const HOLDS: &str = "!}";

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
    let line = |(at, line): (usize, &String)| match expected.get(at).filter(|expected| same_length && tells(expected, line)) {
        Some(expected) => expected.clone(),
        None => line.replace(HOLDS, "}"),
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
    fn marks_are_no_differences_and_lines_stay_in_their_places() {
        assert!(settles("set: epoll_wait = 1 {8: IN}", "set: epoll_wait = 1 {8: IN!}"));
        let late = ["set: epoll_wait = 1 {8: IN}", "set: epoll_wait = 0"].map(str::to_owned);
        let early = ["set: epoll_wait = 0", "set: epoll_wait = 1 {8: IN!}"].map(str::to_owned);
        assert_ne!(settled(&late, &early), late, "what comes an answer later was missing from the first");
        let more = ["set: epoll_wait = 1 {8: IN!}", "more"].map(str::to_owned);
        assert_eq!(settled(&late[..1], &more), ["set: epoll_wait = 1 {8: IN}", "more"]);
    }
}
