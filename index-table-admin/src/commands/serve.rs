//! The page of a store, in a server of its own.

use std::{
    future::IntoFuture as _,
    net::{SocketAddr, ToSocketAddrs as _},
    time::Duration,
};

use clap::Args;
use serde_json::json;
use tokio::{net::TcpListener, runtime, signal, sync::oneshot, time::sleep};

use crate::{
    cli::Dir,
    failure::Failure,
    open::Opened,
    output::Output,
    page::{self, Connections, Token},
    typed::Declared,
};

/// The time in which requests end after Ctrl-C.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    dir: Dir,
    /// The address and the port. With port 0, a free port is chosen and printed.
    #[arg(default_value = "127.0.0.1:8080")]
    address: String,
    /// The secret that each request must have, as a password in the browser or as a bearer token. Default: the variable
    /// `INDEX_TABLE_TOKEN`.
    #[arg(long)]
    token: Option<String>,
}

impl Serve {
    /// Serves the page. The rows of the declared tables are shown.
    pub(crate) fn run(self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let token = self.token.or_else(|| std::env::var("INDEX_TABLE_TOKEN").ok());
        let token = token.filter(|token| !token.is_empty());
        let wrong = |reason: String| {
            Failure::arguments(format!(
                "`{}` is not an address such as `127.0.0.1:8080`: {reason}",
                self.address
            ))
        };
        let addresses = self.address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        if token.is_none() && addresses.iter().any(|address| !address.ip().is_loopback()) {
            return Err(Failure::arguments(format!(
                "`{}` can be reached from other machines; set a secret with `--token` or `INDEX_TABLE_TOKEN`",
                self.address
            )));
        }
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let router = page::serving(opened.store.clone(), declared, token.map(Token::new))?;
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(|error| Failure::other(error.to_string()))?.block_on(async {
            let failed = |error: std::io::Error| {
                Failure::other(format!("`{}` can't be served: {error}", self.address))
            };
            let listener = TcpListener::bind(addresses.as_slice()).await.map_err(failed)?;
            let url = format!("http://{}/", listener.local_addr().map_err(failed)?);
            out.put(&json!({ "url": url }), |text| {
                writeln!(text, "listening on {url}")?;
                text.flush()
            })?;
            let (stop, stopped) = oneshot::channel::<()>();
            let serving = axum::serve(Connections::of(listener), router)
                .with_graceful_shutdown(async { drop(stopped.await) });
            let interrupted = async {
                let _ = signal::ctrl_c().await;
                let _ = stop.send(());
                sleep(GRACE).await;
            };
            tokio::select! {
                served = serving.into_future() => served.map_err(failed),
                // A connection is still open.
                () = interrupted => Ok(()),
            }
        })
    }
}
