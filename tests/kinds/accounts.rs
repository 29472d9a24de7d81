//! Persons, their accounts and settings: ids, times, and fields that may be absent or have other names.

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, Utc};
use index_table::{IndexKey, IndexTable};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::kind;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds * 77_777, 123_000_000).expect("a time")
}

fn day(number: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(2025, 1 + number % 12, 1 + number % 28).expect("a day")
}

/// Returns the value for every second number.
fn even<T>(number: u32, value: T) -> Option<T> {
    number.is_multiple_of(2).then_some(value)
}

/// A row of a table in SQL, with names as in JavaScript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members")]
#[serde(rename_all = "camelCase")]
#[index(mail_address, unique)]
#[index(joined_at)]
struct Member {
    #[primary_key]
    member_id: Uuid,
    mail_address: String,
    nick_name: Option<String>,
    secret_hash: String,
    may_moderate: bool,
    joined_at: DateTime<Utc>,
    seen_at: Option<DateTime<Utc>>,
}

fn members() -> Vec<Member> {
    let member = |n: u32| Member {
        member_id: Uuid::from_u128(0x1234_5678_9abc_def0_0000 + u128::from(n)),
        mail_address: format!("m{n}@example.org"),
        nick_name: even(n, format!("nick {n}")),
        secret_hash: "5f4dcc3b".repeat(8),
        may_moderate: n.is_multiple_of(3),
        joined_at: at(n.into()),
        seen_at: even(n / 2, at(2 * i64::from(n))),
    };
    (1..12).map(member).collect()
}

kind!(rows_with_ids_times_and_renamed_fields: MemberRepository("members"), row in members(),
    key: (row.member_id),
    unique: get_by_mail_address(&row.mail_address),
    many: find_by_joined_at(row.joined_at),
    change: row.mail_address.insert(0, 'x'),
    plain: row,
    more: 0,
);

/// A body of an API, without the fields that are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "guests")]
#[index(handle, unique)]
struct Guest {
    #[primary_key]
    id: i32,
    full_name: String,
    handle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass_phrase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invited_at: Option<NaiveDateTime>,
}

fn guests() -> Vec<Guest> {
    let guest = |n: u32| Guest {
        id: n.cast_signed() - 4,
        full_name: format!("Guest {n}"),
        handle: format!("g{n}"),
        pass_phrase: even(n, "correct horse".into()),
        rank: even(n / 2, "vip".into()),
        invited_at: even(n / 4, at(n.into()).naive_utc()),
    };
    (0..9).map(guest).collect()
}

kind!(rows_without_absent_fields: GuestRepository("guests"), row in guests(),
    key: (row.id),
    unique: get_by_handle(&row.handle),
    change: row.rank = None,
    // postcard would write nothing for an absent field.
    plain: (row.id, &row.full_name, &row.handle, &row.pass_phrase, &row.rank, row.invited_at),
    more: 0,
);

/// A document whose key has the name `_id`, and may be absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "recipes", allow(optional_key))]
#[index(dish)]
struct Recipe {
    #[primary_key]
    #[serde(rename = "_id", skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    dish: String,
    minutes: i32,
    steps: String,
}

fn recipes() -> Vec<Recipe> {
    let recipe = |n: u32| Recipe {
        id: (n > 0).then(|| format!("65a{n:021x}")),
        dish: format!("Soup {}", n % 3),
        minutes: 10 * n.cast_signed(),
        steps: "Stir. ".repeat(n as usize * 9),
    };
    (0..7).map(recipe).collect()
}

kind!(documents_with_an_optional_renamed_key: RecipeRepository("recipes"), row in recipes(),
    key: (row.id.as_deref()),
    many: find_by_dish(&row.dish),
    change: row.minutes = 300,
    plain: (&row.id, &row.dish, row.minutes, &row.steps),
    more: 0,
);

/// An id and a state of types of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
#[serde(transparent)]
struct ClaimId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
#[serde(rename_all = "snake_case")]
enum ClaimState {
    Filed,
    InReview,
    Settled,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "claims")]
#[index(state, urgency)]
struct Claim {
    #[primary_key]
    id: ClaimId,
    state: ClaimState,
    urgency: u8,
    subject: String,
}

fn claims() -> Vec<Claim> {
    let states = [ClaimState::Settled, ClaimState::Filed, ClaimState::InReview];
    let claim = |n: usize| Claim {
        id: ClaimId(1 << (5 * n)),
        state: states[n % 3],
        urgency: n as u8 * 40,
        subject: format!("Hail {n}"),
    };
    (0..7).map(claim).collect()
}

kind!(rows_with_types_of_their_own_in_keys: ClaimRepository("claims"), row in claims(),
    key: (&row.id),
    many: find_by_state_urgency(row.state, row.urgency),
    change: row.state = ClaimState::Settled,
    plain: row,
    more: 0,
);

/// A field that is absent inside of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Home {
    road: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    door: Option<String>,
    post_code: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tenants")]
#[index(surname)]
struct Tenant {
    #[primary_key]
    id: u64,
    surname: String,
    home: Home,
}

fn tenants() -> Vec<Tenant> {
    let tenant = |n: u32| Tenant {
        id: 1_000_000_007 * u64::from(n),
        surname: "Ito".repeat(n as usize % 3 + 1),
        home: Home {
            road: format!("Elm Road {n}"),
            door: even(n + 1, format!("{n}b")),
            post_code: "0150".into(),
        },
    };
    (0..8).map(tenant).collect()
}

kind!(rows_with_absent_fields_inside: TenantRepository("tenants"), row in tenants(),
    key: (row.id),
    many: find_by_surname(&row.surname),
    change: row.home.door = Some("cellar".into()),
    plain: (row.id, &row.surname, &row.home.road, &row.home.door, &row.home.post_code),
    more: 0,
);

/// Defaults, other names, and no unknown fields.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "profiles")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[index(profile_name)]
struct Profile {
    #[primary_key]
    id: u32,
    #[serde(alias = "label")]
    profile_name: String,
    #[serde(rename = "type")]
    sort: String,
    max_tries: Option<usize>,
    zoom: f32,
}

fn profiles() -> Vec<Profile> {
    let profile = |n: u32| Profile {
        id: n,
        profile_name: format!("p{n}"),
        sort: "dark".into(),
        max_tries: even(n + 1, 1 << (3 * n)),
        zoom: 0.75,
    };
    (0..9).map(profile).collect()
}

kind!(rows_with_defaults_and_aliases: ProfileRepository("profiles"), row in profiles(),
    key: (row.id),
    many: find_by_profile_name(&row.profile_name),
    change: row.max_tries = Some(usize::MAX),
    plain: row,
    more: 0,
);

/// A change of a row, in which a field is absent, removed or set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "edits")]
#[index(editor)]
struct Edit {
    #[primary_key]
    id: u64,
    editor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[allow(clippy::option_option, reason = "absent, removed or set")]
    deadline: Option<Option<NaiveDate>>,
    made_at: DateTime<FixedOffset>,
}

fn edits() -> Vec<Edit> {
    let zone = FixedOffset::east_opt(2 * 3600).expect("a zone");
    let edit = |n: u32| Edit {
        id: n.into(),
        editor: format!("e{}", n % 2),
        deadline: [None, Some(None), Some(Some(day(n)))][n as usize % 3],
        made_at: at(n.into()).with_timezone(&zone),
    };
    (0..9).map(edit).collect()
}

kind!(rows_with_an_option_of_an_option: EditRepository("edits"), row in edits(),
    key: (row.id),
    many: find_by_editor(&row.editor),
    change: row.deadline = Some(None),
    plain: (row.id, &row.editor, row.deadline, row.made_at),
    more: 0,
);
