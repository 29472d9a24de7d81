//! A customer directory over HTTP: how [`index_table`] goes into a service that is asynchronous.
//!
//! | request | answer |
//! |---|---|
//! | `POST /customers` | 201 and the customer; 409 if the id or the email is taken |
//! | `GET /customers/{id}` | the customer |
//! | `PUT /customers/{id}` | 200 and the customer, 201 if it is new; 409 if the email is taken |
//! | `PATCH /customers/{id}` | the customer with the fields changed that were sent; 409 likewise |
//! | `DELETE /customers/{id}` | 204 |
//! | `GET /customers/by-email/{email}` | the customer |
//! | `GET /customers?town=…&limit=…&after=…` | `{items, next}`: a page, by last name; `after` is the `next` of the page before |
//! | `GET /phone-book?town=…&last_name=…&limit=…` | the entries of an index |
//! | `GET /health` | how many customers there are |
//! | `GET /usage` | what the indexes have been asked and what they have cost, since the start |
//!
//! Errors are `{"error": "…"}`, with the `field` that is to blame where there is one; [`failure`]
//! has the statuses.
//!
//! # The way of a request
//!
//! [`routes`] reads the request and writes the answer, [`model`] is what is stored, and between
//! them [`service`] asks and [`writer`] changes. LMDB is synchronous, and both keep it off the
//! threads on which the runtime answers requests.
//!
//! **Changes** go to one thread, through a bounded queue, and are answered after the commit. See
//! [`writer`].
//!
//! **Reads** run on the runtime's blocking pool, each in a transaction that begins and ends there:
//! no snapshot is held while a client is slow. A read is a matter of microseconds as long as the
//! pages that it touches are in memory. If one is not, the thread stands still until the disk has
//! brought it, and nothing tells the runtime: whatever else was to run on that thread waits too,
//! a request that reads nothing among them. The measurement, on two cores, 16 connections reading:
//!
//! | | on the runtime's threads | on the blocking pool |
//! |---|---|---|
//! | cold, 1,000,000 customers: the longest that a request without a read waited | 100 to 640 ms | 6 to 15 ms |
//! | warm, customers by id | 59,000 to 69,000/s | 34,000 to 39,000/s |
//! | warm, pages of 100 customers | 10,500 to 11,200/s | 8,800 to 9,800/s |
//!
//! The way to the pool and back takes some 20 to 40 µs, which counts against a look-up and hardly
//! against a page, and little against a real network. It buys that one slow read is one slow read.
//! A service whose store always fits into memory would rather read in place.
//!
//! The pool's size also bounds how many reads there are at a time: see [`service::READERS`].

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod failure;
pub mod model;
pub mod routes;
pub mod service;
pub mod writer;
