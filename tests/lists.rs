//! IN lists: queries for several values of one field.

#[path = "support/stores.rs"]
mod stores;

use std::{collections::BTreeSet, fmt::Debug};

use index_table::{
    ChangeKind, Desc, Error, Event, IndexEntry, IndexTable, ReadTxn, Result, Scan, Store,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use stores::Tried;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "indexes may have fields in common")]
#[table(view, shard_by = hash(country))]
#[index(town)]
#[index(town, desc(year), include = [photo])]
#[index(desc(town), name = "backwards")]
#[index(hash(url), town)]
#[index(town, hash(url), strategy = "full", name = "towns_urls")]
#[index(each(tags))]
#[index(nick, country, sparse, unique)]
#[index(score, strategy = "full", allow(doubled_full))]
#[index(photo)]
#[index(computed(decade: Desc<u16>))]
#[index(town, filter = is_new, name = "new_in")]
struct Trip {
    #[primary_key]
    country: String,
    #[primary_key]
    id: u16,
    town: String,
    year: u16,
    url: String,
    tags: Vec<u8>,
    nick: Option<String>,
    score: Option<i8>,
    photo: Vec<u8>,
}

impl Trip {
    fn decade(&self) -> Desc<u16> {
        Desc(self.year / 10)
    }

    fn is_new(&self) -> bool {
        self.year > 2004
    }
}

const TOWNS: [&str; 5] = ["Oslo", "Rome", "Rom", "Bonn", ""];

fn trip(id: u16) -> Trip {
    let at = usize::from(id);
    Trip {
        country: ["no", "it", "de"][at % 3].to_owned(),
        id,
        town: TOWNS[at % TOWNS.len()].to_owned(),
        year: 2000 + id % 7,
        url: format!("https://{}", id % 11),
        tags: vec![
            u8::try_from(id % 4).unwrap_or_default(),
            u8::try_from(id % 3).unwrap_or_default(),
        ],
        nick: (!id.is_multiple_of(2)).then(|| format!("n{id}")),
        score: (!id.is_multiple_of(5)).then(|| i8::try_from(id % 9).unwrap_or_default() - 4),
        photo: vec![0, u8::try_from(id % 5).unwrap_or_default()],
    }
}

fn fill(store: &Tried) -> Result<TripRepository> {
    let trips = TripRepository::open(store)?;
    store.fill(0..60, |txn, id| trips.insert(txn, &trip(*id)))?;
    Ok(trips)
}

/// Runs `test` on plain and on sharded stores.
fn on_all_stores(test: impl Fn(&Tried, &TripRepository) -> Result<()>) -> Result<()> {
    stores::stores("trip")?.iter().try_for_each(|store| test(store, &fill(store)?))
}

fn open() -> Result<(Store, TripRepository)> {
    let store = Store::in_memory();
    let trips = TripRepository::open(&store)?;
    store.transaction(|txn| (0..60).try_for_each(|id| trips.insert(txn, &trip(id))))?;
    Ok((store, trips))
}

/// A table with an eventual index, which a table with a shard key can't have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(year, consistency = "eventual", name = "later")]
struct Voyage {
    #[primary_key]
    id: u16,
    year: u16,
}

fn open_voyages() -> Result<(Store, VoyageRepository)> {
    let store = Store::in_memory();
    let voyages = VoyageRepository::open(&store)?;
    store.transaction(|txn| {
        (0..60).try_for_each(|id| voyages.insert(txn, &Voyage { id, year: 2000 + id % 7 }))
    })?;
    voyages.drain(&store, u64::MAX)?;
    Ok((store, voyages))
}

fn ids<'txn, E: IndexEntry<'txn, Row = Trip>>(scan: Scan<'txn, E>) -> Result<Vec<u16>> {
    scan.keys().map(|key| key.map(|(_, id)| id)).collect()
}

/// Checks that a scan returns the entries of the whole index for which `among` is true, with every method.
#[track_caller]
fn check<'txn, E>(
    scan: impl Fn() -> Scan<'txn, E>,
    whole: impl Fn() -> Scan<'txn, E>,
    among: impl Fn(&Trip) -> bool,
) -> Result<()>
where
    E: IndexEntry<'txn, Row = Trip> + Debug + PartialEq,
{
    let whole: Vec<Trip> = whole().rows().collect::<Result<_>>()?;
    let mut expected: Vec<u16> = whole.iter().filter(|trip| among(trip)).map(|it| it.id).collect();
    assert_eq!(scan().count()?, expected.len() as u64);
    assert_eq!(scan().exists()?, !expected.is_empty());
    let mut entries: Vec<E> = scan().entries().collect::<Result<_>>()?;
    for turned in [false, true] {
        let scan = || if turned { scan().rev() } else { scan() };
        assert_eq!(ids(scan())?, expected);
        assert!(scan().entries().collect::<Result<Vec<_>>>()? == entries);
        let rows: Vec<Trip> = scan().rows().collect::<Result<_>>()?;
        assert!(rows.iter().map(|row| row.id).eq(expected.iter().copied()));
        let views = scan().views().map(|view| view.map(|view| view.id));
        assert_eq!(views.collect::<Result<Vec<_>>>()?, expected);
        assert_eq!(scan().first()?.map(|row| row.id), expected.first().copied());
        for limit in [0, 1, 2, 7] {
            let some = &expected[..expected.len().min(limit)];
            assert_eq!(ids(scan().limit(limit))?, some);
            assert_eq!(scan().limit(limit).count()?, some.len() as u64);
        }
        for size in [1, 3, 100] {
            let (mut paged, mut next) = (Vec::new(), None);
            loop {
                let scan = match &next {
                    Some(cursor) => {
                        let rest = scan().after(cursor).count()?;
                        assert_eq!(rest, (expected.len() - paged.len()) as u64);
                        scan().after(cursor)
                    }
                    None => scan(),
                };
                let page = scan.page(size)?;
                paged.extend(page.items.iter().map(|row| row.id));
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
            assert_eq!(paged, expected);
        }
        expected.reverse();
        entries.reverse();
    }
    Ok(())
}

#[test]
fn each_index_is_searched_for_a_list_of_values() -> Result<()> {
    on_all_stores(search_each_index)
}

fn search_each_index(store: &Tried, trips: &TripRepository) -> Result<()> {
    let txn = &store.read()?;
    let towns = ["Rome", "Oslo", "nowhere", "Rome", "Rom"];
    let in_towns = |trip: &Trip| towns.contains(&trip.town.as_str());
    check(|| trips.find_by_town_in(txn, towns), || trips.by_town(txn), in_towns)?;
    check(|| trips.find_by_backwards_in(txn, towns), || trips.by_backwards(txn), in_towns)?;
    check(|| trips.find_by_new_in_in(txn, towns), || trips.by_new_in(txn), in_towns)?;
    check(
        || trips.find_by_town_year_in(txn, "Rome", [2006, 2001, 2006, 2003]),
        || trips.by_town_year(txn),
        |trip| trip.town == "Rome" && [2001, 2003, 2006].contains(&trip.year),
    )?;
    let urls = ["https://7", "https://10", "https://99", "https://1"];
    let has_url = |trip: &Trip| urls.contains(&trip.url.as_str());
    check(|| trips.find_by_url_in(txn, urls), || trips.by_url_town(txn), has_url)?;
    check(
        || trips.find_by_url_town_in(txn, "https://7", towns),
        || trips.by_url_town(txn),
        |trip| trip.url == "https://7" && in_towns(trip),
    )?;
    check(
        || trips.find_by_towns_urls_in(txn, "Oslo", urls),
        || trips.by_towns_urls(txn),
        |trip| trip.town == "Oslo" && has_url(trip),
    )?;
    check(
        || trips.find_by_nick_in(txn, ["n1", "n31", "n2"]),
        || trips.by_nick_country(txn),
        |trip| matches!(trip.id, 1 | 31),
    )?;
    check(
        || trips.find_by_score_in(txn, [Some(3), None, Some(-4)]),
        || trips.by_score(txn),
        |trip| [Some(3), None, Some(-4)].contains(&trip.score),
    )?;
    check(
        || trips.find_by_photo_in(txn, [vec![0, 3], vec![0], vec![0, 0]]),
        || trips.by_photo(txn),
        |trip| [0, 3].contains(&trip.photo[1]),
    )?;
    check(
        || trips.find_by_decade_in(txn, [201, 200]),
        || trips.by_decade(txn),
        |trip| trip.year / 10 == 200,
    )?;
    let countries = BTreeSet::from(["no".to_owned(), "de".to_owned()]);
    check(
        || trips.find_by_country_in(txn, &countries),
        || trips.all(txn),
        |trip| countries.contains(&trip.country),
    )?;
    check(
        || trips.find_by_country_id_in(txn, "no", [33, 0, 7, 33]),
        || trips.all(txn),
        |trip| [0, 33].contains(&trip.id),
    )?;
    check(|| trips.find_by_town_in(txn, [""; 0]), || trips.by_town(txn), |_| false)?;
    Ok(())
}

#[test]
fn an_element_is_found_for_each_value_that_it_has() -> Result<()> {
    on_all_stores(|store, trips| {
        let txn = store.read()?;
        let entries = trips.find_by_tags_in(&txn, [3, 2, 3]).entries();
        let found: Vec<(u8, u16)> = entries
            .map(|entry| entry.map(|entry| (entry.tags, entry.id)))
            .collect::<Result<_>>()?;
        let expected = trips.by_tags(&txn).entries();
        let expected: Vec<(u8, u16)> = expected
            .map(|entry| entry.map(|entry| (entry.tags, entry.id)))
            .collect::<Result<_>>()?;
        assert!(found.iter().eq(expected.iter().filter(|(tag, _)| [2, 3].contains(tag))));
        Ok(())
    })
}

#[test]
fn a_list_takes_one_seek_for_each_value() -> Result<()> {
    let (store, trips) = open()?;
    let txn = store.read()?;
    let mut rows = trips.find_by_town_in(&txn, ["Rome", "x", "Oslo", "Rome"]).keys();
    assert_eq!(rows.by_ref().count(), 24);
    assert_eq!((rows.stats().seeks, rows.stats().entries), (3, 24));
    let mut first = trips.find_by_town_in(&txn, ["Rome", "Bonn"]).limit(2).keys();
    assert_eq!(first.by_ref().count(), 2);
    assert_eq!(first.stats().seeks, 1, "entries after the limit were read");
    Ok(())
}

#[test]
fn a_long_list_is_searched_without_recursion() -> Result<()> {
    let (store, trips) = open()?;
    let txn = store.read()?;
    let years = 0..u16::MAX;
    assert_eq!(ids(trips.find_by_country_id_in(&txn, "no", years.clone()))?.len(), 20);
    assert_eq!(trips.find_by_country_id_in(&txn, "no", years.clone()).count()?, 20);
    let (store, voyages) = open_voyages()?;
    let txn = store.read()?;
    let all = voyages.find_by_later_in(&txn, years).verified().rows();
    assert_eq!(all.collect::<Result<Vec<_>>>()?.len(), 60);
    Ok(())
}

#[test]
fn a_cursor_belongs_to_its_list() -> Result<()> {
    on_all_stores(|store, trips| {
        let txn = store.read()?;
        let in_towns = |towns: &[&str]| trips.find_by_town_in(&txn, towns);
        let next = in_towns(&["Rome", "Oslo"]).page(1)?.next.expect("a next page");
        assert_eq!(in_towns(&["Oslo", "Rome", "Oslo"]).after(&next).count()?, 23);
        for scan in [
            in_towns(&["Oslo"]),
            in_towns(&["Oslo", "Rome", "Bonn"]),
            in_towns(&[]),
            trips.by_town(&txn),
        ] {
            assert!(matches!(scan.after(&next).count(), Err(Error::InvalidCursor { .. })));
        }
        // The cursor gets a town between two towns of the list.
        let text = next.to_string().replace(&hex("Oslo"), &hex("Paul"));
        let changed = text.parse().expect("a cursor");
        assert_ne!(changed, next);
        let result = in_towns(&["Rome", "Oslo"]).after(&changed).page(1);
        assert!(matches!(result, Err(Error::InvalidCursor { .. })), "{result:?}");
        Ok(())
    })
}

fn hex(text: &str) -> String {
    let digits = |byte: u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
    text.bytes().flat_map(digits).flatten().collect()
}

#[test]
fn combined_lists_return_the_rows_of_a_filter() -> Result<()> {
    on_all_stores(|store, trips| {
        let txn = store.read()?;
        let towns = || trips.find_by_town_in(&txn, ["Rome", "Oslo"]);
        let countries = || trips.find_by_country_in(&txn, ["no", "it"]);
        let rows = towns().and(countries()).rows().collect::<Result<Vec<_>>>()?;
        let expected = trips.all(&txn).rows().filter(|row| {
            row.as_ref().is_ok_and(|row| {
                ["Rome", "Oslo"].contains(&row.town.as_str()) && row.country != "de"
            })
        });
        assert_eq!(rows, expected.collect::<Result<Vec<_>>>()?);
        assert!(!rows.is_empty());
        assert_eq!(towns().or(towns()).count()?, 24);
        assert_eq!(towns().or(trips.find_by_town_in(&txn, [""; 0])).count()?, 24);
        assert_eq!(towns().and(trips.find_by_town_in(&txn, [""; 0])).count()?, 0);
        // The values are no whole keys, so the primary keys have to be sorted.
        let urls = trips.find_by_url_in(&txn, ["https://1"]);
        let expected = urls.keys().collect::<Result<Vec<_>>>()?.into_iter();
        let both = trips.find_by_url_in(&txn, ["https://1"]).and(towns());
        let in_towns = towns().keys().collect::<Result<Vec<_>>>()?;
        let mut expected: Vec<_> = expected.filter(|key| in_towns.contains(key)).collect();
        expected.sort();
        assert_eq!(both.keys().collect::<Result<Vec<_>>>()?, expected);
        Ok(())
    })
}

#[test]
fn a_watcher_receives_the_rows_of_a_list() -> Result<()> {
    let (store, trips) = open()?;
    let watcher = {
        let txn = store.read()?;
        let towns = trips.find_by_town_in(&txn, ["Rome", "Paris"]);
        let urls = trips.find_by_url_in(&txn, ["https://x", "https://y"]);
        trips.watch(&store).only(towns).only(urls).start()?
    };
    let new = |id, town: &str, url: &str| {
        let row = Trip { town: town.into(), url: url.into(), nick: None, ..trip(id) };
        store.transaction(|txn| trips.insert(txn, &row))
    };
    new(100, "Paris", "")?;
    new(101, "Bonn", "")?;
    new(102, "Bonn", "https://y")?;
    new(103, "Bonn", "https://z")?;
    let mut seen = Vec::new();
    while let Ok(event) = watcher.try_recv() {
        let Event::Change(change) = event else { continue };
        assert_eq!(change.kind(), ChangeKind::Inserted);
        seen.push(change.after().expect("an inserted row").key()?.1);
    }
    assert_eq!(seen, [100, 102]);
    Ok(())
}

#[test]
fn the_rows_of_a_list_are_deleted() -> Result<()> {
    let (store, trips) = open()?;
    let mut txn = store.write()?;
    let found = trips.find_by_town_in(&txn, ["Rome", "Oslo", "x"]).query();
    assert_eq!(found.delete(&mut txn)?, 24);
    assert_eq!(trips.find_by_town_in(&txn, TOWNS).count()?, 36);
    Ok(())
}

#[test]
fn an_eventual_index_is_searched_for_a_list() -> Result<()> {
    let (store, voyages) = open_voyages()?;
    store.transaction(|txn| voyages.update(txn, 0, |voyage| voyage.year = 1999))?;
    let txn: &ReadTxn<'_> = &store.read()?;
    let years = || voyages.find_by_later_in(txn, [2003, 2000]);
    let expected = (0..60).filter(|id| [0, 3].contains(&(id % 7))).count() as u64;
    assert_eq!(years().stale().count()?, expected);
    assert_eq!(years().verified().count()?, expected - 1);
    let page = years().rev().verified().page(2)?;
    let rest = years().rev().after(&page.next.expect("a next page")).verified().count()?;
    assert_eq!(rest, expected - 3);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_list_finds_the_matching_entries_of_the_whole_index(
        years in prop::collection::vec(1998..2009_u16, 0..9),
        towns in prop::collection::vec(prop::sample::select(TOWNS.to_vec()), 0..9),
    ) {
        let fail = |error: Error| TestCaseError::fail(error.to_string());
        let (store, trips) = open().map_err(fail)?;
        let txn = &store.read().map_err(fail)?;
        check(
            || trips.find_by_town_in(txn, &towns),
            || trips.by_town(txn),
            |trip| towns.contains(&trip.town.as_str()),
        ).map_err(fail)?;
        check(
            || trips.find_by_town_year_in(txn, "Rom", years.iter().copied()),
            || trips.by_town_year(txn),
            |trip| trip.town == "Rom" && years.contains(&trip.year),
        ).map_err(fail)?;
    }
}
