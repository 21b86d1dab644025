//! What an examination asks a server: how fast it answers, what this role may do, and how crowded it is.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::doctor::ServerExamination;

/// How often the time of an answer is taken; the best counts.
const ROUNDS: u32 = 5;

/// Asks; what `status` tells of the server is left for it to fill in.
pub(super) async fn ask(client: &Client) -> Result<ServerExamination, tokio_postgres::Error> {
    let mut latency = Duration::MAX;
    for _ in 0..ROUNDS {
        let asked = Instant::now();
        client.batch_execute("SELECT 1").await?;
        latency = latency.min(asked.elapsed());
    }
    let found = client
        .query_one(
            "SELECT current_user::text, \
                 has_table_privilege('messages', 'INSERT') AND has_table_privilege('sessions', 'UPDATE') \
                     AND NOT pg_is_in_recovery(), \
                 has_schema_privilege(current_schema(), 'CREATE') AND pg_has_role((SELECT relowner FROM pg_class \
                     WHERE oid = 'messages'::regclass), 'USAGE'), \
                 (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
                 current_setting('max_connections')::bigint",
            &[],
        )
        .await?;
    Ok(ServerExamination {
        version: String::new(),
        schema: String::new(),
        bytes: 0,
        encrypted: false,
        latency,
        role: found.get(0),
        may_write: found.get(1),
        may_upgrade: found.get(2),
        connections: found.get(3),
        max_connections: found.get(4),
    })
}
