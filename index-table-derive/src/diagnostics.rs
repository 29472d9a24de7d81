//! Collects the errors of one expansion, so that all of them are reported at once.

use std::cell::RefCell;
use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens;
use syn::Error;

/// The errors found so far. Every stage has a shared reference to it.
///
/// It must be consumed by [`Diagnostics::finish`]: dropping a collector with unread errors would hide a
/// mistake, so debug builds assert that.
pub(crate) struct Diagnostics {
    /// `None` once the errors have been taken.
    errors: RefCell<Option<Vec<Error>>>,
}

impl Diagnostics {
    pub(crate) fn new() -> Self {
        Self { errors: RefCell::new(Some(Vec::new())) }
    }

    /// Reports an error on one token.
    pub(crate) fn error(&self, span: Span, message: impl Display) {
        self.push(Error::new(span, message));
    }

    /// Reports an error on all of `tokens`: a type, a path or a list.
    pub(crate) fn error_on(&self, tokens: impl ToTokens, message: impl Display) {
        self.push(Error::new_spanned(tokens, message));
    }

    /// Reports an error of syn.
    pub(crate) fn push(&self, error: Error) {
        if let Some(errors) = self.errors.borrow_mut().as_mut() {
            errors.push(error);
        }
    }

    /// Whether no mistake has been found so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.borrow().as_ref().is_none_or(Vec::is_empty)
    }

    /// All the errors as one, or nothing if there were none.
    pub(crate) fn finish(self) -> Option<Error> {
        self.errors.take()?.into_iter().reduce(|mut all, error| {
            all.combine(error);
            all
        })
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        debug_assert!(
            std::thread::panicking() || self.errors.borrow().is_none(),
            "the collected errors were not reported"
        );
    }
}

/// The candidate that is most similar to `word`, if one is similar enough.
///
/// The rule is rustc's own: at most a third of the letters differ, where swapping two neighbours
/// counts as one difference.
pub(crate) fn suggestion<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = word.chars().count().max(3) / 3;
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `` `a`, `b` and `c` ``.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
        None => String::new(),
    }
}

/// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (the
/// optimal string alignment distance), row by row.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    // The row before `above`, needed for swaps, and its letter of `a`.
    let mut before: Vec<usize> = Vec::new();
    let mut previous_a = None;

    for (row, letter_a) in a.chars().enumerate() {
        let mut left = row + 1;
        let mut current = vec![left];
        let mut previous_b = None;
        let corners = above.iter().zip(above.iter().skip(1));
        for (column, (letter_b, (diagonal, up))) in b.iter().zip(corners).enumerate() {
            let replaced = diagonal + usize::from(letter_a != *letter_b);
            let mut distance = replaced.min(up + 1).min(left + 1);
            if previous_a == Some(*letter_b)
                && previous_b == Some(letter_a)
                && let Some(swapped) = column.checked_sub(1).and_then(|at| before.get(at))
            {
                distance = distance.min(swapped + 1);
            }
            current.push(distance);
            left = distance;
            previous_b = Some(*letter_b);
        }
        before = std::mem::replace(&mut above, current);
        previous_a = Some(letter_a);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Diagnostics, edit_distance, listed, suggestion};

    #[test]
    fn distances_count_edits() {
        assert_eq!(edit_distance("", ""), 0);
        assert_eq!(edit_distance("", "town"), 4);
        assert_eq!(edit_distance("town", ""), 4);
        assert_eq!(edit_distance("town", "town"), 0);
        assert_eq!(edit_distance("twon", "town"), 1);
        assert_eq!(edit_distance("tow", "town"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("größe", "grösse"), 2);
    }

    #[test]
    fn the_nearest_candidate_is_suggested() {
        let fields = ["id", "town", "last_name", "phone"];
        assert_eq!(suggestion("twon", fields), Some("town"));
        assert_eq!(suggestion("lastname", fields), Some("last_name"));
        assert_eq!(suggestion("zip", fields), None);
    }

    #[test]
    fn lists_read_as_english() {
        assert_eq!(listed([]), "");
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` and `c`");
    }

    #[test]
    #[should_panic(expected = "not reported")]
    fn unread_errors_are_noticed() {
        drop(Diagnostics::new());
    }
}
