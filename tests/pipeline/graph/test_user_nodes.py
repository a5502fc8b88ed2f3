"""Nodes of the YAML's `nodes:`: what is built, in which order, and what is refused where."""

from __future__ import annotations

import re
import sys

import pytest
import yaml
from command_line import ROOT

from pipeline import create_pipeline, load_config
from pipeline.common.errors import ConfigError
from pipeline.graph.user_nodes import _CODE

SOURCE = '''
"""Components of another package, in each form that TFX has."""

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.types import standard_artifacts
from tfx.types.channel import Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

@component
def RowCounter(
    examples: InputArtifact[standard_artifacts.Examples],
    count: OutputArtifact[standard_artifacts.Integer],
    limit: Parameter[int] = 0,
):
    count.value = limit


@component
def Strict(
    model: InputArtifact[standard_artifacts.Model],
    count: OutputArtifact[standard_artifacts.Integer],
    limit: Parameter[int],
    label: Parameter[str] = "a",
):
    count.value = limit


@component
def Rated(count: OutputArtifact[standard_artifacts.Integer], rate: Parameter[float]):
    count.value = int(rate)


class ClassSpec(ComponentSpec):
    PARAMETERS = {"limit": ExecutionParameter(type=int, optional=True)}
    INPUTS = {
        "statistics": ChannelParameter(type=standard_artifacts.ExampleStatistics),
        "schema": ChannelParameter(type=standard_artifacts.Schema, optional=True),
    }
    OUTPUTS = {"count": ChannelParameter(type=standard_artifacts.Integer)}


class Executor(BaseExecutor):
    def Do(self, input_dict, output_dict, exec_properties):
        pass


class OfClass(BaseComponent):
    SPEC_CLASS = ClassSpec
    EXECUTOR_SPEC = ExecutorClassSpec(Executor)

    def __init__(self, statistics, schema=None, limit=None):
        count = Channel(type=standard_artifacts.Integer)
        super().__init__(ClassSpec(statistics=statistics, schema=schema, limit=limit, count=count))


class NotAComponent:
    pass


def made(context):
    examples = context.inputs.get("examples", context.output("Transform.transformed_examples"))
    assert context.config.name == "small"
    return RowCounter(examples=examples, **context.parameters)


def of_count(context):
    """A node that takes what another node of the user's has made."""
    return Strict(model=context.output("Trainer.model"), limit=1)


def existing(context):
    return context.nodes["Trainer"]


def failing(context):
    return context.output("Transform.transformed_examplez")
'''


@pytest.fixture
def nodes(write, tmp_path, monkeypatch):
    """Nodes by id, of the small pipeline with these rows of `nodes:`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "counting"
    package.mkdir()
    (package / "__init__.py").write_text(SOURCE)

    def build(*rows, **sections):
        config = load_config(write(lambda c: c.update(nodes=list(rows), **sections)))
        return {node.id: node for node in create_pipeline(config).components}

    yield build
    sys.modules.pop("counting", None)


def upstream(node):
    return {each.id for each in node.upstream_nodes}


def producers(node):
    return {k: f"{c.producer_component_id}.{c.output_key}" for k, c in node.inputs.items()}


def test_an_input_is_found_at_the_node_that_it_runs_after(nodes):
    for path in ("counting.RowCounter", "tfx.components.StatisticsGen"):
        found = nodes({"class": path, "name": "mine", "after": "Transform"})["mine"]
        assert producers(found) == {"examples": "Transform.transformed_examples"}
        assert upstream(found) == {"Transform"}


def test_between_two_nodes_of_ours(nodes):
    row = {"class": "counting.RowCounter", "after": "Trainer", "before": "Evaluator"}
    found = nodes(row)
    assert upstream(found["RowCounter"]) == {"Trainer", "ArrowExampleGen"}
    assert "RowCounter" in upstream(found["Evaluator"])
    order = list(found)
    assert order.index("Trainer") < order.index("RowCounter") < order.index("Evaluator")
    # Nearest by type none; of all before it, the one whose name is the input's.
    assert producers(found["RowCounter"]) == {"examples": "ArrowExampleGen.examples"}


def test_the_function_of_the_page_builds_a_node(nodes, tmp_path):
    page = (ROOT / "docs" / "own-nodes.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_package.py").write_text(program)
    (row,) = re.findall(r"`nodes: \[(.*my_package.*)\]`", page)
    node = nodes(yaml.safe_load(row))["row_counter"]
    sys.modules.pop("my_package")
    assert producers(node) == {"examples": "Transform.transformed_examples"}
    assert node.exec_properties["at_least"] == 16  # rows of a global batch


@pytest.mark.parametrize("path", ["RowCounter", "made"])
def test_inputs_parameters_and_a_name_are_taken(nodes, path):
    row = {
        "class": f"counting.{path}",
        "name": "rows-1",
        "inputs": {"examples": "ArrowExampleGen.examples"},
        "parameters": {"limit": 3},
        "before": ["Tuner", "Trainer"],
    }
    tuning = {"search": {"optimizer.learning_rate": {"values": [0.1, 0.01]}}}
    found = nodes(row, tuning=tuning)
    node = found["rows-1"]
    assert producers(node) == {"examples": "ArrowExampleGen.examples"}
    assert node.exec_properties["limit"] == 3
    assert "rows-1" in upstream(found["Trainer"]) & upstream(found["Tuner"])


def test_a_class_of_its_own_constructor_and_optional_inputs(nodes):
    row = {"class": "counting.OfClass", "after": "StatisticsGen", "parameters": {"limit": 2}}
    assert producers(nodes(row)["OfClass"]) == {"statistics": "StatisticsGen.statistics"}
    row["inputs"] = {"schema": "SchemaGen.schema"}
    assert set(producers(nodes(row)["OfClass"])) == {"statistics", "schema"}


def test_one_takes_what_another_makes_in_any_order_of_rows(nodes):
    second = {"class": "counting.RowCounter", "name": "second", "after": ["first", "Transform"]}
    first = {"class": "counting.RowCounter", "name": "first", "after": "Transform"}
    for rows in ([first, second], [second, first]):
        found = nodes(*rows)
        assert upstream(found["second"]) == {"first", "Transform"}


def test_a_whole_number_is_a_float_where_one_is_declared(nodes):
    row = {"class": "counting.Rated", "parameters": {"rate": 1}}
    assert type(nodes(row)["Rated"].exec_properties["rate"]) is float


def test_the_code_counts_in_the_cache_key(nodes, tmp_path):
    row = {"class": "counting.RowCounter", "after": "Transform"}

    def code(text):
        (tmp_path / "counting" / "__init__.py").write_text(SOURCE + text)
        return nodes(row)["RowCounter"].exec_properties[_CODE]

    assert code("") == code("") != code("MORE = 1\n")


# A row; the field that its message names; words of the message. An indented line continues another.
REFUSED = """
{class: counting.RowCuonter} | class | counting.RowCuonter; did you mean 'RowCounter'?
{class: no_such.Counter} | class | no_such.Counter; No module named
{class: counting.NotAComponent} | class | counting.NotAComponent; BaseComponent
{class: tfx.dsl.components.common.resolver.Resolver} | class | Resolver; (context) -> component
{class: RowCounter} | class | 'RowCounter'; my_package.RowCounter
{class: counting.existing} | class | no new TFX component
{class: counting.failing, after: Transform}
    | class | did you mean 'Transform.transformed_examples'?
{class: counting.RowCounter, after: Transformm} | after | =Transformm; did you mean 'Transform'?
{class: counting.RowCounter, before: Tuner} | before | =Tuner; `tuning:`
{class: counting.RowCounter, name: trainer} | name | =trainer; a built-in node already
{class: counting.RowCounter, name: a.b} | name | 'a.b'; RowCounter
{class: counting.RowCounter, after: Trainer, before: Transform}
    | before | RowCounter; Transform; Trainer; ->
{class: counting.of_count, before: Transform} | before | Transform ->; -> Trainer -> of_count
{class: counting.RowCounter, after: [first], before: first} | before | RowCounter; first
{class: counting.Strict, after: Trainer} | class | counting.Strict; limit
{class: counting.RowCounter, after: Transform, parameters: {limitt: 1}}
    | parameters.limitt | did you mean 'limit'?
{class: counting.RowCounter, after: Transform, parameters: {limit: many}}
    | parameters | limit; many; int
{class: counting.RowCounter, parameters: {limit: 9999-12-31}} | parameters.limit | 9999
{class: counting.Strict, parameters: {limit: 1}}
    | inputs | 'model'; Trainer.model; LatestBlessedModel.model
{class: counting.RowCounter, inputs: {examples: Transform.examples}}
    | inputs.examples | =Transform.examples; Transform.transformed_examples
{class: counting.RowCounter, after: Transform, inputs: {examplez: Transform.transformed_examples}}
    | inputs.examplez | did you mean 'examples'?
{class: counting.RowCounter, inputs: {examples: Transform.transform_graph}}
    | inputs.examples | takes Examples; TransformGraph
{class: counting.RowCounter, after: Transform,
    parameters: {examples: Transform.transformed_examples}}
    | parameters.examples | inputs
{class: counting.RowCounter, afterr: x} | afterr | 'after'
"""


def test_a_wrong_row_is_refused_with_its_line(nodes, tmp_path):
    first = {"class": "counting.RowCounter", "name": "first", "after": "Transform"}
    for text in REFUSED.strip().replace("\n    ", " ").splitlines():
        row, field, facts = text.split(" | ")
        with pytest.raises(ConfigError) as refused:
            nodes(first, yaml.safe_load(row))
        message = str(refused.value).splitlines()[0]
        file = tmp_path / "pipeline.yaml"
        found = re.match(rf"{re.escape(str(file))}:(\d+): nodes\.1\.{field}", message)
        assert found, (row, message)
        lines = file.read_text().splitlines()
        line = lines[int(found[1]) - 1]
        own = field.rpartition(".")[2]  # or the row, which begins with its class
        assert line.strip().startswith((f"{own}:", f"- {own}:", "- class: ")), (row, line)
        assert int(found[1]) > lines.index("- class: counting.RowCounter") + 3, "of the first row"
        assert all(fact in message for fact in facts.split("; ")), (row, message)


def test_another_shape_than_a_list_of_rows_is_refused(write):
    for value, fact in (
        (["counting.RowCounter"], "class: counting.RowCounter"),
        (None, "nodes"),
        ([{"after": "Transform"}], "nodes.0.class"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_config(write(lambda c, value=value: c.update(nodes=value)))
        assert fact in str(refused.value)


def test_two_rows_of_one_name_are_refused(nodes):
    with pytest.raises(ConfigError, match=r"nodes\.1.class=counting.RowCounter: .*nodes.0 already"):
        nodes({"class": "counting.RowCounter"}, {"class": "counting.RowCounter"})


def test_all_wrong_names_are_reported_at_once(nodes):
    rows = [
        {"class": "counting.RowCounter", "name": f"n{i}", "after": "Transformm"} for i in (1, 2)
    ]
    with pytest.raises(ConfigError) as refused:
        nodes(*rows)
    assert len(str(refused.value).splitlines()) == 2


def test_a_value_of_set_is_named_by_it(write):
    file = write(lambda c: c.update(nodes=[{"class": "counting.RowCounter"}]))
    with pytest.raises(ConfigError, match=r"^--set nodes\.0.after=Nowhere: no node"):
        create_pipeline(load_config(file, ["nodes.0.after=Nowhere"]))
