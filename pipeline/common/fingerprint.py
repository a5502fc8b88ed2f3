"""A fingerprint of the code that a node runs, so that TFX's cache notices an edited function.

User functions are dotted paths (`package.module.function`), and TFX's cache key has only the path:
without a fingerprint, an edited `preprocessing_fn` would get the cached output of the old one.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from pipeline.common.errors import ConfigError
from trainer_module.common.code_fingerprint import code_digests


def fingerprint(
    packages: Iterable[str], functions: Iterable[str] = (), *, without: Iterable[str] = ()
) -> str:
    """Return the SHA-256 (hex, 16 digits) of the code that a node runs.

    That are the `.py` and `.jinja` files of `packages`, and the modules of the user's `functions`
    (dotted paths) with all that these import, except Python's, installed ones and those `without`.
    A ConfigError: a module cannot be found or read.
    """
    packages = sorted(set(packages))
    modules = {dotted.rpartition(".")[0] for dotted in functions}
    try:
        digests = code_digests(modules, without=[*packages, *without])
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot find the Python module {error.name!r}. Install its package, or run from the "
            "folder that holds it."
        ) from None
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename or 'a module that your functions import'}, line {error.lineno}: "
            f"{error.msg}. Your functions import it; correct it."
        ) from None
    digest = hashlib.sha256(repr(sorted(digests.items())).encode())
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for folder in map(Path, spec.submodule_search_locations or ()):
            code = (each for each in folder.rglob("*") if each.suffix in (".py", ".jinja"))
            for file in sorted(code):
                digest.update(f"{package}/{file.relative_to(folder).as_posix()}\n".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
