//! How a store on a server stands: the schema's size, the server, and who is connected to it.

use std::time::{Duration, UNIX_EPOCH};

use tokio_postgres::Client;

use super::url::Address;
use crate::status::{EngineStatus, Status, User};

/// Asks the server. Other users' sessions are seen as far as the server shows them.
pub(super) async fn read(client: &Client, address: &Address, read_only: bool) -> Result<Status, tokio_postgres::Error> {
    let schema = address.schema();
    let server = client
        .query_one(
            "SELECT current_setting('server_version'), \
                 (SELECT CAST(COALESCE(SUM(pg_total_relation_size(c.oid)), 0) AS bigint) FROM pg_class c \
                  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'), \
                 COALESCE((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)",
            &[&schema],
        )
        .await?;
    let store = client
        .query_one(
            "SELECT (SELECT MAX(version) FROM schema_version), (SELECT COUNT(*) FROM sessions), \
                 (SELECT COUNT(*) FROM messages)",
            &[],
        )
        .await?;
    let bytes: i64 = server.get(1);
    Ok(Status {
        path: address.to_string().into(),
        read_only,
        engine: EngineStatus::Server {
            version: server.get(0),
            schema: schema.to_owned(),
            bytes: u64::try_from(bytes).unwrap_or_default(),
            encrypted: server.get(2),
        },
        schema_version: store.get(0),
        sessions: store.get(1),
        messages: store.get(2),
        open_by: users(client).await?,
    })
}

/// Who holds or has locked one of the schema's tables, or works in it: sessions that show our tables among their locks,
/// and those of this program's kind on the same database.
async fn users(client: &Client) -> Result<Vec<User>, tokio_postgres::Error> {
    let rows = client
        .query(
            "SELECT a.pid, a.application_name, host(a.client_addr), \
                 CAST(EXTRACT(EPOCH FROM clock_timestamp() - a.xact_start) AS double precision), \
                 a.wait_event_type = 'Lock', \
                 EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                     JOIN pg_namespace n ON n.oid = c.relnamespace \
                     WHERE l.pid = a.pid AND n.nspname = current_schema() AND l.mode = 'RowExclusiveLock'), \
                 CAST(EXTRACT(EPOCH FROM clock_timestamp() - a.backend_start) AS double precision), \
                 CAST(EXTRACT(EPOCH FROM a.backend_start) AS double precision) \
             FROM pg_stat_activity a \
             WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend' \
             ORDER BY a.pid",
            &[],
        )
        .await?;
    let users = rows.iter().map(|row| {
        let program: Option<String> = row.get(1);
        let duration = |seconds: Option<f64>| seconds.and_then(|age| Duration::try_from_secs_f64(age).ok());
        let age = duration(row.get(3));
        let (waiting, writing): (Option<bool>, bool) = (row.get(4), row.get(5));
        let waiting = waiting.unwrap_or_default();
        User {
            pid: row.get(0),
            host: row.get(2),
            open_for: duration(row.get(6)),
            open_since: duration(row.get(7)).map(|time| UNIX_EPOCH + time),
            takes_turns: true,
            operation: None,
            waiting: age.filter(|_| waiting),
            holding: age.filter(|_| writing && !waiting),
            holds_write_lock: writing && !waiting,
            program: program.filter(|name| !name.is_empty()),
        }
    });
    Ok(users.collect())
}
