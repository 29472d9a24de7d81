//! A snapshot for each feature that changes the generated code.

use super::{expanded, expanded_key, expanded_version};

macro_rules! snapshots {
    ($expanded:ident: $($(#[doc = $doc:literal])* $name:ident: $input:literal;)*) => {$(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!(stringify!($name), $expanded($input.trim()));
            });
        }
    )*};
}

snapshots! {
    expanded:

    /// A struct with a primary key only.
    no_index: "
struct Note {
    #[primary_key]
    id: u64,
    text: String,
}
";

    revision: "
struct Note {
    #[primary_key]
    id: u64,
    #[revision]
    r#type: u32,
}
";

    expiry: "
#[table(expires = ends)]
struct Session {
    #[primary_key]
    id: u64,
    ends: Option<SystemTime>,
}
";

    changes: "
#[table(changes(keep = \"2d\", bytes = 1_000))]
struct Note {
    #[primary_key]
    id: u64,
}
";

    /// The index on the method is the declared one.
    computed_expiry: "
#[table(expires = computed(end: SystemTime))]
#[index(computed(end: SystemTime), id)]
struct Lease {
    #[primary_key]
    id: u64,
    begin: SystemTime,
}
";

    aggregates: "
#[index(customer, amount)]
#[aggregate(customer, kind, sum = [amount, items])]
#[aggregate(customer, min = [amount], max = [amount])]
#[aggregate(sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: String,
    kind: Kind,
    amount: i64,
    items: Option<u16>,
}
";

    references: r#"
#[table(part_of = Order)]
#[index(customer, amount)]
#[index(tenant, region)]
#[index(corrected)]
#[references(Region, fields = [tenant, region], on_delete = "cascade")]
struct Invoice {
    #[primary_key]
    number: u64,
    #[references(Customer)]
    customer: Option<u64>,
    tenant: u32,
    region: String,
    #[references(Self, on_delete = "cascade")]
    #[primary_key]
    corrected: u64,
    amount: i64,
}
"#;

    normalized: "
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}
";

    eventual: r#"
#[index(town, last_name, consistency = "eventual")]
#[index(last_name, consistency = "strong")]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
}
"#;

    partial: r#"
#[table(name = "customers")]
#[index(town, last_name, strategy = "partial", include = [phone, photo, age])]
pub struct Customer {
    #[primary_key]
    pub id: u64,
    pub last_name: String,
    pub town: String,
    pub phone: Option<String>,
    pub photo: Vec<u8>,
    pub age: Option<u8>,
}
"#;

    /// Collections that are stored in a canonical order.
    collections: "
#[index(town, include = [tags, phone])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    phone: String,
    tags: HashSet<String>,
    lists: (u8, Option<std::collections::HashMap<u8, String>>),
}
";

    full: r#"
#[index(year, strategy = "full")]
struct Film {
    #[primary_key]
    id: u32,
    title: String,
    year: u16,
    cast: Vec<String>,
}
"#;

    unique: "
#[index(email, unique)]
struct Customer {
    #[primary_key]
    id: u64,
    email: String,
}
";

    /// The methods of the primary key's first fields, and an entry that skips a field that is also in its
    /// key.
    composite_primary_key: "
#[index(year, genre)]
struct Film {
    #[primary_key]
    genre: String,
    #[primary_key]
    title: String,
    year: u16,
}
";

    /// Entries and views have the documentation of the fields.
    documented: "
#[table(view)]
#[index(town, desc(r#type), include = [phone])]
#[index(each(tags), strategy = \"full\")]
struct Customer {
    /// Its number.
    #[primary_key]
    id: u64,
    /// Its location.
    ///
    /// Not the address.
    town: String,
    #[doc = \"Its kind.\"]
    #[doc(alias = \"kind\")]
    r#type: u8,
    /// With the country's number.
    phone: String,
    /// Its labels.
    tags: Vec<String>,
    plain: u8,
}
";

    each: "
#[index(genre, each(cast), year)]
struct Film {
    #[primary_key]
    id: u32,
    genre: String,
    cast: Vec<String>,
    year: u16,
}
";

    each_with_its_collection: "
#[index(each(cast), include = [cast])]
struct Film {
    #[primary_key]
    id: u32,
    cast: Vec<String>,
}
";

    each_in_a_full_index: r#"
#[index(genre, each(cast), year, strategy = "full")]
struct Film {
    #[primary_key]
    id: u32,
    genre: String,
    cast: Vec<String>,
    year: u16,
}
"#;

    desc: "
#[index(genre, desc(title), desc(year))]
struct Film {
    #[primary_key]
    id: u32,
    genre: String,
    title: String,
    year: Option<u16>,
}
";

    /// A recognized type and an unknown type, also in a full index.
    computed: r#"
#[index(computed(initials: String), computed(decade: Decade), name = "shelf")]
#[index(year, computed(r#type: u8), title, strategy = "full")]
struct Film {
    #[primary_key]
    id: u32,
    title: String,
    year: u16,
}
"#;

    /// Types whose spelling shows whether `None` is a value, and types that the compiler checks.
    sparse: "
#[index(year, nick, title, sparse)]
#[index(each(tags), desc(year), sparse)]
#[index(nick, sparse)]
struct Film {
    #[primary_key]
    id: u32,
    title: String,
    year: Option<u16>,
    nick: Nick,
    tags: Vec<Option<u8>>,
}
";

    filter: r#"
#[index(title, filter = is_shown, unique, name = "shown")]
#[index(computed(decade: Option<u8>), sparse, filter = is_shown, include = [title], name = "shown_by")]
struct Film {
    #[primary_key]
    id: u32,
    title: String,
}
"#;

    named: r#"
#[index(town, last_name, unique, name = "residents")]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
}
"#;

    view: r#"
#[table(view)]
#[index(email, unique)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Customer {
    #[primary_key]
    id: u64,
    email: String,
    nick_name: Option<String>,
    #[serde(rename = "image")]
    photo: Vec<u8>,
    tags: Vec<String>,
    #[serde(with = "timestamp")]
    seen: Timestamp,
    #[serde(skip, default = "Cache::empty")]
    cache: Cache,
    #[serde(skip)]
    visits: u32,
}
"#;

    view_without_a_reference: "
#[table(view = Copied)]
struct Reading {
    #[primary_key]
    sensor: u32,
    #[primary_key]
    second: u64,
    value: f64,
}
";

    /// Methods for fields with which several indexes begin.
    shared_prefix: "
#[index(town, last_name)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
}
";

    /// A warning, which is also in the schema.
    doubtful: "
#[index(active)]
#[index(town, allow(redundant))]
#[index(town, active)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    active: bool,
}
";
    /// Hashes in a unique index, in an index with elements, in an index whose entries carry the hashed fields
    /// with a recognized and an unknown type, and after another field.
    hash: r#"
#[index(hash(url), unique)]
#[index(hash(text), each(tags), year, sparse)]
#[index(hash(url), hash(link), year, include = [link, url], name = "carried")]
#[index(year, hash(url), strategy = "full")]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
    text: Option<String>,
    link: Link,
    year: u16,
    tags: Vec<String>,
}
"#;

    raw_identifiers: "
#[index(r#type, each(r#match), include = [r#match, r#unique])]
struct Event {
    #[primary_key]
    r#mod: u64,
    r#type: String,
    r#match: Vec<u32>,
    r#unique: bool,
}
";

    table_options: r#"
#[table(name = "shop-customers", version = 3, repository = Shop, crate = crate::renamed)]
#[index(town)]
pub(crate) struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}
"#;

    sharded: "
#[table(shard_by = [tenant, region], shard_map = \"tenants\")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    region: String,
    #[primary_key]
    number: u64,
}
";

    sharded_by_a_hash: "
#[table(shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}
";

    reference: "
#[table(reference)]
struct PostalCode {
    #[primary_key]
    code: String,
}
";

    global_index: "
#[table(shard_by = tenant)]
#[index(tenant, town)]
#[index(email, unique, scope = \"global\")]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    town: String,
    email: String,
}
";

    /// Unknown types, and types that are spelled with a path.
    types: "
#[index(kind, tag, photo, optional_kind)]
#[index(each(tags), include = [kind, whole])]
struct Odd {
    #[primary_key]
    id: [u8; 16],
    kind: Kind,
    tag: std::string::String,
    photo: ::std::vec::Vec<u8>,
    optional_kind: Option<Kind>,
    tags: Tags,
    whole: core::option::Option<std::primitive::u8>,
}
";

    enum_beside_its_error: "
#[index(radius)]
pub enum Shape {
    Circle { radius: u32 },
}
";

    generic_beside_its_error: "
struct Row<'a, T: Clone, const N: usize> where T: Copy {
    #[primary_key]
    id: u64,
    value: &'a [T; N],
}
";

    viewed_beside_its_error: "
#[table(view)]
enum Shape {
    Circle { radius: u32 },
}
";
}

snapshots! {
    expanded:

    previous: "
#[table(version = 3, previous = older::Customer)]
struct Customer {
    #[primary_key]
    id: u64,
}
";

    previous_beside_its_error: "
#[table(version = 1, previous = CustomerV1)]
struct Customer {
    #[primary_key]
    id: u64,
}
";
}

snapshots! {
    expanded_version:

    version_of_a_row: "
#[table(version = 2, previous = CustomerV1, changed = [r#type], crate = crate::renamed)]
struct CustomerV2 {
    #[primary_key]
    id: u64,
    r#type: Option<std::string::String>,
}
";

    first_version_of_a_row: "
struct CustomerV1 {
    id: u64,
}
";

    version_beside_its_error: "
#[index(town)]
enum Shape {
    Circle { radius: u32 },
}
";
}

snapshots! {
    expanded_key:

    key_newtype: "
struct CustomerId(u64);
";

    /// Unknown types.
    key_struct: "
pub struct Address {
    town: String,
    r#type: Kind,
    numbers: (u8, Option<Kind>),
}
";

    key_enum: "
#[key(crate = crate::renamed)]
enum Kind {
    #[key(order = 10)]
    Private,
    #[key(order = 5)]
    r#Company,
}
";

    key_beside_its_error: "
enum Shape<T> {
    Circle(T),
}
";
}
