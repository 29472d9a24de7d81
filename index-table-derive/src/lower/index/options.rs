//! The options of `#[index(…)]`, each with its rules.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Ident, LitStr};

use super::Scope;
use super::include::included;
use crate::attr::index::IndexAttr;
use crate::attr::keys::{
    CONSISTENCIES, EVENTUAL, FULL, GLOBAL, LOCAL, NORMALIZED, PARTIAL, SCOPES, STRATEGIES, STRONG,
};
use crate::diagnostics::{Diagnostics, listed, suggestion};
use crate::lower::{LONGEST_NAME, too_long};
use crate::model::{KeyPart, NEVER_ABSENT, Strategy};
use crate::names;

/// Returns the strategy of the options. If they are invalid, the index still includes the fields that it can.
pub(super) fn strategy(
    scope: &Scope<'_>,
    attribute: &IndexAttr,
    parts: &[KeyPart],
    meant: Option<&str>,
) -> Strategy {
    let errors = scope.errors;
    let included = attribute.include.as_ref().map(|include| {
        if include.value.is_empty() {
            errors
                .error(include.key, "this list is empty; name the fields to include, or remove it");
        }
        included(scope, &include.value, parts)
    });
    let carrying = match included {
        Some(fields) if !fields.is_empty() => Strategy::Partial(fields),
        _ => Strategy::Normalized,
    };
    let Some(given) = &attribute.strategy else {
        // The single word has been reported.
        return if meant == Some(FULL) { Strategy::Full } else { carrying };
    };

    let word = given.value.value();
    match (word.as_str(), &attribute.include) {
        (NORMALIZED | FULL, Some(include)) => {
            let reason =
                if word == FULL { "carries the whole row anyway" } else { "carries no fields" };
            errors.error(
                include.key,
                format!(
                    "a {word} index {reason}; fields are included with `strategy = \"{PARTIAL}\"`"
                ),
            );
            if word == FULL { Strategy::Full } else { carrying }
        }
        (PARTIAL, None) => {
            errors.error(
                given.value.span(),
                "a partial index needs the fields to carry: add `include = [field]`",
            );
            carrying
        }
        (FULL, None) => Strategy::Full,
        (NORMALIZED | PARTIAL, _) => carrying,
        _ => {
            let meant = unknown("strategy", &given.value, STRATEGIES, errors);
            if meant == Some(FULL) { Strategy::Full } else { carrying }
        }
    }
}

/// Whether the index is eventual. A `unique` index can't be eventual, because it has to reject a row during
/// the write.
pub(super) fn is_eventual(
    attribute: &IndexAttr,
    meant_unique: bool,
    meant: Option<&str>,
    errors: &Diagnostics,
) -> bool {
    let Some(given) = &attribute.consistency else {
        return meant == Some(EVENTUAL) && attribute.unique.is_none() && !meant_unique;
    };
    let (word, span) = (given.value.value(), given.value.span());
    let eventual = is_eventual_word(&given.value, errors);
    let unique = attribute.unique.is_some();
    if unique && word == EVENTUAL {
        errors.error(
            span,
            "a unique index refuses a second row during the write, and an eventual index is not \
             read then; remove one of the two",
        );
    }
    eventual && !unique && !meant_unique
}

/// Whether the value of `consistency` is `"eventual"`.
pub(in crate::lower) fn is_eventual_word(given: &LitStr, errors: &Diagnostics) -> bool {
    match given.value().as_str() {
        STRONG => false,
        EVENTUAL => true,
        _ => unknown("consistency", given, CONSISTENCIES, errors) == Some(EVENTUAL),
    }
}

/// Returns the span of `scope`, if the index is global. `meant` is a single word that has been reported.
pub(super) fn global(
    attribute: &IndexAttr,
    meant: Option<&str>,
    errors: &Diagnostics,
) -> Option<Span> {
    let Some(given) = &attribute.scope else {
        return (meant == Some(GLOBAL)).then_some(attribute.span);
    };
    let is_global = match given.value.value().as_str() {
        LOCAL => false,
        GLOBAL => true,
        _ => unknown("scope", &given.value, SCOPES, errors) == Some(GLOBAL),
    };
    is_global.then_some(given.key)
}

/// Returns the span of `sparse`, if it has an effect. If the spelling of the types doesn't show this, the
/// compiler checks it.
pub(super) fn sparse(
    attribute: &IndexAttr,
    parts: &[KeyPart],
    certain: bool,
    errors: &Diagnostics,
) -> Option<Span> {
    let span = attribute.sparse.as_ref()?.key;
    let present = |part: &KeyPart| {
        !part.is_each() && part.key_type().is_optional().is_some_and(|optional| !optional)
    };
    if !parts.iter().all(present) {
        return Some(span);
    }
    // Missing or guessed parts give no information.
    if certain && !parts.is_empty() {
        errors.error(span, NEVER_ABSENT);
    }
    None
}

/// Requires a name for a filtered index. Without it, a query on the index would have the name of a query on
/// the whole table. If another index on the same fields were declared, the query would return other rows.
pub(super) fn filter(attribute: &IndexAttr, errors: &Diagnostics) {
    let Some(filter) = &attribute.filter else { return };
    if attribute.name.is_some() {
        return;
    }
    let method = names::plain(&filter.value);
    let name = method.strip_prefix("is_").unwrap_or(&method);
    errors.error(
        filter.key,
        format!(
            "a filtered index needs a name: its queries find only rows for which `{method}` \
             returns true, and their names must show that; add `name = \"{name}\"`"
        ),
    );
}

/// Returns the name in `name = "…"`, if it is valid.
pub(super) fn name(given: &LitStr, errors: &Diagnostics) -> Option<String> {
    let name = given.value();
    // The name becomes the end of an identifier, so a keyword is allowed.
    let is_identifier = name != "_"
        && Ident::parse_any
            .parse_str(&name)
            .is_ok_and(|ident| ident == name && ident.unraw() == name);
    if !is_identifier {
        let message = format!(
            "{name:?} is not an identifier, and the names of the methods \
                               contain it"
        );
        errors.error(given.span(), message);
    } else if name.len() > LONGEST_NAME {
        errors.error(given.span(), too_long("index", &name));
    } else {
        return Some(name);
    }
    None
}

/// Reports an unknown word. Returns the most similar known word, if there is one.
fn unknown<const N: usize>(
    what: &str,
    given: &LitStr,
    words: [&'static str; N],
    errors: &Diagnostics,
) -> Option<&'static str> {
    let word = given.value();
    let meant = suggestion(&word, words);
    let advice = match meant {
        Some(meant) => format!("did you mean `\"{meant}\"`?"),
        None => format!("there are {}", listed(words)),
    };
    errors.error(given.span(), format!("there is no {what} `{word}`; {advice}"));
    meant
}
