"""Environment variables that look like credentials: a compiled file must not hold them."""

from __future__ import annotations

import re

# Whole words of a name, so that TOKENIZERS_PARALLELISM and MAX_TOKENS pass.
_SECRET_WORDS = {
    *("SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "TOKEN", "APIKEY"),
    *("SECRETKEY", "SECRETACCESSKEY"),
}
# A name that ends so says where a credential is, not what it is.
_PLACES = {
    *("FILE", "PATH", "DIR", "FOLDER", "NAME", "ID", "URL", "URI", "ENDPOINT", "HOST", "TYPE"),
}
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_URL_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@:]*:[^/?#\s]+@")
# https://TOKEN@host, as package indexes and git take it; the name of a user is shorter.
_URL_WITH_TOKEN = re.compile(r"https?://[^/?#\s@:]{20,}@")


def looks_secret(name: str, value: str) -> str | None:
    """Return why a variable looks like a credential; None: it does not.

    A name is secret if a word of it is SECRET, PASSWORD, TOKEN or the like, or if its last word is
    KEY. An identifier such as AWS_ACCESS_KEY_ID is not, nor is the path of a file.

    Args:
        name: Of the variable.
        value: Its value, which is never part of the answer.
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
