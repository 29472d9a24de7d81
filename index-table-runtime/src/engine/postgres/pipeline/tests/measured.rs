//! The figures of docs/internals/postgres.md:
//!
//! `scripts/postgres cargo test --release … --lib pipeline::tests::measured -- --ignored --nocapture`

use super::*;

const TIME: Duration = Duration::from_secs(3);

/// Repeats a look-up until the time is over. Returns the number of look-ups.
async fn repeat(engine: &Engine, tables: &Tables, until: Instant, first: u16) -> u32 {
    let mut count = 0;
    while Instant::now() < until {
        let id = ((u32::from(first) + count * 37) % 1000) as u16;
        let found = engine.get_later(tables, &key(id)).await.expect("a look-up");
        assert_eq!(found, Some(text(id)));
        count += 1;
    }
    count
}

#[test]
#[ignore = "prints figures"]
fn look_ups_with_latency() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        for (latency, threads) in [(0, 64), (2, 64)] {
            let delay = Duration::from_millis(latency) / 2;
            let (_proxy, url) =
                Proxy::start(&url().expect("a server"), delay, b"").expect("a proxy");
            let options = Options::default().schema(&engine.schema).connections(threads);
            let client = Engine::connect(&options, &url)?;
            for tasks in [1, 10, 100, 1000] {
                // The second run is counted.
                for is_counted in [false, true] {
                    let begun = Instant::now();
                    let until = begun + TIME;
                    let all = (0..tasks).map(|first| {
                        let future = repeat(&client, &tables, until, first);
                        Box::pin(future) as std::pin::Pin<Box<dyn Future<Output = u32> + Send + '_>>
                    });
                    let count: u32 = finish(all, LONG).into_iter().sum();
                    if is_counted {
                        let rate = f64::from(count) / begun.elapsed().as_secs_f64();
                        eprintln!("{latency} ms, {tasks} in flight: {rate:.0} get/s");
                    }
                }
            }
            for is_counted in [false, true] {
                let (begun, count) = (Instant::now(), AtomicU32::new(0));
                thread::scope(|scope| {
                    for first in 0..threads {
                        let (client, tables, count) = (&client, &tables, &count);
                        scope.spawn(move || {
                            let mut own = 0;
                            while begun.elapsed() < TIME {
                                let id = ((first + own * 37) % 1000) as u16;
                                let txn = client.read().expect("a transaction");
                                let found = txn.reader(tables).fact(&key(id)).expect("a look-up");
                                assert_eq!(found, Some(&text(id)[..]));
                                own += 1;
                            }
                            count.fetch_add(own, Ordering::Relaxed);
                        });
                    }
                });
                if is_counted {
                    let count = f64::from(count.into_inner());
                    let rate = count / begun.elapsed().as_secs_f64();
                    eprintln!("{latency} ms, {threads} threads with transactions: {rate:.0} get/s");
                }
            }
        }
        Ok(())
    });
}
