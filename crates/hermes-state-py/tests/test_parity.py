"""The page of parity names every public method with its signature, its name in Rust and a test; none may lag."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hermes_state
import pytest
from hermes_state import AsyncSessionDB, SessionDB

ROOT = Path(__file__).parents[3]
FUNCTIONS = "Functions of the module"


class Row(NamedTuple):
    section: str
    name: str
    parameters: str
    rust: str
    test: str


def rows() -> list[Row]:
    found = []
    section = ""
    for line in (ROOT / "docs/parity.md").read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        match = re.fullmatch(r"\| `(\w+)(\(.*\))` \| (?:none|`([\w:]+)`) \| `(\S+)` \|", line)
        if match:
            found.append(Row(section, match[1], match[2], match[3] or "", match[4]))
        else:
            assert not line.startswith("| `"), f"not a row of the page: {line}"
    return found


ROWS = rows()
METHODS = [row for row in ROWS if row.section != FUNCTIONS]


def plain(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_signature_is_that_of_the_page(row: Row) -> None:
    owner = hermes_state if row.section == FUNCTIONS else SessionDB
    assert plain(getattr(owner, row.name)) == row.parameters


def test_every_public_method_is_on_the_page() -> None:
    public = {name for name, value in inspect.getmembers(SessionDB) if callable(value) and not name.startswith("_")}
    assert public - {row.name for row in METHODS} == set()


def test_every_public_function_is_on_the_page() -> None:
    public = {name for name in hermes_state.__all__ if inspect.isfunction(getattr(hermes_state, name))}
    homes = {"get_hermes_home", "set_hermes_home_override", "reset_hermes_home_override"}
    assert public - homes - {row.name for row in ROWS} == set()


def test_every_name_in_rust_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "crates/hermes-state/src").rglob("*.rs"))
    missing = [
        row.rust for row in ROWS if row.rust and not re.search(rf"pub fn {row.rust.rpartition(':')[2]}\b", sources)
    ]
    assert missing == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_proof_exists(row: Row) -> None:
    path, _, name = row.test.partition("::")
    assert re.search(rf"\b(fn|def) {name}\b", (ROOT / "crates" / path).read_text()), row.test


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.name)
def test_the_method_is_told_what_it_does(row: Row) -> None:
    if not row.name.startswith("_"):
        assert inspect.getdoc(getattr(SessionDB, row.name))


def test_the_asynchronous_store_has_them_all(db: SessionDB) -> None:
    store = AsyncSessionDB(db)
    assert all(inspect.iscoroutinefunction(getattr(store, row.name)) for row in METHODS if row.name != "__init__")
