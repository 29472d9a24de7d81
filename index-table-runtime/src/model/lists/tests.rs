use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Town {
    id: u64,
    name: Option<String>,
}

fn town(id: u64, name: Option<&str>) -> Town {
    Town { id, name: name.map(str::to_owned) }
}

fn encoded(lists: &Lists, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    lists.encode(value, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_record_is_read_back_and_damage_is_found() {
    let lists = Lists::default();
    encoded(&lists, &town(1, Some("Oslo")));
    let (version, record) = lists.record();
    assert_eq!(version, lists.version());
    assert_eq!(decode(&record).as_ref(), Some(lists.catalog()));
    for at in 0..record.len() {
        let mut damaged = record.clone();
        damaged[at] ^= 1;
        assert_eq!(decode(&damaged), None, "{at}");
    }
    assert_eq!(decode(&record[..record.len() - 1]), None);
    assert_eq!(decode(&[]), None);
}

#[test]
fn lists_of_another_process_are_read_again() {
    let (writer, reader) = (Lists::default(), Lists::default());
    let record = std::sync::Arc::new(Mutex::<_>::new(Vec::new()));
    let source = std::sync::Arc::clone(&record);
    reader.set_source(Box::new(move || vec![source.lock().clone()]));
    let row = encoded(&writer, &town(1, None));
    assert!(reader.decode::<Town>(&row).is_err());
    *record.lock() = writer.record().1;
    assert_eq!(reader.decode::<Town>(&row), Ok(town(1, None)));
    // The inside of the option is filled in place.
    let row = encoded(&writer, &town(1, Some("Oslo")));
    assert!(reader.decode::<Town>(&row).is_err());
    *record.lock() = writer.record().1;
    assert_eq!(reader.decode::<Town>(&row), Ok(town(1, Some("Oslo"))));
    assert_eq!(reader.lineage(), 0);
}

#[test]
fn claims_are_lost_if_another_process_records_other_lists() {
    let (own, other) = (Lists::default(), Lists::default());
    encoded(&own, &town(1, None));
    encoded(&other, &(1, 2));
    own.see(&other.record().1);
    assert_eq!((own.lineage(), own.catalog()), (1, other.catalog()));
    // The same record again changes nothing, and neither do claims that are recorded unchanged.
    own.see(&other.record().1);
    encoded(&own, &town(1, None));
    own.see(&own.record().1);
    assert_eq!(own.lineage(), 1);
    let row = encoded(&own, &town(2, Some("Rome")));
    assert_eq!(own.decode::<Town>(&row), Ok(town(2, Some("Rome"))));
}

#[test]
fn a_shard_with_other_lists_is_refused() {
    let (store, shard, other) = (Lists::default(), Lists::default(), Lists::default());
    encoded(&store, &town(1, None));
    encoded(&shard, &town(1, None));
    assert_eq!(store.open(shard.catalog().clone(), true), Opened::Taken);
    encoded(&shard, &town(1, Some("Oslo")));
    assert_eq!(store.open(shard.catalog().clone(), true), Opened::Taken);
    assert_eq!(store.catalog(), shard.catalog());
    encoded(&other, &(1, 2));
    assert_eq!(store.open(other.catalog().clone(), true), Opened::Contradicted);
    assert_eq!(store.catalog(), shard.catalog());
}
