"""Usage: tokens, calls, costs, and the route they are billed by."""

from __future__ import annotations

from hermes_state._store import Store


class Usage(Store):
    """The operations on usage."""

    def update_session_billing_route(
        self, session_id: str, *, provider: str | None, base_url: str | None, billing_mode: str | None = None
    ) -> None:
        """Notes by which provider and address the session is billed from now on, and forgets its system prompt.

        ``None`` for the mode keeps the stored one. A session that does not exist is nothing.
        """
        self._execute_write(self._native.update_session_billing_route(session_id, provider, base_url, billing_mode))

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int | None = 0,
        output_tokens: int | None = 0,
        model: str | None = None,
        cache_read_tokens: int | None = 0,
        cache_write_tokens: int | None = 0,
        reasoning_tokens: int | None = 0,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        api_call_count: int | None = 0,
        absolute: bool = False,
    ) -> None:
        """Adds what the main loop of a session has used, or with ``absolute`` sets its totals.

        Costs are in US dollars. Additions are split by model and route too; totals are not. ``None`` adds nothing, and
        as a total leaves what is stored. A missing session is created, from the source ``unknown``; an empty id is a
        ``ValueError``.
        """
        self._execute_write(
            self._native.update_token_counts(
                session_id,
                input_tokens,
                output_tokens,
                model,
                cache_read_tokens,
                cache_write_tokens,
                reasoning_tokens,
                estimated_cost_usd,
                actual_cost_usd,
                cost_status,
                cost_source,
                pricing_version,
                billing_provider,
                billing_base_url,
                billing_mode,
                api_call_count,
                absolute,
            )
        )

    def record_auxiliary_usage(
        self,
        session_id: str,
        task: str,
        *,
        model: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        input_tokens: int | None = 0,
        output_tokens: int | None = 0,
        cache_read_tokens: int | None = 0,
        cache_write_tokens: int | None = 0,
        reasoning_tokens: int | None = 0,
        estimated_cost_usd: float | None = None,
    ) -> None:
        """Adds one call of a task beside the main loop (``vision``, ``compression``, …), split by model and task.

        The session's own totals do not include it. Without an id or a task this does nothing.
        """
        self._execute_write(
            self._native.record_auxiliary_usage(
                session_id,
                task,
                model,
                billing_provider,
                billing_base_url,
                input_tokens,
                output_tokens,
                cache_read_tokens,
                cache_write_tokens,
                reasoning_tokens,
                estimated_cost_usd,
            )
        )
