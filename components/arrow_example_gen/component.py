"""The ArrowExampleGen node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import any_pb2, struct_pb2
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.proto import example_gen_pb2

from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.executor import Driver, Executor
from components.arrow_example_gen.images import Images
from components.arrow_example_gen.splitting import Splitting

_PROTO: Any = example_gen_pb2


class ArrowExampleGen(FileBasedExampleGen):
    """TFX's FileBasedExampleGen for tables, TFRecord and images: its splits, spans, versions.

        ArrowExampleGen(input_base="data", input_config=..., output_config=...)
        ArrowExampleGen(input_base="data", csv=CsvOptions(delimiter=";"))
        ArrowExampleGen(input_base="data", tfrecord=True)
        ArrowExampleGen(input_base="data", input_config=..., images=Images(folder=True))

    Outputs:
        examples: Examples, in Parquet files (`FORMAT_PARQUET`), a folder per split. A column is
            a `large_list` of int64, float or large_binary; TFX's StatisticsGen, SchemaGen,
            ExampleValidator and Transform read them as they read tf.Examples.
    """

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        *,
        csv: CsvOptions | None = None,
        tfrecord: bool = False,
        images: Images | None = None,
        required: Sequence[str] = (),
        splitting: Splitting | None = None,
        **arguments: Any,
    ):
        """Take the arguments of FileBasedExampleGen, and how the files are written.

        Args:
            csv: the files are CSV, written so (`CsvOptions()` detects what is not
                set); None: they are Parquet or Arrow, as each file says, or TFRecord.
            tfrecord: the files are TFRecords of tf.Examples, compressed or not.
            images: the patterns name folders of images, or a table has encoded images or columns
                with their paths.
            required: columns without a value of which a row is left out.
            splitting: what decides a row's split, among those of `output_config`, in place of a
                hash of its content (or, with `partition_feature_name`, of a column).
            **arguments: of FileBasedExampleGen, but for `custom_config` and the formats.

        Raises:
            ValueError: two formats are named.
        """
        formats = {"csv": csv is not None, "tfrecord=True": tfrecord}
        formats["images.folder=True"] = images is not None and images.folder
        if sum(formats.values()) > 1:
            named = " and ".join(name for name, is_named in formats.items() if is_named)
            raise ValueError(
                f"ArrowExampleGen: {named} name different formats; its files are of one. "
                "Leave one out."
            )
        options = struct_pb2.Struct()
        options.update({"required": list(required)})
        if splitting is not None:
            options.update({"splitting": splitting.model_dump(mode="json", exclude_none=True)})
        if tfrecord:
            options.update({"tfrecord": True})
        if images is not None:
            options.update({"images": images.model_dump(mode="json", exclude_defaults=True)})
        if csv is not None:
            options.update({"csv": csv.model_dump(mode="json", exclude_defaults=True)})
        packed = any_pb2.Any()
        packed.Pack(options)
        super().__init__(
            custom_config=_PROTO.CustomConfig(custom_config=packed),
            output_data_format=_PROTO.FORMAT_PARQUET,
            output_file_format=_PROTO.FILE_FORMAT_PARQUET,
            **arguments,
        )
