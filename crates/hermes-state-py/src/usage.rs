//! Usage: what Python's methods hand over.

use hermes_state::Usage;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::handle::Store;
use crate::value::to_value;
use crate::write::Write;

#[pymethods]
impl Store {
    #[staticmethod]
    fn update_session_billing_route(
        session_id: &Bound<'_, PyAny>,
        provider: &Bound<'_, PyAny>,
        base_url: &Bound<'_, PyAny>,
        billing_mode: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (id, mode) = (to_value(session_id)?, to_value(billing_mode)?);
        let (provider, base_url) = (to_value(provider)?, to_value(base_url)?);
        Ok(Write::new("update_session_billing_route", move |db| {
            db.update_billing_route(id.clone(), provider.clone(), base_url.clone(), mode.clone())
        }))
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the keywords of update_token_counts")]
    fn update_token_counts(
        session_id: &Bound<'_, PyAny>,
        input_tokens: &Bound<'_, PyAny>,
        output_tokens: &Bound<'_, PyAny>,
        model: &Bound<'_, PyAny>,
        cache_read_tokens: &Bound<'_, PyAny>,
        cache_write_tokens: &Bound<'_, PyAny>,
        reasoning_tokens: &Bound<'_, PyAny>,
        estimated_cost_usd: &Bound<'_, PyAny>,
        actual_cost_usd: &Bound<'_, PyAny>,
        cost_status: &Bound<'_, PyAny>,
        cost_source: &Bound<'_, PyAny>,
        pricing_version: &Bound<'_, PyAny>,
        billing_provider: &Bound<'_, PyAny>,
        billing_base_url: &Bound<'_, PyAny>,
        billing_mode: &Bound<'_, PyAny>,
        api_call_count: &Bound<'_, PyAny>,
        absolute: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let id = to_value(session_id)?;
        let usage = Usage::new(to_value(model)?, to_value(billing_provider)?)
            .billing_base_url(to_value(billing_base_url)?)
            .billing_mode(to_value(billing_mode)?)
            .input_tokens(to_value(input_tokens)?)
            .output_tokens(to_value(output_tokens)?)
            .cache_read_tokens(to_value(cache_read_tokens)?)
            .cache_write_tokens(to_value(cache_write_tokens)?)
            .reasoning_tokens(to_value(reasoning_tokens)?)
            .api_call_count(to_value(api_call_count)?)
            .estimated_cost_usd(to_value(estimated_cost_usd)?)
            .actual_cost_usd(to_value(actual_cost_usd)?)
            .cost_status(to_value(cost_status)?)
            .cost_source(to_value(cost_source)?)
            .pricing_version(to_value(pricing_version)?);
        let total = absolute.is_truthy()?;
        Ok(Write::new("update_token_counts", move |db| {
            if total { db.set_usage(id.clone(), usage.clone()) } else { db.record_usage(id.clone(), usage.clone()) }
        }))
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the keywords of record_auxiliary_usage")]
    fn record_auxiliary_usage(
        session_id: &Bound<'_, PyAny>,
        task: &Bound<'_, PyAny>,
        model: &Bound<'_, PyAny>,
        billing_provider: &Bound<'_, PyAny>,
        billing_base_url: &Bound<'_, PyAny>,
        input_tokens: &Bound<'_, PyAny>,
        output_tokens: &Bound<'_, PyAny>,
        cache_read_tokens: &Bound<'_, PyAny>,
        cache_write_tokens: &Bound<'_, PyAny>,
        reasoning_tokens: &Bound<'_, PyAny>,
        estimated_cost_usd: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (id, task) = (to_value(session_id)?, to_value(task)?);
        let usage = Usage::new(to_value(model)?, to_value(billing_provider)?)
            .billing_base_url(to_value(billing_base_url)?)
            .input_tokens(to_value(input_tokens)?)
            .output_tokens(to_value(output_tokens)?)
            .cache_read_tokens(to_value(cache_read_tokens)?)
            .cache_write_tokens(to_value(cache_write_tokens)?)
            .reasoning_tokens(to_value(reasoning_tokens)?)
            .estimated_cost_usd(to_value(estimated_cost_usd)?);
        Ok(Write::new("record_auxiliary_usage", move |db| {
            db.record_auxiliary_usage(id.clone(), task.clone(), usage.clone())
        }))
    }
}
