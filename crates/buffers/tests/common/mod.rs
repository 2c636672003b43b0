//! Ports with a pool, and tests that need a process to themselves.
#![allow(dead_code)]

use shunt_buffers::costs::Costs;
use shunt_buffers::port::Port;
use shunt_region::{Audience, Pages, Pool, Shape};

pub const UNIT: usize = 64 << 10;

pub fn pool() -> Pool {
    Pool::create(Shape { unit: UNIT, units: 64 }, Pages::Small, Audience::Anyone).unwrap()
}

/// A sender with a pool, whose choice is TCOW, and a receiver.
pub fn joined() -> (Port, Port, Pool) {
    let (mut here, there) = Port::pair().unwrap();
    let pool = pool();
    // What is chosen does not depend on the machine.
    here.set_costs(Costs::USUAL);
    here.offer(&pool).unwrap();
    here.policy().tcow_from = UNIT;
    (here, there, pool)
}

/// Runs `body` in a process of its own: this test's binary again, with this test alone. Signals' actions are a process's.
pub fn alone(name: &str, body: impl FnOnce()) {
    const CASE: &str = "SHUNT_BUFFERS_CASE";
    if std::env::var(CASE).is_ok_and(|case| case == name) {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads", "1"])
        .env(CASE, name)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}
