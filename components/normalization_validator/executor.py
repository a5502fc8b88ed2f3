"""One Beam pass over every split, then the verdict and the report."""

from __future__ import annotations

import os
from typing import Any

import apache_beam as beam
from absl import logging
from tfx.components.util import tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.arrow_example_gen.damage import damage_named
from components.normalization_validator import artifacts, raw_columns
from components.normalization_validator.check import find_violations
from components.normalization_validator.columns import (
    BatchReader,
    Column,
    FeatureSet,
    read_feature_set,
)
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import RawColumn, Report, SplitStatistics, summary
from components.normalization_validator.statistics import ComputeStatistics, Measured, with_shifts
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

        Raises:
            NormalizationError: limits are violated and on_failure is "fail". The report is then
                under `<report uri>-failed`, since TFX removes the outputs of a failed execution.
            ValueError: the limits do not fit the examples (a name that matches no column, a train
                split that does not exist), the examples do not fit the transform graph, or the
                train split is empty.
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
        feature_set = _with_kinds(feature_set, limits)
        with damage_named(examples.uri, beam_args=self._beam_pipeline_args or ()):
            statistics = self._compute(examples, feature_set, limits, report_artifact.uri)
        if statistics[0].rows == 0:
            raise ValueError(
                f"Split {limits.train_split!r} of the transformed examples under {examples.uri} "
                "holds no row, so there is nothing to check: look at ExampleGen's splits and "
                "Transform's input."
            )
        violations = find_violations({s.split: s.columns for s in statistics}, limits)
        distributions: tuple[RawColumn, ...] = ()
        if input_dict.get(STATISTICS_KEY):
            of_raw = artifact_utils.get_single_instance(input_dict[STATISTICS_KEY])
            raw = raw_columns.read(of_raw, [s.split for s in statistics])
            violations += raw_columns.lost_columns(statistics, raw.spans, feature_set, limits)
            for sentence in raw_columns.suspects(statistics, raw.spans, feature_set):
                logging.warning("%s", sentence)
            distributions = raw.distributions
        sources = {c.name: c.source for f in feature_set.features for c in f.columns}
        report = Report(
            blessed=not violations,
            limits=limits,
            splits=tuple(statistics),
            violations=tuple(violations),
            sources=sources,
            raw=tuple(each for each in distributions if each.name in sources.values()),
        )
        write_report(report, report_artifact.uri)
        _log_end(report)

        if violations and on_failure == "fail":
            kept = report_artifact.uri.rstrip("/") + "-failed"
            write_report(report, kept)
            where = os.path.join(kept, artifacts.REPORT_JSON)
            raise NormalizationError(
                f"The transformed examples are not normalised. {summary(violations)}\n"
                f"Report: {where}\n"
                "`python -m pipeline report` makes a page with histograms from this file.\n"
                "Fix the columns in the Transform, or the limits; with on_failure: warn the "
                "pipeline continues."
            )
        if violations:
            where = os.path.join(report_artifact.uri, artifacts.REPORT_JSON)
            logging.warning(
                "The transformed examples are not normalised. %s\nReport: %s",
                summary(violations),
                where,
            )
        report_artifact.set_int_custom_property(artifacts.VIOLATIONS, len(violations))
        report_artifact.set_int_custom_property(artifacts.BLESSED, int(report.blessed))
        blessing.set_int_custom_property(artifacts.BLESSED, int(report.blessed))
        name = artifacts.BLESSED_FILE if report.blessed else artifacts.NOT_BLESSED_FILE
        atomic_write_text(os.path.join(blessing.uri, name), "")

    def _compute(
        self,
        examples: Artifact,
        feature_set: FeatureSet,
        limits: NormalizationLimits,
        uri: str,
    ) -> list[SplitStatistics]:
        """Compute statistics of every split, train first; Beam's workers return them as files."""
        names = artifact_utils.decode_split_names(examples.split_names)
        splits = sorted(names, key=lambda name: (name != limits.train_split, name))
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
                measured.append(Measured.model_validate_json(file.read()))
        fileio.rmtree(folder)
        return [with_shifts(each, measured[0]) for each in measured]


def _with_kinds(feature_set: FeatureSet, limits: NormalizationLimits) -> FeatureSet:
    features = []
    for feature in feature_set.features:
        columns = [
            column if (kind := limits.kind_of(column.name)) is None else _as(column, kind)
            for column in feature.columns
        ]
        features.append(feature._replace(columns=tuple(columns)))
    return feature_set._replace(features=tuple(features))


def _as(column: Column, kind: str) -> Column:
    rule = None if kind == "none" else kind
    return column._replace(kind=kind, validation_rule=rule, bounds=None)


def _write_statistics(measured: Measured, folder: str) -> None:
    name = f"{measured.statistics.split}.json"
    atomic_write_text(os.path.join(folder, name), measured.model_dump_json())


def write_report(report: Report, folder: str) -> None:
    """Write report.json into a folder, local or remote."""
    atomic_write_text(os.path.join(folder, artifacts.REPORT_JSON), report.to_json())


def _log_end(report: Report) -> None:
    rows = sum(split.rows for split in report.splits)
    columns = len(report.splits[0].columns)
    logging.get_absl_logger().info(
        "%s: %d columns, %d rows, %d splits, %d limits violated",
        _NODE,
        columns,
        rows,
        len(report.splits),
        len(report.violations),
        extra=attached(RowsCounted(_NODE, rows)),
    )
