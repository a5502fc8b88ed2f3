"""The contract of every engine in the table. Beam's parser checks the options; no network."""

from __future__ import annotations

import grimp
import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_engine
from pipeline.engines.options import check_options
from pipeline.engines.table import ENGINES

from .conftest import SETTINGS


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("pipeline", cache_dir=None)


def check_engine_contract(name: str, imports: grimp.ImportGraph) -> None:
    settings = SETTINGS.get(name, ())
    engine = load_engine(name, settings)
    assert (type(engine), engine.name) == (ENGINES[name], name)
    with pytest.raises(ValueError, match="frozen"):
        engine.extra_args = ()  # pyright: ignore[reportAttributeAccessIssue]
    # Beam knows each option; those of the user come last.
    own = {option.name for option in engine.options()}
    assert own <= check_options(engine).keys()
    more = load_engine(name, [*settings, "beam.extra_args=[--job_name=mine]"])
    assert more.pipeline_args() == [*engine.pipeline_args(), "--job_name=mine"]
    assert check_options(more)["job_name"] == "mine"
    for change, message in {
        "beam.extra_args=[--runner=DaskRunner]": f"contradicts what engine: {name} sets",
        "beam.extra_args=[parallelism=2]": "write each as --name=value",
        "beam.extra_args=[--a b]": "write each as --name=value",
        "beam.nonsense=1": "beam.nonsense: unknown key",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_engine(name, [*settings, change])
    # Adding an engine changes its file and the table; `in_memory` is the default of `beam:`, too.
    importers = imports.find_modules_that_directly_import(f"pipeline.engines.{name}")
    assert importers - {"pipeline.config.config"} == {"pipeline.engines.table"}


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ENGINES)
def test_contract(name, imports):
    check_engine_contract(name, imports)
