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

pub(crate) use forward;
pub(super) use {of_each_engine, on_engine};
