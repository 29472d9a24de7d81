//! The program: `index-table-service-example DIRECTORY [ADDRESS]`, or, with the Cargo feature `postgres`,
//! `index-table-service-example --postgres URL [ADDRESS]`.

use std::{
    env,
    error::Error,
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use tokio::{net::TcpListener, runtime, time};

use crate::{admin::with_page, routes::routes, service::Service};

const USAGE: &str = "usage: index-table-service-example (DIRECTORY | --postgres URL) [ADDRESS]";
const DEFAULT_ADDRESS: &str = "127.0.0.1:3000";

/// The time for requests to end after a signal to stop.
const GRACE: Duration = Duration::from_secs(10);

/// Reads the arguments, and runs the service until a signal to stop. An error is printed.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let first = arguments.next().ok_or(USAGE)?;
    let is_on_a_server = first == "--postgres";
    let place = if is_on_a_server { arguments.next().ok_or(USAGE)? } else { first };
    let (address, None) = (arguments.next(), arguments.next()) else {
        return Err(USAGE.into());
    };
    let address = address.map_or_else(|| Ok(DEFAULT_ADDRESS.to_owned()), text)?;

    let service =
        if is_on_a_server { Service::connect(&text(place)?)? } else { Service::open(place)? };
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let served = serve(&address, service.clone()).await;
        // The commands that have begun are committed.
        service.close().await?;
        Ok::<_, Box<dyn Error>>(served?)
    });
    // Unfinished requests end with the runtime.
    drop(runtime);
    served
}

fn text(argument: OsString) -> Result<String, &'static str> {
    argument.into_string().map_err(|_| USAGE)
}

/// Serves requests until a signal to stop.
async fn serve(address: &str, service: Service) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    // With port 0, this prints the actual port.
    writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    let mut app = routes(service.clone());
    if let Some(token) = env::var("ADMIN_TOKEN").ok().filter(|token| !token.is_empty()) {
        app = with_page(app, &service, &token);
    }
    // The routes have their own clones, which end with the server.
    drop(service);
    let server = axum::serve(listener, app).with_graceful_shutdown(stop_signal());
    tokio::select! {
        result = server => result,
        () = async { stop_signal().await; time::sleep(GRACE).await } => Ok(()),
    }
}

/// Waits for ctrl-c or SIGTERM. If a signal can't be received, waits for the other.
async fn stop_signal() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
