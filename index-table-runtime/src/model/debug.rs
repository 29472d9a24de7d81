//! `Debug` of generated structs.

use std::fmt::{Debug, Formatter, Result};

/// Formats a struct as a derived `Debug` does. It is compiled once.
///
/// # Errors
///
/// The errors of the formatter.
pub fn debug(f: &mut Formatter<'_>, name: &str, fields: &[(&str, &dyn Debug)]) -> Result {
    let mut out = f.debug_struct(name);
    for (name, value) in fields {
        out.field(name, value);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::debug;

    #[derive(Debug)]
    struct Derived {
        id: u64,
        town: &'static str,
    }

    struct Written(Derived);

    impl fmt::Debug for Written {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            debug(f, "Derived", &[("id", &self.0.id), ("town", &self.0.town)])
        }
    }

    #[test]
    fn generated_structs_are_formatted_like_derived_ones() {
        let row = || Derived { id: 7, town: "Oslo" };
        assert_eq!(format!("{:?}", Written(row())), format!("{:?}", row()));
        assert_eq!(format!("{:#?}", Written(row())), format!("{:#?}", row()));
    }
}
