//! Macros for types that have a variant for each engine. An engine is added to them and to `dispatch`.

/// Marks the calling branch as unlikely, so that stores without shards take the fast path.
#[inline]
#[cold]
pub(super) const fn unlikely() {}

/// Calls the same method on each engine; with the name of a type, the value of an `Ok` or `Some` is wrapped
/// in the variant of that type for the same engine.
macro_rules! on_engine {
    ($value:expr, $engine:ident => $call:expr) => {
        match $value {
            Self::Lmdb($engine) => $call,
            Self::Sharded($engine) => {
                $crate::engine::forward::unlikely();
                $call
            }
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call,
            #[cfg(feature = "postgres")]
            Self::Postgres($engine) => $call,
        }
    };
    ($value:expr, $engine:ident => $call:expr, $to:ident) => {
        match $value {
            Self::Lmdb($engine) => $call.map($to::Lmdb),
            Self::Sharded($engine) => {
                $crate::engine::forward::unlikely();
                $call.map($to::Sharded)
            }
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call.map($to::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres($engine) => $call.map($to::Postgres),
        }
    };
}

/// Methods that call the method of the same name and parameters on each engine; see [`on_engine`] for `as`.
macro_rules! forward {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$lifetime:lifetime>)? ($($parameters:tt)*) -> $output:ty
            $(as $to:ident)?;
    )*) => {$(
        forward! { @receiver ($($parameters)*) ($(#[$attribute])*) ($visibility) $name ($($lifetime)?) ($output) ($($to)?) }
    )*};
    (@receiver (&mut $self:ident $($rest:tt)*) $($method:tt)*) => {
        forward! { @method $self (&mut $self) ($($rest)*) $($method)* }
    };
    (@receiver (&$self:ident $($rest:tt)*) $($method:tt)*) => {
        forward! { @method $self (&$self) ($($rest)*) $($method)* }
    };
    (@receiver ($self:ident $($rest:tt)*) $($method:tt)*) => {
        forward! { @method $self ($self) ($($rest)*) $($method)* }
    };
    (
        @method $self:ident ($($receiver:tt)*) ($(, $parameter:ident: $type:ty)* $(,)?)
            ($($attribute:tt)*) ($visibility:vis) $name:ident ($($lifetime:lifetime)?) ($output:ty) ($($to:ident)?)
    ) => {
        $($attribute)*
        $visibility fn $name $(<$lifetime>)? ($($receiver)*, $($parameter: $type),*) -> $output {
            $crate::engine::forward::on_engine!($self, engine => engine.$name($($parameter),*) $(, $to)?)
        }
    };
}

/// An enum with a variant for each engine.
macro_rules! of_each_engine {
    (
        $(#[$attribute:meta])*
        enum $name:ident $(<$($lifetime:lifetime),+>)? {
            $lmdb:ty, $sharded:ty, $memory:ty, $postgres:ty
        }
    ) => {
        $(#[$attribute])*
        #[allow(clippy::large_enum_variant, reason = "LMDB's is the usual one, and would be reached by a pointer")]
        pub(crate) enum $name $(<$($lifetime),+>)? {
            Lmdb($lmdb),
            Sharded($sharded),
            #[cfg(feature = "memory")]
            Memory($memory),
            #[cfg(feature = "postgres")]
            Postgres($postgres),
        }
    };
}

pub(super) use {forward, of_each_engine, on_engine};
