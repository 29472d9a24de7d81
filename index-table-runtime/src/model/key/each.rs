use std::collections::{BTreeSet, HashSet, VecDeque};

use super::Key;

/// A collection that `each(field)` can index, with one entry for each distinct element.
pub trait Each {
    /// The type of the elements, which is the type of the key field.
    type Element: Key;

    /// Returns the elements in any order, with or without duplicates.
    fn elements(&self) -> impl Iterator<Item = &Self::Element>;
}

macro_rules! each {
    ($([$($generics:tt)*] $collection:ty),+ $(,)?) => {$(
        impl<T: Key, $($generics)*> Each for $collection {
            type Element = T;

            fn elements(&self) -> impl Iterator<Item = &T> {
                self.iter()
            }
        }
    )+};
}

each! {
    [] Vec<T>,
    [] VecDeque<T>,
    [] BTreeSet<T>,
    [S] HashSet<T, S>,
    [] Option<T>,
    [const N: usize] [T; N],
    [] Box<[T]>,
}
