"""One Beam pass over every split, then the verdict and the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from absl import logging
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.components.util import tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.normalization_validator.check import find_violations, lost_columns
from components.normalization_validator.columns import BatchReader, FeatureSet, read_feature_set
from components.normalization_validator.limits import TRAIN_SPLIT, NormalizationLimits
from components.normalization_validator.report import (
    REPORT_JSON,
    RawColumn,
    Report,
    SplitStatistics,
    raw_distribution,
    summary,
)
from components.normalization_validator.statistics import ComputeStatistics
from shared_core.atomic_files import atomic_write_text
from trainer_module.common.progress import RowsCounted, attached

EXAMPLES_KEY = "examples"
TRANSFORM_GRAPH_KEY = "transform_graph"
STATISTICS_KEY = "statistics"
LIMITS_KEY = "limits"
ON_FAILURE_KEY = "on_failure"
REPORT_KEY = "report"
BLESSING_KEY = "blessing"

_NODE = "NormalizationValidator"
_VIOLATIONS, _BLESSED = "violations", "blessed"  # custom properties


class NormalizationError(ValueError):
    """Limits are violated and on_failure is "fail"; the message names every one of them."""


class Executor(BaseBeamExecutor):
    """Reads transformed examples, writes the report and the blessing."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Compute the statistics, compare them with the limits, write report and blessing.

        With violated limits and on_failure "fail", a NormalizationError: the report is then under
        `<report uri>-failed`, since TFX removes the outputs of a failed execution.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        limits = NormalizationLimits.model_validate_json(exec_properties[LIMITS_KEY])
        on_failure = exec_properties[ON_FAILURE_KEY]
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        graph = artifact_utils.get_single_instance(input_dict[TRANSFORM_GRAPH_KEY])
        report_artifact = artifact_utils.get_single_instance(output_dict[REPORT_KEY])
        blessing = artifact_utils.get_single_instance(output_dict[BLESSING_KEY])

        feature_set = read_feature_set(graph.uri)
        limits.check_names(feature_set.column_names())
        feature_set = feature_set.with_kinds(limits.kind_of)
        statistics = self._compute(examples, feature_set, limits, report_artifact.uri)
        if statistics[0].rows == 0:
            raise ValueError(
                f"Split {TRAIN_SPLIT!r} of the transformed examples under {examples.uri} "
                "holds no row, so there is nothing to check: look at ExampleGen's splits and "
                "Transform's input."
            )
        violations = find_violations({s.split: s.columns for s in statistics}, limits)
        sources = {c.name: c.source for f in feature_set.features for c in f.columns}
        raw = ()
        if input_dict.get(STATISTICS_KEY):
            of_raw = artifact_utils.get_single_instance(input_dict[STATISTICS_KEY])
            raw = _raw_columns(of_raw, [s.split for s in statistics])
            violations += lost_columns(statistics[0], raw, sources, limits)
        report = Report(
            blessed=not violations,
            limits=limits,
            splits=tuple(statistics),
            violations=tuple(violations),
            sources=sources,
            raw=tuple(each for each in raw if each.name in sources.values()),
        )
        where = _write_report(report, report_artifact.uri)
        rows = sum(split.rows for split in statistics)
        logging.get_absl_logger().info(
            f"{_NODE}: {len(sources)} columns, {rows} rows, {len(statistics)} splits, "
            f"{len(violations)} limits violated",
            extra=attached(RowsCounted(_NODE, rows)),
        )
        if violations and on_failure == "fail":
            where = _write_report(report, report_artifact.uri.rstrip("/") + "-failed")
            raise NormalizationError(
                f"The transformed examples are not normalised. {summary(violations)}\n"
                f"Report: {where}\n"
                "Fix the columns in the Transform, or the limits; with on_failure: warn the "
                "pipeline continues."
            )
        if violations:
            logging.warning(
                f"The transformed examples are not normalised. {summary(violations)}\n"
                f"Report: {where}"
            )
        report_artifact.set_int_custom_property(_VIOLATIONS, len(violations))
        report_artifact.set_int_custom_property(_BLESSED, int(report.blessed))
        blessing.set_int_custom_property(_BLESSED, int(report.blessed))
        name = "BLESSED" if report.blessed else "NOT_BLESSED"
        atomic_write_text(os.path.join(blessing.uri, name), "")

    def _compute(
        self, examples: Artifact, feature_set: FeatureSet, limits: NormalizationLimits, uri: str
    ) -> list[SplitStatistics]:
        """Compute statistics of every split, train first; Beam's workers return them as files."""
        names = artifact_utils.decode_split_names(examples.split_names)
        splits = sorted(names, key=lambda name: (name != TRAIN_SPLIT, name))
        limits.check_splits(splits)
        folder = os.path.join(uri, ".statistics")
        with self._make_beam_pipeline() as pipeline:
            for split in splits:
                tfxio = tfxio_utils.get_split_tfxio(
                    examples=[examples],
                    split=split,
                    telemetry_descriptors=[_NODE],
                    schema=feature_set.schema,
                ).Project([feature.name for feature in feature_set.schema.feature])
                _ = (
                    pipeline
                    | f"Read[{split}]" >> tfxio.BeamSource()
                    | f"ToArrays[{split}]" >> beam.FlatMap(BatchReader(feature_set))
                    | f"Statistics[{split}]"
                    >> beam.CombineGlobally(ComputeStatistics(feature_set, split))
                    | f"Write[{split}]" >> beam.Map(_write_statistics, folder)
                )
        measured = []
        for split in splits:
            with fileio.open(os.path.join(folder, f"{split}.json"), "r") as file:
                measured.append(SplitStatistics.model_validate_json(file.read()))
        fileio.rmtree(folder)
        return measured


def _raw_columns(artifact: Artifact, splits: Sequence[str]) -> tuple[RawColumn, ...]:
    """Read what StatisticsGen says of splits, in their order; of some it may say nothing."""
    known = artifact_utils.decode_split_names(artifact.split_names)
    columns = []
    for split in (each for each in splits if each in known):
        # As TFX's StatisticsGen calls it.
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), "FeatureStats.pb")
        with fileio.open(path, "rb") as file:
            datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read()).datasets
        for feature in (each for dataset in datasets for each in dataset.features):
            if len(feature.path.step) == 1:
                columns.append(raw_distribution(feature, feature.path.step[0], split))
    return tuple(column for column in columns if column is not None)


def _write_statistics(measured: SplitStatistics, folder: str) -> None:
    atomic_write_text(os.path.join(folder, f"{measured.split}.json"), measured.model_dump_json())


def _write_report(report: Report, folder: str) -> str:
    file = os.path.join(folder, REPORT_JSON)
    atomic_write_text(file, report.to_json())
    return file
