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
//! queries and [`writer`] runs [`changes`]. LMDB is synchronous, so neither of them calls it on the runtime's
//! threads.
//!
//! **Changes** go to one thread, through a bounded queue, and get their response after the commit. See
//! [`writer`].
//!
//! **Reads** run on the runtime's blocking pool, each in a transaction that begins and ends there:
//! a slow client holds no snapshot. A read takes microseconds if its pages are in memory. Otherwise, the
//! thread waits for the disk, and the runtime can't detect it: every other task of that thread waits too,
//! even a request that reads nothing. The figures were measured on two cores with 16 reading connections:
//!
//! | | on the runtime's threads | on the blocking pool |
//! |---|---|---|
//! | cold, 1,000,000 customers: the longest wait of a request without a read | 100 to 640 ms | 6 to 15 ms |
//! | warm, customers by id | 59,000 to 69,000/s | 34,000 to 39,000/s |
//! | warm, pages of 100 customers | 10,500 to 11,200/s | 8,800 to 9,800/s |
//! The pool adds about 20 to 40 µs to a read, which matters for a look-up, but hardly for a page, and little
//! compared to a real network. In exchange, a slow read delays no other request. A service whose store always
//! fits into memory should read on the runtime's threads.
//!
//! # On a PostgreSQL server
//!
//! With the Cargo feature `postgres` and the arguments `--postgres URL`, the store is on a server, and several
//! instances of the service share it. The same code runs on it. A call then blocks its thread for each round trip to
//! the server, about a millisecond in a network, so the blocking pool is required: a thread of the runtime that waits
//! for the server runs no other task. The group writer runs the queued commands in one transaction, which saves
//! commits; each command still takes its own round trips. Commands of other instances can conflict, and then the group
//! runs again.
//!
//! The pool's size also limits the number of concurrent reads: see [`service::READERS`].
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
pub mod failure;
pub mod model;
pub mod program;
pub mod routes;
pub mod service;
pub mod writer;
