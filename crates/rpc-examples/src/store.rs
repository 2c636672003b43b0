//! The store behind `examples/kv.x`: keys and values with revisions, and what happened lately.

use crate::kv::{DeleteReply, Entry, Event, KeyValueV1, PutReply, RangeReply, Span, WatchReply, ENTRIES};
use shunt_rpc::xdr::{Bytes, List};
use shunt_rpc::{Context, Fault};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Events that are remembered, and the bytes of their values.
const HISTORY: usize = 65_536;
const BYTES: usize = 64 << 20;
/// The fault of a watch that begins before them, by its number in gRPC (OUT_OF_RANGE).
pub const FORGOTTEN: i32 = 11;

/// All keys, and the last changes.
#[derive(Debug, Default)]
pub struct Store {
    keys: BTreeMap<Vec<u8>, Entry>,
    revision: u64,
    /// The oldest first; a revision has one or several.
    events: VecDeque<Event>,
    /// Of their values.
    bytes: usize,
    /// The last revision of which an event is forgotten.
    forgotten: u64,
}

/// The bounds of a span; `None`: nothing lies between them.
fn bounds(keys: &Span) -> Option<(Bound<&[u8]>, Bound<&[u8]>)> {
    let (first, end): (&[u8], &[u8]) = (&keys.key, &keys.end);
    match end {
        [] => Some((Bound::Included(first), Bound::Included(first))),
        end if first < end => Some((Bound::Included(first), Bound::Excluded(end))),
        _ => None,
    }
}

impl Store {
    fn note(&mut self, deleted: bool, what: Entry) {
        self.bytes += what.value.len();
        while self.events.len() == HISTORY || self.bytes > BYTES {
            let Some(first) = self.events.pop_front() else { break };
            self.bytes -= first.what.value.len();
            self.forgotten = first.what.modified;
        }
        self.events.push_back(Event { deleted, what });
    }
}

impl KeyValueV1 for Store {
    fn put(&mut self, _: &Context<'_>, key: Bytes<1024>, value: Bytes<1_048_576>, previous: bool) -> Result<PutReply, Fault> {
        self.revision += 1;
        let revision = self.revision;
        let old = self.keys.get(&key[..]);
        let (created, puts) = old.map_or((revision, 1), |entry| (entry.created, entry.puts + 1));
        let entry = Entry { key: key.clone(), value, created, modified: revision, puts };
        self.note(false, entry.clone());
        let old = self.keys.insert(key.0, entry);
        Ok(PutReply { revision, previous: old.filter(|_| previous).map(Box::new) })
    }

    fn range(&mut self, _: &Context<'_>, keys: Span, limit: u32) -> Result<RangeReply, Fault> {
        let mut reply = RangeReply { revision: self.revision, count: 0, entries: List(vec![]) };
        let limit = if limit == 0 { ENTRIES as usize } else { limit.min(ENTRIES as u32) as usize };
        for (_, entry) in bounds(&keys).into_iter().flat_map(|bounds| self.keys.range::<[u8], _>(bounds)) {
            reply.count += 1;
            if reply.entries.len() < limit {
                reply.entries.0.push(entry.clone());
            }
        }
        Ok(reply)
    }

    fn delete_range(&mut self, _: &Context<'_>, keys: Span) -> Result<DeleteReply, Fault> {
        let range = bounds(&keys).into_iter().flat_map(|bounds| self.keys.range::<[u8], _>(bounds));
        let gone: Vec<Vec<u8>> = range.map(|(key, _)| key.clone()).collect();
        if !gone.is_empty() {
            self.revision += 1;
        }
        for key in &gone {
            self.keys.remove(key);
            let (key, value) = (key.clone().into(), Bytes(vec![]));
            self.note(true, Entry { key, value, created: 0, modified: self.revision, puts: 0 });
        }
        Ok(DeleteReply { revision: self.revision, deleted: gone.len() as u64 })
    }

    fn watch(&mut self, _: &Context<'_>, keys: Span, since: u64, limit: u32) -> Result<WatchReply, Fault> {
        if since <= self.forgotten {
            return Err(Fault::new(FORGOTTEN, format!("revisions up to {} are forgotten", self.forgotten)));
        }
        let limit = if limit == 0 { ENTRIES as usize } else { limit.min(ENTRIES as u32) as usize };
        let begin = self.events.partition_point(|event| event.what.modified < since);
        let mut reply = WatchReply { next: self.revision + 1, events: List(vec![]) };
        for event in self.events.range(begin..) {
            let last = reply.events.last().map_or(0, |last: &Event| last.what.modified);
            // Changes of one revision are not divided between two answers.
            if reply.events.len() >= limit && event.what.modified != last {
                reply.next = event.what.modified;
                break;
            }
            let key = &event.what.key[..];
            let within = if keys.end.is_empty() { key == &keys.key[..] } else { &keys.key[..] <= key && key < &keys.end[..] };
            if within {
                reply.events.0.push(event.clone());
            }
        }
        Ok(reply)
    }
}
