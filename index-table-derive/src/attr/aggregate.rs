//! `#[aggregate(FIELDS, sum = [FIELDS])]`.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Attribute, Ident, Meta, Token, token};

use super::keys::{self, AGGREGATE_KEYS, AggregateKey};
use super::{Setting, equals, fields, for_each_item, set, skip_row, word};
use crate::diagnostics::Diagnostics;

/// The contents of one `#[aggregate(…)]`.
pub(crate) struct AggregateAttr {
    /// The word `aggregate` itself.
    pub(crate) span: Span,
    /// The fields of the group.
    pub(crate) group: Vec<Ident>,
    /// Whether a field of the group could not be parsed.
    pub(crate) incomplete: bool,
    pub(crate) sum: Option<Setting<Vec<Ident>>>,
    pub(crate) min: Option<Setting<Vec<Ident>>>,
    pub(crate) max: Option<Setting<Vec<Ident>>>,
}

const USAGE: &str = "#[aggregate(field, sum = [field])]";

impl AggregateAttr {
    pub(super) fn read(attribute: &Attribute, errors: &Diagnostics) -> Self {
        let mut aggregate = Self {
            span: attribute.path().span(),
            group: Vec::new(),
            incomplete: matches!(attribute.meta, Meta::NameValue(_)),
            sum: None,
            min: None,
            max: None,
        };
        for_each_item(attribute, USAGE, errors, |input| aggregate.item(input, errors));
        aggregate
    }

    fn item(&mut self, input: ParseStream<'_>, errors: &Diagnostics) -> syn::Result<()> {
        skip_row(input, "field", errors)?;
        let word = word(input, "a field or an option").inspect_err(|_| self.incomplete = true)?;
        let name = word.unraw().to_string();
        if input.peek(token::Paren) {
            self.incomplete = true;
            let message = "an aggregate groups rows by fields, in no other form";
            return Err(syn::Error::new(word.span(), message));
        }
        if !input.peek(Token![=]) {
            let has_options = self.sum.is_some() || self.min.is_some() || self.max.is_some();
            if has_options {
                errors.error(word.span(), "the fields of the group come before the options");
            }
            self.group.push(word);
            return Ok(());
        }
        let Some(key) = keys::find(AGGREGATE_KEYS, &name) else {
            return Err(syn::Error::new(word.span(), keys::unknown_in_aggregate(&name)));
        };
        equals(input, &word, key.usage)?;
        let what = match key.id {
            AggregateKey::Sum => "a summed item",
            AggregateKey::Min | AggregateKey::Max => "a compared item",
        };
        let fields = fields(input, key.usage, what)?;
        let slot = match key.id {
            AggregateKey::Sum => &mut self.sum,
            AggregateKey::Min => &mut self.min,
            AggregateKey::Max => &mut self.max,
        };
        set(slot, &word, fields)
    }
}
