"""The commands to run after a run, ready to paste into a shell."""

from __future__ import annotations

import glob
import json
import shlex
from pathlib import Path

from rich.console import Console

from components.arrow_example_gen.spans import has_placeholders
from pipeline.common.errors import ConfigError
from pipeline.common.program import program, shell_argument
from pipeline.common.sources import COLUMNAR
from pipeline.config.config import PACKAGE_SCHEME, PipelineConfig, is_remote
from pipeline.config.config_file import load_config
from pipeline.data import data_sources
from pipeline.graph.node_names import NodeName
from pipeline.report.result import RunResult
from pipeline.report.tables import short
from pipeline.run.input_rows import format_of


def show_next_steps(run: RunResult, file: Path | None, console: Console) -> None:
    """Print the next commands for a user.

    Args:
        run: The run that ended.
        file: The YAML of the configuration.
        console: The console to print to.
    """
    commands = []
    pushed = run.pushed_model
    if pushed and pushed.exists():
        commands.append(("predict", _predict_command(run.config, pushed, file)))
    if logs := run.uri(NodeName.TRAINER, "model_run"):
        commands.append(("curves", f"tensorboard --logdir {_path(logs)}"))
    for name, command in commands:
        # Not `console.print`, which replaces `:name:` by an emoji and tabs by spaces.
        console.file.write(f"{name:<10}{command}\n")


def _predict_command(config: PipelineConfig, model: Path, file: Path | None) -> str:
    """Return the command that predicts with a pushed model, if possible on its evaluated rows.

    It reads the data as the run did: format, encoding, delimiter.
    """
    path = _data_path(config)
    parts = [program(), "predict", "--model", _path(model), "--data", _path(path)]
    try:
        known = format_of(path) == config.data.source
    except ConfigError:
        known = False
    if not known:
        parts += ["--source", config.data.source]
    if config.data.source == "csv" and file is not None:
        parts += _csv_options(config, file)
    return " ".join(parts)


def _csv_options(config: PipelineConfig, file: Path) -> list[str]:
    wanted = config.data.csv.model_dump(mode="json")
    default = type(config.data.csv)().model_dump(mode="json")
    if wanted == default:
        return []
    written = load_config(file).data.csv.model_dump(mode="json")
    overrides = [
        shlex.quote(f"data.csv.{name}={json.dumps(value, ensure_ascii=False)}")
        for name, value in wanted.items()
        if written[name] != value
    ]
    return ["--config", _path(file), *(f"--set {each}" for each in overrides)]


def _data_path(config: PipelineConfig) -> str:
    """Return a data path for `predict`: one file, or one Parquet or Arrow table."""
    field = "eval_path" if config.data.eval_path else "path"
    path = config.data.eval_path or config.data.path
    if is_remote(path) or (config.data.source in COLUMNAR and not has_placeholders(path)):
        return path
    found = data_sources.files(
        path, f"data.{field}", source=config.data.source, spans=config.data.spans
    )
    if path.startswith(PACKAGE_SCHEME) and len(found) == 1:
        return path
    return glob.escape(str(found[-1]))


def _path(path: str | Path) -> str:
    text = str(path)
    return shell_argument(text if "://" in text else short(Path(text)))
