//! Lag: the consumers of change streams, eventual indexes, the archive, and the follower.

use std::time::{Duration, SystemTime};

use index_table::{
    Error,
    report::{ArchiveLag, ChangeConsumer, FollowerLag},
};
use maud::{Markup, html};

use super::{
    Page,
    frame::{self, Column, View, age, badge, figure, grouped, number, size, table, text},
};
use crate::{failure::Failure, output::bytes};

pub(super) fn view(page: &Page) -> Result<Markup, Failure> {
    let view = View { title: "Lag", up: "", above: Vec::new(), is_live: true };
    let (mut consumers, mut queues) = (Vec::new(), Vec::new());
    let txn = page.store.read()?;
    for own in page.store.untyped_tables() {
        match own.lag(&txn) {
            Ok(Some(lag)) => queues.push(vec![
                text(own.name()),
                number(lag.messages),
                text(&if lag.messages == 0 { "–".to_owned() } else { age(lag.behind) }),
                if lag.dead_letters == 0 {
                    number(0)
                } else {
                    badge(&grouped(lag.dead_letters), false)
                },
            ]),
            Ok(None) | Err(Error::ShardUnavailable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match own.change_consumers(&txn) {
            Ok(found) => consumers.extend(found.iter().map(|it| consumer(own.name(), it))),
            Err(Error::ShardUnavailable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    drop(txn);
    let archive = page.store.archive_lag();
    let follower = page.follower_lag()?;
    let follower = follower.as_ref().as_ref();
    let is_command = page.recorded.is_some();
    let of_consumers = [
        Column::Text("table"),
        Column::Text("consumer"),
        Column::Number("position"),
        Column::Number("behind"),
        Column::Number("bytes"),
        Column::Number("oldest"),
        Column::Number("last commit"),
        Column::Number("missed"),
    ];
    let of_queues = [
        Column::Text("table"),
        Column::Number("pending messages"),
        Column::Number("oldest"),
        Column::Number("dead letters"),
    ];
    let body = html! {
        section.card data-live="consumers" {
            h2 { "Consumers of change streams" }
            @if consumers.is_empty() { p.empty { "There are none." } }
            @else { (table("Consumers", &of_consumers, &consumers)) }
        }
        section.card data-live="queues" {
            h2 { "Eventual indexes" }
            @if queues.is_empty() { p.empty { "There are none." } }
            @else { (table("Tables with eventual indexes", &of_queues, &queues)) }
        }
        section.card data-live="archive" {
            h2 { "Archive and followers" }
            @if let Some(lag) = &archive { (of_archive(lag)) }
            @if let Some(lag) = follower { (of_follower(lag)) }
            @if archive.is_none() && follower.is_none() {
                p.empty {
                    @if is_command { "The process that writes the store shows the lag of its archive in its own page. The directory of a follower shows its lag." }
                    @else { "The store has no archive, and is no follower." }
                }
            }
        }
    };
    Ok(frame::page(page, &view, &body))
}

fn consumer(table: &str, own: &ChangeConsumer) -> Vec<Markup> {
    let ago = |time: SystemTime| age(SystemTime::now().duration_since(time).unwrap_or_default());
    vec![
        text(table),
        frame::code(&own.name),
        number(own.position),
        number(own.lag.changes),
        size(own.lag.bytes),
        text(&own.lag.since.map_or_else(|| "–".to_owned(), ago)),
        html! { (ago(own.last_commit)) " ago" },
        if own.missed == 0 { number(0) } else { badge(&grouped(own.missed), false) },
    ]
}

fn behind(time: Duration) -> String {
    if time.is_zero() { "–".to_owned() } else { age(time) }
}

fn of_archive(lag: &ArchiveLag) -> Markup {
    html! {
        h3 { "This store to its archive" }
        dl.figures {
            (figure("commits behind", &grouped(lag.commits), ""))
            (figure("bytes", &bytes(lag.bytes), ""))
            (figure("time", &behind(lag.time), ""))
            @if !lag.has_base { div.figure { dt { "base" } dd { (badge("missing", false)) } } }
        }
        @if let Some(error) = &lag.error { p.error { (error) } }
    }
}

fn of_follower(lag: &FollowerLag) -> Markup {
    html! {
        h3 { "This follower to its archive" }
        dl.figures {
            (figure("commits behind", &grouped(lag.commits), ""))
            (figure("bytes", &bytes(lag.bytes), ""))
            (figure("time", &behind(lag.time), ""))
        }
        @if let Some(error) = &lag.error { p.error { (error) } }
    }
}
