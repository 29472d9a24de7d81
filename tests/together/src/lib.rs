//! Nothing: this package has features of dependencies only.
