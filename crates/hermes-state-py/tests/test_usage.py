"""Usage as Python callers account it."""

from __future__ import annotations

import sqlite3

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine


def test_positions_keywords_and_defaults(db: SessionDB) -> None:
    assert db.update_token_counts("s", 10, 2, "m", 3, 4, 5, 0.5, 0.25, "est", "list", "v1", "p", "u", "mode", 1) is None
    db.update_token_counts("s", input_tokens=1, reasoning_tokens=None, api_call_count=1)
    row = db.get_session("s")
    assert row["source"] == "unknown"
    counters = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    assert [row[name] for name in counters] == [11, 2, 3, 4, 5]
    assert (row["api_call_count"], row["estimated_cost_usd"], row["actual_cost_usd"]) == (2, 0.5, 0.25)
    assert (row["model"], row["billing_provider"], row["billing_base_url"], row["billing_mode"]) == (
        "m",
        "p",
        "u",
        "mode",
    )
    assert (row["cost_status"], row["cost_source"], row["pricing_version"]) == ("est", "list", "v1")
    db.update_token_counts("s", 7, absolute=True)
    row = db.get_session("s")
    assert [row[name] for name in counters] == [7, 0, 0, 0, 0]
    assert (row["api_call_count"], row["estimated_cost_usd"], row["actual_cost_usd"]) == (0, 0.5, 0.25)


def test_tasks_and_routes(db: SessionDB) -> None:
    db.record_auxiliary_usage("s", "vision", model="eye", input_tokens=None, output_tokens=3)
    db.record_auxiliary_usage("", "vision")
    db.record_auxiliary_usage("s", None)
    assert db.session_count() == 1
    assert db.get_session("s")["output_tokens"] == 0
    db.update_session_billing_route("s", provider="p", base_url=None)
    assert db.get_session("s")["billing_provider"] == "p"
    for call in (
        lambda: db.update_session_billing_route("s", provider="p"),
        lambda: db.update_session_billing_route("s", "p", "u"),
        lambda: db.record_auxiliary_usage("s", "vision", "m"),
    ):
        with pytest.raises(TypeError):
            call()


def test_bad_values_change_nothing(db: SessionDB) -> None:
    with pytest.raises(ValueError, match="id"):
        db.update_token_counts("", 5)
    with pytest.raises(ValueError, match="id"):
        db.update_token_counts(None, 5)
    with pytest.raises(UnicodeEncodeError):
        db.update_token_counts("s", 5, model="\ud800")
    with pytest.raises(sqlite3.ProgrammingError):
        db.update_token_counts("s", {})
    assert db.session_count() == 0
