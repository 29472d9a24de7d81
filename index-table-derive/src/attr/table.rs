//! `#[table(name = "…", version = N, previous = Type, changed = [FIELDS], repository = Ident,
//! view = Ident, allow(LINTS), crate = path)]`

use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Attribute, Ident, LitInt, LitStr, Path, Token, token};

use super::index::lints;
use super::keys::{self, Form, Lint, TABLE_KEYS, TABLE_LINTS, TableKey};
use super::{Setting, equals, fields, for_each_item, set, string, value, word};
use crate::diagnostics::Diagnostics;

/// What `#[table(…)]` says. Several of them on one struct add up.
#[derive(Default)]
pub(crate) struct TableAttr {
    pub(crate) name: Option<Setting<LitStr>>,
    pub(crate) version: Option<Setting<LitInt>>,
    pub(crate) previous: Option<Setting<Path>>,
    pub(crate) changed: Option<Setting<Vec<Ident>>>,
    pub(crate) repository: Option<Setting<Ident>>,
    /// With its name, if it is given.
    pub(crate) view: Option<Setting<Option<Ident>>>,
    pub(crate) krate: Option<Setting<Path>>,
    pub(crate) allow: Option<Setting<Vec<Lint>>>,
    /// The primary key is named here, which has been reported.
    pub(crate) primary_key: bool,
}

/// What a name is written as.
const IDENTIFIER: &str = "an identifier without quotes";

impl TableAttr {
    pub(super) fn read(&mut self, attribute: &Attribute, errors: &Diagnostics) {
        for_each_item(attribute, "#[table(name = \"…\")]", errors, |input| {
            self.item(input, errors)
        });
    }

    fn item(&mut self, input: ParseStream<'_>, errors: &Diagnostics) -> syn::Result<()> {
        if let Ok(name) = input.fork().parse::<LitStr>() {
            return Err(input.error(keys::name_of_table(&name.value())));
        }
        let word = word(input, "an option of the table")?;
        let Some(key) = keys::find(TABLE_KEYS, &word.unraw().to_string()) else {
            let name = word.unraw().to_string();
            self.primary_key |= name == "primary_key";
            let alone = input.is_empty() || input.peek(Token![,]);
            return Err(syn::Error::new(word.span(), keys::unknown_in_table(&name, alone)));
        };
        if key.form == Form::Value {
            equals(input, &word, key.usage)?;
        }
        match key.id {
            TableKey::Name => set(&mut self.name, &word, string(input, &word, key.usage)?),
            TableKey::Version => {
                let version = value(input, "a whole number from 1 on", key.usage)?;
                set(&mut self.version, &word, version)
            }
            TableKey::Previous => {
                let previous = path(input, "the name of a struct", key.usage)?;
                set(&mut self.previous, &word, previous)
            }
            TableKey::Changed => {
                let changed = fields(input, key.usage, "what `From` changes")?;
                set(&mut self.changed, &word, changed)
            }
            TableKey::Repository => {
                let repository = value(input, IDENTIFIER, key.usage)?;
                set(&mut self.repository, &word, repository)
            }
            TableKey::View => self.view(input, &word, key.usage),
            TableKey::Allow if input.peek(token::Paren) => {
                set(&mut self.allow, &word, lints(input, TABLE_LINTS, errors)?)
            }
            TableKey::Allow => {
                let message = format!("this is written `{}`", key.usage);
                Err(syn::Error::new(word.span(), message))
            }
            TableKey::Crate => {
                let krate = path(input, "a path", key.usage)?;
                set(&mut self.krate, &word, krate)
            }
        }
    }

    /// `view` or `view = CustomerView`
    fn view(&mut self, input: ParseStream<'_>, word: &Ident, usage: &str) -> syn::Result<()> {
        if !input.peek(Token![=]) {
            return set(&mut self.view, word, None);
        }
        match equals(input, word, usage).and_then(|()| value(input, IDENTIFIER, usage)) {
            Ok(name) => set(&mut self.view, word, Some(name)),
            Err(error) => {
                // A view is wanted, whatever it is called.
                set(&mut self.view, word, None)?;
                Err(error)
            }
        }
    }
}

/// Reads a path, or says on the token that is there how the key is written.
fn path(input: ParseStream<'_>, what: &str, usage: &str) -> syn::Result<Path> {
    let at = input.span();
    Path::parse_mod_style(input)
        .map_err(|_| syn::Error::new(at, format!("expected {what} without quotes: `{usage}`")))
}
