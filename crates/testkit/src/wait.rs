//! Bounded waiting: a condition is polled until it holds or a deadline passes. No test sleeps and hopes.

use std::time::{Duration, Instant};

/// One second, so that deadlines read as `30 * SECOND`.
pub const SECOND: Duration = Duration::from_secs(1);

/// How long it takes until a condition is looked at again: at first this, later a sixteenth of the time that has passed, as each look takes some of the
/// processor's time from the programs under test.
const SHORTEST: Duration = Duration::from_millis(1);
/// And this at most.
const LONGEST: Duration = Duration::from_millis(10);

/// Polls `condition` until it gives a value, and returns that value; `None` after `deadline`.
///
/// Deadlines are generous on purpose: they tell a hang from progress and never measure speed.
pub fn wait_until<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        let passed = began.elapsed();
        if passed >= deadline {
            return None;
        }
        std::thread::sleep((passed / 16).clamp(SHORTEST, LONGEST));
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
