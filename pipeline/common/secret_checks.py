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
# What the value is -> its form, as the issuers document it.
_VALUES = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
    "a URL with a password": r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@:]*:[^/?#\s]+@",
    # https://TOKEN@host, as package indexes and git accept it; a user name is shorter.
    "a URL with a token": r"https?://[^/?#\s@:]{20,}@|[?&](?:sig|X-(?:Amz|Goog)-Signature)=\w",
    "a token of an HTTP header": r"\b(?:[Bb]earer|[Bb]asic) +[\w.~+/-]{8,}=*",
    "a JSON web token": r"\beyJ[\w-]{8,}\.[\w-]{2,}",
    "a token of GitHub or GitLab": r"\b(?:gh[opsur]_|github_pat_|gl(?:pat|dt|rt|soat|ptt)-)\w{10,}",
    "a token of Slack": r"\bxox[a-z](?:\.xox[a-z])?-\w[\w-]{5,}|\bxapp-\d-\w{5,}",
    "a key of Google": r"\bAIza[\w-]{20,}|\bya29\.[\w-]{10,}|\bGOCSPX-[\w-]{10,}",
    "a key of an API": r"\b[rs]k[-_](?=[\w-]*\d)[\w-]{16,}|\bSG\.[\w-]{10,}\.[\w-]{10,}",
    "a token of a registry": r"\b(?:hf|npm|dckr_[po]at|nvapi|pypi)[_-](?=\w*\d)\w{16,}",
    "a key of Azure or a password": (
        r"(?i)\b(?:AccountKey|SharedAccess(?:Key|Signature)|password|passwd|pwd|client_?secret"
        r"|api_?key|(?:secret_?)?access_?key|(?:access_?)?token)=[^;&\s]{4,}"
    ),
}
# 40 random characters change between kinds 14 times or more; a commit and most paths do not.
_RUN = re.compile(r"[a-z]+|[A-Z]+|\d+|[/+]+")
_AWS_KEY = re.compile(r"(?<![\w/+])[A-Za-z0-9/+]{40}(?![\w/+=])")


def _credential_in(value: str) -> str | None:
    """Return what kind of credential a text holds; None if it holds none that is known."""
    for kind, form in _VALUES.items():
        if re.search(form, value):
            return kind
    for found in _AWS_KEY.findall(value):
        has_both_cases = found.lower() != found != found.upper()
        if has_both_cases and len(_RUN.findall(found)) >= 14:
            return "a secret key of AWS"
    return None


def looks_secret(name: str, value: str) -> str | None:
    """Return why a variable looks like a credential, without its value; None if it does not.

    A name is secret if one of its words is SECRET, PASSWORD, TOKEN or similar, or if its last word
    is KEY. An identifier such as AWS_ACCESS_KEY_ID is not secret, nor is the path of a file.
    """
    if kind := _credential_in(value):
        return f"its value has {kind}"
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
    if not words or not value or words[-1] in _PLACES:
        return None
    is_key = words[-1] == "KEY" and len(words) > 1 and "PUBLIC" not in words
    if is_key or _SECRET_WORDS & set(words):
        return "its name is that of a credential"
    return None
