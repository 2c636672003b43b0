//! A region's word and the word of a pulled message, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release -p shunt-region --test loom_word
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;
use shunt_region::pull::Pull;
use shunt_region::state::{Event, State};
use shunt_region::word::{Use, Word};

#[test]
fn a_removed_region_is_freed_once_and_not_before_its_last_reader() {
    loom::model(|| {
        let word = Arc::new(Word::new());
        let generation = word.begin(Event::Allocate).unwrap().0.generation();
        word.reference(generation, Use::Output).unwrap();
        let frees = Arc::new(AtomicU32::new(0));
        let reader = {
            let (word, frees) = (word.clone(), frees.clone());
            thread::spawn(move || {
                if word.unreference(generation, Use::Output).unwrap().state() == State::Free {
                    frees.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        // Another output begins, or comes too late; it never outlives the region's memory unseen.
        let begun = {
            let word = word.clone();
            thread::spawn(move || word.reference(generation, Use::Output).is_ok())
        };
        if word.apply(generation, Event::Remove).unwrap().state() == State::Free {
            frees.fetch_add(1, Ordering::Relaxed);
        }
        reader.join().unwrap();
        if begun.join().unwrap() {
            assert_eq!(word.load().state(), State::Removed);
            assert_eq!(frees.load(Ordering::Relaxed), 0);
            assert_eq!(word.unreference(generation, Use::Output).unwrap().state(), State::Free);
        } else {
            assert_eq!((frees.load(Ordering::Relaxed), word.load().state()), (1, State::Free));
        }
    });
}

#[test]
fn each_chunk_is_copied_for_good_by_one_side() {
    loom::model(|| {
        const CHUNKS: u16 = 2;
        let pull = Arc::new(Pull::new());
        pull.begin(1, CHUNKS);
        let receiver = {
            let pull = pull.clone();
            thread::spawn(move || {
                let mut taken = 0u16;
                while let Some(chunk) = pull.claim(1) {
                    assert_eq!(chunk, taken);
                    if !pull.finish(1, chunk) {
                        break;
                    }
                    taken += 1;
                }
                taken
            })
        };
        let mut back = CHUNKS;
        while pull.take(1, &mut back) {}
        // The sender does not wait: whatever the receiver has not finished is revoked.
        let border = if pull.is_met(1, back) { back } else { pull.revoke(1, back) };
        let taken = receiver.join().unwrap();
        assert_eq!(taken, border, "the receiver has what is not in the system's buffer");
        assert_eq!(pull.border(1), Some(border));
    });
}
