//! The collected errors of one expansion, which are reported together.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::Error;

/// The errors found so far. All stages share a reference to this value.
///
/// It must be consumed by [`Diagnostics::finish`]. Otherwise errors would be lost, so debug builds assert
/// this.
pub(crate) struct Diagnostics {
    /// The errors; `None` after `finish`.
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

    /// Reports an error on all of `tokens`, such as a type, a path or a list.
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

    /// Returns all errors.
    pub(crate) fn finish(self) -> Reported {
        Reported(self.errors.take().unwrap_or_default().into_iter().flatten().collect())
    }
}

/// All errors, as calls of `compile_error`.
pub(crate) struct Reported(VecDeque<Error>);

impl Reported {
    /// Removes the first error.
    pub(crate) fn take_first(&mut self) -> Option<TokenStream> {
        self.0.pop_front().map(Error::into_compile_error)
    }
}

impl ToTokens for Reported {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.iter().map(Error::to_compile_error));
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

/// Returns the candidate that is most similar to `word`, if it is similar enough.
///
/// The rule is the same as in rustc: at most a third of the letters differ. A swap of two neighbours counts
/// as one difference.
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

/// Returns `` `a`, `b` and `c` ``.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
        None => String::new(),
    }
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours that convert `a` into
/// `b` (the optimal string alignment distance).
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    // The row before `above`, which swaps need, and its letter of `a`.
    let mut second_above: Vec<usize> = Vec::new();
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
                && let Some(swapped) = column.checked_sub(1).and_then(|at| second_above.get(at))
            {
                distance = distance.min(swapped + 1);
            }
            current.push(distance);
            left = distance;
            previous_b = Some(*letter_b);
        }
        second_above = std::mem::replace(&mut above, current);
        previous_a = Some(letter_a);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Diagnostics, edit_distance, listed, suggestion};

    #[test]
    fn distances_are_numbers_of_edits() {
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
    fn the_most_similar_candidate_is_suggested() {
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
    fn lost_errors_cause_a_panic() {
        drop(Diagnostics::new());
    }
}
