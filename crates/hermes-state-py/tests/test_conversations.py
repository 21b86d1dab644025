"""Conversations and lineages as Python callers see them."""

from __future__ import annotations

from typing import Any, Callable

import hermes_state
import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine

REVIEW = "Review the conversation above and update the skill library"


def told(messages: list[dict[str, Any]]) -> list[str]:
    return [f"{message['role']}:{message['content']}" for message in messages]


@pytest.fixture(autouse=True)
def _lineage(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.append_messages("root", [{"role": "user", "content": "first"}, {"role": "assistant", "content": "yes"}])
    db.end_session("root", "compression")
    db.create_session("s", "cli", parent_session_id="root")
    db.append_messages("s", [{"role": "user", "content": text} for text in ("one", "two", "two")])


def test_a_conversation(db: SessionDB) -> None:
    assert told(db.get_messages_as_conversation("s")) == ["user:one", "user:two", "user:two"]
    assert told(db.get_messages_as_conversation("s", True)) == ["user:first", "assistant:yes", "user:one", "user:two"]
    assert told(db.get_messages_as_conversation("s", repair_alternation=True)) == ["user:one\n\ntwo\n\ntwo"]
    for nobody in ("nobody", "", None):
        assert db.get_messages_as_conversation(nobody) == []


def test_resuming(db: SessionDB) -> None:
    model, display = db.get_resume_conversations("s")
    assert model == db.get_messages_as_conversation("s", repair_alternation=True)
    assert display == db.get_messages_as_conversation("s", include_ancestors=True)
    display[0]["content"] = "changed"
    assert db.get_ancestor_display_prefix("s") == db.get_messages_as_conversation("root")
    assert db.get_ancestor_display_prefix("root") == db.get_ancestor_display_prefix(None) == []
    for nobody in ("nobody", None):
        assert db.get_resume_conversations(nobody) == ([], [])


def test_a_bound_leaves_the_newest(db: SessionDB) -> None:
    assert told(db.get_messages_as_conversation("s", max_messages=1)) == ["user:two"]
    assert told(db.get_messages_as_conversation("s", True, max_messages=4)) == ["assistant:yes", "user:one", "user:two"]
    model, display = db.get_resume_conversations("s", max_messages=4)
    assert (told(model), told(display)) == (
        ["user:one\n\ntwo\n\ntwo"],
        ["assistant:yes", "user:one", "user:two"],
    )
    assert db.get_resume_conversations("s", max_messages=0) == ([], [])
    assert db.get_resume_conversations("s", max_messages=10**6) == db.get_resume_conversations("s")
    for reading in (db.get_messages_as_conversation, db.get_resume_conversations):
        with pytest.raises(ValueError, match="max_messages must not be negative"):
            reading("s", max_messages=-1)


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_without_a_bound_everything_is_read(db: SessionDB) -> None:
    batch = [{"role": "tool", "content": str(number)} for number in range(500)]
    for _ in range(21):
        db.append_messages("s", batch)
    assert len(db.get_resume_conversations("s")[1]) == 4 + 21 * 500


def test_lineages(db: SessionDB) -> None:
    assert db.get_conversation_root("s") == "root"
    for odd in ("nobody", "", None):
        assert db.get_conversation_root(odd) == odd
        assert db.resolve_resume_session_id(odd) == odd
        assert db._session_lineage_root_to_tip(odd) == [odd]
    assert db._session_lineage_root_to_tip("s") == ["root", "s"]
    assert db.resolve_resume_session_id("root") == "s"
    assert db.get_compression_lineage("root") == db.get_compression_lineage("s") == ["root", "s"]
    assert db.get_compression_lineage("nobody") == db.get_compression_lineage(None) == []


def test_children(db: SessionDB) -> None:
    assert db._is_compression_child_row(db.get_session("s")) is True
    assert db._is_compression_child_row(db.get_session("root")) is False
    db.create_session("branch", "cli", parent_session_id="root", model_config={"_branched_from": "root"})
    assert db._is_branch_child_row(db.get_session("branch")) is True
    assert db._is_compression_child_row(db.get_session("branch")) is False
    db.create_session("agent", "cli", parent_session_id="root", model_config={"_delegate_from": "root"})
    assert db._is_compression_child_row(db.get_session("agent")) is True
    for config in (None, "", "no json", "[1]", "5", '{"_branched_from": null}', {}):
        assert SessionDB._is_branch_child_row({"model_config": config}) is False
    assert SessionDB._is_branch_child_row({"model_config": {"_branched_from": "x"}}) is True
    assert SessionDB._is_branch_child_row({}) is False


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_rows_of_raw_sql_make_the_same_conversation(db: SessionDB) -> None:
    rows = db._conn.execute("SELECT * FROM messages ORDER BY id").fetchall()
    made = db._rows_to_conversation(rows, session_id="s", include_ancestors=True, repair_alternation=False)
    assert made == db.get_messages_as_conversation("s", include_ancestors=True)
    own = [dict(row) for row in rows if row["session_id"] == "s"]
    made = db._rows_to_conversation(own, session_id="s", include_ancestors=False, repair_alternation=True)
    assert made == db.get_messages_as_conversation("s", repair_alternation=True)


def test_replayed_messages() -> None:
    replayed = SessionDB._is_duplicate_replayed_user_message
    user = {"role": "user", "content": "go"}
    assert replayed([user], user) is True
    assert replayed([user, {"role": "assistant", "content": ""}, {"role": "tool", "content": "x"}], user) is True
    assert replayed([user, {"role": "assistant", "content": "", "tool_calls": [1]}], user) is False
    assert replayed([], user) is False
    for content in ("", None, ["go"]):
        message = {"role": "user", "content": content}
        assert replayed([message], message) is False
    assert replayed([user], {"role": "assistant", "content": "go"}) is False


def test_the_harness_of_a_background_review(db: SessionDB, outside: Callable[[str], object]) -> None:
    is_harness = hermes_state._is_background_review_harness_message
    strip = hermes_state._strip_background_review_harness
    harness = {"role": "user", "content": f" \x1c{REVIEW}, \ud800 now"}
    assert is_harness(harness) is True
    assert is_harness({"role": "system", "content": "Review the conversation above and consider saving to memory"})
    for message in (
        {"role": "tool", "content": REVIEW},
        {"role": "user", "content": REVIEW.lower()},
        {"role": "user", "content": [REVIEW]},
        {"role": "user", "content": None},
        {"content": REVIEW},
        REVIEW,
        None,
    ):
        assert is_harness(message) is False
    answer, tool = {"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}
    assert strip([answer, harness, harness, answer, answer]) == [answer, answer]
    assert strip([harness, tool, answer, harness]) == [tool, answer]
    assert strip([answer, 5, harness, 5, answer]) == [answer, 5, 5, answer]
    empty: list[Any] = []
    assert strip(empty) is empty
    assert strip(None) is None
    outside(f"UPDATE messages SET content = '{REVIEW}' WHERE content = 'first'")
    assert told(db.get_messages_as_conversation("s", True)) == ["user:one", "user:two"]


def test_an_id_that_no_store_can_hold_comes_back_like_any_unknown_one(db: SessionDB) -> None:
    for unknown in ("nobody", "\ud800", "", None):
        assert db.resolve_resume_session_id(unknown) == unknown
