//! Opening: by many at once, by users of few rights, of newer and older stores; and the functions of the schema.

use super::super::connect::Connected;
use super::super::placeholders::translate;
use super::super::server::{Server, block_on, writer};
use super::super::values::{Bound, row_values};
use super::*;
use crate::error::Error;
use crate::value::Value;

async fn rows(connected: &Connected, sql: &str) -> Vec<Vec<Value>> {
    connected.client.query(sql, &[]).await.unwrap().iter().map(|row| row_values(row).unwrap()).collect()
}

/// Everything that two openings could differ in.
async fn shape(connected: &Connected) -> Vec<Vec<Value>> {
    rows(
        connected,
        "SELECT table_name::text, column_name::text, data_type::text, is_nullable::text, column_default::text, collation_name::text \
         FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position",
    )
    .await
}

#[test]
fn tables_have_the_columns_of_the_other_engine_in_its_order() {
    let Some(server) = Server::shared() else { return };
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite.execute_batch(crate::SCHEMA_SQL).unwrap();
    sqlite.execute_batch(crate::TOPICS_SQL).unwrap();
    sqlite.execute_batch("ALTER TABLE messages ADD COLUMN client_key TEXT").unwrap();
    block_on(async {
        let address = server.address();
        let mut connected = writer(&address).await;
        bring_up_to_date(&mut connected.client, &address).await.unwrap();
        let ours = shape(&connected).await;
        let mut compared = 0;
        let tables = "SELECT m.name, p.name, p.type, p.\"notnull\" OR p.pk > 0, p.dflt_value FROM sqlite_master m \
            JOIN pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid";
        let mut statement = sqlite.prepare(tables).unwrap();
        let mut theirs = statement.query([]).unwrap();
        let mut ours = ours.iter();
        while let Some(row) = theirs.next().unwrap() {
            let (table, column, kind): (String, String, String) =
                (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap());
            let (filled, default): (bool, Option<String>) = (row.get(3).unwrap(), row.get(4).unwrap());
            let found = ours.find(|found| found[0] == Value::from(&table)).unwrap();
            let (kind, collation) = match kind.as_str() {
                "TEXT" => ("text", Value::from("C")),
                "INTEGER" => ("bigint", Value::Null),
                _ => ("double precision", Value::Null),
            };
            assert_eq!(found[1], Value::from(&column), "{table}");
            assert_eq!(found[2], Value::from(kind), "{table}.{column}");
            assert_eq!(found[3], Value::from(if filled { "NO" } else { "YES" }), "{table}.{column}");
            let ours = found[4].as_str().map(|text| text.replace("::text", ""));
            assert_eq!(ours, default, "{table}.{column}");
            assert_eq!(found[5], collation, "{table}.{column}");
            compared += 1;
        }
        assert_eq!(compared, 1 + 46 + 22 + 18 + 2 + 4 + 4 + 18 + 10 + 8);
        let versions =
            rows(&connected, "SELECT version, (SELECT max(version) FROM server_layout) FROM schema_version").await;
        assert_eq!(versions, [[Value::Integer(23), Value::Integer(LAYOUT_VERSION)]]);
    });
}

#[test]
fn twenty_may_open_at_once() {
    let Some(server) = Server::shared() else { return };
    let address = server.address();
    let barrier = std::sync::Barrier::new(20);
    let shapes: Vec<_> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    block_on(async {
                        let mut connected = writer(&address).await;
                        barrier.wait();
                        let found = bring_up_to_date(&mut connected.client, &address).await.unwrap();
                        assert_eq!(found, Inspection::UpToDate);
                        assert_eq!(inspect_only(&connected.client, &address).await.unwrap(), Inspection::UpToDate);
                        shape(&connected).await
                    })
                })
            })
            .collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    assert!(shapes.iter().all(|shape| *shape == shapes[0] && !shape.is_empty()));
    block_on(async {
        let connected = writer(&address).await;
        assert_eq!(rows(&connected, "SELECT count(*) FROM schema_version").await, [[Value::Integer(1)]]);
        assert_eq!(rows(&connected, "SELECT count(*) FROM server_layout").await, [[Value::Integer(LAYOUT_VERSION)]]);
    });
}

#[test]
fn a_store_of_the_first_layout_is_brought_up_to_date_with_its_rows() {
    let Some(server) = Server::shared() else { return };
    let address = server.address();
    block_on(async {
        let mut connected = writer(&address).await;
        bring_up_to_date(&mut connected.client, &address).await.unwrap();
        let expected = shape(&connected).await;
        let back = "ALTER TABLE messages DROP COLUMN client_key; \
             DROP TABLE telegram_dm_topic_mode, telegram_dm_topic_bindings, hermes_state_leases, hermes_state_spooled; \
             ALTER TABLE applied_writes DROP COLUMN row_id; DELETE FROM server_layout WHERE version > 1; \
            INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1); \
            INSERT INTO messages (session_id, role, timestamp) VALUES ('s', 'user', 1), ('s', 'user', 2)";
        connected.client.batch_execute(back).await.unwrap();
        assert_eq!(inspect_only(&connected.client, &address).await.unwrap(), Inspection::Older);
        assert_eq!(bring_up_to_date(&mut connected.client, &address).await.unwrap(), Inspection::UpToDate);
        assert_eq!(shape(&connected).await, expected);
        assert_eq!(rows(&connected, "SELECT count(*) FROM messages").await, [[Value::Integer(2)]]);
        let twice = "UPDATE messages SET client_key = 'k'";
        assert!(connected.client.batch_execute(twice).await.is_err(), "a key is of one row");
    });
}

#[test]
fn looking_makes_nothing() {
    let Some(server) = Server::shared() else { return };
    let address = server.address();
    block_on(async {
        let connected = writer(&address).await;
        let failure = inspect_only(&connected.client, &address).await.unwrap_err();
        assert!(
            matches!(failure, Failure::Failed(Error::Server { trouble: ServerTrouble::NoStore { .. }, .. })),
            "{failure:?}"
        );
        let sql = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", address.schema());
        assert_eq!(rows(&connected, &sql).await, [[Value::Integer(0)]]);
    });
}

#[test]
fn a_newer_store_is_left_alone() {
    let Some(server) = Server::shared() else { return };
    let changes: [(&str, Inspection); 2] = [
        ("UPDATE schema_version SET version = 24", Inspection::TooNew { found: 24, supported: SCHEMA_VERSION }),
        ("INSERT INTO server_layout VALUES (99, 0)", Inspection::TooNew { found: 99, supported: LAYOUT_VERSION }),
    ];
    for (change, expected) in changes {
        block_on(async {
            let address = server.address();
            let mut connected = writer(&address).await;
            bring_up_to_date(&mut connected.client, &address).await.unwrap();
            connected.client.batch_execute(change).await.unwrap();
            assert_eq!(bring_up_to_date(&mut connected.client, &address).await.unwrap(), expected);
            assert_eq!(inspect_only(&connected.client, &address).await.unwrap(), expected);
            assert_eq!(migrate(&mut connected.client, &address).await.unwrap(), expected);
        });
    }
}

#[test]
fn an_older_schema_version_is_raised() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let address = server.address();
        let mut connected = writer(&address).await;
        bring_up_to_date(&mut connected.client, &address).await.unwrap();
        connected.client.batch_execute("UPDATE schema_version SET version = 22").await.unwrap();
        assert_eq!(inspect_only(&connected.client, &address).await.unwrap(), Inspection::Older);
        assert_eq!(bring_up_to_date(&mut connected.client, &address).await.unwrap(), Inspection::UpToDate);
        assert_eq!(rows(&connected, "SELECT version FROM schema_version").await, [[Value::Integer(23)]]);
    });
}

#[test]
fn a_store_of_any_older_layout_becomes_as_a_new_one_and_keeps_its_rows() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let fresh = server.address();
        let mut connected = writer(&fresh).await;
        bring_up_to_date(&mut connected.client, &fresh).await.unwrap();
        let expected = shape(&connected).await;
        for older in 1..MIGRATIONS.len() {
            let address = server.address();
            let mut connected = writer(&address).await;
            let create = format!("CREATE SCHEMA \"{}\"", address.schema());
            connected.client.batch_execute(&create).await.unwrap();
            for (version, sql) in (1..=older).zip(MIGRATIONS) {
                connected.client.batch_execute(sql).await.unwrap();
                let record = format!("INSERT INTO server_layout VALUES ({version}, 0)");
                connected.client.batch_execute(&record).await.unwrap();
            }
            let rows_before = format!(
                "INSERT INTO schema_version VALUES ({SCHEMA_VERSION}); \
                 INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)"
            );
            connected.client.batch_execute(&rows_before).await.unwrap();
            assert_eq!(inspect_only(&connected.client, &address).await.unwrap(), Inspection::Older);
            assert_eq!(bring_up_to_date(&mut connected.client, &address).await.unwrap(), Inspection::UpToDate);
            assert_eq!(shape(&connected).await, expected, "from layout {older}");
            assert_eq!(rows(&connected, "SELECT id FROM sessions").await, [[Value::from("s")]]);
        }
    });
}

#[test]
fn a_user_who_may_use_only_its_schema_gets_a_store_in_it_and_nowhere_else() {
    let Some(server) = Server::shared() else { return };
    server.run(
        "CREATE ROLE tenant LOGIN PASSWORD 'x'; CREATE SCHEMA given; GRANT USAGE, CREATE ON SCHEMA given TO tenant; \
         CREATE SCHEMA closed; CREATE SCHEMA looked_at; GRANT USAGE ON SCHEMA looked_at TO tenant",
    );
    let address =
        |schema: &str| server.address_of(&format!("tenant:x@127.0.0.1:{}/postgres?schema={schema}", server.port));
    let open = |schema: &str| {
        block_on(async {
            let address = address(schema);
            let mut connected = writer(&address).await;
            bring_up_to_date(&mut connected.client, &address).await
        })
    };
    assert_eq!(open("given").unwrap(), Inspection::UpToDate);
    assert_eq!(open("given").unwrap(), Inspection::UpToDate);
    for schema in ["closed", "looked_at", "missing_one"] {
        let failure = open(schema).unwrap_err();
        let Failure::Failed(Error::Server {
            trouble: ServerTrouble::NoRights { schema: named, what, message }, ..
        }) = failure
        else {
            panic!("{schema}: {failure:?}")
        };
        assert_eq!(named, schema);
        assert!(message.contains("permission denied"), "{what}: {message}");
    }
    // Another's store, without rights on its tables.
    block_on(async {
        let theirs = server.address_of(&format!("postgres@127.0.0.1:{}/postgres?schema=theirs", server.port));
        let mut connected = writer(&theirs).await;
        bring_up_to_date(&mut connected.client, &theirs).await.unwrap();
        connected.client.batch_execute("GRANT USAGE ON SCHEMA theirs TO tenant").await.unwrap();
    });
    let failure = open("theirs").unwrap_err();
    let Failure::Failed(Error::Server { trouble: ServerTrouble::NoRights { what, .. }, .. }) = failure else {
        panic!()
    };
    assert_eq!(what, "read");
}

#[test]
fn functions_mean_what_they_mean_in_the_other_engine() {
    let Some(server) = Server::shared() else { return };
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    block_on(async {
        let address = server.address();
        let mut connected = writer(&address).await;
        bring_up_to_date(&mut connected.client, &address).await.unwrap();
        let client = &connected.client;
        let documents = [
            "{}",
            "[]",
            "1",
            "null",
            "\"m\"",
            "",
            " ",
            "{",
            "{'m':1}",
            "{\"m\":1}",
            "{\"m\":1.0}",
            "{\"m\":1e3}",
            "{\"m\":-0}",
            "{\"m\":true}",
            "{\"m\":false}",
            "{\"m\":null}",
            "{\"m\":\"x\"}",
            "{\"m\":[]}",
            "{\"m\":{}}",
            "{\"n\":{\"m\":1}}",
            "[{\"m\":1}]",
            "{\"m\":1,\"m\":\"later\"}",
            "{\"m\":1} x",
            "{\"a\":\"\\u0000\",\"m\":1}",
            "{\"a\":\"\\ud800\",\"m\":1}",
            "{\"a\":\"\\\\u0000\",\"m\":1}",
            "{\"\\u006d\":1}",
            "{\"a\":\"m\"}",
            "{\"a\":\"\\ud83d\\ude00\",\"m\":2}",
            "{\"m\":01}",
        ];
        let sql = "SELECT json_valid(?1), json_type(CASE WHEN json_valid(?1) THEN ?1 END, '$.m')";
        let valid = client.prepare(&translate("SELECT json_valid(?1)")).await.unwrap();
        let typed =
            client.prepare(&translate("SELECT json_type(CASE WHEN json_valid(?1) THEN ?1 END, '$.m')")).await.unwrap();
        for document in documents {
            let (is_valid, kind): (bool, Option<String>) =
                sqlite.query_row(sql, [document], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            let value = Value::from(document);
            let ours = client.query_one(&valid, &[&Bound(&value)]).await.unwrap();
            assert_eq!(row_values(&ours).unwrap(), [Value::from(is_valid)], "{document}");
            let ours = client.query_one(&typed, &[&Bound(&value)]).await.unwrap();
            assert_eq!(row_values(&ours).unwrap(), [Value::from(kind)], "{document}");
        }
        let deep = Value::Text("[".repeat(100_000));
        let ours = client.query_one(&valid, &[&Bound(&deep)]).await.unwrap();
        assert_eq!(row_values(&ours).unwrap(), [Value::Integer(0)]);
        let sql = "SELECT json_type('no json', '$.m'), json_valid(NULL), json_type(NULL, '$.m'), instr('abc', 'c'), \
            instr('abc', 'x'), instr('abc', ''), instr('abc', NULL)";
        assert_eq!(
            rows(&connected, sql).await,
            [[Value::Null, Value::Null, Value::Null, 3.into(), 0.into(), 1.into(), Value::Null]]
        );
    });
}
