//! Values of several forms: enums of each representation, flattened fields, JSON, maps and trees.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU32,
    ops::Range,
};

use index_table::IndexTable;
use indexmap::IndexMap;
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::kind;

/// JSON in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Phase {
    Waiting,
    Running,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "exports")]
#[index(lane, priority)]
struct Export {
    #[primary_key]
    id: Uuid,
    lane: String,
    request: Value,
    phase: Phase,
    priority: i32,
    failure: Option<String>,
    hints: Option<Value>,
}

fn exports() -> Vec<Export> {
    let requests = [
        json!({ "format": "csv", "columns": ["id", "town"], "limit": null }),
        json!([1, -7, 2.5, true]),
        json!("all"),
        json!(null),
        json!({}),
    ];
    let export = |n: usize| Export {
        id: Uuid::from_u128(n as u128),
        lane: format!("lane {}", n % 2),
        request: requests[n % 5].clone(),
        phase: [Phase::Waiting, Phase::Running, Phase::Failed][n % 3].clone(),
        priority: 5 - n as i32,
        failure: (n % 3 == 2).then(|| "disk full".into()),
        hints: (n % 4 == 1).then(|| json!({ "zip": n })),
    };
    (0..10).map(export).collect()
}

kind!(rows_with_json: ExportRepository("exports"), row in exports(),
    key: (row.id),
    many: find_by_lane_priority(&row.lane, row.priority),
    change: row.request = json!({ "format": "pdf" }),
    // The JSON as a text.
    plain: (
        (row.id, &row.lane, row.request.to_string(), &row.phase, row.priority),
        (&row.failure, row.hints.as_ref().map(Value::to_string)),
    ),
    more: 0,
);

/// An event whose form and content are two fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
enum Step {
    Named { name: String },
    Priced { price: i64, by: Option<u64> },
    Withdrawn,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "steps")]
#[index(article, number, unique)]
struct ArticleStep {
    #[primary_key]
    id: Uuid,
    article: Uuid,
    number: i64,
    step: Step,
}

fn steps() -> Vec<ArticleStep> {
    let kinds = [
        Step::Named { name: "Lamp".into() },
        Step::Withdrawn,
        Step::Priced { price: 1999, by: None },
        Step::Priced { price: -1, by: Some(7) },
    ];
    let step = |n: usize| ArticleStep {
        id: Uuid::from_u128(n as u128),
        article: Uuid::from_u128(9),
        number: n as i64,
        step: kinds[n % 4].clone(),
    };
    (0..12).map(step).collect()
}

kind!(rows_with_adjacently_tagged_enums: ArticleStepRepository("steps"), row in steps(),
    key: (row.id),
    unique: get_by_article_number(row.article, row.number),
    change: row.number += 100,
    plain: row,
    // A byte says whether there is a body, and one which body it is.
    more: 2,
);

/// A payment whose form is a field among the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase")]
enum Means {
    Card { digits: String },
    Transfer { account: String, bank: u32 },
    Cash,
}

/// The same with the form in front.
#[derive(Serialize)]
enum PlainMeans<'r> {
    Card(&'r str),
    Transfer(&'r str, u32),
    Cash,
}

impl Means {
    fn plain(&self) -> PlainMeans<'_> {
        match self {
            Self::Card { digits } => PlainMeans::Card(digits),
            Self::Transfer { account, bank } => PlainMeans::Transfer(account, *bank),
            Self::Cash => PlainMeans::Cash,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Card { .. } => "card",
            Self::Transfer { .. } => "transfer",
            Self::Cash => "cash",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "receipts")]
#[index(buyer)]
struct Receipt {
    #[primary_key]
    id: u64,
    buyer: u64,
    means: Means,
}

fn receipts() -> Vec<Receipt> {
    let means = [
        Means::Cash,
        Means::Transfer { account: "DE89 3704".into(), bank: 370_400 },
        Means::Card { digits: "4242".into() },
    ];
    let receipt = |n: usize| Receipt {
        id: n as u64 * 1000,
        buyer: n as u64 % 4,
        means: means[n % 3].clone(),
    };
    (0..9).map(receipt).collect()
}

kind!(rows_with_internally_tagged_enums: ReceiptRepository("receipts"), row in receipts(),
    key: (row.id),
    many: find_by_buyer(row.buyer),
    change: row.buyer += 4,
    plain: (row.id, row.buyer, row.means.plain()),
    // The tag is a field with the name of the variant.
    more: 1 + row.means.name().len(),
);

/// A text or a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Code {
    Number(u64),
    Text(String),
}

#[derive(Serialize)]
enum PlainCode<'r> {
    Number(u64),
    Text(&'r str),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parcels")]
#[index(city)]
struct Parcel {
    #[primary_key]
    id: u64,
    city: String,
    code: Code,
}

fn parcels() -> Vec<Parcel> {
    let parcel = |n: u64| Parcel {
        id: n,
        city: format!("City {}", n % 3),
        code: match n % 3 {
            0 => Code::Number(n),
            1 => Code::Number(u64::MAX / n),
            _ => Code::Text("PX".repeat(n as usize * 6)),
        },
    };
    (0..9).map(parcel).collect()
}

kind!(rows_with_untagged_enums: ParcelRepository("parcels"), row in parcels(),
    key: (row.id),
    many: find_by_city(&row.city),
    change: row.code = Code::Text("lost".into()),
    plain: (row.id, &row.city, match &row.code {
        Code::Number(number) => PlainCode::Number(*number),
        Code::Text(text) => PlainCode::Text(text),
    }),
    more: 0,
);

/// Fields of another struct among those of the row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Trace {
    author: u64,
    reviewer: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "articles")]
#[index(path, unique)]
struct Article {
    #[primary_key]
    id: u64,
    path: String,
    #[serde(flatten)]
    trace: Trace,
}

fn articles() -> Vec<Article> {
    let article = |n: u64| Article {
        id: n,
        path: format!("/a/{n}"),
        trace: Trace { author: n % 3, reviewer: n.is_multiple_of(2).then_some(n * 999) },
    };
    (0..9).map(article).collect()
}

/// The bytes of a flattened row that a plain one does not have: the number of its fields, their names, and a tag for each value.
fn flattened<'n>(names: impl IntoIterator<Item = &'n str>) -> usize {
    1 + names.into_iter().map(|name| 1 + name.len() + 1).sum::<usize>()
}

kind!(rows_with_flattened_fields: ArticleRepository("articles"), row in articles(),
    key: (row.id),
    unique: get_by_path(&row.path),
    change: row.trace.reviewer = Some(1),
    plain: row_of(row.id, &row.path, (row.trace.author, row.trace.reviewer)),
    more: flattened(["id", "path", "author", "reviewer"]),
);

fn row_of<'r, T: Serialize + 'r>(id: u64, text: &'r str, rest: T) -> impl Serialize + 'r {
    (id, text, rest)
}

/// All fields that the struct does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "leads")]
#[index(company)]
struct Lead {
    #[primary_key]
    id: u64,
    company: String,
    #[serde(flatten)]
    others: HashMap<String, Value>,
}

fn leads() -> Vec<Lead> {
    let others = |n: u64| (0..n % 3).map(move |at| (format!("field {at}"), json!(n * at)));
    let lead =
        |n: u64| Lead { id: n, company: format!("Company {n}"), others: others(n).collect() };
    (0..9).map(lead).collect()
}

kind!(rows_with_flattened_maps: LeadRepository("leads"), row in leads(),
    key: (row.id),
    many: find_by_company(&row.company),
    change: row.company.push('!'),
    plain: row_of(
        row.id,
        &row.company,
        row.others.iter().map(|(name, value)| (name, value.to_string())).collect::<HashMap<_, _>>(),
    ),
    // The map's own names are in the plain row too.
    more: flattened(["id", "company"]) + row.others.len(),
);

/// Maps with keys that are an enum, in an order of their own, and sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Grain {
    Barley,
    Rye,
    Wheat,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "mills")]
#[index(river)]
struct Mill {
    #[primary_key]
    id: u32,
    river: String,
    stored: HashMap<Grain, u64>,
    prices: IndexMap<String, f32>,
    marks: HashSet<String>,
    software: Version,
    place: (f64, f64),
}

fn mills() -> Vec<Mill> {
    let mill = |n: u32| Mill {
        id: n,
        river: format!("River {}", n % 2),
        stored: [(Grain::Rye, u64::from(n) * 1000), (Grain::Wheat, 3), (Grain::Barley, 0)]
            .into_iter()
            .take(n as usize % 4)
            .collect(),
        prices: (0..n % 4).map(|at| (format!("price {at}"), 0.25 + at as f32)).collect(),
        marks: (0..n % 5).map(|at| format!("mark {at}")).collect(),
        software: Version::new(1, n.into(), 3),
        place: (51.5 + f64::from(n), -0.25),
    };
    (0..10).map(mill).collect()
}

kind!(rows_with_maps_and_sets: MillRepository("mills"), row in mills(),
    key: (row.id),
    many: find_by_river(&row.river),
    change: row.stored.insert(Grain::Barley, 7),
    plain: row,
    more: 0,
);

/// A tree, and the numbers and texts that few structs have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Formula {
    Name(String),
    Sum(Vec<Formula>),
    Product(Box<Formula>, Box<Formula>),
    Number(i64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sheets")]
#[index(owner)]
struct Sheet {
    #[primary_key]
    id: u64,
    owner: u32,
    root: Formula,
    title: Option<Box<str>>,
    lines: Range<u32>,
    symbol: char,
    balance: u128,
    change: i128,
    weight: NonZeroU32,
}

fn formula(depth: u32) -> Formula {
    match depth % 4 {
        0 => Formula::Number(-1000 * i64::from(depth)),
        1 => Formula::Name(format!("x{depth}")),
        2 => Formula::Sum((0..depth).map(formula).collect()),
        _ => Formula::Product(formula(depth - 1).into(), formula(depth - 2).into()),
    }
}

fn sheets() -> Vec<Sheet> {
    let sheet = |n: u32| Sheet {
        id: n.into(),
        owner: n % 3,
        root: formula(n % 8),
        title: n.is_multiple_of(3).then(|| "Costs".into()),
        lines: n..n * 100,
        symbol: ['x', 'é', '→', '𝛑'][n as usize % 4],
        balance: u128::MAX >> (6 * n),
        change: -1 << (6 * n),
        weight: NonZeroU32::MIN.saturating_add(n * 60),
    };
    (0..21).map(sheet).collect()
}

kind!(rows_with_trees_and_large_numbers: SheetRepository("sheets"), row in sheets(),
    key: (row.id),
    many: find_by_owner(row.owner),
    change: row.balance /= 3,
    plain: row,
    more: 0,
);
