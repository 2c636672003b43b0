//! What the kernel shows of a namespace and of the processes in it.
//!
//! Everything here is read from `/proc`, from outside: nothing connects to the programs under test, because a
//! probing connection is one that the program serves, counts and may accelerate.

use crate::listeners;
use crate::namespace::NetworkNamespace;
use std::fmt::Write;
use std::fs;

/// The name under which the kernel shows a link segment in `/proc/<pid>/maps` and `/proc/<pid>/fd`.
const LINK_SEGMENT: &str = "memfd:shunt-link";

/// How shunt's abstract AF_UNIX names start in `/proc/net/unix`, where `@` stands for the leading zero byte.
const ABSTRACT_NAME: &str = "@shunt";

/// What shunt holds in one process or in a namespace; two of these are compared to find a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Open descriptors of any kind.
    pub descriptors: usize,
    /// Of those, eventfds.
    pub eventfds: usize,
    /// Descriptors that refer to a link segment.
    pub link_descriptors: usize,
    /// Links that are mapped. (The windows of their large rings stay mapped for the next connection, and do not count.)
    pub link_mappings: usize,
}

impl Inspection {
    /// Looks at process `pid`; a process that is gone holds nothing.
    pub fn of_process(pid: u32) -> Inspection {
        let links: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .map(|target| target.to_string_lossy().into_owned())
            .collect();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Inspection {
            descriptors: links.len(),
            eventfds: links.iter().filter(|link| *link == "anon_inode:[eventfd]").count(),
            link_descriptors: links.iter().filter(|link| link.contains(LINK_SEGMENT)).count(),
            link_mappings: maps.lines().filter(|line| line.contains(LINK_SEGMENT) && line.contains(" 00000000 ")).count(),
        }
    }
}

/// The processes whose network namespace is `namespace`, except its holder.
pub(crate) fn processes_in(namespace: &NetworkNamespace) -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != namespace.holder())
        .filter(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|link| link == *namespace.identity()))
        .collect()
}

/// The abstract names of shunt in the namespace, one entry for every socket that carries the name.
pub(crate) fn abstract_names(namespace: &NetworkNamespace) -> Vec<String> {
    // Companions' names are binary: bytes, and no text.
    let table = fs::read(format!("/proc/{}/net/unix", namespace.holder())).expect("the holder lives");
    shunts_names(&table)
}

fn shunts_names(table: &[u8]) -> Vec<String> {
    // Num RefCount Protocol Flags Type St Inode Path
    let fields = |line: &[u8]| line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).nth(7).map(<[u8]>::to_vec);
    let names = table.split(|byte| *byte == b'\n').filter_map(fields);
    names.map(|name| String::from_utf8_lossy(&name).into_owned()).filter(|name| name.starts_with(ABSTRACT_NAME)).collect()
}

/// Whether any socket of the namespace listens on TCP port `port`, IPv4 or IPv6.
pub(crate) fn has_listener(namespace: &NetworkNamespace, port: u16) -> bool {
    let seen = namespace.enter(|| listeners::has_listener(port));
    seen.unwrap_or_else(|_| listeners::is_in_tables(&format!("/proc/{}/net", namespace.holder()), port))
}

/// How many segments the kernel's TCP has sent in this namespace since it was made (`OutSegs` of RFC 4022).
///
/// Bytes that travel through shared memory send none, so this tells acceleration from a silent fall-back.
pub fn tcp_segments_sent(namespace: &NetworkNamespace) -> u64 {
    let table = fs::read_to_string(format!("/proc/{}/net/snmp", namespace.holder())).expect("the holder lives");
    let mut rows = table.lines().filter(|line| line.starts_with("Tcp:"));
    let names = rows.next().expect("a header row").split_whitespace();
    let values = rows.next().expect("a value row").split_whitespace();
    names
        .zip(values)
        .find(|(name, _)| *name == "OutSegs")
        .and_then(|(_, value)| value.parse().ok())
        .expect("the kernel counts OutSegs")
}

/// One paragraph a process: what it runs, its threads' states and where in the kernel they sleep.
pub(crate) fn describe_processes(namespace: &NetworkNamespace) -> String {
    let mut text = String::new();
    for pid in processes_in(namespace) {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let held = Inspection::of_process(pid);
        let _ = writeln!(text, "process {pid}: {command} {held:?}");
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("State: gone");
            let place = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
            let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            let _ = writeln!(text, "  {state} in {place} system call {}", call.trim());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_names_are_seen() {
        let mut table = b"Num       RefCount Protocol Flags    Type St Inode Path\n".to_vec();
        table.extend_from_slice(b"0000000000000000: 00000002 00000000 00010000 0001 01 23 /run/other\n");
        table.extend_from_slice(b"0000000000000000: 00000002 00000000 00010000 0001 01 24\n");
        table.extend_from_slice(b"0000000000000000: 00000002 00000000 00010000 0001 01 25 @shunt1-listen-7\n");
        table.extend_from_slice(b"0000000000000000: 00000003 00000000 00000000 0001 03 26 @shunt1-client-\xff\xfe@\n\x80\n");
        assert_eq!(shunts_names(&table).len(), 2);
    }
}
