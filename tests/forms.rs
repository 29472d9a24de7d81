//! Queries on each form of a field and each condition of an index.

use index_table::{Desc, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

type Nick = Option<String>;
type Word = String;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town, desc(joined), include = [email])]
#[index(desc(town), name = "towns_backwards")]
#[index(desc(score), computed(initials: String), strategy = "full")]
#[index(computed(initials: String), name = "initials_alone")]
#[index(email, unique, sparse)]
#[index(nick, sparse)]
#[index(town, filter = is_active, name = "active_in")]
#[index(computed(first_word: Word), each(tags), sparse, filter = is_active, name = "active_tags")]
#[index(computed(rank: Desc<Option<f32>>), sparse, name = "ranked")]
struct Member {
    #[primary_key]
    id: u32,
    town: String,
    joined: u16,
    score: Option<f32>,
    email: Option<String>,
    nick: Nick,
    active: bool,
    tags: Vec<Option<u8>>,
}

impl Member {
    fn initials(&self) -> String {
        self.town.chars().take(2).collect()
    }

    fn first_word(&self) -> String {
        self.town.split(' ').next().unwrap_or_default().to_owned()
    }

    fn rank(&self) -> Desc<Option<f32>> {
        Desc(self.score)
    }

    fn is_active(&self) -> bool {
        self.active
    }
}

fn member(id: u32, town: &str) -> Member {
    Member {
        id,
        town: town.to_owned(),
        joined: 2000 + u16::try_from(id).unwrap_or_default(),
        score: None,
        email: None,
        nick: None,
        active: true,
        tags: Vec::new(),
    }
}

fn open(members: &[Member]) -> Result<(Store, MemberRepository)> {
    let store = Store::in_memory();
    let repository = MemberRepository::open(&store)?;
    store.transaction(|txn| members.iter().try_for_each(|row| repository.insert(txn, row)))?;
    Ok((store, repository))
}

fn ids<'txn, E>(scan: index_table::Scan<'txn, E>) -> Result<Vec<u32>>
where
    E: index_table::IndexEntry<'txn, Row = Member>,
{
    scan.keys().collect()
}

#[test]
fn a_range_of_a_descending_field_is_a_range_of_its_values() -> Result<()> {
    let rows: Vec<Member> =
        (0..9).map(|id| member(id, if id < 7 { "New York" } else { "Oz" })).collect();
    let (store, members) = open(&rows)?;
    let txn = store.read()?;
    assert_eq!(ids(members.find_by_town(&txn, "New York"))?, [6, 5, 4, 3, 2, 1, 0]);
    let years = |range| ids(members.find_by_town_joined_range(&txn, "New York", range));
    assert_eq!(years(2002..2005)?, [4, 3, 2]);
    assert_eq!(ids(members.find_by_town_joined_range(&txn, "New York", ..=2001))?, [1, 0]);
    assert_eq!(ids(members.find_by_town_joined_range(&txn, "New York", 2005..))?, [6, 5]);
    assert_eq!(ids(members.find_by_town_joined_range(&txn, "New York", 2005..).rev())?, [5, 6]);
    assert_eq!(ids(members.find_by_town_joined(&txn, "Oz", 2008))?, [8]);

    assert_eq!(ids(members.by_towns_backwards(&txn).limit(3))?, [7, 8, 0]);
    assert_eq!(ids(members.find_by_towns_backwards_starting_with(&txn, "O"))?, [7, 8]);
    let entry = members.find_by_towns_backwards(&txn, "Oz").entries().next();
    let town: Option<String> = entry.transpose()?.map(|entry| entry.town);
    assert_eq!(town.as_deref(), Some("Oz"));

    let page = members.find_by_town(&txn, "New York").page(3)?;
    let next = page.next.as_ref().expect("a next page");
    assert_eq!(ids(members.find_by_town(&txn, "New York").after(next))?, [3, 2, 1, 0]);
    Ok(())
}

#[test]
fn none_comes_last_in_descending_order() -> Result<()> {
    let scored = |id, score| Member { score, ..member(id, "Rome") };
    let rows =
        [scored(1, None), scored(2, Some(-1.0)), scored(3, Some(7.5)), scored(4, Some(-0.0))];
    let (store, members) = open(&rows)?;
    let txn = store.read()?;
    assert_eq!(ids(members.by_score_initials(&txn))?, [3, 4, 2, 1]);
    assert_eq!(ids(members.find_by_score(&txn, None))?, [1]);
    assert_eq!(ids(members.find_by_score_range(&txn, Some(-0.0)..))?, [3, 4]);
    assert_eq!(ids(members.find_by_score_range(&txn, ..Some(-0.0)))?, [2, 1]);
    // The entry has the whole row and the result of the method.
    let entry = members.find_by_score_initials(&txn, None, "Ro").entries().next();
    let entry = entry.expect("there is one")?;
    assert_eq!((entry.initials, entry.id, entry.town, entry.score), ("Ro", 1, "Rome", None));
    Ok(())
}

#[test]
fn the_value_of_a_method_is_a_key() -> Result<()> {
    let (store, members) = open(&[member(1, "Rome"), member(2, "Oz"), member(3, "Rotterdam")])?;
    let txn = store.read()?;
    assert_eq!(ids(members.find_by_initials_alone(&txn, "Ro"))?, [1, 3]);
    assert_eq!(ids(members.find_by_initials_alone_range(&txn, .."P"))?, [2]);
    assert_eq!(ids(members.find_by_initials_alone_starting_with(&txn, "R"))?, [1, 3]);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[indexes((slug), (digest), (desc(preview), slug), (preview, sparse, name = "previews"))]
struct Upload {
    #[primary_key]
    id: u32,
    slug: Option<String>,
    digest: Vec<u8>,
    preview: Option<Vec<u8>>,
}

#[test]
fn prefixes_of_bytes_and_of_options_are_found() -> Result<()> {
    let store = Store::in_memory();
    let uploads = UploadRepository::open(&store)?;
    store.transaction(|txn| {
        let upload = |id, slug: Option<&str>, digest: &[u8], preview: Option<&[u8]>| {
            let (slug, preview) = (slug.map(Into::into), preview.map(Into::into));
            Upload { id, slug, digest: digest.into(), preview }
        };
        let rows = [
            upload(1, None, &[0, 1, 2], None),
            upload(2, Some("report"), &[0, 1], Some(&[0xFF])),
            upload(3, Some("red"), &[0xFF], Some(&[0xFF, 0])),
            upload(4, Some(""), &[], Some(&[])),
        ];
        rows.iter().try_for_each(|row| uploads.insert(txn, row))
    })?;
    let txn = store.read()?;
    let slugs = |prefix: &str| -> Result<Vec<u32>> {
        uploads.find_by_slug_starting_with(&txn, prefix).keys().collect()
    };
    assert_eq!(slugs("re")?, [3, 2]);
    assert_eq!(slugs("")?, [4, 3, 2], "`None` has a prefix");
    assert_eq!(slugs("x")?, [0; 0]);
    let digests = |prefix: &[u8]| -> Result<Vec<u32>> {
        uploads.find_by_digest_starting_with(&txn, prefix).keys().collect()
    };
    assert_eq!(digests(&[0, 1])?, [2, 1]);
    assert_eq!(digests(&[0xFF])?, [3]);
    assert_eq!(digests(&[])?, [4, 2, 1, 3]);
    let previews = uploads.find_by_previews_starting_with(&txn, &[0xFF]).keys();
    assert_eq!(previews.collect::<Result<Vec<_>>>()?, [2, 3]);
    let previews = uploads.find_by_preview_starting_with(&txn, &[]).keys();
    assert_eq!(previews.collect::<Result<Vec<_>>>()?, [3, 2, 4]);
    let slug = uploads.find_by_preview_slug_starting_with(&txn, Some(&[0xFF]), "rep").keys();
    assert_eq!(slug.collect::<Result<Vec<_>>>()?, [2]);
    Ok(())
}

#[test]
fn a_row_without_a_value_is_not_in_a_sparse_index() -> Result<()> {
    let with =
        |id, email: Option<&str>| Member { email: email.map(Into::into), ..member(id, "Rome") };
    let (store, members) = open(&[with(1, None), with(2, Some("a@x")), with(3, None)])?;
    let taken = store.transaction(|txn| members.insert(txn, &with(4, Some("a@x"))));
    assert!(matches!(taken, Err(Error::UniqueViolation { index: "email", .. })));
    store.transaction(|txn| {
        members.update(txn, 2, |row| row.email = None)?;
        members.insert(txn, &with(4, Some("a@x")))?;
        members.update(txn, 1, |row| row.nick = Some("one".into())).map(drop)
    })?;
    let txn = store.read()?;
    assert_eq!(ids(members.by_email(&txn))?, [4]);
    assert_eq!(members.get_by_email(&txn, "a@x")?.map(|row| row.id), Some(4));
    assert_eq!(ids(members.find_by_email(&txn, "a@x"))?, [4]);
    assert_eq!(ids(members.find_by_email_range(&txn, "b"..))?, [0; 0]);
    // An alias of an `Option` works as the `Option`: its queries take the value too.
    assert_eq!(ids(members.by_nick(&txn))?, [1]);
    assert_eq!(ids(members.find_by_nick(&txn, "one"))?, [1]);
    assert_eq!(ids(members.find_by_nick_range(&txn, ..="one"))?, [1]);
    Ok(())
}

/// A method can return `Desc`, which sorts in descending order, with an optional value.
#[test]
fn a_descending_value_of_a_method_can_be_absent() -> Result<()> {
    let scored = |id, score| Member { score, ..member(id, "Rome") };
    let rows = [scored(1, None), scored(2, Some(1.0)), scored(3, Some(2.0))];
    let (store, members) = open(&rows)?;
    let txn = store.read()?;
    assert_eq!(ids(members.by_ranked(&txn))?, [3, 2]);
    assert_eq!(ids(members.find_by_ranked(&txn, 1.0))?, [2]);
    assert_eq!(ids(members.find_by_ranked_range(&txn, 1.0..))?, [3, 2]);
    assert_eq!(ids(members.find_by_ranked_range(&txn, ..2.0))?, [2]);
    Ok(())
}

#[test]
fn rows_enter_and_leave_a_filtered_index() -> Result<()> {
    let mut rows = [member(1, "New York"), member(2, "New York")];
    rows[1].active = false;
    rows[0].tags = vec![Some(3), None, Some(3)];
    rows[1].tags = vec![Some(5)];
    let (store, members) = open(&rows)?;
    {
        let txn = store.read()?;
        assert_eq!(ids(members.find_by_active_in(&txn, "New York"))?, [1]);
        assert_eq!(ids(members.find_by_active_tags_first_word(&txn, "New"))?, [1]);
    }
    store.transaction(|txn| {
        members.update(txn, 1, |row| row.active = false)?;
        members.update(txn, 2, |row| row.active = true).map(drop)
    })?;
    let txn = store.read()?;
    assert_eq!(ids(members.find_by_active_in(&txn, "New York"))?, [2]);
    assert_eq!(ids(members.find_by_active_tags(&txn, "New", 5))?, [2]);
    assert_eq!(ids(members.by_active_tags(&txn))?, [2]);
    // The methods without the name query an index of all rows.
    assert_eq!(ids(members.find_by_town(&txn, "New York"))?, [2, 1]);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(genre, title, year, filter = is_shown, name = "shown")]
#[index(genre, year, sparse)]
#[index(genre, desc(title), name = "backwards")]
#[index(genre, rating)]
#[index(year, title, sparse)]
struct Film {
    #[primary_key]
    id: u32,
    genre: String,
    title: String,
    year: Option<u16>,
    rating: u8,
}

impl Film {
    fn is_shown(&self) -> bool {
        self.title != "M"
    }
}

fn films() -> Result<(Store, FilmRepository)> {
    let store = Store::in_memory();
    let films = FilmRepository::open(&store)?;
    let film = |id, title: &str, year| Film {
        id,
        genre: "Drama".into(),
        title: title.into(),
        year,
        rating: 9 - u8::try_from(id).unwrap_or_default(),
    };
    store.transaction(|txn| {
        films.insert(txn, &film(1, "M", Some(1931)))?;
        films.insert(txn, &film(2, "Ran", None))?;
        films.insert(txn, &film(3, "Rififi", Some(1955)))
    })?;
    Ok((store, films))
}

fn film_ids<'txn, E>(scan: index_table::Scan<'txn, E>) -> Result<Vec<u32>>
where
    E: index_table::IndexEntry<'txn, Row = Film>,
{
    scan.keys().collect()
}

#[test]
fn all_queries_on_a_named_index_have_its_name() -> Result<()> {
    let (store, films) = films()?;
    let txn = store.read()?;
    assert_eq!(film_ids(films.by_shown(&txn))?, [2, 3]);
    assert_eq!(film_ids(films.find_by_shown(&txn, "Drama", "Ran", None))?, [2]);
    assert_eq!(film_ids(films.find_by_shown_range(&txn, "Drama", "Rififi", Some(1955)..))?, [3]);
    assert_eq!(film_ids(films.find_by_shown_genre(&txn, "Drama"))?, [2, 3]);
    assert_eq!(film_ids(films.find_by_shown_genre_range(&txn, "E"..))?, [0; 0]);
    assert_eq!(film_ids(films.find_by_shown_genre_starting_with(&txn, "D"))?, [2, 3]);
    assert_eq!(film_ids(films.find_by_shown_genre_title(&txn, "Drama", "M"))?, [0; 0]);
    assert_eq!(film_ids(films.find_by_shown_genre_title_range(&txn, "Drama", "Re"..))?, [3]);
    let titles = films.distinct_shown_title_by_genre(&txn, "Drama").values();
    assert_eq!(titles.collect::<Result<Vec<_>>>()?, ["Ran", "Rififi"]);
    assert_eq!(films.distinct_shown_by_genre_title(&txn, "Drama", "Ran").first()?, Some(None));
    assert_eq!(films.distinct_shown_genre(&txn).counts().next().transpose()?, Some(("Drama", 2)));

    // The same holds for another index of all rows.
    assert_eq!(film_ids(films.find_by_backwards_genre(&txn, "Drama"))?, [3, 2, 1]);
    assert_eq!(film_ids(films.find_by_backwards(&txn, "Drama", "M"))?, [1]);
    Ok(())
}

#[test]
fn a_query_without_the_name_of_an_index_finds_all_rows() -> Result<()> {
    let (store, films) = films()?;
    let txn = store.read()?;
    assert_eq!(film_ids(films.find_by_genre(&txn, "Drama"))?, [3, 2, 1]);
    // A query for a prefix before an optional field has the name of the sparse index.
    assert_eq!(film_ids(films.find_by_genre_year_genre(&txn, "Drama"))?, [1, 3]);
    assert_eq!(film_ids(films.find_by_genre_year(&txn, "Drama", 1931))?, [1]);
    assert_eq!(film_ids(films.find_by_genre_year_range(&txn, "Drama", 1940..))?, [3]);
    // All rows with this value are in the index, because the other field has a value in each row.
    assert_eq!(film_ids(films.find_by_year(&txn, 1955))?, [3]);
    assert_eq!(film_ids(films.find_by_year_title_starting_with(&txn, 1955, "R"))?, [3]);
    Ok(())
}
