//! The results of many queries of a store, as text.

use std::fmt::Debug;

use index_table::{Page, ReadTxn, Result, Scan};

/// The names and the results of queries.
pub(crate) type Results = Vec<(String, String)>;

/// The values in the queries.
#[derive(Debug, Clone)]
pub(crate) struct QueryValues {
    pub(crate) tenant: u8,
    pub(crate) other: u8,
    pub(crate) town: String,
    pub(crate) size: i8,
    pub(crate) code: u16,
    pub(crate) tag: String,
    pub(crate) limit: usize,
}

pub(crate) fn text<T: Debug>(items: impl Iterator<Item = Result<T>>) -> String {
    items
        .map(|item| item.map_or_else(|error| format!("error: {error}"), |it| format!("{it:?}")))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns all pages of a scan, with the texts of their cursors.
pub(crate) fn pages<'txn, E, R>(
    size: usize,
    scan: impl Fn() -> Scan<'txn, E>,
    page: impl Fn(Scan<'txn, E>, usize) -> Result<Page<R>>,
    after: impl Fn(Scan<'txn, E>, &index_table::Cursor) -> Scan<'txn, E>,
) -> String
where
    R: Debug,
{
    let mut pages = String::new();
    let mut next = page(scan(), size);
    for _ in 0..200 {
        match next {
            Ok(Page { items, next: Some(cursor), .. }) => {
                pages.extend([format!("{items:?} {cursor}\n")]);
                next = page(after(scan(), &cursor), size);
            }
            Ok(Page { items, next: None, .. }) => return pages + &format!("{items:?}"),
            Err(error) => return pages + &format!("error: {error}"),
        }
    }
    pages + "no end"
}

/// Runs all queries on the `OrderRepository` of one of the modules.
macro_rules! results {
    ($name:ident, $module:ident) => {
        pub(crate) fn $name(
            orders: &crate::tables::$module::OrderRepository,
            txn: &ReadTxn<'_>,
            values: &QueryValues,
        ) -> Results {
            let QueryValues { tenant, other, town, size, code, tag, limit } = values;
            let (tenant, other, size, code, limit) = (*tenant, *other, *size, *code, *limit);
            let mut results = Results::new();
            let mut add = |query: &str, result: String| results.push((query.to_owned(), result));
            /// All ways to run a scan.
            macro_rules! scan {
                ($query:literal, $scan:expr) => {
                    let scan = || $scan;
                    add(concat!($query, " rows"), text(scan().rows()));
                    add(concat!($query, " reversed rows"), text(scan().rev().rows()));
                    add(concat!($query, " limited rows"), text(scan().limit(limit).rows()));
                    add(concat!($query, " last rows"), text(scan().rev().limit(limit).rows()));
                    add(concat!($query, " keys"), text(scan().keys()));
                    add(concat!($query, " entries"), text(scan().entries()));
                    add(concat!($query, " reversed entries"), text(scan().rev().entries()));
                    add(concat!($query, " views"), text(scan().views()));
                    add(concat!($query, " count"), format!("{:?}", scan().count().ok()));
                    add(
                        concat!($query, " limited count"),
                        format!("{:?}", scan().limit(limit).count().ok()),
                    );
                    add(concat!($query, " exists"), format!("{:?}", scan().exists().ok()));
                    add(concat!($query, " first"), format!("{:?}", scan().first().ok()));
                    let size = limit.max(1);
                    add(
                        concat!($query, " pages"),
                        pages(
                            size,
                            &scan,
                            |scan, size| scan.page(size),
                            |scan, cursor| scan.after(cursor),
                        ),
                    );
                    add(
                        concat!($query, " reversed pages"),
                        pages(
                            size,
                            || scan().rev(),
                            |scan, size| scan.page(size),
                            |scan, cursor| scan.after(cursor),
                        ),
                    );
                };
            }
            scan!("all", orders.all(txn));
            scan!("tenant", orders.find_by_tenant(txn, tenant));
            scan!("tenant range", orders.find_by_tenant_range(txn, tenant..=other));
            scan!("tenants", orders.find_by_tenant_in(txn, [tenant, other, 200]));
            scan!("number range", orders.find_by_tenant_number_range(txn, tenant, 3..));
            scan!("towns", orders.by_town(txn));
            scan!("town", orders.find_by_town(txn, town));
            scan!("town range", orders.find_by_town_range(txn, town.as_str()..));
            scan!("town prefix", orders.find_by_town_starting_with(txn, town));
            scan!("town list", orders.find_by_town_in(txn, [town.as_str(), "", "b"]));
            scan!("tenant town", orders.find_by_tenant_town(txn, tenant, town));
            scan!(
                "tenant town range",
                orders.find_by_tenant_town_range(txn, tenant, ..town.as_str())
            );
            scan!("by tenant town", orders.by_tenant_town(txn));
            scan!("size", orders.find_by_size(txn, size));
            scan!("size town", orders.find_by_size_town(txn, size, town));
            scan!("size town prefix", orders.find_by_size_town_starting_with(txn, size, town));
            scan!("by size town", orders.by_size_town(txn));
            scan!("sizes", orders.by_size(txn));
            scan!("codes", orders.by_tenant_code(txn));
            scan!("tag", orders.find_by_tags(txn, tag));
            scan!("tags", orders.by_tags(txn));
            scan!("note", orders.find_by_note(txn, town));
            scan!("placed", orders.find_by_placed(txn, town, tenant));
            scan!(
                "placed range",
                orders.find_by_placed_range(txn, town, tenant..other.max(tenant))
            );
            add("get", format!("{:?}", orders.get(txn, tenant, code).ok()));
            add("view", format!("{:?}", orders.get_view(txn, tenant, code).ok()));
            add("unique", format!("{:?}", orders.get_by_tenant_code(txn, tenant, code).ok()));
            let keys: Vec<_> =
                (0..12).map(|at| (at % 7, code.wrapping_add(u16::from(at)) % 9)).collect();
            add("many", text(orders.get_many(txn, &keys)));
            add("distinct tenant", text(orders.distinct_tenant(txn).values()));
            add("distinct town", text(orders.distinct_town(txn).values()));
            add("last town", text(orders.distinct_town(txn).rev().values()));
            add("town counts", text(orders.distinct_town(txn).counts()));
            add("first town", format!("{:?}", orders.distinct_town(txn).first().ok()));
            add("town by tenant", text(orders.distinct_town_by_tenant(txn, tenant).counts()));
            add("town by size", text(orders.distinct_town_by_size(txn, size).counts()));
            add("distinct tags", text(orders.distinct_tags(txn).counts()));
            let town_ = || orders.find_by_town(txn, town);
            let tag_ = || orders.find_by_tags(txn, tag);
            let size_ = || orders.find_by_size_town(txn, size, "");
            let tenant_ = || orders.find_by_tenant(txn, tenant);
            add("and", text(town_().and(tag_()).rows()));
            add("or", text(town_().or(tag_()).rows()));
            add("and or", text(town_().and(tag_()).or(size_()).keys()));
            add("or and", text(town_().or(tag_()).and(tenant_()).views()));
            add("and tenant", text(town_().and(tenant_()).rows()));
            results
        }
    };
}

results!(of_values, by_value);
results!(of_hashes, by_hash);
results!(of_global, global);

/// Fails at the first different result.
pub(crate) fn assert_same(expected: &Results, found: &Results, what: &str) {
    for ((query, expected), (_, found)) in expected.iter().zip(found) {
        assert_eq!(expected, found, "{what}: {query}");
    }
    assert_eq!(expected.len(), found.len());
}
