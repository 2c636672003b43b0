//! Taking writing away, mending faults and reading, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release -p shunt-region --test loom_guard
//!
//! A unit is one word: its byte, and whether it can be written. A write is done if it can be, by one step, as a processor does it;
//! changing the right is a step, too, after which no write of before is under way. What is copied is read without order.
#![cfg(loom)]

use loom::sync::atomic::{fence, AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;
use shunt_region::guard::{self, Access, Claim, Guard, Hands, Marks};
use shunt_region::state::Event;
use shunt_region::word::{Use, Word};
use shunt_region::Limit;

const WRITABLE: u32 = 1 << 8;

struct Unit {
    page: AtomicU32,
    spare: AtomicU32,
    redirect: AtomicU32,
    claim: Claim,
}

struct Model {
    word: Word,
    marks: Marks,
    units: Vec<Unit>,
    mappings: AtomicU32,
    /// As many as there may be.
    most: u32,
    /// No fault is mended by saving: the test must notice.
    broken: bool,
}

impl Hands for &Model {
    fn protect(&self, access: Access) -> Result<(), Limit> {
        for unit in 0..self.units.len() {
            match access {
                Access::Write => self.open(unit)?,
                _ => drop(self.units[unit].page.fetch_and(!WRITABLE, Ordering::AcqRel)),
            }
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
    fn open(&self, unit: usize) -> Result<(), Limit> {
        fence(Ordering::SeqCst);
        self.units[unit].page.fetch_or(WRITABLE, Ordering::AcqRel);
        Ok(())
    }
    fn save(&self, unit: usize) {
        if !self.broken {
            let byte = self.units[unit].page.load(Ordering::Relaxed) & 0xff;
            self.units[unit].spare.store(byte, Ordering::Relaxed);
        }
    }
    fn redirect(&self, unit: usize) -> &AtomicU32 {
        &self.units[unit].redirect
    }
    fn claim(&self, unit: usize) -> &Claim {
        &self.units[unit].claim
    }
    fn part(&self) -> Result<(), Limit> {
        if self.mappings.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.mappings.fetch_sub(1, Ordering::Relaxed);
            return Err(Limit::Mappings);
        }
        Ok(())
    }
    fn join(&self, parts: u32) {
        assert!(self.mappings.fetch_sub(parts, Ordering::Relaxed) >= parts, "given back twice");
    }
    fn rest(&self) {
        thread::yield_now();
    }
}

impl Model {
    fn new(units: usize) -> (Arc<Model>, u32) {
        let unit = |_| Unit {
            page: AtomicU32::new(WRITABLE | 1),
            spare: AtomicU32::new(0),
            redirect: AtomicU32::new(0),
            claim: Claim::new(),
        };
        let units = (0..units).map(unit).collect();
        let model = Model { word: Word::new(), marks: Marks::new(), units, mappings: AtomicU32::new(0), most: 8, broken: false };
        let generation = model.word.begin(Event::Allocate).unwrap().0.generation();
        (Arc::new(model), generation)
    }
    fn guard(&self) -> Guard<'_, &Model> {
        Guard { word: &self.word, marks: &self.marks, count: self.units.len(), hands: self }
    }
    /// A store, until it is done.
    fn write(&self, unit: usize, byte: u32) {
        loop {
            let page = &self.units[unit].page;
            let now = page.load(Ordering::Relaxed);
            if now & WRITABLE == 0 {
                assert!(self.guard().mend(unit));
                thread::yield_now();
            } else if page.compare_exchange(now, WRITABLE | byte, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
    fn read(&self, unit: usize) -> u32 {
        let mut byte = 0;
        let unit = &self.units[unit];
        guard::read(&unit.redirect, |saved| {
            byte = if saved { unit.spare.load(Ordering::Relaxed) } else { unit.page.load(Ordering::Relaxed) & 0xff };
        });
        byte
    }
    /// An output under TCOW: whether it is one.
    fn output(&self, generation: u32) -> bool {
        self.word.reference(generation, Use::Output).unwrap();
        let armed = self.guard().arm().is_ok();
        if !armed {
            self.word.unreference(generation, Use::Output).unwrap();
        }
        armed
    }
    fn complete(&self, generation: u32) {
        self.word.unreference(generation, Use::Output).unwrap();
        if self.guard().was_written() {
            self.guard().disarm(generation);
        }
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// What was there when the call returned is what is read, whoever writes since when.
#[test]
fn a_reader_gets_what_was_there_when_the_output_was_made() {
    model(|| {
        let (model, generation) = Model::new(1);
        let writer = {
            let model = model.clone();
            thread::spawn(move || model.write(0, 2))
        };
        if model.output(generation) {
            let then = model.read(0);
            let reader = {
                let model = model.clone();
                thread::spawn(move || model.read(0))
            };
            model.write(0, 3);
            assert_eq!(reader.join().unwrap(), then);
            model.complete(generation);
        }
        writer.join().unwrap();
    });
}

/// The sender's own next write; and the output after that one has its own bytes.
#[test]
fn an_output_after_a_fault_is_of_the_new_bytes() {
    model(|| {
        let (model, generation) = Model::new(1);
        assert!(model.output(generation));
        let reader = {
            let model = model.clone();
            thread::spawn(move || assert_eq!(model.read(0), 1))
        };
        model.write(0, 2);
        reader.join().unwrap();
        model.complete(generation);
        assert!(model.output(generation));
        let writer = {
            let model = model.clone();
            thread::spawn(move || model.write(0, 3))
        };
        assert_eq!(model.read(0), 2);
        writer.join().unwrap();
        assert_eq!(model.read(0), 2);
        model.complete(generation);
    });
}

/// One output completes while the next is made and a third thread writes.
#[test]
fn an_output_made_while_another_completes_is_whole() {
    model(|| {
        let (model, generation) = Model::new(1);
        assert!(model.output(generation));
        let completing = {
            let model = model.clone();
            thread::spawn(move || model.complete(generation))
        };
        let writer = {
            let model = model.clone();
            thread::spawn(move || model.write(0, 2))
        };
        if model.output(generation) {
            let then = model.read(0);
            writer.join().unwrap();
            assert_eq!(model.read(0), then);
            model.complete(generation);
        } else {
            writer.join().unwrap();
        }
        completing.join().unwrap();
    });
}

/// A unit that is opened while the next output takes writing away from all: that output is copied, and the one after it is whole.
#[test]
fn a_unit_that_opens_late_is_closed_by_the_next_output() {
    model(|| {
        let (model, generation) = Model::new(2);
        assert!(model.output(generation));
        model.write(0, 2);
        model.word.unreference(generation, Use::Output).unwrap();
        let writer = {
            let model = model.clone();
            thread::spawn(move || model.write(1, 2))
        };
        if model.output(generation) {
            model.word.unreference(generation, Use::Output).unwrap();
        }
        writer.join().unwrap();
        assert!(model.output(generation));
        model.write(1, 3);
        assert_eq!((model.read(0), model.read(1)), (2, 2));
    });
}

/// Two threads that write different units of a region that nothing reads: both give back all of it, and it is counted once.
#[test]
fn rights_that_two_give_back_are_counted_once() {
    model(|| {
        let (model, generation) = Model::new(2);
        assert!(model.output(generation));
        model.word.unreference(generation, Use::Output).unwrap();
        let other = {
            let model = model.clone();
            thread::spawn(move || model.write(1, 2))
        };
        model.write(0, 2);
        other.join().unwrap();
        assert_eq!(model.mappings.load(Ordering::Relaxed), 0);
        assert_eq!((model.read(0), model.read(1)), (2, 2));
    });
}

/// No unit can have a protection of its own: all are saved, whichever two threads write, and the region has writing back.
#[test]
fn without_room_for_mappings_all_is_saved() {
    model(|| {
        let (model, generation) = Model::new(2);
        let mut model = Arc::try_unwrap(model).ok().unwrap();
        model.most = 1;
        let model = Arc::new(model);
        assert!(model.output(generation));
        let other = {
            let model = model.clone();
            thread::spawn(move || model.write(1, 2))
        };
        model.write(0, 2);
        assert_eq!((model.read(0), model.read(1)), (1, 1));
        other.join().unwrap();
        assert_eq!((model.read(0), model.read(1)), (1, 1));
        model.complete(generation);
        assert_eq!(model.mappings.load(Ordering::Relaxed), 0);
        assert!(model.output(generation));
        assert_eq!((model.read(0), model.read(1)), (2, 2));
    });
}

/// The model tells a guard that saves nothing from one that does.
#[test]
#[should_panic(expected = "left == right")]
fn without_saving_it_fails() {
    model(|| {
        let (model, generation) = Model::new(1);
        let mut model = Arc::try_unwrap(model).ok().unwrap();
        model.broken = true;
        assert!(model.output(generation));
        model.write(0, 2);
        assert_eq!(model.read(0), 1);
    });
}
