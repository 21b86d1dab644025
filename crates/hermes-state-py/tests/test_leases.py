"""Leases that die with their owner: real processes, late publishers, and an older release beside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest
from hermes_state import Lease, LeaseLost, SessionDB

# An owner that takes the lease, says so, and lives until its input ends.
OWNER = """
import sys
from hermes_state import SessionDB

db = SessionDB(sys.argv[1])
print(db.acquire_compression_lease("s", "owner", 3600.0).fence, flush=True)
sys.stdin.read()
"""

OLDER = """
import sys
from pathlib import Path
from hermes_state import SessionDB

db = SessionDB(Path(sys.argv[1]))
print({expression})
db.close()
"""


@pytest.mark.each_engine
def test_what_a_holder_publishes_is_stored(db: SessionDB) -> None:
    db.create_session("s", "cli", model="large-1")
    db.append_message("s", "user", content="a long story")
    lease = db.acquire_compression_lease("s", "me")
    assert lease is not None
    assert (lease.session_id, lease.holder, lease.fence) == ("s", "me", 1)
    assert lease == db.acquire_compression_lease("s", "me") == Lease("s", "me", 1) != Lease("s", "me", 2)
    assert repr(lease) == "Lease('s', 'me', 1)"
    assert db.acquire_compression_lease("s", "you") is None
    assert db.acquire_compression_lease("", "you") is None
    under = db.under(lease)
    assert under.archive_and_compact("s", [{"role": "user", "content": "short"}]) == 1
    under.replace_messages("s", [{"role": "user", "content": "shorter"}], active_only=True)
    assert [row["content"] for row in db.get_messages("s")] == ["shorter"]
    under.end_session("s", "compression")
    assert under.create_session("next", "cli", parent_session_id="s", cwd="/home") == "next"
    found = db.get_session("next")
    assert found is not None and (found["parent_session_id"], found["cwd"]) == ("s", "/home")
    with pytest.raises(TypeError, match="colour"):
        under.create_session("other", "cli", colour="red")
    with pytest.raises(TypeError, match="acquire_compression_lease"):
        db.under(None)  # type: ignore[arg-type]


@pytest.mark.each_engine
def test_a_former_holder_publishes_nothing(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", content="a long story")
    former = db.acquire_compression_lease("s", "me", -1.0)
    present = db.acquire_compression_lease("s", "you")
    assert former is not None and present is not None and former.fence < present.fence
    late = db.under(former)
    message = {"role": "user", "content": "late"}
    for publish in (
        lambda: late.archive_and_compact("s", [message]),
        lambda: late.replace_messages("s", [message]),
        lambda: late.end_session("s", "compression"),
        lambda: late.create_session("late", "cli", parent_session_id="s"),
    ):
        with pytest.raises(LeaseLost, match="'you' has it now") as lost:
            publish()
        facts = lost.value
        assert (facts.session_id, facts.holder, facts.fence) == ("s", "me", former.fence)
        assert (facts.taken_by, facts.newest_fence, facts.lapsed_seconds) == ("you", present.fence, None)
    assert [row["content"] for row in db.get_messages("s")] == ["a long story"]
    found = db.get_session("s")
    assert found is not None and found["ended_at"] is None and db.get_session("late") is None
    # The methods of callers that know of no leases are as they were.
    assert db.archive_and_compact("s", [message]) == 1


@pytest.mark.each_engine
def test_a_killed_owner_loses_its_lease_at_once(db: SessionDB, location: Path | str) -> None:
    pipe = subprocess.PIPE
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(location)], stdin=pipe, stdout=pipe, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "1\n"
    assert not db.try_acquire_compression_lock("s", "heir")
    owner.kill()
    owner.wait()
    assert db.try_acquire_compression_lock("s", "heir")
    assert db.get_compression_lock_holder("s") == "heir"


def test_an_older_release_takes_and_gives_leases_as_ever(db: SessionDB, path: Path, older_python: str) -> None:
    def older(expression: str) -> str:
        done = subprocess.run(
            [older_python, "-E", "-c", OLDER.replace("{expression}", expression), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    acquire: Callable[[str], str] = lambda holder: older(f"db.try_acquire_compression_lock('s', '{holder}')")  # noqa: E731
    db.create_session("s", "cli")
    # Its process has ended, of which nothing is known.
    assert acquire("old") == "True"
    assert not db.try_acquire_compression_lock("s", "me")
    assert older("db.release_compression_lock('s', 'old')") == "None"
    ours = db.acquire_compression_lease("s", "me")
    assert ours is not None and acquire("old") == "False"
    assert older("db.get_compression_lock_holder('s')") == "me"
    db.release_compression_lock("s", "me")
    assert acquire("old") == "True"
    with pytest.raises(LeaseLost, match="'old' has it now") as lost:
        db.under(ours).end_session("s", "compression")
    assert lost.value.newest_fence is None
