//! The native half of the Python module `hermes_state`: hands calls over to the store and rows back.

mod error;
mod handle;
mod interrupt;
mod json;
mod log;
mod message;
mod row;
mod schema;
mod value;
mod write;

use pyo3::prelude::*;

/// The native half of the module `hermes_state`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::handle::Store;
    #[pymodule_export]
    use crate::message::{decode_content, encode_content};
    #[pymodule_export]
    use crate::schema::{is_url, parse_schema_columns, require_lock_kind};
    #[pymodule_export]
    use crate::value::{sanitize_title, scrub_surrogates};
    #[pymodule_export]
    use crate::write::Write;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log::forward_to_python();
        crate::schema::add_constants(module)
    }
}
