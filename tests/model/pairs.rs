//! The coverage of the models: every pair of options of an index occurs in an index of some model.

use index_table::__private::{
    Condition, Entity, IndexSchema, KeyForm, KeyShape, Strategy, TableSchema, Viewed,
};

use crate::{cards, documents, forms, items, kinds};

/// The structs of all models.
const MODELS: [Model; 9] = [
    cards::packed::MODEL,
    cards::single::MODEL,
    documents::MODEL,
    forms::notes::MODEL,
    forms::pages::MODEL,
    forms::tasks::MODEL,
    forms::words::MODEL,
    items::MODEL,
    kinds::MODEL,
];

/// The forms of a field. An index may have two fields of the same form.
const FORMS: [&str; 5] = ["plain", "desc", "each", "computed", "hash"];

/// Further options of an index and its table.
const OPTIONS: [&str; 14] = [
    "one field",
    "several fields",
    "unique",
    "sparse",
    "filter",
    "normalized",
    "partial",
    "full",
    "include of several",
    "named",
    "view",
    "fixed primary key",
    "variable primary key",
    "composite primary key",
];

/// The impossible pairs, and the reasons.
const IMPOSSIBLE: [(&str, &str, &str); 10] = [
    ("each", "each", "an index has an entry for each element of one collection"),
    ("one field", "several fields", "an index has one field or several"),
    ("normalized", "partial", ONE_STRATEGY),
    ("normalized", "full", ONE_STRATEGY),
    ("partial", "full", ONE_STRATEGY),
    ("normalized", "include of several", "its entries carry nothing"),
    ("full", "include of several", "its entries carry every field"),
    ("fixed primary key", "variable primary key", ONE_PRIMARY_KEY),
    ("fixed primary key", "composite primary key", ONE_PRIMARY_KEY),
    ("variable primary key", "composite primary key", ONE_PRIMARY_KEY),
];
const ONE_STRATEGY: &str = "an index has one strategy";
const ONE_PRIMARY_KEY: &str = "a table has one primary key";

/// A struct of one of the models.
pub(crate) struct Model {
    table: &'static TableSchema,
    has_view: bool,
}

impl Model {
    pub(crate) const fn of<R: Entity>() -> Self {
        Self { table: R::TABLE, has_view: false }
    }

    pub(crate) const fn with_view<R: Viewed>() -> Self {
        Self { table: R::TABLE, has_view: true }
    }

    fn primary_key(&self) -> &'static str {
        match self.table.primary_key {
            [field] => match field.shape {
                KeyShape::Unsigned(_) | KeyShape::Signed(_) => "fixed primary key",
                KeyShape::Text => "variable primary key",
                shape => panic!("add {shape:?} to the shapes with or without a fixed length"),
            },
            _ => "composite primary key",
        }
    }
}

/// Returns the options of an index. A form is listed once for each field.
fn options(model: &Model, index: &IndexSchema) -> Vec<&'static str> {
    let mut options = vec![model.primary_key()];
    options.extend(model.has_view.then_some("view"));
    options.extend(index.key.iter().map(|field| match field.form {
        KeyForm::Field => "plain",
        KeyForm::Desc => "desc",
        KeyForm::Each | KeyForm::EachComputed => "each",
        KeyForm::Computed => "computed",
        KeyForm::Hash | KeyForm::HashComputed => "hash",
    }));
    options.push(if index.key.len() == 1 { "one field" } else { "several fields" });
    options.extend(index.unique.then_some("unique"));
    options.extend(index.conditions.iter().map(|condition| match condition {
        Condition::Sparse => "sparse",
        Condition::Filter(_) => "filter",
    }));
    options.push(match index.strategy {
        Strategy::Normalized => "normalized",
        Strategy::Partial(_) => "partial",
        Strategy::Full => "full",
    });
    if let Strategy::Partial([_, _, ..]) = index.strategy {
        options.push("include of several");
    }
    let fields: Vec<_> = index.key.iter().map(|field| field.name).collect();
    options.extend((index.name != fields.join("_")).then_some("named"));
    options
}

/// Whether `options` has both, or has the option twice if they are the same.
fn has_both(options: &[&str], one: &str, other: &str) -> bool {
    let count = |option| options.iter().filter(|it| **it == option).count();
    count(one) > usize::from(one == other) && count(other) > 0
}

#[test]
fn every_pair_of_options_occurs_in_an_index() {
    let indexes: Vec<_> = MODELS
        .iter()
        .flat_map(|model| model.table.indexes.iter().map(|index| options(model, index)))
        .collect();
    let all = [&FORMS[..], &OPTIONS[..]].concat();
    let pairs = all.iter().enumerate().flat_map(|(at, one)| {
        let others = all.iter().skip(if FORMS.contains(one) { at } else { at + 1 });
        others.map(move |other| (*one, *other))
    });
    let mut wrong = Vec::new();
    for (one, other) in pairs {
        let reason = IMPOSSIBLE.iter().find(|it| (it.0, it.1) == (one, other)).map(|it| it.2);
        match (reason, indexes.iter().any(|options| has_both(options, one, other))) {
            (None, false) => wrong.push(format!("no index has {one} and {other}")),
            (Some(reason), true) => {
                wrong.push(format!("an index has {one} and {other}, although {reason}"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
