"""Files of what was measured: whole or not at all, and never trusted blindly."""

from __future__ import annotations

import pytest

from trainer_module.memory.known_sizes import KnownSize, default_folder, load, store

KNOWN = KnownSize(
    key="abc", rows=64, bytes=100, next_rows=128, next_bytes=180, budget=150, memory_budget="80%"
)


def test_stored_entry_is_loaded(tmp_path):
    path = str(tmp_path / "new" / "folder" / "entry.json")
    store(path, KNOWN)
    store(path, KNOWN)  # over the first
    assert load(path, "abc") == KNOWN
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir()] == ["entry.json"]


def test_another_key_has_no_entry(tmp_path, warnings):
    path = str(tmp_path / "entry.json")
    assert load(path, "abc") is None
    store(path, KNOWN)
    assert load(path, "abd") is None
    assert warnings == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1',
        b"\xff\xfe",
        b"[]",
        KNOWN.model_dump_json().replace('"format":1', '"format":2').encode(),
        KNOWN.model_dump_json().replace('"rows":64', '"rows":"many"').encode(),
    ],
)
def test_unreadable_entry_is_reported_and_ignored(tmp_path, warnings, content):
    path = tmp_path / "entry.json"
    path.write_bytes(content)
    assert load(str(path), "abc") is None
    (line,) = warnings
    assert line.startswith(f"Ignoring the unreadable {path} and measuring again: ")


def test_unwritable_folder_is_reported_and_ignored(tmp_path, warnings):
    (tmp_path / "file").write_text("no folder")
    store(str(tmp_path / "file" / "entry.json"), KNOWN)
    (line,) = warnings
    assert line.startswith(f"Cannot keep the micro-batch size in {tmp_path / 'file'}")


@pytest.mark.parametrize(
    ("budget", "answers"), [(99, False), (100, True), (179, True), (180, False)]
)
def test_entry_applies_to_budgets_between_its_need_and_the_next(budget, answers):
    assert KNOWN.answers(budget) is answers


def test_entry_of_the_whole_batch_applies_to_larger_budgets():
    assert KNOWN.model_copy(update={"next_rows": None, "next_bytes": None}).answers(1 << 60)


def test_the_default_folder_is_the_users_cache(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_folder() == "/somewhere/tfx-largebatch/micro_batch_size"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == "/home/me/.cache/tfx-largebatch/micro_batch_size"
