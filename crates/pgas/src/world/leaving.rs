//! The end of this process's part, and of the job.

use super::{World, FINALIZED};
use crate::error::{Ended, Error, Result};
use crate::group::Group;
use crate::layout::{rank_state, state};
use crate::pmix;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// How long a rank that ends waits for the others to leave their launcher, which they do at the same time.
const LEAVING: Duration = Duration::from_secs(5);

impl World {
    /// This process needs no other any more: waits for the others to say so, too. Its memory stays until it exits.
    ///
    /// # Errors
    /// If the job ends meanwhile.
    pub fn finalize(&self) -> Result<()> {
        if self.ranks == 0 || FINALIZED.swap(true, AcqRel) {
            return Ok(());
        }
        let result = self.end.as_ref().expect("join has made it").barrier(self);
        self.own_block().state.store(rank_state::FINALIZED, Release);
        pmix::leave();
        if pmix::is_used() {
            self.leave_together();
        }
        if let (Some(remote), Ok(())) = (&self.remote, &result) {
            remote.leave();
        }
        result
    }

    /// Another launcher takes the end of a rank's connection as the end of its part in a meeting that is under way, even if that is one of
    /// programs that follow this one: so no rank goes on before all have left.
    fn leave_together(&self) {
        let limit = Instant::now() + LEAVING;
        self.own_block().left.store(1, Release);
        let all = || (0..self.ranks).all(|rank| self.block(rank).left.load(Acquire) != 0);
        while !all() && self.ended().is_none() && Instant::now() < limit {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Why the job ends, if it does.
    pub fn ended(&self) -> Option<Ended> {
        let header = self.header();
        (header.state.load(Acquire) == state::ENDED).then(|| {
            Ended::from_words(header.cause.load(Relaxed), header.cause_rank.load(Relaxed), header.cause_code.load(Relaxed))
        })
    }

    /// The group of all ranks at their end.
    pub(crate) fn end(&self) -> Option<&Group> {
        self.end.as_ref()
    }

    /// Whether the host whose arrival this one awaits in a round of a barrier of these hosts has told its end instead: all its ranks have finalized.
    pub(crate) fn has_gone(&self, key: u64, hosts: &[usize], round: usize) -> bool {
        self.end.as_ref().is_some_and(|end| end.has_told(self, key, hosts, round))
    }

    /// The job ends, since the rank has finalized and will not come to where this one waits for it.
    #[cold]
    pub(crate) fn finalized_early(&self, rank: usize) -> Error {
        let why = Ended::Early { rank };
        if crate::launch::end(self.header(), why) {
            crate::launch::wake_all(self.base, &self.layout);
        }
        Error::Ended(self.ended().unwrap_or(why))
    }

    /// The job ends with status 1, since this rank cannot go on; the caller has said why, and exits.
    pub fn fail(&self) {
        if self.ranks > 0 && !pmix::is_used() {
            crate::launch::end(self.header(), Ended::Status { rank: self.me, status: 1 });
        }
    }

    /// Tells the launcher and all ranks that the job ends with this status. The caller exits next.
    pub fn global_exit(&self, status: i32) {
        if self.ranks > 0 {
            crate::launch::end(self.header(), Ended::Asked { rank: self.me, status });
            pmix::abort(status);
        }
    }
}
