"""The contract of each node of ours: its file, its row and what it promises of itself."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from pipeline import PipelineConfig, create_pipeline, load_config
from pipeline.graph.node_names import NodeName
from pipeline.graph.table import NODES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def graphs(write, tmp_path):
    """Nodes by id, of two graphs that have each node at least once."""

    def imported(config):
        config.update(schema={"path": str(tmp_path / "schema.pbtxt")})
        config.update(explain={"rows": 20})
        config.update(tuning={"search": {"optimizer.learning_rate": {"values": [0.1, 0.01]}}})

    plain = create_pipeline(load_config(write()))
    other = create_pipeline(load_config(write(imported)), blessed_models="gs://bucket/blessed")
    return [{node.id: node for node in each.components} for each in (plain, other)]


def check_node_contract(spec, graphs):
    """Check a node where a graph has it."""
    found = [graph for graph in graphs if spec.name in graph]
    assert found, "no graph has it: extend the fixture"
    module = inspect.getmodule(spec.build)
    assert module is not None
    assert (module.__doc__ or "").startswith(f"{spec.name.value}: ")
    order = list(NODES)
    assert all(order.index(name) < order.index(spec.name) for name in spec.after)
    names = {field.alias or name for name, field in PipelineConfig.model_fields.items()}
    assert spec.section is None or spec.section in names
    for graph in found:
        node = graph[spec.name]
        assert type(node.id) is str, "TFX writes the type of a text, too"
        assert set(spec.main_outputs) <= set(node.outputs)
        taken = {n for each in node.inputs.values() for n in each.get_data_dependent_node_ids()}
        waits_for = {upstream.id for upstream in node.upstream_nodes}
        assert taken <= set(spec.after), "it takes an output of a node that it does not name"
        assert waits_for == {name.value for name in spec.after if name in graph}


@pytest.mark.parametrize("name", list(NodeName), ids=str)
def test_each_node_keeps_the_contract(name, graphs):
    check_node_contract(NODES[name], graphs)


def test_a_node_is_one_file_and_one_row():
    files = {file.stem for file in (ROOT / "pipeline" / "graph" / "nodes").glob("[!_]*.py")}
    assert files == {name.name.lower() for name in NodeName}


def test_no_other_code_spells_a_name_of_a_node():
    names = {name.value for name in NodeName}
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / "pipeline").rglob("*.py")
        if file.name != "node_names.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found == []
