"""The NormalizationValidator node, and the artifact types of its outputs.

TFX's Kubeflow compiler writes a type's TYPE_NAME, from where the container imports it: it has
exactly one dot. And a custom type declares no properties: it carries custom ones, as ModelBlessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tfx.dsl.components.base.base_beam_component import BaseBeamComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

from components.normalization_validator import executor
from components.normalization_validator.limits import NormalizationLimits


class NormalizationReport(Artifact):
    """Statistics of every column and split, and the limits they violate.

    File: `report.json` (components.normalization_validator.report.Report).
    Custom properties: `violations` (their number) and `blessed` (1 when there is none, else 0).
    """

    TYPE_NAME = "components.NormalizationReport"


class NormalizationBlessing(Artifact):
    """The verdict: a file BLESSED or NOT_BLESSED, and the custom property `blessed` (1 or 0).

    It is no ModelBlessing, because a Resolver looks up every ModelBlessing of the pipeline to find
    the latest blessed model; a blessing that is about no model would break that search.
    """

    TYPE_NAME = "components.NormalizationBlessing"


class NormalizationValidatorSpec(ComponentSpec):
    """Inputs, outputs and parameters of NormalizationValidator."""

    PARAMETERS = {  # noqa: RUF012  (the attributes that ComponentSpec declares)
        executor.LIMITS_KEY: ExecutionParameter(type=str),
        executor.ON_FAILURE_KEY: ExecutionParameter(type=str),
    }
    INPUTS = {  # noqa: RUF012
        executor.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        executor.TRANSFORM_GRAPH_KEY: ChannelParameter(type=standard_artifacts.TransformGraph),
        executor.STATISTICS_KEY: ChannelParameter(
            type=standard_artifacts.ExampleStatistics, optional=True
        ),
    }
    OUTPUTS = {  # noqa: RUF012
        executor.REPORT_KEY: ChannelParameter(type=NormalizationReport),
        executor.BLESSING_KEY: ChannelParameter(type=NormalizationBlessing),
    }


class NormalizationValidator(BaseBeamComponent):
    """Checks that transformed examples are normalised, column by column and split by split.

    Outputs:
        report: NormalizationReport, `report.json`.
        blessing: NormalizationBlessing, a file BLESSED or NOT_BLESSED and the property `blessed`.
    """

    SPEC_CLASS = NormalizationValidatorSpec
    EXECUTOR_SPEC = BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        examples: BaseChannel,
        transform_graph: BaseChannel,
        *,
        statistics: BaseChannel | None = None,
        limits: NormalizationLimits | Mapping[str, Any] | None = None,
        on_failure: Literal["fail", "warn"] = "fail",
    ):
        """Describe the node; nothing is read here.

        Args:
            examples: Channel of Examples: `transform.outputs["transformed_examples"]`.
            transform_graph: Channel of TransformGraph: `transform.outputs["transform_graph"]`.
            statistics: Channel of ExampleStatistics of the raw examples:
                `statistics_gen.outputs["statistics"]`. With it, a column that is constant where its
                raw column is not is a violation, whatever `limits.allow_constant` says.
            limits: What is accepted; None means the defaults of NormalizationLimits.
            on_failure: "fail" ends the node, and so the pipeline, with an error that names every
                violated limit; "warn" logs them, does not bless, and lets the pipeline continue.

        Raises:
            ValueError: `on_failure` is neither of the two, or `limits` has an unknown key or a
                value of the wrong type (pydantic.ValidationError).
        """
        if on_failure not in ("fail", "warn"):
            raise ValueError(
                f'NormalizationValidator: on_failure={on_failure!r} is unknown: use "fail" (the '
                'pipeline stops) or "warn" (the artifact is not blessed; the pipeline continues).'
            )
        spec = NormalizationValidatorSpec(
            **{
                executor.EXAMPLES_KEY: examples,
                executor.TRANSFORM_GRAPH_KEY: transform_graph,
                executor.STATISTICS_KEY: statistics,
                executor.LIMITS_KEY: NormalizationLimits.of(limits).model_dump_json(),
                executor.ON_FAILURE_KEY: on_failure,
                executor.REPORT_KEY: Channel(type=NormalizationReport),
                executor.BLESSING_KEY: Channel(type=NormalizationBlessing),
            }
        )
        super().__init__(spec=spec)
