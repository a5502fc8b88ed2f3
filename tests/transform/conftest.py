"""Runs a spec through TFT on Beam's in-memory runner, the way the Transform component does."""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tfrecords import serialized_rows


@dataclass(frozen=True)
class Transformed:
    """What one run wrote."""

    uri: str
    written: dict[str, np.ndarray]  # parsed from the tf.Examples that Beam wrote, row by row
    records: list[bytes]  # the raw tf.Examples
    feature_spec: dict[str, Any]  # of the raw columns

    @functools.cached_property
    def output(self) -> Any:
        import tensorflow_transform as tft

        return tft.TFTransformOutput(self.uri)

    @functools.cached_property
    def layout(self) -> Any:
        from transform import FeatureLayout

        return FeatureLayout.from_transform_graph(self.uri)

    def raw(self, records: Sequence[bytes] | None = None, without: Sequence[str] = ()) -> Any:
        """Parsed raw columns, as a serving signature has them."""
        import tensorflow as tf

        spec = {k: v for k, v in self.feature_spec.items() if k not in without}
        return tf.io.parse_example(self.records if records is None else records, spec)

    def column(self, name: str) -> np.ndarray:
        """One packed column of what Beam wrote."""
        (column,) = (c for c in self.layout.columns if c.name == name)
        return self.written[column.output][:, column.position]

    def check_serving(self, alone: Sequence[int] = ()) -> None:
        """Check that requests get what Beam wrote: all rows in one batch, and some one by one."""
        self.check_bits(self.output.transform_raw_features(self.raw()))
        for row in alone:
            one = self.output.transform_raw_features(self.raw([self.records[row]]))
            self.check_bits(one, slice(row, row + 1))

    def check_bits(self, found: Mapping[str, Any], rows: slice = slice(None)) -> None:
        """Check that tensors are what Beam wrote of these rows, bit for bit."""
        assert set(found) == set(self.written)
        for name, tensor in found.items():
            values, expected = _numpy(tensor), self.written[name][rows]
            if hasattr(tensor, "values"):  # as long as the longest of these rows
                expected = expected[:, : values.shape[1]]
            expected = expected.reshape(values.shape)
            if values.dtype == object:  # texts
                assert values.tolist() == expected.tolist(), name
            else:
                assert values.tobytes() == expected.tobytes(), name


Runner = Callable[..., Transformed]


@pytest.fixture(scope="session")
def run_transform(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """`run_transform(spec, columns, dense=(), batch_size=64, evaluation=None)`.

    `columns`: name -> list of values, None where absent; `dense`: columns that the schema
    promises in every row; `evaluation`: other columns to write, transformed with the statistics
    of the first ones.
    """
    return functools.partial(_run, tmp_path_factory)


def _run(
    factory: pytest.TempPathFactory,
    spec: Mapping[str, Any],
    columns: Mapping[str, Sequence[Any]],
    *,
    dense: Sequence[str] = (),
    batch_size: int = 64,
    evaluation: Mapping[str, Sequence[Any]] | None = None,
) -> Transformed:
    import apache_beam as beam
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import metadata_io
    from tfx_bsl.coders import example_coder
    from tfx_bsl.tfxio import tf_example_record

    from components.transform.image_statistics import write_image_statistics
    from transform import preprocessing_fn

    feature_spec = {name: _feature(values, name in dense) for name, values in columns.items()}
    schema = tft.DatasetMetadata.from_feature_spec(feature_spec).schema
    tfxio = tf_example_record.TFExampleBeamRecord(
        physical_format="inmem", schema=schema, telemetry_descriptors=["test"]
    )
    train = serialized_rows(columns)
    rows = train if evaluation is None else serialized_rows(evaluation)
    folder = factory.mktemp("transform")
    function = functools.partial(preprocessing_fn, custom_config={"features": spec, "code": ""})
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with (
        pipeline,
        tft_beam.Context(
            temp_dir=str(folder / "temp"),
            desired_batch_size=batch_size,
            use_deep_copy_optimization=True,  # as TFX does; it cannot run a second phase
        ),
    ):
        config = tfxio.TensorAdapterConfig()
        source = pipeline | "Train" >> beam.Create(train) | "Read" >> tfxio.BeamSource()
        graph = (source, config) | tft_beam.AnalyzeDataset(function)
        kept = pipeline | "Rows" >> beam.Create(rows) | "ReadRows" >> tfxio.BeamSource()
        data, metadata = ((kept, config), graph) | tft_beam.TransformDataset(
            output_record_batches=True
        )
        coder = beam.pvalue.AsSingleton(
            metadata.deferred_metadata
            | beam.Map(lambda m: example_coder.RecordBatchToExamplesEncoder(m.schema))
        )
        _ = (
            data
            | beam.FlatMap(lambda batch, coder: coder.encode(batch[0]), coder)
            | beam.io.WriteToTFRecord(str(folder / "written"), num_shards=1)
        )
        _ = graph | tft_beam.WriteTransformFn(str(folder / "graph"))
    output = tft.TFTransformOutput(str(folder / "graph"))
    metadata = tft.DatasetMetadata(schema)  # beside the graph, as the Transform component does
    metadata_io.write_metadata(metadata, str(folder / "graph" / output.RAW_METADATA_DIR))
    (path,) = folder.glob("written*")
    written = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    parsed = tf.io.parse_example(written, output.transformed_feature_spec())
    found = {name: _numpy(tensor) for name, tensor in parsed.items()}
    sums = {name: found[name].tolist() for name in found if name.endswith("_pixel_sums")}
    (folder / "sums").mkdir()
    pq.write_table(pa.table(sums), folder / "sums" / "0.parquet", row_group_size=7)
    write_image_statistics(str(folder / "graph"), [str(folder / "sums")])
    return Transformed(
        uri=str(folder / "graph"),
        written=found,
        records=rows,
        feature_spec=feature_spec,
    )


def _numpy(tensor: Any) -> np.ndarray:
    import tensorflow as tf

    return (tf.sparse.to_dense(tensor) if isinstance(tensor, tf.SparseTensor) else tensor).numpy()


def _feature(values: Sequence[Any], dense: bool) -> Any:
    import tensorflow as tf

    first = next((v for v in values if v not in (None, [])), 0.0)
    first = first[0] if isinstance(first, list) else first
    kind = tf.string if isinstance(first, str | bytes) else tf.float32
    kind = tf.int64 if isinstance(first, int | np.integer) else kind
    return tf.io.FixedLenFeature([1], kind) if dense else tf.io.VarLenFeature(kind)


@pytest.fixture(scope="session")
def assets() -> Callable[[Transformed], dict[str, list[str]]]:
    """Asset name -> its lines."""

    def read(result: Transformed) -> dict[str, list[str]]:
        folder = pathlib.Path(result.uri, "transform_fn", "assets")
        return {p.name: re.split("\n", p.read_text().rstrip("\n")) for p in folder.iterdir()}

    return read


@pytest.fixture(scope="session")
def analyze() -> Callable[..., Any]:
    """`analyze(function, shards, data)`: `function(data)`, analyzed over `shards`.

    What Beam does with one phase of analyzers, in this process: the function's own code makes every
    analyzer's inputs, shard by shard; the analyzer's own combiner and cache coder merge them; and
    the result is there when the function runs on `data`.
    """
    import tensorflow as tf

    from transform import compat
    from transform.analyzers import moments

    # As in a graph: a loop over 151 powers that runs operation by operation takes 50 times as long.
    of_powers = tf.function(moments._batch_moments_of_powers, reduce_retracing=True)

    def run(function: Callable[[Any], Any], shards: Sequence[Any], data: Any) -> Any:
        accumulators: list[list[Any]] = []
        combiners: list[Any] = []
        calls: list[int] = [0]

        def collect(combiner: Any, *tensors: Any, name: str) -> Any:
            call, calls[0] = calls[0], calls[0] + 1
            if call == len(combiners):
                combiners.append(combiner)
                accumulators.append([])
            coder = combiner.accumulator_coder
            batch = [tensor.numpy() for tensor in tensors]
            accumulator = combiner.add_input(combiner.create_accumulator(), batch)
            accumulators[call].append(coder.decode_cache(coder.encode_cache(accumulator)))
            return _tensors(combiner, combiner.extract_output(combiner.create_accumulator()))

        def finish(combiner: Any, *tensors: Any, name: str) -> Any:
            call, calls[0] = calls[0], calls[0] + 1
            merged = combiner.merge_accumulators(accumulators[call])
            return _tensors(combiner, combiner.extract_output(combiner.compact(merged)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moments, "_batch_moments_of_powers", of_powers)
            patch.setattr(compat, "combine", collect)
            for shard in shards:
                calls[0] = 0
                function(shard)
            patch.setattr(compat, "combine", finish)
            calls[0] = 0
            return function(data)

    def _tensors(combiner: Any, outputs: Sequence[np.ndarray]) -> tuple[Any, ...]:
        infos = combiner.output_tensor_infos()
        return tuple(
            tf.constant(output, info.dtype) for output, info in zip(outputs, infos, strict=True)
        )

    return run
