//! The declarations of aggregates.

use super::KeyField;

/// A sum of decimals has a second part. Its name is that of the field with this suffix. The derive refuses such a name
/// of a field in an aggregate.
const FRACTION: &str = ".fraction";

/// One declared aggregate.
#[derive(Debug)]
pub struct AggregateSchema {
    /// The name, in the file and in errors.
    pub name: &'static str,
    /// The fields of a group.
    pub key: &'static [KeyField],
    /// The summed fields.
    pub sums: &'static [SumSchema],
    /// The least and greatest values, which are not stored.
    pub extremes: &'static [Extreme],
    /// Whether a worker updates the totals after the commit.
    pub eventual: bool,
}

/// The least or greatest value of a field in a group: the first or last entry of a group in an index that begins with
/// the fields of the group and this field.
#[derive(Debug, Clone, Copy)]
pub struct Extreme {
    /// The position of the index.
    pub index: usize,
    /// Whether it is the greatest value.
    pub greatest: bool,
}

impl AggregateSchema {
    /// Returns the number of integers in all sums.
    pub(crate) fn parts(&self) -> usize {
        self.sums.iter().map(|sum| 1 + usize::from(sum.is_decimal())).sum()
    }
}

/// A summed field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumSchema {
    /// The name of the field.
    pub name: &'static str,
    pub(crate) is_decimal: bool,
}

impl SumSchema {
    /// Whether it is a sum of decimals.
    pub(crate) const fn is_decimal(self) -> bool {
        self.is_decimal
    }

    /// Returns the names of the integers in the catalog. `stored` is the name of the field in rows.
    pub(crate) fn names(self, stored: &str) -> impl Iterator<Item = String> {
        let fraction = self.is_decimal.then(|| format!("{stored}{FRACTION}"));
        [stored.to_owned()].into_iter().chain(fraction)
    }

    /// Returns the sums with these names in the catalog. `kept` makes a name `'static`.
    pub(crate) fn named(names: &[String], kept: impl Fn(&str) -> &'static str) -> Vec<Self> {
        let fields = names.iter().filter(|name| field_of(name) == name.as_str());
        let sums = fields.map(|name| {
            let is_decimal = names.iter().any(|it| it != name && field_of(it) == name);
            Self { name: kept(name), is_decimal }
        });
        sums.collect()
    }
}

/// Returns the field with a sum of this name in the catalog.
pub(crate) fn field_of(name: &str) -> &str {
    name.strip_suffix(FRACTION).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_names_both_parts_of_a_decimal() {
        let sums = [
            SumSchema { name: "amount", is_decimal: true },
            SumSchema { name: "pieces", is_decimal: false },
        ];
        let names: Vec<String> = sums.into_iter().flat_map(|sum| sum.names(sum.name)).collect();
        assert_eq!(names, ["amount", "amount.fraction", "pieces"]);
        let kept = |name: &str| if name == "amount" { "amount" } else { "pieces" };
        assert_eq!(SumSchema::named(&names, kept), sums);
    }
}
