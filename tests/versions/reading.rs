//! Every kind of query on a table with rows of three versions.

use crate::{
    Customer, Customers2, TestResult, customer2, expected, fill, is_clean, on_both_engines, store,
};

const ROWS: u32 = 60;

fn ids<'a>(rows: impl IntoIterator<Item = &'a Customer>) -> Vec<u32> {
    rows.into_iter().map(|row| row.id).collect()
}

#[test]
fn rows_are_returned_in_the_current_version() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, ROWS)?;
        let (txn, expected) = (store.read()?, expected(ROWS));
        assert_eq!(customers.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, expected);
        let many = customers.get_many(&txn, 0..=ROWS).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(many, expected.iter().cloned().map(Some).chain([None]).collect::<Vec<_>>());
        for row in &expected {
            assert_eq!(customers.get(&txn, row.id)?.as_ref(), Some(row));
            assert_eq!(customers.get_by_email(&txn, &row.email)?.as_ref(), Some(row));
            assert_eq!(customers.get_by_once(&txn, &row.url)?.as_ref(), Some(row));
            let linked = customers.find_by_linked(&txn, &row.url);
            assert_eq!(linked.rows().collect::<Result<Vec<_>, _>>()?, std::slice::from_ref(row));
        }
        let page = customers.by_last_name(&txn).page(25)?;
        let next =
            customers.by_last_name(&txn).after(&page.next.ok_or("there is more")?).page(99)?;
        let found = [page.items, next.items].concat();
        let mut sorted = expected.clone();
        sorted.sort_by(|a, b| (&a.last_name, a.id).cmp(&(&b.last_name, b.id)));
        assert_eq!(found, sorted);
        let romans: Vec<_> = expected.iter().filter(|row| row.town == "Rome").cloned().collect();
        let found = customers.find_by_town(&txn, "Rome").rows();
        assert_eq!(found.collect::<Result<Vec<_>, _>>()?, romans);
        let both = customers.find_by_town(&txn, "Rome").and(customers.find_by_initials(&txn, "AL"));
        let named = romans.iter().filter(|row| row.initials() == "AL").cloned();
        assert_eq!(both.rows().collect::<Result<Vec<_>, _>>()?, named.collect::<Vec<_>>());
        is_clean(&customers, store)
    })
}

#[test]
fn indexes_have_the_keys_of_converted_rows() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, ROWS)?;
        let (txn, expected) = (store.read()?, expected(ROWS));
        let tagged = customers.find_by_tags(&txn, "old").entries();
        let tagged: Vec<_> =
            tagged.map(|entry| entry.map(|it| (it.id, it.town))).collect::<Result<_, _>>()?;
        assert_eq!(tagged, expected.iter().map(|row| (row.id, &*row.town)).collect::<Vec<_>>());
        for entry in customers.by_town_last_name(&txn).entries() {
            let entry = entry?;
            assert_eq!(entry.phone, expected[entry.id as usize].phone.as_deref());
        }
        let nicked = customers.by_nicked(&txn).keys().collect::<Result<Vec<_>, _>>()?;
        let mut with: Vec<_> = expected.iter().filter(|row| row.nick.is_some()).collect();
        with.sort_by(|a, b| (&a.nick, a.id).cmp(&(&b.nick, b.id)));
        assert_eq!(nicked, ids(with));
        let adults = customers.by_adults(&txn).rows().collect::<Result<Vec<_>, _>>()?;
        assert!(adults.is_sorted_by_key(|row| std::cmp::Reverse(row.age)));
        assert_eq!(adults.len(), expected.iter().filter(|row| row.is_adult()).count());
        assert_eq!(customers.distinct_initials(&txn).values().count(), 9);
        Ok(())
    })
}

/// Entries of a full index have the row, borrowed from the entry or from the converted row.
#[test]
fn full_entries_and_views_are_of_the_converted_rows() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, ROWS)?;
        let (txn, expected) = (store.read()?, expected(ROWS));
        // All entries exist at the same time: converted rows live as long as the transaction.
        let entries = customers.by_last_name(&txn).entries().collect::<Result<Vec<_>, _>>()?;
        let more = customers.by_linked(&txn).entries().collect::<Result<Vec<_>, _>>()?;
        assert_eq!((entries.len(), more.len()), (expected.len(), expected.len()));
        for entry in &entries {
            let row = &expected[entry.id as usize];
            assert_eq!(entry.tags, row.tags);
            assert_eq!((entry.first_name, entry.last_name), (&*row.first_name, &*row.last_name));
            assert_eq!((entry.age, entry.email, entry.url), (row.age, &*row.email, &*row.url));
            assert_eq!((entry.phone, entry.nick), (row.phone.as_deref(), row.nick.as_deref()));
        }
        let row = &expected[7];
        let found = customers.find_by_linked(&txn, &row.url).entries().next();
        assert_eq!(found.ok_or("none")??.email, row.email);

        let views = [
            customers.all(&txn).views().collect::<Result<Vec<_>, _>>()?,
            customers.get_many(&txn, 0..ROWS).views().flatten().flatten().collect(),
            customers.all(&txn).or(customers.all(&txn)).views().collect::<Result<_, _>>()?,
            (0..ROWS).filter_map(|id| customers.get_view(&txn, id).ok().flatten()).collect(),
            (0..ROWS)
                .filter_map(|id| {
                    customers.get_view_by_email(&txn, &format!("{id}@x")).ok().flatten()
                })
                .collect(),
        ];
        for views in &views {
            assert_eq!(views.len(), expected.len());
            for (view, row) in views.iter().zip(&expected) {
                assert_eq!((view.id, view.age, &view.tags), (row.id, row.age, &row.tags));
                assert_eq!(
                    (view.email, view.phone, view.nick),
                    (&*row.email, row.phone.as_deref(), row.nick.as_deref())
                );
                assert_eq!(
                    (view.town, view.url, view.last_name),
                    (&*row.town, &*row.url, &*row.last_name)
                );
            }
        }
        Ok(())
    })
}

/// The second release reads rows of the first release, whose struct is a table too.
#[test]
fn a_table_can_be_the_previous_version() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = store(dir.path())?;
    crate::fill_older(&store, ROWS)?;
    let customers = Customers2::open(&store)?;
    let txn = store.read()?;
    let found = customers.by_last_name(&txn).rows().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(found.len(), 40);
    for row in found {
        let written = customer2(row.id);
        let phone =
            if crate::version_of(row.id) == 1 { String::new() } else { written.phone.clone() };
        assert_eq!(row, crate::Customer2 { phone, ..written });
    }
    Ok(())
}
