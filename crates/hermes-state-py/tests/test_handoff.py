"""Handoffs as Python callers see them, and several processes that want the same one."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine

NOTHING = {"state": None, "platform": None, "error": None}

# Claims all of some sessions as soon as it may, in an order of its own, and says which ones it got.
CLAIMER = """
import json, random, sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as db:
    names = [f"s{number}" for number in range(30)]
    random.shuffle(names)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([name for name in names if db.claim_handoff(name)]), flush=True)
"""


def test_a_handoff_goes_its_way(db: SessionDB) -> None:
    db.create_session("s", "cli")
    assert db.get_handoff_state("nobody") is None
    assert db.get_handoff_state("s") == NOTHING
    assert db.claim_handoff("s") is False
    assert db.request_handoff("s", " Telegram ") is True
    assert db.request_handoff("s", "slack") is False
    assert db.get_handoff_state("s") == {"state": "pending", "platform": " Telegram ", "error": None}
    (row,) = db.list_pending_handoffs()
    assert row == db.get_session("s")
    assert db.claim_handoff("s") is True
    assert db.claim_handoff("s") is False
    assert db.list_pending_handoffs() == []
    assert db.fail_handoff("s", "x" * 501) is None
    assert db.get_handoff_state("s") == {"state": "failed", "platform": " Telegram ", "error": "x" * 500}
    assert db.complete_handoff("s") is None
    assert db.get_handoff_state("s") == {"state": "completed", "platform": " Telegram ", "error": None}
    assert db.request_handoff("s", None) is True
    assert db.get_handoff_state("s") == {"state": "pending", "platform": None, "error": None}
    assert db.request_handoff("nobody", "telegram") is False
    db.complete_handoff("nobody")
    db.fail_handoff("nobody", "x")


def test_a_failure_needs_a_text_and_takes_any(db: SessionDB) -> None:
    db.create_session("s", "cli")
    with pytest.raises(TypeError):
        db.fail_handoff("s", None)
    assert db.get_handoff_state("s") == NOTHING
    db.fail_handoff("s", "half \ud800")
    assert db.get_handoff_state("s")["error"] == "half \ufffd"


def test_reads_that_fail_say_none_and_warn(db: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hermes_state"):
        assert db.get_handoff_state(["no id"]) is None
        db.close()
        assert db.get_handoff_state("s") is None
        assert db.list_pending_handoffs() == []
    warnings = [record.getMessage() for record in caplog.records if record.name == "hermes_state"]
    assert len(warnings) == 3
    assert "'s' failed" in warnings[1]
    assert "is closed" in warnings[2]


def test_of_several_processes_exactly_one_gets_each_handoff(db: SessionDB, location: Path | str) -> None:
    names = [f"s{number}" for number in range(30)]
    for name in names:
        db.create_session(name, "cli")
        assert db.request_handoff(name, "telegram")
    command = [sys.executable, "-c", CLAIMER, str(location)]
    claimers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for claimer in claimers:
        assert claimer.stdout.readline() == "ready\n"
    for claimer in claimers:
        claimer.stdin.write("\n")
        claimer.stdin.flush()
    claimed = [json.loads(claimer.communicate(timeout=120)[0]) for claimer in claimers]
    assert sorted(name for names in claimed for name in names) == sorted(names)
    assert db.list_pending_handoffs() == []
    assert all(db.get_handoff_state(name)["state"] == "running" for name in names)
