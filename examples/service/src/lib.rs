//! A customer directory over HTTP: [`index_table`] in an asynchronous service.
//!
//! | request | response |
//! |---|---|
//! | `POST /customers` | 201 and the customer; 409 if the id or the email is taken |
//! | `GET /customers/{id}` | the customer, with its revision as an `ETag` |
//! | `PUT /customers/{id}` | 200 and the customer, 201 if it is new; 409 if the email is taken |
//! | `PATCH /customers/{id}` | the customer, with the sent fields changed; 409 if the email is taken |
//! | `DELETE /customers/{id}` | 204 |
//! | `GET /customers/by-email/{email}` | the customer |
//! | `GET /customers?town=…&limit=…&after=…` | `{items, next}`: a page, by last name; `after` is the `next` of the page before |
//! | `GET /phone-book?town=…&last_name=…&limit=…` | the entries of an index |
//! | `GET /health` | the number of customers |
//! | `GET /usage` | the queries and the costs of the indexes, since the start |
//! | `GET /admin/`, `GET /admin/metrics` | the page of the store and its metrics, with the header `Authorization: Bearer TOKEN`; only if the variable `ADMIN_TOKEN` has a token |
//!
//! `PUT`, `PATCH` and `DELETE` of a customer take the `ETag` in the header `If-Match`, and respond with 412 if the customer
//! has another revision: another client has changed it. Without this header, the last write wins.
//!
//! Errors are `{"error": "…"}`, with the wrong `field` if there is one; [`failure`] has the statuses.
//!
//! # The path of a request
//!
//! [`routes`] reads the request and writes the response, [`model`] has the stored type, [`service`] runs
//! queries, and [`commands`] run [`changes`]. All of them are asynchronous calls of the store, which run away from the threads of
//! the runtime.
//!
//! **Changes** wait in a bounded queue, and get their response after the commit. With a full queue, the response is 503.
//!
//! **Reads** have a transaction of their own, which ends before the response is written: a slow client holds no snapshot.
//! A customer is looked up in the thread of the task, as long as that does not wait for a disk.
//!
//! **The end**: after a signal to stop, the service accepts no more connections, finishes the requests that it has, for at
//! most ten seconds, and then the commands that have begun.
//!
//! # On a PostgreSQL server
//!
//! With the Cargo feature `postgres` and the arguments `--postgres URL`, the store is on a server, and several
//! instances of the service share it. The same code runs on it: only [`service::Service::connect`] differs from
//! [`service::Service::open`]. Each command is a transaction of its own then. If commands of two instances conflict, one of them
//! runs again.
//!
//! # The second release
//!
//! `index-table-service-example-2` is the next release of the same service, in which a customer has a company. Its model,
//! `src/release_2/model.rs`, has one more line than [`model`], and a comment for it. Customers of the first release have no
//! company until they are written with one. If the first release is started again, it keeps the company of a customer that it
//! writes, because its model has `keep_unknown`. `tests/service/releases.rs` starts both releases on one store.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod admin;
pub mod changes;
pub mod commands;
pub mod failure;
pub mod model;
pub mod program;
pub mod routes;
pub mod service;
