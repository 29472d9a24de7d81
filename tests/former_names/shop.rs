//! The tables of a shop. Each release declares them with other names.

/// Defines a module with the tables of a release: the options of the customers' table, their further indexes, and the options
/// of the orders' table.
macro_rules! release {
    ($module:ident, [$($table:tt)*], [$($index:tt)*]) => {
        #[allow(dead_code, reason = "each release has the same items")]
        pub(crate) mod $module {
            use index_table::{IndexTable, Result, WriteTxn};
            use serde::{Deserialize, Serialize};

            /// Every shard has a copy.
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "regions", reference, repository = Regions)]
            pub(crate) struct Region {
                #[primary_key]
                pub(crate) code: u8,
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table($($table)*, shard_by = tenant, shard_map = "tenants", repository = People, changes)]
            #[indexes((town), (region), (email, unique, scope = "global"), $($index)*)]
            #[index(town, amount, consistency = "eventual")]
            #[aggregate(town, sum = [amount])]
            #[references(Self, fields = [tenant, parent])]
            #[index(tenant, parent)]
            pub(crate) struct Person {
                #[primary_key]
                pub(crate) tenant: u32,
                #[primary_key]
                pub(crate) id: u32,
                pub(crate) parent: u32,
                pub(crate) town: String,
                pub(crate) email: String,
                pub(crate) amount: u32,
                #[references(Region)]
                pub(crate) region: u8,
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "orders", shard_by = tenant, shard_map = "tenants", repository = Orders)]
            #[index(tenant, customer)]
            #[references(Person, fields = [tenant, customer])]
            pub(crate) struct Order {
                #[primary_key]
                pub(crate) tenant: u32,
                #[primary_key]
                pub(crate) number: u32,
                pub(crate) customer: u32,
            }

            /// Returns a row that has the next number of its tenant, and is its own parent or that of row 1.
            pub(crate) fn person(tenant: u32, id: u32) -> Person {
                let town = ["Oz", "Rome", "Ulm"][id as usize % 3].to_owned();
                let email = format!("{id}@{tenant}.org");
                Person { tenant, id, parent: 1, town, email, amount: id, region: 1 }
            }

            /// Inserts three rows of a tenant, and an order of the second.
            pub(crate) fn fill(
                txn: &mut WriteTxn<'_>,
                (people, orders): (&People, &Orders),
                tenant: u32,
            ) -> Result<()> {
                for _ in 0..3 {
                    people.insert_with(txn, tenant, |id| person(tenant, id))?;
                }
                orders.put(txn, &Order { tenant, number: 1, customer: 2 })
            }
        }
    };
}

release!(first, [name = "customers"], []);
release!(second, [name = "clients", was = "customers"], []);
release!(third, [name = "buyers", was = ["clients", "customers"]], []);
release!(indexed, [name = "clients", was = "customers"], [(amount), (parent, include = [email])]);
release!(back, [name = "customers", was = "clients"], []);
release!(plain, [name = "clients"], []);

/// The customers, with another field.
pub(crate) mod retyped {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "clients", was = "customers", shard_by = tenant, shard_map = "tenants", repository = People)]
    pub(crate) struct Person {
        #[primary_key]
        tenant: u32,
        #[primary_key]
        id: u32,
        other: String,
    }
}
