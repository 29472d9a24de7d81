//! The order of all locks.

/// Declares the ranks, from the first to the last in the order, with a type for each.
macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A place in the order in which a thread takes locks.
        #[cfg(debug_assertions)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Rank {
            $($(#[$doc])* $name,)*
        }

        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) enum $name {}

            impl Ranked for $name {
                #[cfg(debug_assertions)]
                const RANK: Rank = Rank::$name;
            }
        )*
    };
}

/// A type that stands for a rank.
pub(crate) trait Ranked {
    #[cfg(debug_assertions)]
    const RANK: Rank;
}

ranks! {
    /// A value that is used for a moment. No other lock is taken meanwhile.
    Leaf,
}
