//! `#[aggregate(FIELDS, sum = [FIELDS])]`.

use proc_macro2::{Group, Span};
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Attribute, Ident, LitStr, Meta, Token, token};

use super::keys::{self, AGGREGATE_KEYS, AggregateKey};
use super::{Setting, equals, fields, for_each_item, set, skip_row, string, word};
use crate::diagnostics::Diagnostics;
use crate::types::{shown, text};

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
    pub(crate) consistency: Option<Setting<LitStr>>,
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
            consistency: None,
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
            let message = match keys::find(AGGREGATE_KEYS, &name) {
                Some(key) => {
                    let fields =
                        input.fork().parse::<Group>().map(|group| shown(&text(group.stream())));
                    let fields = fields.unwrap_or_else(|_| "field".to_owned());
                    format!("this is written `{}`", key.usage.replace("field", &fields))
                }
                None => "an aggregate groups rows by fields, in no other form".to_owned(),
            };
            return Err(syn::Error::new(word.span(), message));
        }
        if !input.peek(Token![=]) {
            let fields = [&self.sum, &self.min, &self.max];
            if fields.iter().any(|it| it.is_some()) || self.consistency.is_some() {
                errors.error(word.span(), "the fields of the group come before the options");
            }
            self.group.push(word);
            return Ok(());
        }
        let Some(key) = keys::find(AGGREGATE_KEYS, &name) else {
            return Err(syn::Error::new(word.span(), keys::unknown_in_aggregate(&name)));
        };
        equals(input, &word, key.usage)?;
        let (slot, what) = match key.id {
            AggregateKey::Sum => (&mut self.sum, "a summed item"),
            AggregateKey::Min => (&mut self.min, "a compared item"),
            AggregateKey::Max => (&mut self.max, "a compared item"),
            AggregateKey::Consistency => {
                let value = string(input, &word, key.usage)?;
                return set(&mut self.consistency, &word, value);
            }
        };
        set(slot, &word, fields(input, key.usage, what)?)
    }
}
