use std::{panic, thread};

use super::{
    Condvar, Held, Mutex, RwLock, place,
    rank::{self, Ranked},
};

#[test]
fn a_panic_leaves_the_value_usable() {
    let (mutex, lock) = (Mutex::<_, rank::Opening>::new(1), RwLock::<_>::new(1));
    let panicked = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let (mut value, mut other) = (mutex.lock(), lock.write());
            (*value, *other) = (2, 2);
            panic::resume_unwind(Box::new(()));
        });
        holder.join().is_err()
    });
    assert!(panicked);
    assert_eq!(*mutex.lock(), 2);
    assert_eq!(*lock.read(), 2);
    assert_eq!(*lock.write(), 2);
    assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
    assert_eq!(mutex.into_inner(), 2);
}

/// Whether a thread that takes locks in this way panics.
fn is_refused(body: impl FnOnce() + Send) -> bool {
    thread::scope(|scope| scope.spawn(body).join().is_err())
}

/// Takes two locks, one after the other.
fn both<A: Ranked, B: Ranked>((first, second): (u64, u64)) {
    let (first, second) = (Mutex::<_, A>::numbered(first, ()), Mutex::<_, B>::numbered(second, ()));
    let held = first.lock();
    drop((held, second.lock()));
}

#[test]
#[cfg(debug_assertions)]
fn locks_that_are_taken_out_of_order_are_refused() {
    assert!(!is_refused(|| both::<rank::Opening, rank::Stores>((0, 0))));
    assert!(is_refused(|| both::<rank::Stores, rank::Opening>((0, 0))));
    assert!(is_refused(|| both::<rank::JournalState, rank::JournalShard>((0, 0))));
    assert!(is_refused(|| both::<rank::Leaf, rank::Leaf>((0, 0))));
    assert!(!is_refused(|| both::<rank::JournalShard, rank::JournalShard>((1, 2))));
    assert!(is_refused(|| both::<rank::JournalShard, rank::JournalShard>((2, 1))));
    assert!(is_refused(|| {
        let lock = RwLock::<_, rank::CommitGate>::new(());
        let _held = lock.read();
        drop(lock.read());
    }));
    assert!(is_refused(|| {
        let _held = Held::got::<rank::Checkpoint>(0);
        drop(Mutex::<_, rank::Opening>::new(()).lock());
    }));
}

#[test]
#[cfg(debug_assertions)]
fn the_turns_of_different_stores_have_no_order() {
    let turns = |first, second| is_refused(move || both::<rank::Turn, rank::Turn>((first, second)));
    assert!(!turns(place(7, 1), place(7, 2)));
    assert!(turns(place(7, 2), place(7, 1)));
    assert!(!turns(place(7, 2), place(6, 1)));
    assert!(!is_refused(|| both::<rank::Turn, rank::Opening>((place(7, 0), 0))));
}

#[test]
#[cfg(debug_assertions)]
fn the_moves_of_different_stores_have_no_order() {
    assert!(is_refused(|| both::<rank::MoveStep, rank::MoveStep>((7, 7))));
    assert!(!is_refused(|| both::<rank::MoveStep, rank::MoveStep>((7, 6))));
    assert!(is_refused(|| both::<rank::MoveHold, rank::MoveHold>((7, 7))));
    assert!(!is_refused(|| both::<rank::MoveHold, rank::MoveHold>((7, 6))));
}

#[test]
fn a_lock_that_was_released_or_not_waited_for_is_allowed() {
    assert!(!is_refused(|| {
        let (first, last) = (Mutex::<_, rank::Opening>::new(()), Mutex::<_>::new(()));
        drop(last.lock());
        let held = first.lock();
        drop(last.lock());
        drop(held);
        let _held = last.lock();
        assert!(first.try_lock().is_some());
    }));
}

#[test]
#[cfg(debug_assertions)]
fn a_thread_that_waits_for_a_change_holds_no_later_lock() {
    assert!(is_refused(|| {
        let (state, leaf) = (Mutex::<_, rank::JournalState>::new(false), Mutex::<_>::new(()));
        let (state, _held) = (state.lock(), leaf.lock());
        drop(Condvar::new().wait_while(state, |is_done| !*is_done));
    }));
}

/// A forked process drops locks that threads of its parent held.
#[test]
fn a_lock_that_is_dropped_while_it_is_held_leaks_its_value() {
    use std::{mem::forget, sync::Arc};

    let value = Arc::new(());
    let (held, free) = (Mutex::<_>::new(Arc::clone(&value)), Mutex::<_>::new(Arc::clone(&value)));
    let (read, written) = (RwLock::<_>::new(Arc::clone(&value)), RwLock::<_>::new(value.clone()));
    // A thread holds one of them.
    thread::scope(|scope| {
        scope.spawn(|| forget(held.lock()));
        scope.spawn(|| forget(read.read()));
    });
    drop((held, free, read, written));
    assert_eq!(Arc::strong_count(&value), 3);
}
