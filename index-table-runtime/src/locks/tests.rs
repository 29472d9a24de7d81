use std::{panic, thread};

use super::{Mutex, RwLock};

#[test]
fn a_panic_leaves_the_value_usable() {
    let (mutex, lock) = (Mutex::<_>::new(1), RwLock::<_>::new(1));
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
