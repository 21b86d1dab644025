//! Keeping the index of words in order. It has one layout, is kept with every message, and answers while it is rebuilt:
//! range by range its rows are cut anew from the messages.

use super::transaction::ServerTransaction;
use crate::error::Result;
use crate::search::index::Index;
use crate::search::snippet::Texts;
use crate::search::upkeep::{Backfill, RebuildStatus, Upkeep};
use crate::transaction::{Bulk, Transaction};
use crate::value::Value;

/// Up to which id a rebuild goes, and how far it has come.
const HIGH_WATER: &str = "fts_rebuild_high_water";
const PROGRESS: &str = "fts_rebuild_progress";

/// How much text is cut anew in one transaction.
const STEP_BYTES: i64 = 256 << 10;

impl Upkeep for ServerTransaction<'_> {
    fn rebuilding(&mut self, of: Backfill) -> Result<Option<RebuildStatus>> {
        let last = if of == Backfill::Main { self.marker(HIGH_WATER)? } else { None };
        let Some(last) = last.filter(|last| *last > 0) else { return Ok(None) };
        Ok(Some(RebuildStatus::new(last, self.marker(PROGRESS)?.unwrap_or_default())))
    }

    fn rebuild_step(&mut self, of: Backfill, ids: i64) -> Result<bool> {
        let Some(RebuildStatus { total, indexed, .. }) = self.rebuilding(of)? else { return Ok(false) };
        let most = indexed.saturating_add(ids.max(1)).min(total);
        let (mut rows, mut bytes, mut upto) = (Vec::new(), 0, most);
        self.query(
            "SELECT id, content, tool_name, tool_calls FROM messages WHERE id > ?1 AND id <= ?2 ORDER BY id",
            &[indexed.into(), most.into()],
            &mut |row| {
                if bytes < STEP_BYTES {
                    let lengths = row.iter().filter_map(Value::as_str).map(str::len);
                    bytes += i64::try_from(lengths.sum::<usize>()).unwrap_or(STEP_BYTES);
                    if bytes >= STEP_BYTES {
                        upto = row.first().and_then(Value::as_i64).unwrap_or(most);
                    }
                    rows.push(row);
                }
                Ok(())
            },
        )?;
        self.execute(
            "DELETE FROM message_words WHERE message_id > ?1 AND message_id <= ?2",
            &[indexed.into(), upto.into()],
        )?;
        let texts = |row: &'_ [Value]| -> (Option<i64>, [Option<String>; 3]) {
            let text = |column: usize| row.get(column).and_then(Value::as_str).map(str::to_owned);
            (row.first().and_then(Value::as_i64), [text(1), text(2), text(3)])
        };
        let rows: Vec<_> = rows.iter().map(|row| texts(row)).collect();
        let messages: Vec<(i64, Texts<'_>)> = rows
            .iter()
            .filter_map(|(id, [content, tool_name, tool_calls])| {
                let texts = Texts {
                    content: content.as_deref(),
                    tool_name: tool_name.as_deref(),
                    tool_calls: tool_calls.as_deref(),
                };
                id.map(|id| (id, texts))
            })
            .collect();
        self.index_messages(&messages)?;
        if upto < total {
            self.set_marker(PROGRESS, upto)?;
            return Ok(true);
        }
        self.execute("DELETE FROM state_meta WHERE key IN (?1, ?2)", &[HIGH_WATER.into(), PROGRESS.into()])?;
        Ok(false)
    }

    fn begin_rebuild(&mut self, of: Backfill) -> Result<usize> {
        if of != Backfill::Main {
            return Ok(0);
        }
        if self.marker(HIGH_WATER)?.is_some_and(|last| last > 0) {
            return Ok(1);
        }
        let last = self.number("SELECT COALESCE(MAX(id), 0) FROM messages", &[])?.unwrap_or_default();
        self.set_marker(HIGH_WATER, last)?;
        self.set_marker(PROGRESS, 0)?;
        if last == 0 {
            self.execute("DELETE FROM state_meta WHERE key IN (?1, ?2)", &[HIGH_WATER.into(), PROGRESS.into()])?;
        }
        Ok(1)
    }

    fn is_outdated(&mut self) -> Result<bool> {
        Ok(self.marker(HIGH_WATER)?.is_some())
    }

    fn is_damaged(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn replace_layout(&mut self, _: bool) -> Result<i64> {
        Ok(0)
    }

    fn ensure_pairs(&mut self) -> Result<()> {
        Ok(())
    }

    fn clear_step(&mut self, _: i64) -> Result<bool> {
        Ok(false)
    }

    fn settle_layout(&mut self) -> Result<()> {
        Ok(())
    }

    fn mergeable(&mut self) -> Result<Vec<Index>> {
        Ok(vec![Index::Words])
    }

    /// Files what the index keeps aside. Whoever does not own it leaves that to the server, which does it too.
    fn merge_step(&mut self, _: Index, _: bool, _: i32) -> Result<bool> {
        self.query(
            "SELECT gin_clean_pending_list(oid) FROM pg_class \
             WHERE oid = to_regclass('idx_message_words_words') AND pg_has_role(relowner, 'USAGE')",
            &[],
            &mut |_| Ok(()),
        )?;
        Ok(false)
    }

    fn can_read_table(&mut self, name: &str) -> Result<bool> {
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        Ok(self.number("SELECT CASE WHEN to_regclass(?1) IS NULL THEN 0 ELSE 1 END", &[quoted.into()])? == Some(1))
    }
}

impl ServerTransaction<'_> {
    fn number(&mut self, sql: &str, parameters: &[Value]) -> Result<Option<i64>> {
        let transaction: &mut dyn Transaction = self;
        Ok(transaction.scalar(sql, parameters)?.as_i64())
    }

    fn marker(&mut self, key: &str) -> Result<Option<i64>> {
        let transaction: &mut dyn Transaction = self;
        let text = transaction.scalar("SELECT value FROM state_meta WHERE key = ?1", &[key.into()])?;
        Ok(text.as_str().and_then(|text| text.parse().ok()))
    }

    fn set_marker(&mut self, key: &str, value: i64) -> Result<()> {
        self.execute(
            "INSERT INTO state_meta (key, value) VALUES (?1, ?2) \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            &[key.into(), value.to_string().into()],
        )
        .map(drop)
    }
}
