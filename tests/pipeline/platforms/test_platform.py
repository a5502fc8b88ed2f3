"""Text of a server: safe to print, and the message in an error of any shape."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pipeline.platforms.platform import PlatformError, RunNow, TaskNow, error_text, printable


def test_what_a_terminal_acts_on_is_escaped():
    text = "\x1b[31mred\x1b]8;;http://evil\x07 \u202eback\x9b2J\rover\tand\r\nnew [bold]"
    assert printable(text) == (
        "\\x1b[31mred\\x1b]8;;http://evil\\x07 \\u202eback\\x9b2J\\rover    and\nnew [bold]"
    )


@given(st.text())
def test_nothing_unprintable_is_left(text):
    assert all(c == "\n" or c.isprintable() for c in printable(text))


def test_credentials_in_urls_are_removed():
    for text, left in (
        ("see http://user:password@host/path", "see http://host/path"),
        ("https://user@host, s3://key:se@cret@bucket/x", "https://host, s3://bucket/x"),
        ("http://host/a@b?c=d@e mail me@host", "http://host/a@b?c=d@e mail me@host"),
        ("registry.example/x@sha256:00", "registry.example/x@sha256:00"),
    ):
        assert printable(text) == left


def test_errors_and_states_of_a_platform_are_safe_to_print():
    bad = "\x1b[2J http://user:password@host"
    safe = "\\x1b[2J http://host"
    assert str(PlatformError(bad)) == safe
    assert TaskNow("failed", message=bad).message == safe
    assert RunNow("failed", {}, message=bad).message == safe


def test_the_message_of_an_error_is_found_in_any_shape():
    for body, message in (
        ({"error": {"code": 401, "message": "no token"}}, "no token"),
        ({"error": "no token", "code": 5, "message": "no token", "details": []}, "no token"),
        ({"error": ["no token"]}, ""),
        ("no token", "no token"),
        (None, ""),
        (b"", ""),
        (b"RBAC: access denied", "RBAC: access denied"),
        (b"<html><h1>Sign&nbsp;in</h1></html>", "Sign in"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 200_000, "[" * 600),
    ):
        assert error_text(body if isinstance(body, bytes) else json.dumps(body)) == message
