//! The native half of the Python module `hermes_state`: hands calls over to the store and rows back.

mod backup;
mod compression;
mod conversations;
mod deletion;
mod error;
mod export;
mod gateway;
mod handle;
mod handoff;
mod index;
mod interrupt;
mod json;
mod lease;
mod listing;
mod log;
mod maintenance;
mod message;
mod messages;
mod meta;
mod repair;
mod retention;
mod row;
mod schema;
mod search;
mod sessions;
mod spool;
mod titles;
mod topics;
mod usage;
mod value;
mod write;

use pyo3::prelude::*;

/// The native half of the module `hermes_state`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::backup::restore_file;
    #[pymodule_export]
    use crate::conversations::{is_background_review_harness, rows_to_conversation};
    #[pymodule_export]
    use crate::deletion::{PruneFilter, remove_session_files};
    #[pymodule_export]
    use crate::handle::Store;
    #[pymodule_export]
    use crate::lease::Lease;
    #[pymodule_export]
    use crate::message::{batch_rows, decode_content, encode_content};
    #[pymodule_export]
    use crate::repair::{file_ailment, repair_file, trouble_of_number, trouble_sentences};
    #[pymodule_export]
    use crate::schema::{is_url, parse_schema_columns, require_lock_kind};
    #[pymodule_export]
    use crate::search::{contains_cjk, count_cjk, has_lone_cjk_run, sanitize_fts5_query};
    #[pymodule_export]
    use crate::spool::Spooled;
    #[pymodule_export]
    use crate::titles::sanitize_title;
    #[pymodule_export]
    use crate::value::scrub_surrogates;
    #[pymodule_export]
    use crate::write::Write;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log::forward_to_python();
        crate::schema::add_constants(module)
    }
}
