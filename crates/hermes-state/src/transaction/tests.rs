//! What a transaction promises on each engine.

use std::time::{Duration, Instant};

use crate::SessionDb;

const NUMBERS: &str =
    "WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT i FROM n";

fn a_statement_without_end_stops_and_what_it_gave_stands(db: &SessionDb) {
    let (in_time, gathered, after) = db
        .read(|transaction| {
            let (mut gathered, mut whole) = (0_i64, 0_i64);
            let stop = Instant::now() + Duration::from_millis(300);
            let in_time = transaction.until(stop, &mut |transaction| {
                let mut count = |_| {
                    gathered += 1;
                    Ok(())
                };
                transaction.query(NUMBERS, &[i64::MAX.into()], &mut count).map(drop)
            })?;
            // The transaction goes on, without a deadline.
            let mut count = |_| {
                whole += 1;
                Ok(())
            };
            transaction.query(NUMBERS, &[50_000.into()], &mut count)?;
            Ok((in_time, gathered, whole))
        })
        .unwrap();
    assert!(!in_time);
    assert_eq!(after, 50_000);
    if !crate::is_url(db.path()) {
        // A server need not send a row before it has all.
        assert!(gathered > 0);
    }
}

#[test]
fn on_a_file_a_statement_without_end_stops() {
    a_statement_without_end_stops_and_what_it_gave_stands(&SessionDb::open(":memory:").unwrap());
}

#[cfg(feature = "postgres")]
#[test]
fn on_a_server_a_statement_without_end_stops() {
    if let Some(server) = hermes_state_testkit::shared() {
        let space = server.fresh();
        a_statement_without_end_stops_and_what_it_gave_stands(&SessionDb::open(space.url()).unwrap());
    }
}
