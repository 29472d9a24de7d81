//! Counting rows by an aggregate: a query by equality on all fields of an aggregate has the count of a group.

use crate::{
    engine::{Query, Read as _, Space},
    model::{
        aggregate::Totals,
        error::Result,
        key::{KeyReader, Unescaped},
        row_vtable::TableRows,
        schema::{AggregateSchema, KeyField, KeyForm, Source, TableSchema},
        shard::Distribution,
    },
    placement::Reader,
};

/// The totals of a group, with the cost of reading them.
pub(crate) struct GroupTotals {
    pub(crate) totals: Totals,
    /// The number of look-ups.
    pub(crate) seeks: u64,
    /// The number of bytes of the records.
    pub(crate) bytes: usize,
}

/// Returns the totals of a group in all shards that can have it.
pub(crate) fn of_group(
    reader: Reader<'_>,
    rows: &TableRows,
    (aggregate, declared): (usize, &AggregateSchema),
    group: &[u8],
) -> Result<GroupTotals> {
    let own = begins_with_shard_key(rows, declared.key).then_some(group);
    let readers = reader.of_shards(own)?;
    let (mut totals, mut bytes) = (Totals::default(), 0);
    let seeks = readers.len() as u64;
    for reader in readers {
        let record = reader.get(Space::Aggregate(aggregate), group)?;
        bytes += record.map_or(0, <[u8]>::len);
        totals.add_all(&decode(rows, declared, group, record)?);
    }
    Ok(GroupTotals { totals, seeks, bytes })
}

/// Decodes the record of a group; `None` is a group without rows.
pub(crate) fn decode(
    rows: &TableRows,
    declared: &AggregateSchema,
    group: &[u8],
    record: Option<&[u8]>,
) -> Result<Totals> {
    Totals::decode(record, declared).map_err(|error| declared.corrupt(rows.schema, group, error))
}

/// Returns the readers of the shards that can have groups whose keys begin with a prefix.
pub(crate) fn of_groups_within<'t>(
    reader: Reader<'t>,
    rows: &TableRows,
    declared: &AggregateSchema,
    prefix: &[u8],
) -> Result<Vec<Reader<'t>>> {
    let leading = fields_of(prefix, declared.key);
    let is_own = leading.is_some_and(|leading| begins_with_shard_key(rows, leading));
    reader.of_shards(is_own.then_some(prefix))
}

/// Returns the fields whose values are in a prefix of a key; `None` if the prefix ends inside of a field.
fn fields_of<'k>(prefix: &[u8], key: &'k [KeyField]) -> Option<&'k [KeyField]> {
    let unescaped = Unescaped::default();
    let (mut left, mut fields) = (KeyReader::new(prefix, &unescaped), 0);
    while !left.rest().is_empty() {
        key.get(fields)?.shape.skip(&mut left).ok()?;
        fields += 1;
    }
    key.get(..fields)
}

/// Whether these fields of a group contain the shard key, so that all its rows are in one shard.
fn begins_with_shard_key(rows: &TableRows, fields: &[KeyField]) -> bool {
    match rows.distribution {
        Distribution::ByKey(shard_key) => {
            let own = rows.schema.primary_key.iter().take(shard_key.fields);
            let mut group = fields.iter();
            own.into_iter().all(|field| group.next().is_some_and(|group| group.name == field.name))
        }
        Distribution::Whole | Distribution::Reference => false,
    }
}

/// Returns the aggregate whose group the query selects, with its position, and the key of the group: a query without a
/// limit or a position, of an index that has each row once. A count is exact, so it reads no eventual aggregate.
pub(super) fn group_of<'q>(
    rows: &TableRows,
    query: &'q Query,
) -> Option<((usize, &'static AggregateSchema), &'q [u8])> {
    if rows.aggregates.is_empty() {
        return None;
    }
    let key = key_of(rows.schema, query.source)?;
    let group = query.bounds.as_prefix().filter(|prefix| !prefix.is_empty())?;
    if query.limit.is_some() || query.position.is_some() || query.list.is_some() || query.available
    {
        return None;
    }
    // The prefix of a text ends inside of its encoding.
    let key = fields_of(group, key)?;
    let is_same = |(own, other): (&KeyField, &KeyField)| own.name == other.name;
    let mut aggregates = rows.aggregates.iter().enumerate();
    let found = aggregates.find(|(_, aggregate)| {
        !aggregate.eventual
            && aggregate.key.len() == key.len()
            && aggregate.key.iter().zip(key).all(is_same)
    });
    found.map(|found| (found, group))
}

/// Returns the fields of the key of a table or index that has each row once, up to the first field in another form.
fn key_of(schema: &'static TableSchema, source: Source) -> Option<&'static [KeyField]> {
    let Source::Index(_) = source else { return Some(schema.primary_key) };
    let index = schema.index(source)?;
    if index.eventual || !index.conditions.is_empty() || index.has_each() {
        return None;
    }
    let plain = index.key.iter().take_while(|field| field.form == KeyForm::Field).count();
    index.key.get(..plain)
}
