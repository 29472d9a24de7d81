//! The tables with their fields, indexes and references: as a picture, and as tables with the same contents.

use std::collections::BTreeMap;

use index_table::__private::admin::UntypedTable;
use maud::{Markup, html};

use super::{
    Page,
    frame::{self, Column, View, code, grouped, shortened, table as grid, url},
};
use crate::{
    diagram::{Entity, EntityField, entities},
    failure::Failure,
    value,
};

/// The maximum numbers of tables in the picture, and of a table's fields.
const TABLES: usize = 60;
const FIELDS: usize = 12;

/// The maximum number of characters of a name in the picture, and below it.
const NAME: usize = 24;
const LONG: usize = 200;

/// The sizes of the picture, in its own units.
const WIDTH: usize = 220;
const LINE: usize = 18;
const GAP: usize = 70;
const SPACE: usize = 24;

pub(super) fn view(page: &Page) -> Result<Markup, Failure> {
    let schema = page.store.recorded_schema()?;
    let all = entities(&schema);
    let view = View { title: "Schema", up: "", above: Vec::new(), is_live: false };
    let open: Vec<_> = page.store.untyped_tables().iter().map(UntypedTable::name).collect();
    let body = html! {
        @if all.is_empty() { p.empty { "The store has no tables." } }
        @else {
            section {
                h2 { "Tables and references" }
                @if all.len() > TABLES { p.hint { "The picture has the first " (TABLES) " tables." } }
                div.scroll role="region" aria-label="The picture of the tables" tabindex="0" {
                    (picture(all.get(..TABLES).unwrap_or(&all)))
                }
                p.hint { "Each arrow leads from the table with the reference. The sections below have the same contents." }
            }
            @for own in &all { (section(own, open.contains(&own.table.table.as_str()))) }
        }
    };
    Ok(frame::page(page, &view, &body))
}

/// Shows the fields of a table.
fn section(own: &Entity<'_>, is_open: bool) -> Markup {
    let name = &own.table.table;
    let rows: Vec<_> = own
        .fields
        .iter()
        .map(|field| {
            vec![
                code(&printable(field.name, LONG)),
                code(&printable(field.declared, LONG)),
                html! { (keys(field).join(", ")) },
                html! { (printable(&field.indexes.join(", "), LONG)) },
            ]
        })
        .collect();
    let columns = [
        Column::Code("field"),
        Column::Code("type"),
        Column::Text("key"),
        Column::Text("indexes with it"),
    ];
    html! {
        section {
            h2 { @if is_open { a href={ "table/" (url(name)) } { (printable(name, LONG)) } } @else { (printable(name, LONG)) } }
            @if !own.references.is_empty() {
                ul {
                    @for reference in &own.references {
                        li { code { (printable(reference.name, LONG)) } " refers to " code { (printable(reference.to, LONG)) } }
                    }
                }
            }
            (grid(&format!("Fields of {}", printable(name, LONG)), &columns, &rows))
            @if is_open { p { a href={ "lists/" (url(name)) } { "The lists of the fields of its rows" } } }
        }
    }
}

fn keys(field: &EntityField<'_>) -> Vec<&'static str> {
    let keys = [(field.is_primary, "primary key"), (field.is_foreign, "reference")];
    keys.iter().filter(|(is, _)| *is).map(|(_, key)| *key).collect()
}

/// The place of a table in the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    x: usize,
    y: usize,
    height: usize,
}

/// Returns the places of the tables, and the size of the picture. A table is to the left of those to which it refers, unless they refer
/// to each other.
fn places(all: &[Entity<'_>]) -> (Vec<Place>, (usize, usize)) {
    let at: BTreeMap<_, _> =
        all.iter().enumerate().map(|(at, own)| (own.table.table.as_str(), at)).collect();
    let targets = |own: &Entity<'_>| -> Vec<usize> {
        own.references.iter().filter_map(|reference| at.get(reference.to).copied()).collect()
    };
    let mut depths = vec![0_usize; all.len()];
    // A path has no more tables than there are, so a cycle ends here.
    for _ in 0..all.len().min(8) {
        for (own, entity) in all.iter().enumerate() {
            let others = targets(entity).into_iter().filter(|other| *other != own);
            let least = others.filter_map(|other| depths.get(other)).max().map_or(0, |it| it + 1);
            if let Some(depth) = depths.get_mut(own) {
                *depth = (*depth).max(least).min(8);
            }
        }
    }
    let deepest = depths.iter().copied().max().unwrap_or(0);
    let is_target = |own: usize| all.iter().any(|entity| targets(entity).contains(&own));
    let mut bottoms = vec![SPACE; deepest + 1];
    // Tables without references fill the columns.
    let mut alone = Vec::new();
    let mut places = vec![Place { x: 0, y: 0, height: 0 }; all.len()];
    let mut put = |own: usize, column: usize, bottoms: &mut Vec<usize>| {
        let fields = all.get(own).map_or(0, |entity| entity.fields.len());
        let height = LINE * (1 + fields.min(FIELDS) + usize::from(fields > FIELDS)) + LINE / 2;
        if column >= bottoms.len() {
            bottoms.resize(column + 1, SPACE);
        }
        if let (Some(place), Some(bottom)) = (places.get_mut(own), bottoms.get_mut(column)) {
            *place = Place { x: SPACE + column * (WIDTH + GAP), y: *bottom, height };
            *bottom += height + SPACE;
        }
    };
    for (own, depth) in depths.iter().enumerate() {
        if *depth == 0 && !is_target(own) {
            alone.push(own);
        } else {
            put(own, deepest - depth, &mut bottoms);
        }
    }
    for own in alone {
        // At least three columns.
        bottoms.resize(bottoms.len().max(3), SPACE);
        let column = bottoms.iter().enumerate().min_by_key(|(_, bottom)| **bottom);
        let column = column.map_or(0, |(column, _)| column);
        put(own, column, &mut bottoms);
    }
    let height = bottoms.iter().copied().max().unwrap_or(SPACE);
    let used = places.iter().map(|place| place.x + WIDTH).max().unwrap_or(0);
    (places, (used + SPACE + GAP / 2, height))
}

fn picture(all: &[Entity<'_>]) -> Markup {
    let (places, (width, height)) = places(all);
    let find = |name: &str| all.iter().position(|own| own.table.table == name);
    let arrows = all.iter().zip(&places).flat_map(|(own, from)| {
        let find = &find;
        let places = &places;
        own.references.iter().enumerate().filter_map(move |(at, reference)| {
            let to = places.get(find(reference.to)?)?;
            let title =
                format!("{} refers to {} by {}", own.table.table, reference.to, reference.name);
            Some((arrow(*from, *to, at), printable(&title, LONG)))
        })
    });
    let label = format!(
        "{} tables with {} references",
        grouped(all.len() as u64),
        grouped(all.iter().map(|own| own.references.len() as u64).sum())
    );
    html! {
        svg.schema role="img" aria-label=(label) width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } {
            @for ((line, head), title) in arrows {
                path d=(line) fill="none" stroke="currentColor" stroke-opacity="0.6" stroke-width="1.5" { title { (title) } }
                path d=(head) fill="currentColor" fill-opacity="0.8" {}
            }
            @for (own, place) in all.iter().zip(&places) { (entity(own, *place)) }
        }
    }
}

/// Returns the line and the head of the arrow from a table to another one.
fn arrow(from: Place, to: Place, at: usize) -> (String, String) {
    let middle = |place: Place| place.y + LINE / 2 + LINE * (at % 4) / 4;
    let (y1, y2) = (middle(from), to.y + LINE / 2 + 3);
    // To the right of the boxes if the other table is not there.
    let is_right = to.x > from.x;
    let x1 = from.x + WIDTH;
    let (x2, bend) = if is_right {
        (to.x, to.x - GAP / 2)
    } else {
        (to.x + WIDTH, x1.max(to.x + WIDTH) + GAP / 2)
    };
    let first = if is_right { x1 + GAP / 2 } else { bend };
    let line = format!("M {x1} {y1} C {first} {y1} {bend} {y2} {x2} {y2}");
    let back = if is_right { x2.saturating_sub(9) } else { x2 + 9 };
    let (above, below) = (y2.saturating_sub(5), y2 + 5);
    (line, format!("M {x2} {y2} L {back} {above} L {back} {below} Z"))
}

fn entity(own: &Entity<'_>, place: Place) -> Markup {
    let Place { x, y, height } = place;
    let line = |at: usize| y + LINE * at + LINE * 3 / 4;
    let shown = own.fields.iter().take(FIELDS).enumerate().map(|(at, field)| {
        let mark = match (field.is_primary, field.is_foreign) {
            (true, true) => "PK FK ",
            (true, false) => "PK ",
            (false, true) => "FK ",
            (false, false) => "",
        };
        (line(at + 1) + LINE / 4, format!("{mark}{}", printable(field.name, NAME)), field.declared)
    });
    let further = own.fields.len().saturating_sub(FIELDS);
    html! {
        g {
            rect.box x=(x) y=(y) width=(WIDTH) height=(height) rx="6" stroke="currentColor" stroke-opacity="0.4" fill="none" {}
            text x=(x + 10) y=(line(0)) font-size="13" font-weight="bold" fill="currentColor" { (printable(&own.table.table, NAME)) }
            line x1=(x) x2=(x + WIDTH) y1=(y + LINE + 2) y2=(y + LINE + 2) stroke="currentColor" stroke-opacity="0.3" {}
            @for (y, name, declared) in shown {
                text x=(x + 10) y=(y) font-size="12" fill="currentColor" fill-opacity="0.85" { (name) title { (printable(declared, LONG)) } }
            }
            @if further > 0 {
                text x=(x + 10) y=(line(FIELDS + 1) + LINE / 4) font-size="12" fill="currentColor" fill-opacity="0.7" { (further) " further fields" }
            }
        }
    }
}

fn printable(text: &str, limit: usize) -> String {
    value::printable(&shortened(text, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(tables: &[(&str, &[&str])]) -> index_table::report::StoreSchema {
        let table = |(name, to): &(&str, &[&str])| {
            let indexes = to.iter().map(|to| {
                serde_json::json!({
                    "name": format!("@{to}"), "key": [], "strategy": "reference", "options": [format!("to={to}")],
                })
            });
            let indexes: Vec<_> = indexes.collect();
            let fields = serde_json::json!([{ "name": "id", "type": "u64" }]);
            serde_json::json!({
                "table": name, "version": 1, "fields": fields, "primary_key": [], "indexes": indexes,
            })
        };
        let tables: Vec<_> = tables.iter().map(table).collect();
        let schema = serde_json::json!({ "form": 1, "tables": tables });
        serde_json::from_value(schema).expect("a schema")
    }

    #[test]
    fn a_table_is_to_the_left_of_those_to_which_it_refers() {
        let schema = schema(&[
            ("lines", &["orders", "products"]),
            ("orders", &["customers"]),
            ("customers", &["customers"]),
            ("products", &[]),
            ("notes", &[]),
            ("a", &["b"]),
            ("b", &["a"]),
        ]);
        let all = entities(&schema);
        let (places, (width, height)) = places(&all);
        assert!(places[0].x < places[1].x && places[1].x < places[2].x, "{places:?}");
        assert!(places[0].x < places[3].x, "{places:?}");
        for (at, place) in places.iter().enumerate() {
            assert!(place.x + WIDTH <= width && place.y + place.height <= height, "{place:?}");
            let beside = |other: &Place| {
                other.x != place.x
                    || other.y + other.height <= place.y
                    || place.y + place.height <= other.y
            };
            assert!(places[at + 1..].iter().all(beside), "{at}: {places:?}");
        }
        assert_eq!(picture(&all).into_string().matches("<title>u64</title>").count(), 7);
    }
}
