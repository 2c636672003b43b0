//! What a process tells of its handles and transports of SunRPC: which are collapsed, and why others are not.
use std::mem::offset_of;

use serde::Serialize;
use shunt_tirpc::reason::{Reason, OFF};
use shunt_tirpc::told::{role, Told, COUNTS, MAGIC, NAME, ROWS};

use super::processes::{self, Descriptor, Target};
use super::words::Words;
use crate::run::library::RPC_FILE;

/// libtirpc, as programs have it, but for what stands behind it in the file's name.
const TIRPC: &str = "libtirpc.so.3";

/// SunRPC in a process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct SunRpc {
    /// Whether what collapses layers is loaded.
    pub loaded: bool,
    /// Descriptors whose layers are collapsed now.
    pub collapsed: Vec<Collapsed>,
    /// What was not collapsed, and why.
    pub reasons: Vec<Given>,
}

/// A handle or transport.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Collapsed {
    pub descriptor: u32,
    /// `client` or `server`.
    pub role: &'static str,
}

/// A reason, and how often it was given.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Given {
    pub reason: &'static str,
    pub explanation: &'static str,
    /// Handles, transports or calls since the process started; `None`: they are not counted.
    pub count: Option<u64>,
    /// The last one's.
    pub last_descriptor: Option<u32>,
}

impl SunRpc {
    /// That of process `pid` with these descriptors; `None`: it has no libtirpc. A child has its parent's records open, too.
    pub fn of(pid: u32, descriptors: &[Descriptor]) -> Option<SunRpc> {
        let loaded = processes::has_mapped(pid, RPC_FILE);
        let own_number = processes::own_number(pid);
        let ours = descriptors.iter().filter(|descriptor| descriptor.target == Target::Memory(NAME.to_owned()));
        let mut words =
            ours.filter_map(|descriptor| Words::copy(&processes::open(pid, descriptor.number).ok()?, size_of::<Told>()).ok());
        let is_socket = |number: u32| {
            let found = descriptors.iter().find(|descriptor| descriptor.number == number);
            found.is_some_and(|descriptor| matches!(descriptor.target, Target::Socket(_)))
        };
        if let Some(found) = words.find_map(|words| SunRpc::read(&words, own_number, is_socket)) {
            return Some(found);
        }
        if !processes::has_mapped_library(pid, TIRPC) {
            return None;
        }
        let off = Given { reason: OFF.0, explanation: OFF.1, count: None, last_descriptor: None };
        Some(SunRpc { loaded, collapsed: vec![], reasons: if loaded { vec![] } else { vec![off] } })
    }

    fn read(words: &Words, pid: u32, is_socket: impl Fn(u32) -> bool) -> Option<SunRpc> {
        let ours = words.word64(offset_of!(Told, magic)) == MAGIC
            && words.word32(offset_of!(Told, pid)) == pid
            && words.word32(offset_of!(Told, reasons)) as usize == Reason::ALL.len();
        let given = |reason: &Reason| {
            let at = *reason as usize % COUNTS;
            let count = words.word64(offset_of!(Told, counts) + at * 8);
            let last_descriptor = words.word32(offset_of!(Told, last) + at * 4).checked_sub(1);
            Given { reason: reason.word(), explanation: reason.text(), count: Some(count), last_descriptor }
        };
        let row = |number: usize| {
            let [role] = words.array(offset_of!(Told, rows) + number);
            let role = match role {
                role::CLIENT => "client",
                role::SERVER => "server",
                _ => return None,
            };
            let descriptor = number as u32;
            is_socket(descriptor).then_some(Collapsed { descriptor, role })
        };
        let fallen = Reason::ALL.iter().filter(|reason| **reason != Reason::Collapsed);
        ours.then(|| SunRpc {
            loaded: true,
            collapsed: (0..ROWS).filter_map(row).collect(),
            reasons: fallen.map(given).filter(|given| given.count != Some(0)).collect(),
        })
    }

    /// As `shunt why` prints it.
    pub fn text(&self) -> String {
        let collapsed: Vec<String> = self.collapsed.iter().map(|one| format!("{} ({})", one.descriptor, one.role)).collect();
        let mut text = match (self.loaded, collapsed.is_empty()) {
            (false, _) => "sunrpc: layers are not collapsed\n".to_owned(),
            (true, true) => "sunrpc: no layers are collapsed now\n".to_owned(),
            (true, false) => format!("sunrpc: layers are collapsed of {}\n", collapsed.join(", ")),
        };
        for given in &self.reasons {
            let times = given.count.map_or(String::new(), |count| {
                let last = given.last_descriptor.map_or(String::new(), |number| format!(", last of descriptor {number}"));
                format!(" ({count}{last})")
            });
            text.push_str(&format!("  {}{times}: {}\n", given.reason, given.explanation));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    #[test]
    fn what_was_written_is_read_and_nothing_of_another_process_or_version() {
        let mut bytes = vec![0; size_of::<Told>()];
        put(&mut bytes, offset_of!(Told, magic), &MAGIC.to_ne_bytes());
        put(&mut bytes, offset_of!(Told, pid), &5u32.to_ne_bytes());
        put(&mut bytes, offset_of!(Told, reasons), &(Reason::ALL.len() as u32).to_ne_bytes());
        let at = Reason::LongCall as usize;
        put(&mut bytes, offset_of!(Told, counts) + at * 8, &12u64.to_ne_bytes());
        put(&mut bytes, offset_of!(Told, last) + at * 4, &10u32.to_ne_bytes());
        put(&mut bytes, offset_of!(Told, counts), &3u64.to_ne_bytes());
        for (number, role) in [(7, role::SERVER), (9, role::CLIENT), (10, 77), (11, role::CLIENT), (ROWS - 1, role::SERVER)] {
            put(&mut bytes, offset_of!(Told, rows) + number, &[role]);
        }
        let words = Words::from_bytes(bytes.clone());
        // 11 is no socket any more.
        let found = SunRpc::read(&words, 5, |number| number != 11).unwrap();
        let collapsed: Vec<_> = found.collapsed.iter().map(|one| (one.descriptor, one.role)).collect();
        assert_eq!(collapsed, [(7, "server"), (9, "client"), (ROWS as u32 - 1, "server")]);
        let [given] = &found.reasons[..] else { panic!("{found:?}") };
        assert_eq!((given.reason, given.count, given.last_descriptor), ("rpc-long-call", Some(12), Some(9)));
        let text = found.text();
        assert!(text.starts_with("sunrpc: layers are collapsed of 7 (server), 9 (client), 4095 (server)\n"), "{text}");
        assert!(text.contains("  rpc-long-call (12, last of descriptor 9): A call by datagrams"), "{text}");

        assert_eq!(SunRpc::read(&words, 6, |_| true), None, "a parent's are not its child's");
        put(&mut bytes, offset_of!(Told, reasons), &(Reason::ALL.len() as u32 + 1).to_ne_bytes());
        assert_eq!(SunRpc::read(&Words::from_bytes(bytes), 5, |_| true), None, "codes of another version");
    }
}
