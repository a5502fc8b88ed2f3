"""Make a server's text safe to print, and extract the message from the body of an error."""

from __future__ import annotations

import html
import json
import re

from pipeline.common.json_types import JsonValue

_LONGEST_MESSAGE = 600
_MESSAGE_KEYS = ("message", "error_message", "error_description", "error", "detail", "errors")
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/?#\s]*@")


def printable(text: str) -> str:
    r"""Return text without terminal control characters and without credentials in URLs.

    Control characters, escape sequences and invisible characters are shown as their escapes
    (`\x1b`); line breaks are kept.
    """
    text = without_credentials(text).replace("\r\n", "\n").replace("\t", "    ")
    return "".join(c if c == "\n" or c.isprintable() else _escaped(c) for c in text)


def without_credentials(text: str) -> str:
    """Return text with `user:password@` removed from every URL in it."""
    return _USER_INFO.sub(r"\1", text)


def one_line(value: object) -> str:
    """Return a value as one line of at most 600 characters."""
    return " ".join(str(value).split())[:_LONGEST_MESSAGE]


def error_text(body: bytes | str | None) -> str:
    """Return the message in the body of an error: JSON of any shape, HTML or plain text.

    Returns:
        One line; "" if there is no message.
    """
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return html_text(text)
    return one_line(_find_message(found))


def html_text(text: str) -> str:
    """Return the text of an HTML page, or plain text unchanged, as one line."""
    # Truncate first: the patterns below are applied to a text that a server chose.
    text = re.sub(r"(?is)<(script|style)\b.*?</\1>", " ", text[:20_000])
    return one_line(html.unescape(re.sub(r"<[^<>]*>", " ", text)))


def _find_message(found: JsonValue, depth: int = 0) -> str:
    if isinstance(found, str):
        return found
    if depth == 5:
        return ""
    if isinstance(found, dict):
        inner = [found[key] for key in _MESSAGE_KEYS if key in found]
    else:
        inner = found if isinstance(found, list) else []
    return next(filter(None, (_find_message(each, depth + 1) for each in inner)), "")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
