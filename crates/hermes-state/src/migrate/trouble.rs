//! Why a store cannot be copied into another, with the next step.

use super::report::MigrationProblem;

/// What is in the way of a migration.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationTrouble {
    /// Source and target are one store.
    #[error("source and target are the same store, {0}; name two different ones")]
    SameStore(String),
    /// The target holds something and merging was not asked for.
    #[error(
        "the target {target} is not empty: {table} has rows; name an empty one, or ask for merging into what is there"
    )]
    NotEmpty {
        /// The target.
        target: String,
        /// A table of it with rows.
        table: &'static str,
    },
    /// The target holds an unfinished migration of another kind or from elsewhere.
    #[error(
        "the target {target} holds an unfinished {} from {source_store}; finish that one, or name another target",
        if *merge { "merge" } else { "migration" }
    )]
    Unfinished {
        /// The target.
        target: String,
        /// Where it came from.
        source_store: String,
        /// Whether it was a merge.
        merge: bool,
    },
    /// The source is itself the target of a migration that has not ended.
    #[error("the source {0} is itself the target of an unfinished migration; finish that one first")]
    SourceUnfinished(String),
    /// Rows of the source that cannot be copied as they are. Nothing was changed.
    #[error(
        "{count} thing(s) in the source cannot be copied, and nothing was changed; the first: {}",
        first.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Problems {
        /// How many there are.
        count: u64,
        /// The first of them.
        first: Vec<MigrationProblem>,
    },
    /// Somebody else has written to a target that is being filled.
    #[error(
        "something else has written to the target while it was being filled ({what}); stop what uses it, then take that out and run the same again, or start with an empty target"
    )]
    WrittenByOthers {
        /// What was found.
        what: String,
    },
    /// The target's engine refused a row.
    #[error("the target refuses a row: {0}")]
    Refused(MigrationProblem),
    /// After the last attempt both stores still differ.
    #[error(
        "source and target still differ after {passes} passes, in {}; stop what writes to the target and run the same again, which copies only the rest",
        tables.join(", ")
    )]
    Unequal {
        /// How often the source was gone through.
        passes: usize,
        /// The tables that differ.
        tables: Vec<&'static str>,
    },
}

impl From<MigrationTrouble> for crate::Error {
    fn from(trouble: MigrationTrouble) -> Self {
        crate::Error::Migration(Box::new(trouble))
    }
}
