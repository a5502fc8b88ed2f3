"""Output folders that were partly deleted: what is cached, what is a baseline.

TFX's own launcher, cache and resolver, on nodes that take no time.
"""

# No `from __future__ import annotations`: TFX reads the annotations of its @component functions.

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.types.channel import Channel
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, PushedModel

from pipeline.report.records import latest_run
from pipeline.run.artifact_check import (
    check_artifacts,
    record_artifacts,
)

NODES = ("Rows", "Train", "Judge", "Push")


@component
def Rows(examples: OutputArtifact[Examples]):
    for name in ("Split-train/a.gz", "Split-train/b.gz", "Split-eval/a.gz"):
        file = Path(examples.uri) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"rows of {name}")


@component
def Train(examples: InputArtifact[Examples], model: OutputArtifact[Model]):
    assert len(list(Path(examples.uri).glob("*/*.gz"))) == 3
    file = Path(model.uri) / "Format-Serving" / "saved_model.pb"
    assert not file.exists()
    file.parent.mkdir(parents=True)
    file.write_text("a model")


@component
def Judge(model: InputArtifact[Model], blessing: OutputArtifact[ModelBlessing]):
    assert (Path(model.uri) / "Format-Serving" / "saved_model.pb").is_file()
    (Path(blessing.uri) / "BLESSED").touch()
    blessing.set_int_custom_property("blessed", 1)
    blessing.set_int_custom_property("current_model_id", model.id)


@component
def Push(
    model: InputArtifact[Model],
    blessing: InputArtifact[ModelBlessing],
    pushed_model: OutputArtifact[PushedModel],
    folder: Parameter[str],
):
    target = Path(folder) / str(time.time_ns())
    for place in (target, Path(pushed_model.uri)):
        shutil.copytree(Path(model.uri) / "Format-Serving", place, dirs_exist_ok=True)
    pushed_model.set_int_custom_property("pushed", 1)
    pushed_model.set_string_custom_property("pushed_destination", str(target))


def store_of(folder: Path) -> MetadataStore:
    connection = mlmd.ConnectionConfig()
    connection.sqlite.filename_uri = str(folder / "metadata.sqlite")
    return MetadataStore(connection)


def run(folder: Path) -> dict[str, str]:
    """Runs the pipeline as `pipeline.run.runner` does; returns node -> "run" or "cached"."""
    database = folder / "metadata.sqlite"
    check_artifacts(str(folder), database)
    rows = Rows()
    train = Train(examples=rows.outputs["examples"])
    judge = Judge(model=train.outputs["model"])
    push = Push(
        model=train.outputs["model"],
        blessing=judge.outputs["blessing"],
        folder=str(folder / "serving_model"),
    )
    pipeline = Pipeline(
        pipeline_name="checked",
        pipeline_root=str(folder / "artifacts"),
        components=[rows, train, judge, push],
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(database)),
    )
    LocalDagRunner().run(pipeline)
    record_artifacts(str(folder), database)
    store = store_of(folder)
    latest = max(store.get_contexts_by_type("pipeline_run"), key=lambda context: context.id)
    return {
        store.get_execution_types_by_id([each.type_id])[0].name.rpartition(".")[2]: (
            "cached" if each.last_known_state == mlmd.Execution.CACHED else "run"
        )
        for each in store.get_executions_by_context(latest.id)
    }


def blessed(folder: Path) -> Path | None:
    """The model that TFX's resolver takes for the latest blessed one."""
    baseline = Resolver(
        strategy_class=latest_blessed_model_strategy.LatestBlessedModelStrategy,
        model=Channel(type=Model),
        model_blessing=Channel(type=ModelBlessing),
    ).with_id("LatestBlessedModel")
    database = folder / "metadata.sqlite"
    check_artifacts(str(folder), database)
    pipeline = Pipeline(
        pipeline_name="checked",
        pipeline_root=str(folder / "artifacts"),
        components=[baseline],
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(database)),
    )
    LocalDagRunner().run(pipeline)
    store = store_of(folder)
    execution = max(each.id for each in store.get_executions())
    found = [
        artifact.uri
        for event in store.get_events_by_execution_ids([execution])
        for artifact in store.get_artifacts_by_id([event.artifact_id])
        if event.path.steps[0].key == "model"
    ]
    assert len(found) <= 1
    return Path(found[0]) if found else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two runs, the second of which took all from the cache."""
    assert run(tmp_path) == dict.fromkeys(NODES, "run")
    assert run(tmp_path) == dict.fromkeys(NODES, "cached")
    return tmp_path


OUTPUTS = {
    "Rows": ("examples", NODES),
    "Train": ("model", NODES[1:]),
    "Judge": ("blessing", NODES[2:]),
    "Push": ("pushed_model", NODES[3:]),
}


def empty(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file():
            file.unlink()


def cut(path: Path) -> None:
    """As a copy that was interrupted."""
    file = next(file for file in sorted(path.rglob("*")) if file.is_file())
    file.write_bytes(file.read_bytes()[:-1] if file.stat().st_size else b"more")


def remove_one(path: Path) -> None:
    next(file for file in sorted(path.rglob("*")) if file.is_file()).unlink()


@pytest.mark.parametrize(
    ("node", "damage"), zip(NODES, [shutil.rmtree, empty, cut, remove_one], strict=True)
)
def test_a_damaged_artifact_is_written_again(
    folder: Path, node: str, damage: Callable[[Path], None]
) -> None:
    """And what was computed from it; nothing before it."""
    output, again = OUTPUTS[node]
    (artifact,) = (folder / "artifacts" / node / output).iterdir()
    damage(artifact)
    expected = {name: "run" if name in again else "cached" for name in NODES}
    assert run(folder) == expected
    assert run(folder) == dict.fromkeys(NODES, "cached")


def test_a_model_that_is_gone_is_no_baseline(folder: Path) -> None:
    (folder / "artifacts" / "Train").rename(folder / "backup")
    assert blessed(folder) is None
    (folder / "backup").rename(folder / "artifacts" / "Train")
    assert blessed(folder) == folder / "artifacts" / "Train" / "model" / "2"


def test_a_pushed_model_that_is_gone_is_pushed_again(folder: Path) -> None:
    (pushed,) = (folder / "serving_model").iterdir()
    empty(pushed)
    assert run(folder) == dict.fromkeys(NODES[:3], "cached") | {"Push": "run"}
    found = latest_run(folder / "metadata.sqlite")["Push"].get("pushed_model")
    assert found is not None
    assert Path(found.properties["pushed_destination"], "saved_model.pb").is_file()


def test_files_added_to_a_pushed_model_do_not_push_it_again(folder: Path) -> None:
    """TensorFlow Serving takes requests to warm up with from there."""
    (pushed,) = (folder / "serving_model").iterdir()
    (pushed / "assets.extra").mkdir()
    (pushed / "assets.extra" / "tf_serving_warmup_requests").write_text("requests")
    assert run(folder) == dict.fromkeys(NODES, "cached")


def test_without_the_metadata_nothing_is_written_into_old_artifacts(folder: Path) -> None:
    """Executions are counted from 1 again; `Train` asserts that its folder is empty."""
    before = {
        file.relative_to(folder / "artifacts"): file.read_bytes()
        for file in (folder / "artifacts").glob("[!.]*/[!.]*/*/**/*")
        if file.is_file()
    }
    (folder / "metadata.sqlite").unlink()
    assert run(folder) == dict.fromkeys(NODES, "run")
    (aside,) = (folder / "artifacts_without_metadata").iterdir()
    kept = {
        file.relative_to(aside): file.read_bytes() for file in aside.rglob("*") if file.is_file()
    }
    assert kept == before
    assert run(folder) == dict.fromkeys(NODES, "cached")


def test_an_output_folder_without_lists_of_files(folder: Path) -> None:
    """Of a run that was killed, or of an older version: what has any file is taken as whole."""
    shutil.rmtree(folder / "artifacts" / ".files")
    assert run(folder) == dict.fromkeys(NODES, "cached")
    shutil.rmtree(folder / "artifacts" / ".files")
    empty(folder / "artifacts" / "Train")
    assert run(folder) == {"Rows": "cached"} | dict.fromkeys(NODES[1:], "run")
