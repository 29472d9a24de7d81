//! Nothing: the tests of this package are in a crate of the edition 2021.
