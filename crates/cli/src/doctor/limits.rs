//! Resource limits that programs inherit from this shell.
use rustix::process::{getrlimit, Resource};
use shunt_segment::area::{BASE_SIZE, LINK_SIZE};

use super::Check;
use crate::text_table::bytes_text;

/// Descriptors that a program under shunt keeps beside its own, roughly: links, listeners, the state for tools.
const FEWEST_DESCRIPTORS: u64 = 256;

/// The checks of all limits.
pub fn all() -> [Check; 3] {
    [descriptors(), file_size(), address_space()]
}

fn soft(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or("unlimited".to_owned(), bytes_text)
}

fn descriptors() -> Check {
    let name = "limit of open files";
    match soft(Resource::Nofile) {
        Some(limit) if limit < FEWEST_DESCRIPTORS => Check::limited(
            name,
            limit,
            "shunt needs some descriptors of its own; when none is left, connections go through the kernel (ulimit -n)",
        ),
        Some(limit) => Check::ok(name, limit, "an accelerated connection takes one descriptor, as any other"),
        None => Check::ok(name, "unlimited", "an accelerated connection takes one descriptor, as any other"),
    }
}

fn file_size() -> Check {
    let (name, limit) = ("limit of file size", soft(Resource::Fsize));
    match limit {
        Some(bytes) if bytes < LINK_SIZE as u64 => Check::missing(
            name,
            shown(limit),
            format_args!("a segment is a sparse file of {}, so none can be made (ulimit -f)", bytes_text(LINK_SIZE as u64)),
        ),
        _ => Check::ok(name, shown(limit), "segments can be made"),
    }
}

fn address_space() -> Check {
    let (name, limit) = ("limit of address space", soft(Resource::As));
    match limit {
        Some(bytes) if bytes < 16 * BASE_SIZE as u64 => Check::limited(
            name,
            shown(limit),
            format_args!(
                "each peer process takes {} of it; when none is left, connections go through the kernel (ulimit -v)",
                bytes_text(BASE_SIZE as u64)
            ),
        ),
        _ => Check::ok(name, shown(limit), "segments can be mapped"),
    }
}
