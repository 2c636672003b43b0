//! Bounded waiting: a condition is polled until it holds or a deadline passes. No test sleeps and hopes.

use std::time::{Duration, Instant};

/// One second, so that deadlines read as `30 * SECOND`.
pub const SECOND: Duration = Duration::from_secs(1);

/// How often a condition is looked at. A millisecond costs nothing beside the programs under test.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Polls `condition` until it gives a value, and returns that value; `None` after `deadline`.
///
/// Deadlines are generous on purpose: they tell a hang from progress and never measure speed.
pub fn wait_until<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_once_the_condition_holds() {
        let mut looks = 0;
        let seen = wait_until(30 * SECOND, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(seen, Some(3));
    }

    #[test]
    fn gives_up_after_the_deadline() {
        assert_eq!(wait_until(Duration::from_millis(2), || None::<()>), None);
    }
}
