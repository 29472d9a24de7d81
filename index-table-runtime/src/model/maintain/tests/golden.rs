//! The example of `docs/FORMAT.md`: the bytes of a row, of its entries and of its record.

#[expect(clippy::duplicate_mod, reason = "the module in the key tests is private")]
#[path = "../../key/tests/format.rs"]
mod format;

use serde::{Deserialize, Serialize};

use super::{Owned, changes, image_of};
use crate::model::{
    entity::Entity,
    error::{EncodeError, Error},
    key::KeyBuf,
    lists::{Lists, decode},
    maintain::EntryBuffer,
    row::{self, RowBody, RowOutput},
    schema::{FieldSchema, IndexSchema, KeyField, Strategy as Carried, TableRecord, TableSchema},
};
use format::{documented, hex};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Customer {
    id: u16,
    town: String,
    last_name: String,
    phone: String,
    email: String,
}

const fn index(
    name: &'static str,
    key: &'static [KeyField],
    strategy: Carried,
    unique: bool,
) -> IndexSchema {
    IndexSchema { name, key, strategy, unique, eventual: false, conditions: &[], findings: &[] }
}

impl Entity for Customer {
    type Key = u16;

    const TABLE: &'static TableSchema = &TableSchema {
        name: "customers",
        was: &[],
        version: 1,
        fields: &[
            FieldSchema::new::<u16>("id", "u16"),
            FieldSchema::new::<String>("town", "String"),
            FieldSchema::new::<String>("last_name", "String"),
            FieldSchema::new::<String>("phone", "String"),
            FieldSchema::new::<String>("email", "String"),
        ],
        previous: None,
        changed: &[],
        aggregates: &[],
        primary_key: &[KeyField::new::<u16>("id")],
        indexes: &[
            index("town", &[KeyField::new::<String>("town")], Carried::Normalized, false),
            index(
                "town_last_name",
                &[KeyField::new::<String>("town"), KeyField::new::<String>("last_name")],
                Carried::Partial(&["phone"]),
                false,
            ),
            index("last_name", &[KeyField::new::<String>("last_name")], Carried::Full, false),
            index("email", &[KeyField::new::<String>("email")], Carried::Normalized, true),
        ],
    };

    fn encode(&self, out: RowOutput<'_>) -> Result<(), EncodeError> {
        crate::private::RowFormat::<Self>::encode(self, out)
    }

    fn decode(body: RowBody<'_>) -> Result<Self, crate::private::DecodeError> {
        crate::private::RowFormat::<Self>::decode(body)
    }

    fn primary_key(&self, key: &mut KeyBuf) {
        key.push(&self.id);
    }

    fn entries(&self, index: usize, entries: &mut EntryBuffer) -> Result<(), EncodeError> {
        match index {
            0 => entries.key().push(&self.town),
            1 => {
                entries.include(&["phone"]);
                entries.key().push(&self.town).push(&self.last_name)
            }
            2 => entries.key().push(&self.last_name),
            _ => entries.key().push(&self.email),
        };
        Ok(())
    }
}

fn customer() -> Customer {
    Customer {
        id: 7,
        town: "Oz".to_owned(),
        last_name: "Li".to_owned(),
        phone: "5".to_owned(),
        email: "l@x".to_owned(),
    }
}

fn layout(index: &IndexSchema) -> &'static str {
    match index.name {
        "town" => "short-blocks",
        "email" => "short-unique",
        _ => "entries",
    }
}

/// The table of the example has the database, the key and the value of each stored pair.
#[test]
fn rows_and_entries_match_the_example() {
    let lists = Lists::default();
    let image = image_of(&lists, &customer());
    let mut rows = vec![("customers".to_owned(), hex(image.primary_key()), hex(image.row()))];
    for change in changes(None, Some(&customer())) {
        let Owned::Put { index, key, primary_key, data } = change else {
            panic!("a new row has nothing to remove: {change:?}");
        };
        let index = &Customer::TABLE.indexes[index];
        let database = format!("customers.{}", index.name);
        let joined = |a: &[u8], b: &[u8]| hex(&[a, b].concat());
        rows.push(match layout(index) {
            // The id is less than 256, so its first byte is left out.
            "short-unique" => (database, hex(&key), hex(&primary_key[1..])),
            "short-blocks" => (database, hex(&key), joined(&[1], &primary_key[1..])),
            _ => (database, joined(&key, &primary_key), hex(&data)),
        });
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(database, key, value)| format!("| `{database}` | `{key}` | `{value}` |"))
        .collect();
    assert_eq!(documented("### Example"), rows);
    assert_eq!(row::decode::<Customer>(&lists, image.row()).unwrap(), customer());
}

/// Returns the bytes in the first column of the record's table.
fn documented_record() -> Vec<u8> {
    first_column("### Example of a record")
}

fn first_column(heading: &str) -> Vec<u8> {
    let rows = documented(heading);
    let bytes = rows.iter().filter_map(|row| row.split('`').nth(1));
    bytes
        .flat_map(|bytes| bytes.split(' '))
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

#[test]
fn the_catalog_record_matches_the_example() {
    let record = TableRecord::of(Customer::TABLE, layout);
    assert_eq!(hex(&record.encode("customers").unwrap()), hex(&documented_record()));
    let decoded = TableRecord::decode("customers", &documented_record()).unwrap();
    assert_eq!(decoded, record);
}

#[test]
fn the_record_of_the_lists_matches_the_example() {
    let lists = Lists::default();
    image_of(&lists, &customer());
    let (_, record) = lists.record();
    assert_eq!(hex(&record), hex(&first_column("### Lists")));
    let read = decode(&record).unwrap();
    assert_eq!(&read, lists.catalog());
    // Each byte is covered by the format or the hash.
    for at in 0..record.len() {
        let mut damaged = record.clone();
        damaged[at] ^= 1;
        assert!(decode(&damaged).is_none(), "{at}");
    }
}

#[test]
fn the_record_of_an_older_version_matches_the_example() {
    let newer = TableRecord::of(
        &TableSchema {
            name: "customers",
            was: &[],
            version: 2,
            fields: &[],
            previous: None,
            changed: &[],
            aggregates: &[],
            primary_key: &[],
            indexes: &[],
        },
        layout,
    );
    let record = TableRecord::of(Customer::TABLE, layout);
    let (version, older) = record.outdated_by(&newer).unwrap();
    let row = format!(
        "| `.catalog` | `{}` | `{}` |",
        hex(format!("customers.{version}").as_bytes()),
        hex(&older.encode("customers").unwrap())
    );
    assert_eq!(documented("### Older versions"), [row]);
    assert_eq!(newer.outdated_by(&record), None);
    assert_eq!(record.outdated_by(&record), None);
}

#[test]
fn a_record_of_another_format_is_refused() {
    let error = |bytes: &[u8]| match TableRecord::decode("customers", bytes) {
        Err(Error::SchemaMismatch { table: "customers", difference, way_out }) => {
            (difference, way_out.contains("`dump`"))
        }
        other => panic!("{other:?}"),
    };
    // The bytes after the number do not matter.
    let differs = |found| format!("the file has format {found}, this release reads format 2");
    assert_eq!(error(&[3, 0xFF, 0xFF]), (differs(3), false));
    // Rows of an earlier format can be loaded from a dump.
    assert_eq!(error(&[1, 0xFF, 0xFF]), (differs(1), true));
    assert_eq!(error(&[0]), (differs(0), true));
    let refused = |bytes: &[u8]| {
        let (difference, has_dump) = error(bytes);
        assert!(!has_dump, "{bytes:?}");
        difference
    };
    let record = documented_record();
    for damaged in
        [&record[..0], &record[..1], &record[..record.len() - 1], &[&*record, &[0]].concat()]
    {
        assert_eq!(refused(damaged), "its catalog record can't be read");
    }
}

#[test]
fn a_row_of_another_version_is_refused() {
    let lists = Lists::default();
    let image = image_of(&lists, &customer());
    let refused = |bytes: &[u8]| row::decode::<Customer>(&lists, bytes).unwrap_err().to_string();
    // 8192 + 2 as a varint, in front of the number of the list.
    assert_eq!(
        refused(&[&[0x82, 0x40], image.row()].concat()),
        "the row has version 2, the code reads versions up to 1: a later release has written it, or \
         it is damaged"
    );
    assert_eq!(
        refused(&[&[0x80, 0x40], image.row()].concat()),
        "the row has version 0, and the chain of `previous` from version 1 does not include it"
    );
    // A first version is not written, but it may be read.
    let first = [&[0x81, 0x40], image.row()].concat();
    assert_eq!(row::decode::<Customer>(&lists, &first).unwrap(), customer());
    assert_eq!(refused(&[image.row(), &[0]].concat()), "the bytes are damaged");
    for len in 0..image.row().len() {
        assert!(row::decode::<Customer>(&lists, &image.row()[..len]).is_err(), "{len}");
    }
}

#[test]
fn a_row_of_an_unknown_list_is_refused() {
    let lists = Lists::default();
    let image = image_of(&lists, &customer());
    let read = |lists: &Lists, bytes: &[u8]| {
        row::decode::<Customer>(lists, bytes).map_err(|error| error.to_string())
    };
    let unknown = Err("its names and kinds are not recorded".to_owned());
    // The numbers 1, 128 and 8191, the largest one.
    for number in [&[1][..], &[0x80, 1], &[0xFF, 0x3F]] {
        assert_eq!(read(&lists, &[number, &image.row()[1..]].concat()), unknown, "{number:?}");
    }
    assert_eq!(read(&Lists::default(), image.row()), unknown);
}
