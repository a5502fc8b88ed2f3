"""The programs of docs/trainer-module.md run as they stand and print what the page says."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import pytest

from trainer_module.names import import_dotted

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "trainer-module.md").read_text(encoding="utf-8")
LEVELS = PAGE.split("\n## ")[1:]


def programs(level: int) -> list[str]:
    """The Python blocks of a level, each short enough to be read at once."""
    found = re.findall(r"```python\n(.*?)```", LEVELS[level - 1], flags=re.DOTALL)
    assert all(len(program.splitlines()) <= 25 for program in found)
    return found


def printed(level: int) -> str:
    """What the page says that the level's program prints."""
    (output,) = re.findall(
        r"```\n([^`]+)```", re.sub(r"```python.*?```", "", LEVELS[level - 1], flags=re.DOTALL)
    )
    return output


@pytest.mark.slow
def test_the_trainer_node_trains_the_model_of_the_page(fn_args, tmp_path, monkeypatch):
    """AUC: the label is a function of the features, but a tenth of the companies is missing."""
    from tfx import v1 as tfx

    node, model = programs(1)
    artifacts = tfx.types.standard_artifacts
    outputs = {
        "transformed_examples": tfx.dsl.Channel(type=artifacts.Examples),
        "transform_graph": tfx.dsl.Channel(type=artifacts.TransformGraph),
    }
    scope = {"transform": types.SimpleNamespace(outputs=outputs)}
    exec(node, scope)
    properties = scope["trainer"].exec_properties
    (tmp_path / "my_model.py").write_text(model)
    monkeypatch.syspath_prepend(str(tmp_path))
    run_fn = import_dotted(properties["run_fn"], field="run_fn")
    args = fn_args(**json.loads(properties["custom_config"])["trainer"])
    result = run_fn(args)
    sys.modules.pop("my_model")
    assert result.steps == 8 * 5  # ceil(600 / 128)
    assert result.metrics["auc"] > 0.9
    assert (Path(args.serving_model_dir) / "saved_model.pb").is_file()


@pytest.mark.parametrize("level", [2, 3])
def test_plain_tensorflow_prints_what_the_page_says(level, capsys):
    (program,) = programs(level)
    exec(program, {"__name__": "__main__"})
    assert capsys.readouterr().out == printed(level)


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) == 3
    assert [link for link in links if not (DOCS / link).exists()] == []
