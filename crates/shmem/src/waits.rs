//! Waiting for values in the own symmetric memory, and looking at them.

use crate::setup::{fail, or_fail};
use shunt_pgas::atomic::{self, Word};
use shunt_pgas::wait::{until, Span, Waits};
use shunt_pgas::{Error, World};
use std::ffi::c_int;

pub const NE: c_int = 2;

/// What each variable is compared with.
pub trait Values<T>: Copy {
    fn of(self, index: usize) -> T;
}

/// The same for all.
#[derive(Clone, Copy)]
pub struct One<T>(pub T);

impl<T: Copy> Values<T> for One<T> {
    #[inline(always)]
    fn of(self, _: usize) -> T {
        self.0
    }
}

/// One for each.
pub struct Each<T>(pub *mut T);

impl<T> Clone for Each<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Each<T> {}

impl<T: Copy> Values<T> for Each<T> {
    #[inline(always)]
    fn of(self, index: usize) -> T {
        // SAFETY: the program's array, as long as that of the variables.
        unsafe { self.0.add(index).read() }
    }
}

#[inline(always)]
fn holds<T: PartialOrd>(value: T, how: c_int, other: T) -> bool {
    match how {
        1 => value == other,
        2 => value != other,
        3 => value > other,
        4 => value <= other,
        5 => value < other,
        _ => value >= other,
    }
}

/// The comparison must be one, and other ranks must be able to write what is looked at.
#[inline(always)]
fn check(name: &'static str, how: c_int, looked_at: Span) {
    let world = World::current();
    if !(1..=6).contains(&how) {
        fail(name, Error::Setup(format!("{how} is no comparison")));
    }
    if looked_at.bytes > 0 && !world.is_symmetric(looked_at.address, looked_at.bytes) {
        fail(name, world.wrong(looked_at.address, looked_at.bytes, world.me() as i64));
    }
}

#[inline(always)]
fn load<T: Word>(variable: *const T) -> T {
    // SAFETY: the program's own variable.
    unsafe { atomic::load(variable as usize) }
}

pub fn wait_until<T: Word + PartialOrd>(name: &'static str, variable: *const T, how: c_int, value: T) {
    check(name, how, Span::of(variable));
    or_fail(name, until(World::current(), Waits::Value, Span::of(variable), || holds(load(variable), how, value)));
}

pub fn test<T: Word + PartialOrd>(name: &'static str, variable: *const T, how: c_int, value: T) -> c_int {
    check(name, how, Span::of(variable));
    let held = holds(load(variable), how, value);
    if !held {
        idle();
    }
    c_int::from(held)
}

/// A program that tests in a loop would keep the processor from the rank it waits for, or from the keeper of its host; and what it has sent to other
/// hosts may have been lost.
pub fn idle() {
    let world = World::current();
    if world.crowded() || world.has_other_hosts() {
        std::thread::yield_now();
    }
    world.progress();
    if let Some(cause) = world.ended() {
        fail("test", Error::Ended(cause));
    }
}

/// Variables, how many, and which of them to leave out.
type Set<T> = (*mut T, usize, *const c_int);

/// Those that are not left out.
fn wanted<T>((variables, count, status): Set<T>) -> impl Iterator<Item = (usize, *const T)> {
    // SAFETY: the program's arrays, `count` long.
    let left_out = move |index: usize| !status.is_null() && unsafe { status.add(index).read() } != 0;
    // SAFETY: as above.
    (0..count).filter(move |index| !left_out(*index)).map(move |index| (index, unsafe { variables.add(index) } as *const T))
}

fn span<T>((variables, count, _): Set<T>) -> Span {
    Span { address: variables as usize, bytes: count.saturating_mul(size_of::<T>()) }
}

fn first<T: Word + PartialOrd>(set: Set<T>, how: c_int, values: impl Values<T>, from: usize) -> Option<usize> {
    let found = |(index, variable): &(usize, *const T)| holds(load(*variable), how, values.of(*index));
    // A caller that asks again and again gets each in its turn.
    let after = wanted(set).filter(|(index, _)| *index >= from).find(found);
    after.or_else(|| wanted(set).find(found)).map(|(index, _)| index)
}

fn all<T: Word + PartialOrd>(set: Set<T>, how: c_int, values: impl Values<T>) -> bool {
    wanted(set).all(|(index, variable)| holds(load(variable), how, values.of(index)))
}

fn some<T: Word + PartialOrd>(set: Set<T>, indices: *mut usize, how: c_int, values: impl Values<T>) -> usize {
    let mut count = 0;
    for (index, variable) in wanted(set) {
        if holds(load(variable), how, values.of(index)) {
            // SAFETY: the program's array, as long as that of the variables.
            unsafe { indices.add(count).write(index) };
            count += 1;
        }
    }
    count
}

pub fn wait_until_all<T: Word + PartialOrd>(name: &'static str, set: Set<T>, how: c_int, values: impl Values<T>) {
    check(name, how, span(set));
    or_fail(name, until(World::current(), Waits::Value, span(set), || all(set, how, values)));
}

pub fn test_all<T: Word + PartialOrd>(name: &'static str, set: Set<T>, how: c_int, values: impl Values<T>) -> c_int {
    check(name, how, span(set));
    let held = all(set, how, values);
    if !held {
        idle();
    }
    c_int::from(held)
}

std::thread_local! {
    static NEXT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub fn wait_until_any<T: Word + PartialOrd>(name: &'static str, set: Set<T>, how: c_int, values: impl Values<T>) -> usize {
    check(name, how, span(set));
    if wanted(set).next().is_none() {
        return usize::MAX;
    }
    let mut found = usize::MAX;
    let from = NEXT.get() % set.1;
    let look = || match first(set, how, values, from) {
        Some(index) => {
            found = index;
            true
        }
        None => false,
    };
    or_fail(name, until(World::current(), Waits::Value, span(set), look));
    NEXT.set(found + 1);
    found
}

pub fn test_any<T: Word + PartialOrd>(name: &'static str, set: Set<T>, how: c_int, values: impl Values<T>) -> usize {
    check(name, how, span(set));
    let from = NEXT.get() % set.1.max(1);
    match first(set, how, values, from) {
        Some(index) => {
            NEXT.set(index + 1);
            index
        }
        None => {
            idle();
            usize::MAX
        }
    }
}

pub fn wait_until_some<T: Word + PartialOrd>(
    name: &'static str,
    set: Set<T>,
    indices: *mut usize,
    how: c_int,
    values: impl Values<T>,
) -> usize {
    check(name, how, span(set));
    if wanted(set).next().is_none() {
        return 0;
    }
    let mut count = 0;
    let look = || {
        count = some(set, indices, how, values);
        count > 0
    };
    or_fail(name, until(World::current(), Waits::Value, span(set), look));
    count
}

pub fn test_some<T: Word + PartialOrd>(
    name: &'static str,
    set: Set<T>,
    indices: *mut usize,
    how: c_int,
    values: impl Values<T>,
) -> usize {
    check(name, how, span(set));
    let count = some(set, indices, how, values);
    if count == 0 {
        idle();
    }
    count
}
