//! The savings of vertical partitioning: a scan of narrow rows against a scan of wide rows.

use std::{hint::black_box, path::Path};

use index_table::{Durability, IndexTable, Store};
use index_table_bench::median;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::{Outcome, thread_time};

const ROWS: u64 = 20_000;
/// The bytes of the large field.
const LARGE: usize = 2_000;

/// The row with all fields.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "wide")]
struct Wide {
    #[primary_key]
    id: u64,
    name: String,
    category: String,
    price: u32,
    picture: Vec<u8>,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "narrow")]
struct Narrow {
    #[primary_key]
    id: u64,
    name: String,
    category: String,
    price: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "pictures", part_of = Narrow)]
struct Picture {
    #[primary_key]
    id: u64,
    picture: Vec<u8>,
}

fn narrow(id: u64) -> Narrow {
    let (name, category) = (format!("product {id}"), format!("category {}", id % 50));
    Narrow { id, name, category, price: (id % 977) as u32 }
}

fn picture() -> Vec<u8> {
    vec![7; LARGE]
}

fn wide(id: u64) -> Wide {
    let Narrow { id, name, category, price } = narrow(id);
    Wide { id, name, category, price, picture: picture() }
}

const SQL: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    PRAGMA mmap_size = 2147418112;
    CREATE TABLE wide (id INTEGER PRIMARY KEY, name TEXT, category TEXT, price INTEGER, picture BLOB);
    CREATE TABLE narrow (id INTEGER PRIMARY KEY, name TEXT, category TEXT, price INTEGER);
";

/// Returns the time in milliseconds.
fn time(work: impl FnOnce() -> Outcome<u64>) -> Outcome<f64> {
    let began = thread_time();
    black_box(work()?);
    Ok((thread_time() - began) * 1e3)
}

pub(crate) fn measure(dir: &Path, rounds: u32) -> Outcome<()> {
    let store =
        Store::options().map_size(1 << 30).durability(Durability::None).open(dir.join("store"))?;
    let wides = WideRepository::open(&store)?;
    let narrows = NarrowRepository::open(&store)?;
    let pictures = PictureRepository::open(&store)?;
    wides.bulk_load(&store, (0..ROWS).map(wide)).run()?;
    narrows.bulk_load(&store, (0..ROWS).map(narrow)).run()?;
    pictures.bulk_load(&store, (0..ROWS).map(|id| Picture { id, picture: picture() })).run()?;
    let mut connection = Connection::open(dir.join("db"))?;
    connection.execute_batch(SQL)?;
    let txn = connection.transaction()?;
    for id in 0..ROWS {
        let Narrow { id, name, category, price } = narrow(id);
        let id = id.cast_signed();
        txn.execute(
            "INSERT INTO narrow VALUES (?1, ?2, ?3, ?4)",
            params![id, name, category, price],
        )?;
        let all = params![id, name, category, price, picture()];
        txn.execute("INSERT INTO wide VALUES (?1, ?2, ?3, ?4, ?5)", all)?;
    }
    txn.commit()?;
    let scan = |table: &str| -> Outcome<u64> {
        let mut sum = 0;
        let mut scan = connection.prepare_cached(&format!("SELECT * FROM {table}"))?;
        let mut rows = scan.query([])?;
        while let Some(row) = rows.next()? {
            let (name, category): (String, String) = (row.get(1)?, row.get(2)?);
            black_box((name, category));
            sum += row.get::<_, i64>(3)?.cast_unsigned();
        }
        Ok(sum)
    };
    let txn = store.read()?;
    let mut times: [Vec<f64>; 6] = Default::default();
    for round in 0..u64::from(rounds) {
        times[0].push(time(|| {
            wides.all(&txn).rows().try_fold(0, |sum, row| Ok(sum + u64::from(row?.price)))
        })?);
        times[1].push(time(|| {
            narrows.all(&txn).rows().try_fold(0, |sum, row| Ok(sum + u64::from(row?.price)))
        })?);
        times[2].push(time(|| scan("wide"))?);
        times[3].push(time(|| scan("narrow"))?);
        let ids = || (0..1_000).map(|at| (at * 7_919 + round) % ROWS);
        times[4].push(time(|| {
            ids().try_fold(0, |sum, id| {
                Ok(sum + wides.get(&txn, id)?.map_or(0, |row| row.picture.len() as u64))
            })
        })?);
        times[5].push(time(|| {
            ids().try_fold(0, |sum, id| {
                let row = narrows.get_with_parts(&txn, id, &pictures)?;
                Ok(sum + row.and_then(|(_, part)| part).map_or(0, |it| it.picture.len() as u64))
            })
        })?);
    }
    let [wide, narrow, sql_wide, sql_narrow, get, get_with_part] =
        times.map(|times| median(times.into_iter()));
    let sizes = store.sizes()?;
    let bytes = |table: &str| sizes.iter().find(|it| it.table == table).map_or(0, |it| it.bytes);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("| {ROWS} rows, {LARGE} bytes in a field | one table | with a part | factor |");
    println!("|---|--:|--:|--:|");
    let (all, own) = (mib(bytes("wide")), mib(bytes("narrow")));
    println!("| pages that a scan reads | {all:.1} MiB | {own:.1} MiB | {:.0} |", all / own);
    println!("| a scan | {wide:.1} ms | {narrow:.1} ms | {:.1} |", wide / narrow);
    println!(
        "| a scan in SQLite | {sql_wide:.1} ms | {sql_narrow:.1} ms | {:.1} |",
        sql_wide / sql_narrow
    );
    println!(
        "| a row with the field | {get:.2} µs | {get_with_part:.2} µs | {:.2} |",
        get / get_with_part
    );
    Ok(())
}
