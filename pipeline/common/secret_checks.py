"""Find settings that look like credentials, which neither a compiled file nor a server may see."""

from __future__ import annotations

import re

# Whole words of a name, so that TOKENIZERS_PARALLELISM and MAX_TOKENS pass.
_SECRET_WORDS = {
    *("SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "TOKEN", "APIKEY"),
    *("SECRETKEY", "SECRETACCESSKEY"),
}
# A name with this ending says where a credential is, not what it is.
_PLACES = {
    *("FILE", "PATH", "DIR", "FOLDER", "NAME", "ID", "URL", "URI", "ENDPOINT", "HOST", "TYPE")
}
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_URL_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@:]*:[^/?#\s]+@")
# https://TOKEN@host, as package indexes and git accept it; a user name is shorter.
_URL_WITH_TOKEN = re.compile(r"https?://[^/?#\s@:]{20,}@")


def looks_secret(name: str, value: str) -> str | None:
    """Return why a variable looks like a credential; None if it does not.

    A name is secret if one of its words is SECRET, PASSWORD, TOKEN or similar, or if its last word
    is KEY. An identifier such as AWS_ACCESS_KEY_ID is not secret, nor is the path of a file.

    Args:
        name: Name of the variable.
        value: Value of the variable, which is never part of the result.
    """
    if _PRIVATE_KEY.search(value):
        return "its value is a private key"
    if _URL_WITH_PASSWORD.search(value):
        return "its value has a URL with a password"
    if _URL_WITH_TOKEN.search(value):
        return "its value has a URL with a token"
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
    if not words or not value or words[-1] in _PLACES:
        return None
    is_key = words[-1] == "KEY" and len(words) > 1 and "PUBLIC" not in words
    if is_key or _SECRET_WORDS & set(words):
        return "its name is that of a credential"
    return None
