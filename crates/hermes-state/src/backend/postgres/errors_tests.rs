//! Errors of statements come in the texts and codes of the other engine.

use super::super::schema::bring_up_to_date;
use super::super::server::{Server, block_on, writer};
use super::super::values::Bound;
use super::*;
use crate::value::Value;

const SESSION: &str = "INSERT INTO sessions (id, source, started_at, title) VALUES ('s', 'cli', 1, 't')";

#[test]
fn refusals_read_as_those_of_the_other_engine() {
    let Some(server) = Server::shared() else { return };
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    sqlite.execute_batch(crate::SCHEMA_SQL).unwrap();
    sqlite.execute_batch("CREATE UNIQUE INDEX u ON sessions (title) WHERE title IS NOT NULL").unwrap();
    sqlite.execute_batch(SESSION).unwrap();
    block_on(async {
        let address = server.address();
        let mut connected = writer(&address).await;
        bring_up_to_date(&mut connected.client, &address).await.unwrap();
        connected.client.batch_execute(SESSION).await.unwrap();
        let usage = "INSERT INTO session_model_usage (session_id, model) VALUES ('s', 'm')";
        for sql in [
            "INSERT INTO messages (session_id, role, timestamp) VALUES ('gone', 'user', 1)",
            "INSERT INTO sessions (id, source, started_at, title) VALUES ('r', 'cli', 1, 't')",
            "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)",
            "INSERT INTO messages (session_id, timestamp) VALUES ('s', 1)",
            "INSERT INTO messages (id, session_id, role, timestamp) VALUES (1, 's', 'r', 1)",
            usage,
        ] {
            let mut ours = connected.client.batch_execute(sql).await;
            let mut theirs = sqlite.execute_batch(sql);
            if ours.is_ok() && theirs.is_ok() {
                ours = connected.client.batch_execute(sql).await;
                theirs = sqlite.execute_batch(sql);
            }
            let rusqlite::Error::SqliteFailure(failure, Some(message)) = theirs.unwrap_err() else { panic!("{sql}") };
            match classify(&address, &ours.unwrap_err()) {
                Failure::Failed(Error::Constraint { message: text, code }) => {
                    assert_eq!((text, code), (message, failure.extended_code), "{sql}");
                }
                other => panic!("{sql}: {other:?}"),
            }
        }
    });
}

#[test]
fn other_errors_are_told_apart() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let address = server.address();
        let mut connected = writer(&address).await;
        bring_up_to_date(&mut connected.client, &address).await.unwrap();
        let client = &connected.client;
        client.batch_execute(SESSION).await.unwrap();
        let fails = async |sql: &str| classify(&address, &client.batch_execute(sql).await.unwrap_err());
        for sql in ["SELEC 1", "SELECT 1 FROM nowhere", "SELECT nothing FROM messages"] {
            assert!(matches!(fails(sql).await, Failure::Failed(Error::Engine { code: 1, .. })), "{sql}");
        }
        for sql in ["SELECT 'x'::bigint", "SELECT 9223372036854775807 + 1"] {
            let Failure::Failed(Error::Constraint { message, code: 20 }) = fails(sql).await else { panic!("{sql}") };
            assert!(message.starts_with("datatype mismatch: "), "{message}");
        }
        let timed_out = fails("SET statement_timeout = 50; SELECT pg_sleep(5)").await;
        let Failure::Failed(Error::Engine { message, code: 9 }) = timed_out else { panic!("{timed_out:?}") };
        assert!(message.contains("statement_timeout") && message.contains("57014"), "{message}");
        client.batch_execute("ROLLBACK; SET statement_timeout = 0").await.unwrap();
        assert!(matches!(fails("SET TRANSACTION READ ONLY; DELETE FROM messages").await, Failure::Lost(_)));
        let number = client.prepare("SELECT $1::bigint").await.unwrap();
        let unfit = client.query_one(&number, &[&Bound(&Value::from("x"))]).await.unwrap_err();
        let unfit = classify(&address, &unfit);
        assert!(
            matches!(&unfit, Failure::Failed(Error::Constraint { message, code: 20 }) if message.starts_with("datatype mismatch: ")),
            "{unfit:?}"
        );
        let nul = client.batch_execute("SELECT '\0'").await.unwrap_err();
        assert!(matches!(classify(&address, &nul), Failure::Failed(_)));
    });
}

#[test]
fn locks_deadlocks_and_changed_tables_are_told_apart() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let address = server.address();
        let mut one = writer(&address).await;
        let two = writer(&address).await;
        bring_up_to_date(&mut one.client, &address).await.unwrap();
        one.client.batch_execute("INSERT INTO state_meta VALUES ('a', ''), ('b', '')").await.unwrap();
        let touch = |key: &str| format!("UPDATE state_meta SET value = 'x' WHERE key = '{key}'");
        one.client.batch_execute(&format!("BEGIN; {}", touch("a"))).await.unwrap();
        let locked = two.client.batch_execute(&format!("SET lock_timeout = 50; {}", touch("a"))).await.unwrap_err();
        assert!(matches!(classify(&address, &locked), Failure::Locked));
        two.client.batch_execute("SET lock_timeout = 0; BEGIN").await.unwrap();
        two.client.batch_execute(&touch("b")).await.unwrap();
        let (on_b, on_a) = (touch("b"), touch("a"));
        let both = futures_util::future::join(one.client.batch_execute(&on_b), two.client.batch_execute(&on_a)).await;
        let loser = both.0.err().or(both.1.err()).unwrap();
        assert!(matches!(classify(&address, &loser), Failure::Retry), "{loser:?}");
        one.client.batch_execute("ROLLBACK").await.unwrap();
        two.client.batch_execute("ROLLBACK").await.unwrap();

        let prepared = one.client.prepare("SELECT * FROM state_meta").await.unwrap();
        two.client.batch_execute("ALTER TABLE state_meta ADD COLUMN more text").await.unwrap();
        let stale = one.client.query(&prepared, &[]).await.unwrap_err();
        assert!(matches!(classify(&address, &stale), Failure::Lost(_)), "{stale:?}");
    });
}

#[test]
fn a_connection_that_is_ended_is_lost_and_says_why() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let address = server.address();
        let one = writer(&address).await;
        let two = writer(&address).await;
        two.client.batch_execute(&format!("SELECT pg_terminate_backend({}, 5000)", one.pid)).await.unwrap();
        let error = one.client.batch_execute("SELECT 1").await.unwrap_err();
        assert!(matches!(classify(&address, &error), Failure::Lost(_)), "{error:?}");
        while one.ending.told().is_none() {
            tokio::task::yield_now().await;
        }
        assert!(one.ending.told().unwrap().contains("administrator"), "{:?}", one.ending.told());
    });
}
