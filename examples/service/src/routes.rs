//! The endpoints, which read requests, call the service and write responses.

use std::num::NonZeroU16;

use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRequest, FromRequestParts, State},
    http::{
        HeaderMap, StatusCode,
        header::{ETAG, IF_MATCH, LOCATION},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use index_table::{Cursor, ReadTxn, Usage};
use serde::{Deserialize, Serialize};

use crate::{
    changes::Changes,
    commands::{Command, Outcome},
    failure::Failure,
    model::{Customer, CustomerRepository},
    service::Service,
};

const DEFAULT_LIMIT: u16 = 20;

/// The maximum number of customers in one response, which limits the reads of a request.
const MAX_LIMIT: u16 = 100;

/// The maximum size of a request, which is a customer. The queue of the store has room for many requests.
const MAX_BODY: usize = 16 << 10;

/// Returns the endpoints of a service.
pub fn routes(service: Service) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/customers", get(in_town).post(create))
        .route("/customers/{id}", get(by_id).put(replace).patch(change).delete(delete))
        .route("/customers/by-email/{email}", get(by_email))
        .route("/phone-book", get(phone_book))
        .route("/usage", get(usage))
        .fallback(async || Failure::new(StatusCode::NOT_FOUND, "there is no such path"))
        .method_not_allowed_fallback(async || {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(service)
}

type RouteResult<T> = Result<T, Failure>;

#[derive(Serialize)]
struct Health {
    customers: u64,
}

async fn health(State(service): State<Service>) -> RouteResult<Json<Health>> {
    let customers = service.read(|customers, txn| customers.all(txn).count()).await?;
    Ok(Json(Health { customers }))
}

/// Returns the use and the costs of the indexes.
async fn usage(State(service): State<Service>) -> Json<Usage> {
    Json(service.usage())
}

async fn by_id(State(service): State<Service>, Path(id): Path<u64>) -> RouteResult<Response> {
    let customer = service.customers().get_async(service.store(), id).await?;
    customer.map(with_etag).ok_or_else(Failure::no_such_customer)
}

/// Returns the customer as JSON, with its revision as an `ETag`.
fn with_etag(customer: Customer) -> Response {
    let etag = [(ETAG, format!("\"{}\"", customer.revision))];
    (etag, Json(customer)).into_response()
}

/// Returns the revision in the header `If-Match`, if there is one.
fn expected_revision(headers: &HeaderMap) -> RouteResult<Option<u64>> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let tag = value.to_str().ok().and_then(|value| value.strip_prefix('"')?.strip_suffix('"'));
    let revision = tag.and_then(|tag| tag.parse().ok());
    let unknown = || {
        Failure::new(StatusCode::PRECONDITION_FAILED, "`If-Match` is not an `ETag` of a customer")
    };
    revision.map(Some).ok_or_else(unknown)
}

async fn by_email(
    State(service): State<Service>,
    Path(email): Path<String>,
) -> RouteResult<Json<Customer>> {
    let customer = service.customers().get_by_email_async(service.store(), &email).await?;
    customer.map(Json).ok_or_else(Failure::no_such_customer)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InTown {
    town: String,
    /// The `next` of the previous page.
    after: Option<Cursor>,
    limit: Option<NonZeroU16>,
}

#[derive(Serialize)]
struct Page {
    items: Vec<Customer>,
    /// The value of `after` for the next page; null on the last page.
    next: Option<Cursor>,
}

/// Returns a page of a town's customers, by last name.
async fn in_town(
    State(service): State<Service>,
    Query(InTown { town, after, limit }): Query<InTown>,
) -> RouteResult<Json<Page>> {
    let page = service.read(move |customers, txn| {
        let mut scan = customers.find_by_town(txn, &town);
        if let Some(cursor) = &after {
            scan = scan.after(cursor);
        }
        scan.page(at_most(limit))
    });
    let page = page.await?;
    Ok(Json(Page { items: page.items, next: page.next }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    town: String,
    last_name: String,
    limit: Option<NonZeroU16>,
}

async fn phone_book(
    State(service): State<Service>,
    Query(named): Query<Named>,
) -> RouteResult<Response> {
    service.read(move |customers, txn| entries(customers, txn, &named)).await
}

/// Returns the entries of the index, without look-ups of facts. They borrow from the snapshot, and are
/// serialized into the response.
fn entries(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
    Named { town, last_name, limit }: &Named,
) -> index_table::Result<Response> {
    let scan = customers.find_by_town_last_name(txn, town, last_name).limit(at_most(*limit));
    let entries = scan.entries().collect::<index_table::Result<Vec<_>>>()?;
    Ok(Json(entries).into_response())
}

async fn create(
    State(service): State<Service>,
    Json(customer): Json<Customer>,
) -> RouteResult<Outcome> {
    service.write(Command::Create(customer)).await
}

async fn replace(
    State(service): State<Service>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    Json(customer): Json<Customer>,
) -> RouteResult<Outcome> {
    if customer.id != id {
        let error = "the id in the path and the id of the customer are different";
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error).about("id"));
    }
    let expected = expected_revision(&headers)?;
    service.write(Command::Replace(customer, expected)).await
}

async fn change(
    State(service): State<Service>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    Json(changes): Json<Changes>,
) -> RouteResult<Outcome> {
    let expected = expected_revision(&headers)?;
    service.write(Command::Change(id, changes, expected)).await
}

async fn delete(
    State(service): State<Service>,
    Path(id): Path<u64>,
    headers: HeaderMap,
) -> RouteResult<Outcome> {
    let expected = expected_revision(&headers)?;
    service.write(Command::Delete(id, expected)).await
}

impl IntoResponse for Outcome {
    fn into_response(self) -> Response {
        match self {
            Self::Created(customer) => {
                let location = [(LOCATION, format!("/customers/{}", customer.id))];
                (StatusCode::CREATED, location, with_etag(customer)).into_response()
            }
            Self::Changed(customer) => with_etag(customer),
            Self::Deleted => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

fn at_most(limit: Option<NonZeroU16>) -> usize {
    limit.map_or(DEFAULT_LIMIT, NonZeroU16::get).min(MAX_LIMIT).into()
}

/// [`axum::Json`], with a [`Failure`] as its rejection, which is JSON too. The next two types are the same for paths and queries.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(Failure))]
struct Json<T>(T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Failure))]
struct Path<T>(T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Failure))]
struct Query<T>(T);

#[cfg(test)]
mod tests {
    use index_table::Store;

    use super::*;

    #[test]
    fn the_phone_book_looks_up_no_customer() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let [town, last_name] = ["Redmond", "Smith"].map(str::to_owned);
        store.transaction(|txn| {
            (1..=3).try_for_each(|id| {
                let customer = serde_json::json!({
                    "id": id,
                    "first_name": "Alice",
                    "last_name": last_name,
                    "town": town,
                    "phone": "555-0101",
                    "email": format!("{id}@example.com"),
                });
                let customer = serde_json::from_value(customer).expect("a customer");
                customers.insert(txn, &customer)
            })
        })?;
        let txn = store.read()?;
        entries(&customers, &txn, &Named { town, last_name, limit: None })?;
        assert_eq!((txn.stats().entries, txn.stats().facts), (3, 0));
        Ok(())
    }
}
