//! What regions (large messages by reference: `crates/buffers`) have here, and what makes them copies.
use rustix::process::{getrlimit, Resource};
use shunt_region::{Audience, Limit, Pages, Pool, Shape};

use super::Check;
use crate::text_table::bytes_text;

/// Of the checks: enough for some large messages under way.
const FEW: usize = 64 << 20;
const HUGE: usize = 2 << 20;

/// All of them.
pub fn all() -> [Check; 3] {
    [huge_pages(), locked_memory(), memory_group()]
}

/// As pools for trusted peers are made: a tmpfs in a user namespace of its own.
fn huge_pages() -> Check {
    let name = "huge pages of regions";
    match Pool::create(Shape { unit: HUGE, units: 1 }, Pages::Huge, Audience::Trusted) {
        Ok(_) => Check::ok(name, "a tmpfs of them in a user namespace", "regions for trusted peers can have pages of 2 MiB"),
        Err(Limit::NoHugePages) => Check::limited(
            name,
            "none: no user namespace may be made (/proc/sys/user/max_user_namespaces, or a container's filter), or the kernel has none for shared memory",
            "regions have pages of 4 KiB (`region-no-huge-pages`); connections are not concerned",
        ),
        Err(limit) => Check::limited(name, limit, format_args!("regions have pages of 4 KiB (`{}`)", limit.word())),
    }
}

fn locked_memory() -> Check {
    let (name, limit) = ("limit of locked memory", getrlimit(Resource::Memlock).current);
    let shown = limit.map_or("unlimited".to_owned(), bytes_text);
    match limit {
        Some(bytes) if bytes < HUGE as u64 => Check::limited(
            name,
            shown,
            "buffers of basic semantics are locked as long as they are under way; what exceeds it is copied (`region-locked`, ulimit -l)",
        ),
        _ => Check::ok(name, shown, "what is under way of regions by basic semantics can be locked, so far"),
    }
}

fn memory_group() -> Check {
    let name = "memory cgroup";
    match shunt_region::may_be_pooled() {
        // Half of a limit, and of version 1's largest number, which is none.
        most if most >= 1 << 61 => Check::ok(name, "no limit to be seen", "pools of regions can be as large as asked for"),
        most => {
            let follows = format!(
                "all pools of a process may have half of it; what a larger one was for is copied (`{}`)",
                Limit::Memory.word()
            );
            let found = format!("{} at most", bytes_text(2 * most as u64));
            if most < FEW {
                Check::limited(name, found, follows)
            } else {
                Check::ok(name, found, follows)
            }
        }
    }
}
