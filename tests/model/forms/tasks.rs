//! Forms, conditions and strategies together, after a primary key of fixed length.

use std::{cmp::Reverse, collections::BTreeSet};

use index_table::{Error, IndexTable, ReadTxn, Result};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Model, Row};
use crate::{Open, assert_clean, fail, on_both_engines, pairs, text};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[table(view)]
#[index(desc(title))]
#[index(computed(stem: String))]
#[index(rank, sparse)]
#[index(hash(note))]
#[index(desc(rank), title)]
#[index(title, filter = is_open, name = "open_title")]
#[index(slug, unique, sparse)]
#[index(code, unique, filter = is_open, name = "open_code")]
#[index(desc(rank), computed(stem: String), sparse, filter = is_open, include = [note], name = "ranked")]
#[index(desc(rank), each(labels), computed(stem: String), sparse, filter = is_open, strategy = "full", name = "labelled")]
#[index(each(claims), desc(rank), unique, sparse, filter = is_open, include = [note, claims], name = "claimed")]
#[index(computed(token: Option<u8>), desc(rank), unique, sparse, strategy = "full", name = "tokens")]
struct Task {
    #[primary_key]
    id: u16,
    title: String,
    rank: Option<i8>,
    open: bool,
    labels: Vec<Option<String>>,
    claims: Vec<u8>,
    slug: Option<String>,
    code: u8,
    note: String,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::with_view::<Task>();

impl Task {
    fn stem(&self) -> String {
        self.title.chars().take(1).collect()
    }

    fn token(&self) -> Option<u8> {
        (!self.code.is_multiple_of(3)).then_some(self.code / 2)
    }

    fn is_open(&self) -> bool {
        self.open
    }
}

impl Row for Task {
    type Id = u16;

    fn id(&self) -> u16 {
        self.id
    }
}

/// The keys of a task in the indexes of several fields, forms or conditions, in the order of the index.
impl Task {
    fn ranked(&self) -> Vec<(Reverse<i8>, String)> {
        let rank = self.rank.filter(|_| self.open);
        rank.map(|rank| (Reverse(rank), self.stem())).into_iter().collect()
    }

    fn labelled(&self) -> Vec<(Reverse<i8>, String, String)> {
        let Some(rank) = self.rank.filter(|_| self.open) else { return Vec::new() };
        let labels = self.labels.iter().flatten();
        labels.map(|label| (Reverse(rank), label.clone(), self.stem())).collect()
    }

    fn claimed(&self) -> Vec<(u8, Reverse<i8>)> {
        let Some(rank) = self.rank.filter(|_| self.open) else { return Vec::new() };
        self.claims.iter().map(|claim| (*claim, Reverse(rank))).collect()
    }

    fn tokens(&self) -> Vec<(u8, Reverse<i8>)> {
        self.token()
            .zip(self.rank)
            .map(|(token, rank)| (token, Reverse(rank)))
            .into_iter()
            .collect()
    }

    fn open_code(&self) -> Vec<u8> {
        self.open.then_some(self.code).into_iter().collect()
    }

    fn slugs(&self) -> Vec<String> {
        self.slug.clone().into_iter().collect()
    }

    /// Returns the values that no other task may have.
    fn taken(&self) -> BTreeSet<String> {
        let slugs = self.slugs().into_iter().map(|key| format!("slug {key}"));
        let codes = self.open_code().into_iter().map(|key| format!("code {key}"));
        let claims = self.claimed().into_iter().map(|key| format!("claimed {key:?}"));
        let tokens = self.tokens().into_iter().map(|key| format!("tokens {key:?}"));
        slugs.chain(codes).chain(claims).chain(tokens).collect()
    }
}

/// Whether `task` can replace the task with its id.
fn is_free(model: &Model<Task>, task: &Task) -> bool {
    let taken = task.taken();
    model
        .values()
        .filter(|other| other.id != task.id)
        .all(|other| other.taken().is_disjoint(&taken))
}

fn rank() -> impl Strategy<Value = Option<i8>> {
    prop::option::of(prop::sample::select(vec![i8::MIN, -1, 0, 1, i8::MAX]))
}

fn task() -> impl Strategy<Value = Task> {
    let labels = prop::collection::vec(prop::option::of(text()), 0..4);
    let claims = prop::collection::vec(any::<u8>(), 0..3);
    let slug = prop::option::weighted(0.3, text());
    ((0..25_u16, any::<u8>(), any::<bool>()), (text(), text()), rank(), labels, claims, slug)
        .prop_map(|((id, code, open), (title, note), rank, labels, claims, slug)| Task {
            id,
            title,
            rank,
            open,
            labels,
            claims,
            slug,
            code,
            note,
        })
}

fn compare(
    tasks: &TaskRepository,
    txn: &ReadTxn<'_>,
    m: &Model<Task>,
) -> Result<(), TestCaseError> {
    macro_rules! assert_query {
        ($scan:expr, $keys:expr, $keep:expr) => {
            super::assert_query(m, || $scan, |scan| scan.keys().collect(), $keys, $keep)?
        };
    }
    assert_query!(tasks.by_title(txn), |t| vec![Reverse(t.title.clone())], |_| true);
    assert_query!(tasks.by_stem(txn), |t| vec![t.stem()], |_| true);
    assert_query!(tasks.by_rank(txn), |t| Vec::from_iter(t.rank), |_| true);
    assert_query!(tasks.by_rank_title(txn), |t| vec![(Reverse(t.rank), t.title.clone())], |_| true);
    let open_title = |t: &Task| Vec::from_iter(t.open.then(|| t.title.clone()));
    assert_query!(tasks.by_open_title(txn), open_title, |_| true);
    assert_query!(tasks.by_slug(txn), Task::slugs, |_| true);
    assert_query!(tasks.by_open_code(txn), Task::open_code, |_| true);
    assert_query!(tasks.by_ranked(txn), Task::ranked, |_| true);
    assert_query!(tasks.by_labelled(txn), Task::labelled, |_| true);
    assert_query!(tasks.by_claimed(txn), Task::claimed, |_| true);
    assert_query!(tasks.by_tokens(txn), Task::tokens, |_| true);

    assert_query!(tasks.find_by_rank(txn, 0), |t| Vec::from_iter(t.rank), |rank| *rank == 0);
    assert_query!(tasks.find_by_rank_range(txn, ..=0), |t| Vec::from_iter(t.rank), |rank| *rank
        <= 0);
    assert_query!(tasks.find_by_open_code_range(txn, 50..200), Task::open_code, |code| (50..200)
        .contains(code));
    assert_query!(
        tasks.find_by_claimed_claims_range(txn, ..=99),
        Task::claimed,
        |(claim, _)| *claim <= 99
    );
    for part in ["", "a", "a\0", "\u{1}", "b"] {
        let title = |t: &Task| vec![Reverse(t.title.clone())];
        assert_query!(tasks.find_by_title(txn, part), title, |t| t.0 == part);
        assert_query!(tasks.find_by_title_range(txn, part..), title, |t| t.0.as_str() >= part);
        assert_query!(tasks.find_by_title_range(txn, ..part), title, |t| t.0.as_str() < part);
        assert_query!(tasks.find_by_title_range(txn, part.."b"), title, |t| {
            part <= t.0.as_str() && t.0.as_str() < "b"
        });
        assert_query!(tasks.find_by_title_starting_with(txn, part), title, |t| t
            .0
            .starts_with(part));
        assert_query!(tasks.find_by_stem_starting_with(txn, part), |t| vec![t.stem()], |s| {
            s.starts_with(part)
        });
        assert_query!(tasks.find_by_open_title(txn, part), open_title, |title| title == part);
        assert_query!(tasks.find_by_ranked(txn, 1, part), Task::ranked, |(rank, stem)| {
            rank.0 == 1 && stem == part
        });
        assert_query!(tasks.find_by_labelled_rank_labels(txn, 0, part), Task::labelled, |key| {
            key.0.0 == 0 && key.1 == part
        });
        assert_query!(tasks.find_by_note(txn, part), |t| vec![t.note == part], |is| *is);
        assert_query!(tasks.find_by_slug(txn, part), Task::slugs, |slug| slug == part);
        assert_query!(tasks.find_by_slug_starting_with(txn, part), Task::slugs, |s| s
            .starts_with(part));
        let expected = m.values().find(|task| task.slug.as_deref() == Some(part));
        prop_assert_eq!(tasks.get_by_slug(txn, part).map_err(fail)?, expected.cloned());
    }
    for rank in [i8::MIN, 0, i8::MAX] {
        let key = |t: &Task| vec![(Reverse(t.rank), t.title.clone())];
        assert_query!(tasks.find_by_rank_title_range(txn, Some(rank), "a"..), key, |(r, title)| {
            r.0 == Some(rank) && title.as_str() >= "a"
        });
        assert_query!(
            tasks.find_by_tokens_token_range(txn, 20..),
            Task::tokens,
            |(token, _)| *token >= 20
        );
        assert_query!(tasks.find_by_tokens_range(txn, 30, ..rank), Task::tokens, |key| {
            key.0 == 30 && key.1.0 < rank
        });
    }
    entries(tasks, txn, m)?;
    assert_clean(tasks.verify(txn))
}

/// Compares the fields of the entries with the rows.
fn entries(
    tasks: &TaskRepository,
    txn: &ReadTxn<'_>,
    m: &Model<Task>,
) -> Result<(), TestCaseError> {
    for entry in tasks.by_title(txn).entries() {
        let entry = entry.map_err(fail)?;
        prop_assert_eq!(&entry.title, &m[&entry.id].title);
    }
    for entry in tasks.by_ranked(txn).entries() {
        let entry = entry.map_err(fail)?;
        let task = &m[&entry.id];
        prop_assert_eq!((entry.rank, entry.stem.to_owned()), (task.rank, task.stem()));
        prop_assert_eq!(entry.note, &task.note);
    }
    for entry in tasks.by_labelled(txn).entries() {
        let entry = entry.map_err(fail)?;
        let task = &m[&entry.id];
        prop_assert!(task.labels.iter().any(|label| label.as_deref() == entry.labels));
        prop_assert_eq!(entry.stem, task.stem());
        prop_assert_eq!((entry.rank, &entry.all_labels), (task.rank, &task.labels));
        prop_assert_eq!((entry.slug, entry.note), (task.slug.as_deref(), task.note.as_str()));
    }
    for entry in tasks.by_claimed(txn).entries() {
        let entry = entry.map_err(fail)?;
        let task = &m[&entry.id];
        prop_assert!(task.claims.contains(&entry.claims));
        prop_assert_eq!((entry.rank, entry.note), (task.rank, task.note.as_str()));
        prop_assert_eq!(entry.all_claims, task.claims.as_slice());
    }
    for entry in tasks.by_tokens(txn).entries() {
        let entry = entry.map_err(fail)?;
        let task = &m[&entry.id];
        prop_assert_eq!((entry.token, entry.title), (task.token(), task.title.as_str()));
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Operation {
    Put(Task),
    /// Adds a row to the filtered indexes, or removes it.
    Toggle(u16),
    /// Adds a row to the sparse indexes, or removes it.
    Rank(u16, Option<i8>),
    Slug(u16, Option<String>),
    Delete(u16),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => task().prop_map(Operation::Put),
        3 => (0..25_u16).prop_map(Operation::Toggle),
        3 => (0..25_u16, rank()).prop_map(|(id, rank)| Operation::Rank(id, rank)),
        1 => (0..25_u16, prop::option::of(text())).prop_map(|(id, slug)| Operation::Slug(id, slug)),
        1 => (0..25_u16).prop_map(Operation::Delete),
    ]
}

/// Closes the store after each batch, and opens it again.
fn run(open: Open<'_>, batches: &[Vec<Operation>]) -> Result<(), TestCaseError> {
    let mut model = Model::<Task>::new();
    for batch in batches {
        let store = open()?;
        let tasks = TaskRepository::open(&store).map_err(fail)?;
        compare(&tasks, &store.read().map_err(fail)?, &model)?;
        let mut txn = store.write().map_err(fail)?;
        for operation in batch {
            let mut changed = None;
            let outcome = match operation {
                Operation::Put(task) => {
                    changed = Some(task.clone());
                    tasks.put(&mut txn, task)
                }
                Operation::Delete(id) => {
                    let deleted = tasks.delete(&mut txn, *id).map_err(fail)?;
                    prop_assert_eq!(deleted, model.remove(id).is_some());
                    Ok(())
                }
                Operation::Toggle(id) | Operation::Rank(id, _) | Operation::Slug(id, _) => {
                    let change = |task: &mut Task| match operation {
                        Operation::Rank(_, rank) => task.rank = *rank,
                        Operation::Slug(_, slug) => task.slug.clone_from(slug),
                        _ => task.open = !task.open,
                    };
                    changed = model.get(id).cloned();
                    if let Some(task) = &mut changed {
                        change(task);
                    }
                    tasks.update(&mut txn, *id, change).map(drop)
                }
            };
            match (outcome, changed) {
                (Ok(()), None) => {}
                (Ok(()), Some(task)) => {
                    prop_assert!(is_free(&model, &task), "{task:?}");
                    model.insert(task.id, task);
                }
                (Err(Error::UniqueViolation { .. }), Some(task)) => {
                    prop_assert!(!is_free(&model, &task), "{task:?}");
                }
                (Err(error), _) => return Err(fail(error)),
            }
        }
        compare(&tasks, &txn, &model)?;
        txn.commit().map_err(fail)?;
        compare(&tasks, &store.read().map_err(fail)?, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(48)))]

    #[test]
    fn filtered_and_sparse_indexes_match_the_model(
        batches in prop::collection::vec(prop::collection::vec(operation(), 1..40), 1..4),
    ) {
        on_both_engines(|open| run(open, &batches))?;
    }
}
