//! Answers that leave together: streams that were told of bytes in one look are answered one after the other, and one call sends the frames of all.

/// Sends follow each other closely within this time (ns).
const CLOSE: u64 = 50_000;
/// Behind some that do not, so many do not wait: twice as many each time, half as many behind so many waits that were short. A thread that was interrupted in
/// between costs little then, and a program that computes between answers waits once in a thousand.
const APART: [u32; 2] = [8, 1000];
const SHORT: u32 = 32;
/// So many leave together at most: their receivers work on them while the next ones are made.
const TOGETHER: u32 = 6;

/// Of a queue with `64 * ROWS` streams; zeros are none.
pub struct Answers<const ROWS: usize> {
    /// Streams that were told of bytes by the last look that found any, and that have not sent since.
    asked: [u64; ROWS],
    /// The thread that has looked: others have no look of theirs that would end a wait.
    thread: u32,
    /// When one sent last whose frames wait for others' (ns; 0: none), and how many are not to wait.
    since: u64,
    apart: u32,
    /// How many that was last, and how many waits have been short since then or since it was halved.
    pause: u32,
    short: u32,
    /// Answers that wait.
    waiting: u32,
}

impl<const ROWS: usize> Answers<ROWS> {
    /// A look of this thread has found something.
    pub fn look(&mut self, thread: u32) {
        (self.asked, self.thread) = ([0; ROWS], thread);
    }

    /// A stream was told of bytes.
    pub fn ask(&mut self, stream: usize) {
        self.asked[stream / 64] |= 1 << (stream % 64);
    }

    /// Behind a call of a thread on a stream, which has `sent`, or not: whether frames that were put may wait for the answers of others. Where these do not follow each other
    /// closely, as the program computes in between, the next ones leave at once.
    pub fn may_wait(&mut self, stream: usize, thread: u32, sent: bool, now: u64) -> bool {
        self.judge(now);
        if thread != self.thread {
            return false;
        }
        if !sent {
            return self.since != 0 && self.apart == 0;
        }
        self.asked[stream / 64] &= !(1 << (stream % 64));
        self.waiting += 1;
        let may_wait = self.apart == 0 && self.asked != [0; ROWS] && self.waiting < TOGETHER;
        self.apart = self.apart.saturating_sub(1);
        self.short += u32::from(may_wait);
        if self.short == SHORT {
            (self.pause, self.short) = (self.pause / 2, 0);
        }
        self.since = now;
        may_wait
    }

    /// Frames that have waited for long were not to.
    pub fn judge(&mut self, now: u64) {
        if self.since != 0 && now > self.since + CLOSE {
            self.pause = (2 * self.pause).clamp(APART[0], APART[1]);
            (self.apart, self.short, self.since) = (self.pause, 0, now);
        }
    }

    /// All have left.
    pub fn left(&mut self) {
        (self.since, self.waiting) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(streams: &[usize]) -> Answers<1> {
        let mut answers = Answers { asked: [0], thread: 0, since: 0, apart: 0, pause: 0, short: 0, waiting: 0 };
        answers.look(7);
        streams.iter().for_each(|stream| answers.ask(*stream));
        answers
    }

    #[test]
    fn a_lone_answer_does_not_wait_and_the_last_of_several_takes_all_along() {
        let mut answers = asked(&[3]);
        assert!(!answers.may_wait(3, 7, false, 1) && !answers.may_wait(3, 7, true, 2));
        let mut answers = asked(&[3, 4, 5]);
        assert!(!answers.may_wait(3, 8, true, 1), "another thread's");
        assert!(answers.may_wait(4, 7, true, 1) && answers.may_wait(3, 7, false, 2) && answers.may_wait(3, 7, true, 3));
        assert!(!answers.may_wait(5, 7, true, 4));
        answers.left();
        assert!(!answers.may_wait(5, 7, false, 5));
    }

    #[test]
    fn not_all_of_many_wait_for_the_last() {
        let mut answers = asked(&(0..20).collect::<Vec<_>>());
        let leaves = (0..20).filter(|stream| {
            let waits = answers.may_wait(*stream, 7, true, 1);
            if !waits {
                answers.left();
            }
            !waits
        });
        assert_eq!(leaves.collect::<Vec<_>>(), [5, 11, 17, 19]);
    }

    /// Two answers of one look, the second so much later: whether the first one may wait.
    fn two(answers: &mut Answers<1>, apart: u64) -> bool {
        answers.look(7);
        answers.ask(3);
        answers.ask(4);
        let waits = answers.may_wait(3, 7, true, 1);
        assert!(!answers.may_wait(4, 7, true, 1 + apart));
        answers.left();
        waits
    }

    #[test]
    fn after_answers_far_apart_none_waits_for_a_while_and_for_longer_each_time() {
        let mut answers = asked(&[]);
        for expected in [8u32, 16, 32, 64, 128, 256, 512, 1000, 1000] {
            assert!(two(&mut answers, 1 + CLOSE), "{expected}");
            // The second of the two was the first that did not wait.
            let silent = (0..).take_while(|_| !two(&mut answers, 1)).count() as u32;
            assert_eq!(silent, (expected - 1).div_ceil(2));
        }
        // What was a rare interruption is forgotten.
        (0..20 * SHORT).for_each(|_| _ = two(&mut answers, 1));
        two(&mut answers, 1 + CLOSE);
        assert_eq!(answers.pause, APART[0]);
    }
}
