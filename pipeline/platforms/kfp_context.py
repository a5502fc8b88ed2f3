"""Check KFP's settings file, `~/.config/kfp/context.json`, before KFP's client reads it.

The client reads keys without checking that they exist, and copies values into HTTP headers.
Messages never contain a value, because the values are credentials.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.common.json_types import JsonValue
from pipeline.platforms.platform import PlatformError
from pipeline.platforms.server_text import one_line

_COOKIE = "client_authentication_cookie"
_HEADER_NAME = "client_authentication_header_name"
_HEADER_VALUE = "client_authentication_header_value"

EXAMPLE = f'{{"namespace": "", "{_COOKIE}": "..."}}'
"""A file that KFP's client can read, for messages."""


def check_context_file(path: Path) -> None:
    """Check that KFP's client can use the file; do nothing if it does not exist.

    Raises:
        PlatformError: The file cannot be read, a key is missing, or a value cannot be used.
    """
    if not path.exists():
        return
    settings = _read(path)
    if not isinstance(settings, dict):
        raise PlatformError(f"{path}: must be a JSON object, such as {EXAMPLE}.")
    if "namespace" not in settings:
        raise PlatformError(
            f'{path}: has no "namespace", which KFP\'s client needs; add "namespace": "", or the '
            f"name of your namespace if the cluster has several users. For example {EXAMPLE}."
        )
    for key in ("namespace", _COOKIE, _HEADER_NAME, _HEADER_VALUE):
        _check_value(path, key, settings.get(key))
    for key, other in ((_HEADER_NAME, _HEADER_VALUE), (_HEADER_VALUE, _HEADER_NAME)):
        if settings.get(key) and not settings.get(other):
            raise PlatformError(
                f'{path}: has "{key}" but no "{other}"; a header needs both, or remove it.'
            )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlatformError(
            f"{path}: cannot be read ({error.strerror}). KFP's client takes its namespace and "
            "credentials from this file; make it readable, or remove it."
        ) from None
    except UnicodeDecodeError:
        raise PlatformError(f"{path}: is not UTF-8; write JSON such as {EXAMPLE}.") from None
    except RecursionError:
        raise PlatformError(f"{path}: is nested too deeply; write {EXAMPLE}.") from None
    except ValueError as error:
        raise PlatformError(
            f"{path}: is not valid JSON ({one_line(error)}); write {EXAMPLE}."
        ) from None


def _check_value(path: Path, key: str, value: JsonValue) -> None:
    if value is None and key != "namespace":
        return
    # latin-1: the characters that an HTTP header can contain.
    if not isinstance(value, str) or not value.isprintable() or any(ord(c) > 255 for c in value):
        kind = "is not a text" if not isinstance(value, str) else "has an invalid character"
        raise PlatformError(
            f'{path}: the value of "{key}" {kind}; give a text of one line without control '
            "characters."
        )
