//! Lost connections, a server that does not respond, and locks.

use super::*;

#[test]
fn look_ups_are_sent_again_when_their_connection_was_lost() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let (_proxy, url) = Proxy::start(&url().expect("a server"), Duration::from_millis(50), b"")
            .expect("a proxy");
        let slow = through(engine, &url, LONG)?;
        let mut resent = 0;
        for _ in 0..3 {
            let before = sessions(&slow.pipeline)?;
            let mut tasks = Tasks::new(look_ups(&slow.pipeline, &tables, 0..500));
            tasks.turn();
            wait_until("the look-ups are not sent", || slow.pipeline.0.counts()[..2] == [0, 500]);
            let numbers = before.join("), (");
            let end = "SELECT bool_and(pg_terminate_backend(number))::text FROM (VALUES";
            engine.run(&format!("{end} ({numbers})) AS n (number)"))?;
            let begun = Instant::now();
            for (id, found) in (0..).zip(tasks.finish(LONG)) {
                // The other line may have been lost later.
                if !is_unreachable(&found) {
                    assert_eq!(found?, Some(text(id)));
                    resent += 1;
                }
            }
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            let after = sessions(&slow.pipeline)?;
            assert!(!after.iter().any(|number| before.contains(number)));
            assert_eq!(lines(&slow.pipeline), after.len());
        }
        assert!(resent > 0, "no look-up was sent again");
        Ok(())
    });
}

#[test]
fn a_look_up_whose_connection_is_lost_twice_is_unreachable() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let (_proxy, url) =
            Proxy::start(&url().expect("a server"), Duration::ZERO, b"poison").expect("a proxy");
        let cut = through(engine, &url, LONG)?;
        let poisoned = (0..3).map(|_| cut.get_later(&tables, b"poison"));
        let found = finish(poisoned.chain(look_ups(&cut.pipeline, &tables, 0..20)), LONG);
        assert!(found[..3].iter().all(is_unreachable), "{:?}", &found[..3]);
        for (id, found) in (0..).zip(&found[3..]) {
            assert!(is_unreachable(found) || found.as_ref().is_ok_and(|it| *it == Some(text(id))));
        }
        for found in finish(look_ups(&cut.pipeline, &tables, 0..20), LONG) {
            assert!(found?.is_some());
        }
        Ok(())
    });
}

#[test]
fn look_ups_end_in_time_when_the_server_is_stalled() {
    const LIMIT: Duration = Duration::from_millis(300);
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let (proxy, url) =
            Proxy::start(&url().expect("a server"), Duration::ZERO, b"").expect("a proxy");
        let late = through(engine, &url, LIMIT)?;
        // Some look-ups wait until others have ended.
        let pipeline = Pipeline::with(&late.pool, LineBounds { in_flight: 100, ..BOUNDS });
        for is_open in [true, false, true] {
            if is_open {
                assert_eq!(finish(look_ups(&pipeline, &tables, 0..1000), LONG).len(), 1000);
            } else {
                wait_until("the lines are open", || pipeline.0.counts() == [0; 3]);
            }
            proxy.holds.store(true, Ordering::Relaxed);
            let begun = Instant::now();
            let found = finish(look_ups(&pipeline, &tables, 0..1000), LONG);
            let most = LIMIT + Duration::from_secs(1);
            // Opening a connection has a limit of its own.
            let most = if is_open { most } else { most + SOON / 4 };
            assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
            assert!(found.iter().all(is_unreachable), "{:?}", found[0]);
            proxy.holds.store(false, Ordering::Relaxed);
        }
        for found in finish(look_ups(&pipeline, &tables, 0..1000), LONG) {
            assert!(found?.is_some());
        }
        Ok(())
    });
}

#[test]
fn look_ups_wait_while_the_server_restarts() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let (proxy, url) =
            Proxy::start(&url().expect("a server"), Duration::ZERO, b"").expect("a proxy");
        let restarted = through(engine, &url, LONG)?;
        proxy.refuses.store(true, Ordering::Relaxed);
        // Within the limit for opening a connection, and after it.
        for (pause, is_found) in [(SOON / 16, true), (SOON, false)] {
            let pipeline = Pipeline::new(&restarted.pool);
            let begun = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(pause);
                    proxy.refuses.store(false, Ordering::Relaxed);
                });
                let found = finish(look_ups(&pipeline, &tables, 0..100), LONG);
                assert_eq!(found.iter().filter(|found| found.is_ok()).count() == 100, is_found);
                assert!(is_found || found.iter().all(is_unreachable));
                assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
            });
            proxy.refuses.store(true, Ordering::Relaxed);
        }
        Ok(())
    });
}

#[test]
fn a_locked_table_ends_its_own_look_ups_only() {
    on_a_server(|engine| {
        let (tables, others) = (open(engine), open_as(engine, OTHER));
        put_thousand(engine, &tables)?;
        put_thousand(engine, &others)?;
        let waiting = through(engine, &url().expect("a server"), SOON / 4)?;
        let pipeline = &waiting.pipeline;
        // The statements are prepared in the first round only.
        for is_locked in [true, false, true] {
            let holder = engine.pool.open()?;
            if is_locked {
                let lock =
                    format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.facts.sql);
                holder.simple(&lock).expect("the lock");
            }
            let begun = Instant::now();
            let of_locked = look_ups(pipeline, &tables, 0..300);
            let found =
                finish(of_locked.into_iter().chain(look_ups(pipeline, &others, 0..300)), LONG);
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            for (id, found) in (0..).zip(&found[..300]) {
                match found {
                    Err(Error::RetriesExhausted { .. }) => assert!(is_locked),
                    found => {
                        assert!(!is_locked);
                        assert_eq!(found.as_ref().expect("a row"), &Some(text(id)));
                    }
                }
            }
            for (id, found) in (0..).zip(&found[300..]) {
                assert_eq!(found.as_ref().expect("a row"), &Some(text(id)));
            }
            holder.simple("COMMIT").expect("the end");
        }
        Ok(())
    });
}

#[test]
fn a_refused_statement_leaves_the_connection() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let before = sessions(&engine.pipeline)?;
        let refused = [
            "SELECT v FROM no_such_table WHERE k = $1",
            "SELECT convert_to((1 / length($1::bytea))::text, 'UTF8')",
            "DELETE FROM pg_class WHERE relname = convert_from($1::bytea, 'UTF8') RETURNING ''::bytea",
        ];
        let refused = refused.iter().flat_map(|sql| [*sql; 3]);
        let refused = refused.map(|sql| engine.pipeline.get(sql.to_owned(), b""));
        let all = refused.chain(look_ups(&engine.pipeline, &tables, 0..100));
        let found = finish(all, LONG);
        let (refused, found) = found.split_at(9);
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        assert!(
            refused[..6].iter().all(|it| matches!(it, Err(Error::Engine { .. }))),
            "{refused:?}"
        );
        assert!(found.iter().all(|found| found.as_ref().is_ok_and(Option::is_some)));
        assert!(sessions(&engine.pipeline)?.iter().any(|number| before.contains(number)));
        Ok(())
    });
}
