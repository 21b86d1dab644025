//! What copying whole stores asks of a file: the counter of ids, and full-text indexes that are filled afterwards.

use super::transaction::SqliteTransaction;
use crate::error::Result;
use crate::search::snippet::Texts;
use crate::transaction::{Bulk, Transaction};
use crate::value::Value;

/// The markers by which the triggers of all releases know which rows the indexes do not hold yet: ids above the second
/// and up to the first. See `schema/fts.rs`.
const HIGH_WATER: &str = "fts_rebuild_high_water";
const PROGRESS: &str = "fts_rebuild_progress";

/// How much text is indexed under one lock, and how many rows are looked at for it.
const STEP_BYTES: i64 = 4 << 20;
const STEP_ROWS: i64 = 10_000;

/// Settings of FTS5 while a file is filled, and otherwise: how much of an index is gathered in memory before it is written,
/// and how many parts of a size are merged as soon as there are so many. What is written in small parts, and merged
/// every four of them, is written again and again; without it, sixteen are merged.
const SETTINGS: [(&str, u32, u32); 2] = [("hashsize", 16 << 20, 1 << 20), ("automerge", 0, 4)];

impl Bulk for SqliteTransaction<'_> {
    fn highest_message_id(&mut self) -> Result<i64> {
        let given = self.integer("SELECT seq FROM sqlite_sequence WHERE name = 'messages'", &[])?;
        let stored = self.integer("SELECT MAX(id) FROM messages", &[])?;
        Ok(given.unwrap_or_default().max(stored.unwrap_or_default()))
    }

    fn raise_message_ids(&mut self, upto: i64) -> Result<()> {
        let kept = self.execute(
            "UPDATE sqlite_sequence SET seq = MAX(seq, ?1) WHERE name = 'messages'",
            std::slice::from_ref(&upto.into()),
        )?;
        if kept == 0 && upto > 0 {
            self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('messages', ?1)", &[upto.into()])?;
        }
        Ok(())
    }

    /// In the same process statements are as fast as it gets.
    fn copy_messages(&mut self, _: &[&str], _: &[Vec<&Value>], _: &[(i64, Texts<'_>)]) -> Result<bool> {
        Ok(false)
    }

    /// Triggers of the file see to it, or [`index_deferred`](Bulk::index_deferred).
    fn index_messages(&mut self, _: &[(i64, Texts<'_>)]) -> Result<()> {
        Ok(())
    }

    fn defer_index(&mut self, upto: i64) -> Result<()> {
        let pending = self.integer("SELECT 1 FROM state_meta WHERE key = ?1", &[HIGH_WATER.into()])?;
        if pending.is_some() || upto <= 0 || self.integer("SELECT 1 FROM messages LIMIT 1", &[])?.is_some() {
            return Ok(());
        }
        for (key, value) in [(HIGH_WATER, upto), (PROGRESS, 0)] {
            self.execute(
                "INSERT INTO state_meta (key, value) VALUES (?1, ?2) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                &[key.into(), value.to_string().into()],
            )?;
        }
        Ok(())
    }

    /// Marker and rows change together, and ranges are taken under the write lock: any number of processes may index
    /// side by side.
    fn index_deferred(&mut self) -> Result<Option<(i64, i64)>> {
        let marker = "SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = ?1";
        let Some(last) = self.integer(marker, &[HIGH_WATER.into()])? else { return Ok(None) };
        let done = self.integer(marker, &[PROGRESS.into()])?.unwrap_or_default();
        let (upto, rows) = self.step(done, last)?;
        const INDEXES: [(&str, &str); 2] =
            [("messages_fts", "messages"), ("messages_fts_trigram", "messages_fts_trigram_src")];
        if rows > 0 {
            for (index, source) in INDEXES {
                for (setting, value, _) in SETTINGS {
                    self.set(index, setting, value)?;
                }
                self.execute(
                    &format!(
                        "INSERT INTO {index} (rowid, content, tool_name, tool_calls) \
                         SELECT id, content, tool_name, tool_calls FROM {source} WHERE id > ?1 AND id <= ?2"
                    ),
                    &[done.into(), upto.into()],
                )?;
            }
        }
        if upto >= last {
            self.execute("DELETE FROM state_meta WHERE key IN (?1, ?2)", &[HIGH_WATER.into(), PROGRESS.into()])?;
            for (index, _) in INDEXES {
                for (setting, _, value) in SETTINGS {
                    self.set(index, setting, value)?;
                    self.execute(&format!("DELETE FROM {index}_config WHERE k = '{setting}'"), &[])?;
                }
            }
        } else {
            self.execute(
                "INSERT INTO state_meta (key, value) VALUES (?1, ?2) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                &[PROGRESS.into(), upto.to_string().into()],
            )?;
        }
        Ok(Some((upto, last)))
    }

    /// Statistics would change the plans of every other program on the file.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

impl SqliteTransaction<'_> {
    /// Up to which id the next step goes, and how many rows that are.
    fn step(&mut self, done: i64, last: i64) -> Result<(i64, usize)> {
        let (mut upto, mut rows, mut bytes) = (last, 0, 0);
        let mut sizes: Vec<(i64, i64)> = Vec::new();
        self.query(
            "SELECT id, OCTET_LENGTH(COALESCE(content, '')) + OCTET_LENGTH(COALESCE(tool_calls, '')) FROM messages \
             WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3",
            &[done.into(), last.into(), STEP_ROWS.into()],
            &mut |row| {
                if let [Value::Integer(id), Value::Integer(size)] = row[..] {
                    sizes.push((id, size));
                }
                Ok(())
            },
        )?;
        let whole = sizes.len() < STEP_ROWS as usize;
        for (id, size) in &sizes {
            (rows, bytes) = (rows + 1, bytes + size);
            if bytes >= STEP_BYTES || (!whole && rows == sizes.len()) {
                upto = *id;
                break;
            }
        }
        Ok((upto, rows))
    }

    /// Has an index go by a setting from now on.
    fn set(&mut self, index: &str, setting: &str, value: u32) -> Result<()> {
        self.execute(&format!("INSERT INTO {index} ({index}, rank) VALUES ('{setting}', {value})"), &[]).map(drop)
    }

    fn integer(&mut self, sql: &str, parameters: &[Value]) -> Result<Option<i64>> {
        let transaction: &mut dyn Transaction = self;
        Ok(transaction.scalar(sql, parameters)?.as_i64())
    }
}
