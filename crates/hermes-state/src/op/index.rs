//! Writes that keep the full-text indexes in order. Each is a short step, whole in itself.

use std::time::{Duration, Instant};

use super::{Promise, Write};
use crate::backend::Operation;
use crate::error::Result;
use crate::search::index::Index;
use crate::search::upkeep::Backfill;
use crate::transaction::Transaction;

macro_rules! step {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } -> $answer:ty, $call:ident($($argument:expr),*)) => {
        $(#[$doc])*
        pub(crate) struct $name { $(pub(crate) $field: $type),* }

        impl Write for $name {
            type Answer = $answer;
            const OPERATION: Operation = Operation::Index;

            fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<$answer>> {
                let Self { $($field),* } = self;
                transaction.$call($($argument),*).map(Promise::Kept)
            }
        }
    };
}

step! {
    /// Indexes the next range of a rebuild; answers whether there is more.
    RebuildStep { of: Backfill, ids: i64 } -> bool, rebuild_step(*of, *ids)
}
step! {
    /// Begins indexes anew; answers how many there are.
    BeginRebuild { of: Backfill } -> usize, begin_rebuild(*of)
}
step! {
    /// Sets an old layout aside; answers up to which id the current one is to be filled.
    ReplaceLayout { always: bool } -> i64, replace_layout(*always)
}
step! {
    /// Makes the index of pairs, or begins one with gaps anew.
    EnsurePairs {} -> (), ensure_pairs()
}
step! {
    /// Removes a part of what was set aside; answers whether there may be more.
    ClearStep { rows: i64 } -> bool, clear_step(*rows)
}
step! {
    /// Notes down that the storage of the indexes is up to date.
    SettleLayout {} -> (), settle_layout()
}
/// Merges a part of an index; answers whether there is more, and how long it took.
pub(crate) struct MergeStep {
    pub(crate) index: Index,
    pub(crate) first: bool,
    pub(crate) pages: i32,
}

impl Write for MergeStep {
    type Answer = (bool, Duration);
    const OPERATION: Operation = Operation::Index;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<(bool, Duration)>> {
        let started = Instant::now();
        let more = transaction.merge_step(self.index, self.first, self.pages)?;
        Ok(Promise::Kept((more, started.elapsed())))
    }
}
