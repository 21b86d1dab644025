//! Ends continuations of compressed conversations that nobody took up.

use super::{Promise, Write};
use crate::clock;
use crate::error::Result;
use crate::query::lineage;
use crate::transaction::Transaction;

/// How long nobody has to have taken one up, in seconds.
const WEEK: f64 = 604_800.0;

/// Ends them all, and answers how many there were.
pub(crate) struct FinalizeOrphans;

impl Write for FinalizeOrphans {
    type Answer = usize;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<usize>> {
        let now = clock::now();
        let ended = transaction.execute(
            &format!(
                "UPDATE sessions SET ended_at = ?1, end_reason = 'orphaned_compression' WHERE id IN ( \
                     SELECT c.id FROM sessions p JOIN sessions c ON c.parent_session_id = p.id \
                     WHERE p.end_reason = 'compression' AND p.ended_at IS NOT NULL AND c.api_call_count = 0 \
                     AND c.ended_at IS NULL AND c.end_reason IS NULL AND c.started_at < ?2 \
                     AND NOT ({}) AND NOT ({}) \
                     AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = c.id))",
                lineage::says_branch("c"),
                lineage::is_delegate("c")
            ),
            &[now.into(), (now - WEEK).into()],
        )?;
        Ok(Promise::Kept(ended))
    }
}
