"""Compare the size of the code with scripts/size_budget.json; `make lint` runs it.

A count above its budget fails. After a removal, `--lower` writes the counts as the new budget: it
only falls. Whoever raises it edits the file by hand, where a reviewer sees it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
BUDGET = Path(__file__).with_suffix(".json")
PACKAGES = ("pipeline", "components", "transform", "trainer_module", "shared_core")


def main() -> int:
    """Print each count beside its budget; return 1 if one is above it."""
    budget, counts = json.loads(BUDGET.read_text()), count()
    for name, number in counts.items():
        verdict = "ABOVE" if number > budget[name] else "ok"
        print(f"{name:32} {number:7,} of {budget[name]:7,}  {verdict}")
    above = [name for name, number in counts.items() if number > budget[name]]
    if above:
        names = ", ".join(above)
        print(f"Above the budget: {names}. Remove code, or raise {BUDGET.name} and say why.")
    elif "--lower" in sys.argv:
        BUDGET.write_text(json.dumps(counts, indent=2) + "\n")
    return int(bool(above))


def count() -> dict[str, int]:
    """Return the counts by name."""
    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources]
    functions = sorted(
        node.end_lineno - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
    )
    return {
        "lines": sum(map(_lines, sources)),
        "files": len(sources),
        "function length, 90th percentile": functions[int(0.9 * (len(functions) - 1))],
        "public names": sum(1 for tree in trees for _ in _public_names(tree)),
        "longest chain of imports": _longest_chain(),
        "lines of tests": sum(map(_lines, (ROOT / "tests").rglob("*.py"))),
    }


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _public_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def _longest_chain() -> int:
    """Return the number of modules in the longest chain in which each loads the next.

    An import within a function is none: it loads nothing when its module is loaded.
    """
    graph, lengths = grimp.build_graph(*PACKAGES, cache_dir=None), {}

    def loads(module: str) -> set[str]:
        file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        file = file if file.is_file() else file.with_suffix("") / "__init__.py"
        lines = file.read_text(encoding="utf-8").splitlines()
        return {
            imported
            for imported in graph.find_modules_directly_imported_by(module)
            for place in graph.get_import_details(importer=module, imported=imported)
            if not lines[place["line_number"] - 1].startswith(" ")
        }

    def length(module: str) -> int:
        if module not in lengths:
            lengths[module] = 1 + max(map(length, loads(module)), default=0)
        return lengths[module]

    return max(map(length, graph.modules))


if __name__ == "__main__":
    sys.exit(main())
