//! An HTTP service with axum: a shop's stock. No request blocks a thread of the runtime, and no order is answered
//! before it is durable.
//!
//! ```text
//! cargo run --manifest-path examples/axum_service/Cargo.toml                  # asks itself, and ends
//! cargo run --manifest-path examples/axum_service/Cargo.toml -- 127.0.0.1:8080
//! curl -X PUT localhost:8080/stock/tea -H 'content-type: application/json' -d '{"count": 10}'
//! curl -X POST localhost:8080/orders -H 'content-type: application/json' -d '{"items": {"tea": 3}}'
//! curl 'localhost:8080/stock?limit=10'
//! ```
//!
//! - **Writes** go through `Db::submit`: the transaction runs on a thread of the database, and the future resolves when
//!   it is durable. If the client goes away before its transaction has begun, nothing happens.
//! - **Reads** take a snapshot and wait for no lock, but may read the disk. They run where the runtime lets threads
//!   block.
//! - **Errors** become status codes in one place.

#![forbid(unsafe_code)]

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use foreshore::{Db, Error, Options, TableDef};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::spawn_blocking,
};

/// Articles and how many are left.
const STOCK: TableDef<&str, u64> = TableDef::new("stock");
/// Orders by number: articles of one order under its number.
const ORDERS: TableDef<(u64, &str), u64> = TableDef::new("orders");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    match address {
        Some(address) => {
            let db = Db::open("stock")?;
            runtime.block_on(async { serve(TcpListener::bind(address).await?, db).await })?;
        }
        None => {
            let db = Options::in_memory().open("stock")?;
            runtime.block_on(ask_itself(db.clone()))?;
            db.close(Duration::from_secs(1))?;
        }
    }
    Ok(())
}

fn service(db: Db) -> Router {
    Router::new()
        .route("/stock", get(list))
        .route("/stock/{article}", get(one).put(set))
        .route("/orders", post(order))
        .with_state(db)
}

async fn serve(listener: TcpListener, db: Db) -> io::Result<()> {
    axum::serve(listener, service(db)).await
}

/// Why a request is refused.
enum Refused {
    NoArticle(String),
    TooFew { article: String, left: u64 },
    Storage(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Storage(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::NoArticle(article) => (StatusCode::NOT_FOUND, format!("no article {article}")),
            Self::TooFew { article, left } => (StatusCode::CONFLICT, format!("{left} {article} are left")),
            Self::Storage(error) => {
                let status = match error {
                    // `submit` has tried it many times.
                    _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
                    Error::Closed | Error::DiskFull { .. } => StatusCode::SERVICE_UNAVAILABLE,
                    Error::KeyTooLarge { .. } => StatusCode::BAD_REQUEST,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (status, error.to_string())
            }
        };
        (status, text + "\n").into_response()
    }
}

#[derive(Serialize, Deserialize)]
struct Count {
    count: u64,
}

async fn set(State(db): State<Db>, Path(article): Path<String>, Json(new): Json<Count>) -> Result<(), Refused> {
    db.submit(move |tx| Ok(tx.open(STOCK)?.put(&*article, new.count)?)).await
}

async fn one(State(db): State<Db>, Path(article): Path<String>) -> Result<Json<Count>, Refused> {
    read(move || {
        let count = match db.read().open(STOCK) {
            Err(Error::NoTable { .. }) => None,
            stock => stock?.get(&*article)?,
        };
        count.map(|count| Json(Count { count })).ok_or(Refused::NoArticle(article))
    })
    .await
}

#[derive(Deserialize)]
struct Part {
    /// The article before the first one, as the last part ended with it.
    #[serde(default)]
    after: String,
    #[serde(default = "Part::limit")]
    limit: usize,
}

impl Part {
    const fn limit() -> usize {
        100
    }
}

/// Lists a part of the stock. Each part is a snapshot of its own.
async fn list(State(db): State<Db>, Query(part): Query<Part>) -> Result<Json<Vec<(String, u64)>>, Refused> {
    read(move || {
        use std::ops::Bound;
        let reader = db.read();
        let stock = match reader.open(STOCK) {
            Err(Error::NoTable { .. }) => return Ok(Json(Vec::new())),
            stock => stock?,
        };
        let rows = stock.range((Bound::Excluded(&*part.after), Bound::Unbounded)).take(part.limit);
        Ok(Json(rows.collect::<Result<_, _>>()?))
    })
    .await
}

#[derive(Clone, Deserialize)]
struct Order {
    items: BTreeMap<String, u64>,
}

/// Takes all articles of an order, or none. Returns the number of the order.
async fn order(State(db): State<Db>, Json(Order { items }): Json<Order>) -> Result<String, Refused> {
    let number = db.submit(move |tx| {
        let (stock, orders) = (tx.open(STOCK)?, tx.open(ORDERS)?);
        // In the order of keys, so that two orders do not wait for each other.
        for (article, &count) in &items {
            let left = stock.get_for_update(&**article)?.ok_or_else(|| Refused::NoArticle(article.clone()))?;
            let rest = left.checked_sub(count).ok_or_else(|| Refused::TooFew { article: article.clone(), left })?;
            stock.put(&**article, rest)?;
        }
        let number = orders.last()?.map_or(1, |((number, _), _)| number + 1);
        items.iter().try_for_each(|(article, &count)| orders.put((number, &**article), count))?;
        Ok::<_, Refused>(number)
    });
    Ok(format!("order {}\n", number.await?))
}

/// Runs a read where it may block.
async fn read<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refused> + Send + 'static) -> Result<T, Refused> {
    spawn_blocking(work).await.expect("no read panics")
}

/// Starts the service, sends it some requests, and shows the answers.
async fn ask_itself(db: Db) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, db));
    let requests = [
        ("PUT", "/stock/tea", r#"{"count": 10}"#, "200"),
        ("PUT", "/stock/coffee", r#"{"count": 2}"#, "200"),
        ("GET", "/stock/milk", "", "404"),
        ("POST", "/orders", r#"{"items": {"tea": 3, "coffee": 1}}"#, "200"),
        // The tea is not taken either.
        ("POST", "/orders", r#"{"items": {"coffee": 2, "tea": 1}}"#, "409"),
        ("POST", "/orders", r#"{"items": {"milk": 1}}"#, "404"),
        ("GET", "/stock?limit=10", "", "200"),
    ];
    for (method, path, body, status) in requests {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let head = head.lines().next().unwrap_or_default();
        println!("{method} {path} {body}\n  {head}: {}", text.trim_end());
        assert!(head.contains(status), "expected {status}");
    }
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /stock HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    assert!(answer.ends_with(r#"[["coffee",1],["tea",7]]"#), "{answer}");
    Ok(())
}
