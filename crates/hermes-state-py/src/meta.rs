//! The key-value table.

use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::handle::Store;
use crate::value::{to_python, to_value};
use crate::write::Write;

#[pymethods]
impl Store {
    #[staticmethod]
    fn set_meta(key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (key, value) = (to_value(key)?, to_value(value)?);
        Ok(Write::new("set_meta", move |db| db.set_meta(key.clone(), value.clone())))
    }

    fn meta<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let key = to_value(key)?;
        to_python(py, &self.wait(py, |db| db.meta_value(key))?)
    }
}
