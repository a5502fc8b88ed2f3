"""The contract of each built-in node: its row of the table and what it promises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pipeline import PipelineConfig, create_pipeline, load_config
from pipeline.graph.node_names import NodeName
from pipeline.graph.nodes import NODES

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


@pytest.mark.parametrize("name", list(NodeName), ids=str)
def test_each_node_keeps_the_contract(name, graphs):
    spec, order = NODES[name], list(NODES)
    found = [graph for graph in graphs if name in graph]
    assert found, "no graph has it: extend the fixture"
    assert all(order.index(each) < order.index(name) for each in spec.after)
    sections = {field.alias or key for key, field in PipelineConfig.model_fields.items()}
    assert spec.section is None or spec.section in sections
    for graph in found:
        node = graph[name]
        assert type(node.id) is str, "TFX writes the type of a text, too"
        assert set(spec.main_outputs) <= set(node.outputs)
        taken = {n for each in node.inputs.values() for n in each.get_data_dependent_node_ids()}
        assert {each.id for each in node.upstream_nodes} == {*taken, *map(str, spec.after)}


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
