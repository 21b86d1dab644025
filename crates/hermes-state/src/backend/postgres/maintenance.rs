//! Has the server clean up after what was deleted and changed.

use tokio_postgres::{Client, Error};

use super::url::Address;

/// Vacuums the tables of the schema; the server passes over those that this user may not vacuum. Returns the bytes of
/// all before and after.
pub(super) async fn vacuum(client: &mut Client, address: &Address) -> Result<(u64, u64), Error> {
    let schema = address.schema();
    let tables = client
        .query(
            "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = $1 AND c.relkind = 'r' ORDER BY c.relname",
            &[&schema],
        )
        .await?;
    let before = bytes(client, schema).await?;
    // A large table takes longer than any read may.
    let limit = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', '0', false)";
    let limit: String = client.query_one(limit, &[]).await?.get(0);
    let mut outcome = Ok(());
    for table in tables {
        outcome = client.batch_execute(&format!("VACUUM {}", table.get::<_, String>(0))).await;
        if outcome.is_err() {
            break;
        }
    }
    client.execute("SELECT set_config('statement_timeout', $1, false)", &[&limit]).await?;
    outcome?;
    Ok((before, bytes(client, schema).await?))
}

async fn bytes(client: &Client, schema: &str) -> Result<u64, Error> {
    let row = client
        .query_one(
            "SELECT CAST(COALESCE(SUM(pg_total_relation_size(c.oid)), 0) AS bigint) FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
            &[&schema],
        )
        .await?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
}
