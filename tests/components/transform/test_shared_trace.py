"""TFT's questions about a function get the same answers from one trace."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import impl_helper, tf2_utils
from tensorflow_transform.beam import analysis_graph_builder
from tensorflow_transform.beam.analyzer_cache import DatasetKey

from components.transform.shared_trace import traces_shared

SPECS = {name: tf.TensorSpec([None], tf.float32) for name in "abc"}
KEYS = {DatasetKey("train")}


class Counted:
    """A preprocessing_fn that counts its traces."""

    def __init__(self):
        self.traces = 0

    def __call__(self, inputs):
        self.traces += 1
        return {"x": inputs["a"] - tft.mean(inputs["a"]), "y": inputs["b"]}


def answers(function):
    return [
        tft.get_analyze_input_columns(function, SPECS),
        analysis_graph_builder.get_analysis_cache_entry_keys(function, SPECS, KEYS, False),
        analysis_graph_builder.get_analysis_dataset_keys(function, SPECS, KEYS, {}, False),
        # Again, after the analysis took the analyzers from the graph.
        tft.get_analyze_input_columns(function, SPECS),
        tft.get_transform_input_columns(function, SPECS),
    ]


def test_one_trace_gives_the_answers_of_five():
    separate, shared = Counted(), Counted()
    expected = answers(separate)
    with traces_shared():
        assert answers(shared) == expected
    assert separate.traces == 5
    assert shared.traces == 1
    assert expected[0] == ["a"]
    assert sorted(expected[4]) == ["a", "b"]


def test_other_functions_and_folders_are_traced(tmp_path):
    first, second = Counted(), Counted()
    before = impl_helper.trace_preprocessing_function
    with traces_shared():
        tft.get_transform_input_columns(first, SPECS)
        tft.get_transform_input_columns(second, SPECS)
        impl_helper.trace_preprocessing_function(first, SPECS, False, str(tmp_path))
    assert (first.traces, second.traces) == (2, 1)
    assert impl_helper.trace_preprocessing_function is before


def test_missing_columns_are_those_of_tft_with_fewer_operations():
    """Reference: TFT's own function."""

    def supplied():
        with tf.Graph().as_default() as graph:
            inputs = {
                f"n{i}": tf.compat.v1.sparse_placeholder(tf.float32, [None, None]) for i in range(9)
            }
            inputs["text"] = tf.compat.v1.sparse_placeholder(tf.string, [None, None])
            inputs["dense"] = tf.compat.v1.placeholder(tf.int64, [None, 2])
            before = len(graph.get_operations())
            found = tf2_utils.supply_missing_inputs(inputs, batch_size=3)
            added = len(graph.get_operations()) - before
            specs = {name: tf.type_spec_from_value(each) for name, each in found.items()}
            with tf.compat.v1.Session() as session:
                values = session.run(found)
        return specs, added, values

    specs, added, values = supplied()
    with traces_shared():
        shared_specs, shared_added, shared = supplied()
    assert shared_specs == specs
    assert shared_added < added / 2
    for name, expected in values.items():
        parts = (
            zip(expected, shared[name], strict=True)
            if name != "dense"
            else [(expected, shared[name])]
        )
        for one, other in parts:
            np.testing.assert_array_equal(other, one)
