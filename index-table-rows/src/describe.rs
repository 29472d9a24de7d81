//! The lists of a catalog as text, for tools.

use std::fmt::Write as _;

use crate::{
    catalog::{Catalog, ROOT},
    kind::{Form, Kind},
};

/// The maximum number of lists inside of each other that a text shows.
const SHOWN: usize = 4;

/// A list of the rows themselves: see [`Catalog::row_lists`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowList {
    /// The name of the struct when the list was recorded.
    pub name: String,
    /// The fields in the order in which they are in a row; `None` for rows that are not structs, because of `flatten` or
    /// `transparent`.
    pub fields: Option<Vec<RowField>>,
}

/// A field of a [`RowList`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowField {
    /// Its name in rows.
    pub name: String,
    /// Its kind, such as `text`, `option<unsigned>` or `seq<{sku: text, count: unsigned}>`.
    pub kind: String,
    /// Whether a row of this list may lack it.
    pub absent: bool,
}

impl Catalog {
    /// Returns the lists of the rows, oldest first. A row begins with the position of its list.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table_rows::Catalog;
    /// #[derive(serde::Serialize)]
    /// struct Town {
    ///     id: u64,
    ///     names: Vec<String>,
    /// }
    ///
    /// # fn main() -> Result<(), index_table_rows::Error> {
    /// let (mut catalog, mut row) = (Catalog::new(), Vec::new());
    /// catalog.record(&Town { id: 7, names: vec!["Oslo".into()] }, &mut row)?;
    /// let lists = catalog.row_lists();
    /// let fields = lists[0].fields.as_ref().unwrap();
    /// assert_eq!((fields[1].name.as_str(), fields[1].kind.as_str()), ("names", "seq<text>"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn row_lists(&self) -> Vec<RowList> {
        let kinds = self.unions.get(ROOT as usize).map(|root| root.kinds.as_slice());
        kinds.unwrap_or_default().iter().map(|kind| self.row_list(kind)).collect()
    }

    fn row_list(&self, kind: &Kind) -> RowList {
        let Kind::Struct(list) = kind else {
            return RowList { name: self.text_of(kind), fields: None };
        };
        let list = self.list(*list).ok();
        let fields = list.iter().flat_map(|list| &list.fields).map(|field| RowField {
            name: field.name.text().to_owned(),
            kind: self.text_of(&field.kind),
            absent: field.absent,
        });
        let name = list.map(|list| list.name.text().to_owned()).unwrap_or_default();
        RowList { name, fields: Some(fields.collect()) }
    }

    fn text_of(&self, kind: &Kind) -> String {
        let mut text = String::new();
        self.show(kind, SHOWN, &mut text);
        text
    }

    fn show(&self, kind: &Kind, depth: usize, text: &mut String) {
        let simple = match kind {
            Kind::Hole => "none",
            Kind::U8 => "u8",
            Kind::I8 => "i8",
            Kind::Unsigned => "unsigned",
            Kind::Signed => "signed",
            Kind::U128 => "u128",
            Kind::I128 => "i128",
            Kind::F32 => "f32",
            Kind::F64 => "f64",
            Kind::Bool => "bool",
            Kind::Char => "char",
            Kind::Text => "text",
            Kind::Bytes | Kind::Bytes16 => "bytes",
            Kind::Unit => "unit",
            Kind::Any => "any",
            _ if depth == 0 => "…",
            _ => return self.show_container(kind, depth - 1, text),
        };
        text.push_str(simple);
    }

    fn show_container(&self, kind: &Kind, depth: usize, text: &mut String) {
        let mut enclosed = |before: &str, inner: &Kind| {
            text.push_str(before);
            self.show(inner, depth, text);
            text.push('>');
        };
        match kind {
            Kind::Option(inner) => enclosed("option<", inner),
            Kind::Seq(inner) => enclosed("seq<", inner),
            Kind::Array(len, inner) => enclosed(&format!("array<{len}, "), inner),
            Kind::Map(kinds) => {
                enclosed("map<", &kinds.0);
                text.pop();
                text.push_str(", ");
                self.show(&kinds.1, depth, text);
                text.push('>');
            }
            Kind::Struct(list) | Kind::Tuple(list) => {
                let is_struct = matches!(kind, Kind::Struct(_));
                text.push(if is_struct { '{' } else { '(' });
                let fields = self.list(*list).ok().map(|list| list.fields.as_slice());
                for (at, field) in fields.unwrap_or_default().iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { ", " });
                    if is_struct {
                        // Writing to a text can't fail.
                        let _ = write!(text, "{}: ", field.name.text());
                    }
                    self.show(&field.kind, depth, text);
                }
                text.push(if is_struct { '}' } else { ')' });
            }
            Kind::Enum(number) => {
                let variants = self.enumeration(*number).ok().map(|it| it.variants.as_slice());
                text.push_str("enum<");
                let current = variants.unwrap_or_default().iter().filter(|it| it.current);
                for (at, variant) in current.enumerate() {
                    text.push_str(if at == 0 { "" } else { " | " });
                    text.push_str(variant.name.text());
                    if variant.form != Form::Unit {
                        text.push(' ');
                        self.show(&variant.payload, depth, text);
                    }
                }
                text.push('>');
            }
            Kind::Union(number) => {
                text.push_str("union<");
                let kinds = self.union(*number).ok().map(|it| it.kinds.as_slice());
                for (at, kind) in kinds.unwrap_or_default().iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { " | " });
                    self.show(kind, depth, text);
                }
                text.push('>');
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    enum State {
        Open,
        Closed(u32),
    }

    #[derive(Serialize)]
    struct Line {
        sku: &'static str,
        count: (u8, f64),
    }

    #[derive(Serialize)]
    struct Order {
        state: State,
        lines: Vec<Line>,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<bool>,
    }

    #[test]
    fn the_lists_of_rows_are_shown_with_nested_kinds() {
        let (mut catalog, mut row) = (Catalog::new(), Vec::new());
        let order =
            |state, note| Order { state, lines: vec![Line { sku: "a", count: (1, 0.5) }], note };
        catalog.record(&order(State::Open, Some(true)), &mut row).unwrap();
        catalog.record(&order(State::Closed(3), None), &mut row).unwrap();
        let lists = catalog.row_lists();
        let last: Vec<_> = lists
            .last()
            .and_then(|list| list.fields.as_ref())
            .into_iter()
            .flatten()
            .map(|field| (field.name.as_str(), field.kind.as_str(), field.absent))
            .collect();
        assert_eq!(
            last,
            [
                ("state", "enum<Open | Closed unsigned>", false),
                ("lines", "seq<{sku: text, count: (u8, f64)}>", false),
                ("note", "option<bool>", true),
            ]
        );
        assert_eq!(lists[0].name, "Order");
    }
}
