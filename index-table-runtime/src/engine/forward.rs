//! Macros for types that have a variant for each engine. An engine is added to them and to `dispatch`.

/// Calls the same method on each engine; with the name of a type, the value of an `Ok` or `Some` is wrapped
/// in the variant of that type for the same engine.
macro_rules! on_engine {
    ($value:expr, $engine:ident => $call:expr) => {
        match $value {
            Self::Lmdb($engine) => $call,
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call,
            #[cfg(feature = "postgres")]
            Self::Postgres($engine) => $call,
        }
    };
    ($value:expr, $engine:ident => $call:expr, $to:ident) => {
        match $value {
            Self::Lmdb($engine) => $call.map($to::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call.map($to::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres($engine) => $call.map($to::Postgres),
        }
    };
}

/// Methods that call the method of the same name and parameters on each variant, by the macro `$on`; see [`on_engine`] for
/// `as`.
macro_rules! forward {
    ($on:ident: $(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$lifetime:lifetime>)? ($($parameters:tt)*) -> $output:ty
            $(as $to:ident)?;
    )*) => {$(
        forward! { @receiver $on ($($parameters)*) ($(#[$attribute])*) ($visibility) $name ($($lifetime)?) ($output) ($($to)?) }
    )*};
    (@receiver $on:ident (&mut $self:ident $($rest:tt)*) $($method:tt)*) => {
        forward! { @method $on $self (&mut $self) ($($rest)*) $($method)* }
    };
    (@receiver $on:ident (&$self:ident $($rest:tt)*) $($method:tt)*) => {
        forward! { @method $on $self (&$self) ($($rest)*) $($method)* }
    };
    (@receiver $on:ident ($self:ident $($rest:tt)*) $($method:tt)*) => {
        forward! { @method $on $self ($self) ($($rest)*) $($method)* }
    };
    (
        @method $on:ident $self:ident ($($receiver:tt)*) ($(, $parameter:ident: $type:ty)* $(,)?)
            ($($attribute:tt)*) ($visibility:vis) $name:ident ($($lifetime:lifetime)?) ($output:ty) ($($to:ident)?)
    ) => {
        $($attribute)*
        $visibility fn $name $(<$lifetime>)? ($($receiver)*, $($parameter: $type),*) -> $output {
            $on!($self, engine => engine.$name($($parameter),*) $(, $to)?)
        }
    };
}

/// The methods of [`Read`](super::Read) that a dispatch calls on each variant.
macro_rules! forward_read {
    ($on:ident, $t:lifetime) => {
        forward! {
            $on:
            fn table(self) -> &'static TableSchema;
            fn fact(self, primary_key: &[u8]) -> Result<Option<&$t [u8]>>;
            #[inline]
            fn facts<'k>(
                self,
                primary_keys: impl Iterator<Item = &'k [u8]>,
                each: impl FnMut(Option<&$t [u8]>),
            ) -> Result<()>;
            #[inline]
            fn facts_at_once(self) -> usize;
            fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&$t [u8]>>;
            fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<$t>>>;
            #[inline]
            fn unique_row(
                self,
                index: usize,
                key: &[u8],
            ) -> Result<Option<WithRow<$t>>>;
            fn count(self, query: &Query) -> Result<Count>;
            fn stored(self, source: Source) -> Result<Option<u64>>;
            fn get(self, space: Space, key: &[u8]) -> Result<Option<&$t [u8]>>;
            fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&$t [u8], &$t [u8])>>;
            fn below(self, space: Space, key: &[u8]) -> Result<Option<(&$t [u8], &$t [u8])>>;
            fn len(self, space: Space) -> Result<u64>;
        }
    };
}

/// The methods of [`Cursor`](super::Cursor).
macro_rules! forward_cursor {
    ($on:ident) => {
        forward! {
            $on:
            // Without inlining, each entry costs one more call.
            #[inline(always)]
            fn advance(&mut self) -> Result<bool, Boxed>;
            #[inline]
            fn entry(&self) -> RawEntry<'_>;
            #[inline]
            fn row(&self) -> Option<&[u8]>;
        }
    };
}

/// The methods of [`Write`](super::Write) that a dispatch calls on each variant.
macro_rules! forward_write {
    ($on:ident) => {
        forward! {
            $on:
            fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64>;
            #[inline]
            fn defer_new(&mut self) -> bool;
            fn settle_new(&mut self) -> Result<bool>;
            fn abandon_new(&mut self) -> ();
            fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool>;
            fn insert_entry(
                &mut self,
                index: usize,
                key: &[u8],
                primary_key: &[u8],
                data: &[u8],
            ) -> Result<bool>;
            fn put_shared(
                &mut self,
                index: usize,
                key: &[u8],
                primary_key: &[u8],
                data: &[u8],
            ) -> Result<()>;
            fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()>;
            fn flush(&mut self) -> Result<()>;
            fn clear(&mut self, index: usize) -> Result<()>;
            fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()>;
            fn remove(&mut self, space: Space, key: &[u8]) -> Result<()>;
            fn clear_space(&mut self, space: Space) -> Result<()>;
            fn layout(&self, index: &IndexSchema) -> &'static str;
        }
    };
}

/// An enum with a variant for each engine.
macro_rules! of_each_engine {
    (
        $(#[$attribute:meta])*
        enum $name:ident $(<$($lifetime:lifetime),+>)? {
            $lmdb:ty, $memory:ty, $postgres:ty
        }
    ) => {
        $(#[$attribute])*
        #[allow(clippy::large_enum_variant, reason = "LMDB's is the usual one, and would be reached by a pointer")]
        pub(crate) enum $name $(<$($lifetime),+>)? {
            Lmdb($lmdb),
            #[cfg(feature = "memory")]
            Memory($memory),
            #[cfg(feature = "postgres")]
            Postgres($postgres),
        }
    };
}

pub(crate) use {forward, forward_cursor, forward_read, forward_write};
pub(super) use {of_each_engine, on_engine};
