"""Metrics, slices and thresholds of the Evaluator, and their translation to TFMA."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal, NamedTuple

import pydantic
from pydantic import Field

from pipeline.config.section import Section

if TYPE_CHECKING:
    from tensorflow_model_analysis.proto import config_pb2 as tfma

_LabelKind = Literal["binary", "multiclass", "regression"]


class Metric(NamedTuple):
    """The TFMA name of a metric of the YAML, and whether higher is better."""

    class_name: str
    higher_is_better: bool
    kinds: tuple[_LabelKind, ...]
    module: str = ""  # module of a class outside TFMA
    options: str = ""  # more members of its JSON; Keras' float32 is too coarse for large labels


_AUC = "components.evaluator_metrics.area_under_curve"

METRICS: dict[str, Metric] = {
    "auc": Metric("DefinedAUC", True, ("binary",), _AUC),
    "auc_precision_recall": Metric("DefinedAUCPrecisionRecall", True, ("binary",), _AUC),
    "binary_accuracy": Metric("BinaryAccuracy", True, ("binary",)),
    "binary_crossentropy": Metric("BinaryCrossEntropy", False, ("binary",)),
    "precision": Metric("Precision", True, ("binary",)),
    "recall": Metric("Recall", True, ("binary",)),
    "sparse_categorical_accuracy": Metric("SparseCategoricalAccuracy", True, ("multiclass",)),
    "sparse_categorical_crossentropy": Metric(
        "SparseCategoricalCrossentropy", False, ("multiclass",)
    ),
    "calibration_error": Metric(
        "CalibrationError",
        False,
        ("binary", "multiclass"),
        "components.evaluator_metrics.calibration",
    ),
    "mean_absolute_error": Metric("MeanAbsoluteError", False, ("regression",)),
    "mean_squared_error": Metric("MeanSquaredError", False, ("regression",)),
    "root_mean_squared_error": Metric(
        "RootMeanSquaredError", False, ("regression",), options=', "dtype": "float64"'
    ),
    "r2": Metric("RSquared", True, ("regression",), "components.evaluator_metrics.r_squared"),
}

FEW_JUDGED = 30
"""Rows below which metrics mean little."""

MEAN_LABEL = "mean_label"
"""Computed in addition to the metrics of the YAML; for a binary label, the share of positives."""

ROWS, WEIGHTS = "rows", "sum_of_weights"
"""Computed in addition: the number of rows of a metric, and the sum of their weights."""

CONFUSION_MATRIX = "confusion_matrix"
"""Computed in addition for several classes: weights of rows by actual and predicted class."""

CALIBRATION_ERROR, CALIBRATION_BINS = "calibration_error", "calibration_bins"
"""Computed in addition for classes: the calibration of their probabilities."""

SCORE_HISTOGRAM = "score_histogram"
"""Computed in addition for a binary label: weights of both classes by predicted probability."""

WHERE_UNDEFINED: dict[str, str] = {
    MEAN_LABEL: "a label is missing, invalid or of an unknown class",
    "auc": "all labels are of one class",
    "auc_precision_recall": "all labels are of one class",
    "precision": "no row is predicted positive",
    "recall": "no row is positive",
    "r2": "all labels are equal",
    "calibration_error": "a label or a probability is not a number",
}
"""Metric -> the rows for which it is NaN although their labels and predictions are numbers."""

BETTER_THAN_CONSTANT, AGAINST_CONSTANT = "better_than_constant", "against_constant"
"""Computed if `require_better_than_constant`: 1 or 0, and the numbers of the comparison."""

_NOT_OF_A_CONSTANT = ("precision", "recall", "calibration_error")
"""Not compared: a constant may have a recall of 1, no precision, and a perfect calibration."""

_DEFAULT_METRICS: dict[_LabelKind, tuple[str, ...]] = {
    "binary": ("auc", "binary_accuracy"),
    "multiclass": ("sparse_categorical_accuracy",),
    "regression": ("mean_absolute_error", "root_mean_squared_error", "r2"),
}


class MetricThreshold(Section):
    """The bounds of a metric that a blessed model must meet."""

    lower_bound: float | None = Field(
        default=None, allow_inf_nan=False, description="The metric must be at least this."
    )
    upper_bound: float | None = Field(
        default=None, allow_inf_nan=False, description="The metric must be at most this."
    )
    max_loss: float | None = Field(
        default=None,
        ge=0.0,
        allow_inf_nan=False,
        description=(
            "The metric may be worse than that of the latest blessed model by at most this, in "
            "the metric's unit. Has no effect until a model has been blessed."
        ),
    )

    @pydantic.model_validator(mode="after")
    def _ordered(self) -> MetricThreshold:
        low, high = self.lower_bound, self.upper_bound
        if low is not None and high is not None and low > high:
            raise ValueError(
                f"lower_bound={low:g} is above upper_bound={high:g}; swap them, or remove one"
            )
        return self


class EvaluationConfig(Section):
    """The metrics of the model on the eval split, and the conditions for its blessing."""

    metrics: tuple[str, ...] = Field(
        examples=[["auc"]],
        default=(),
        description=(
            f"Metrics to compute, any of: {', '.join(METRICS)}. Default: those that suit the "
            "label's kind. Metrics with a threshold are always computed."
        ),
    )
    slices: tuple[str, ...] = Field(
        default=(),
        description="Raw columns. Each metric is also computed for each value of these columns.",
    )
    thresholds: dict[str, MetricThreshold] = Field(
        examples=[{"auc": {"lower_bound": 0.7}}],
        default_factory=dict,
        description="Metric -> bounds. A model is blessed only if it meets all of them.",
    )
    require_better_than_constant: bool | None = Field(
        default=None,
        description=(
            "Bless a model only if it is better than the best constant prediction on the same "
            "rows, by more than chance explains. The comparison uses the first metric of "
            "`thresholds`, then of `metrics`, that is meaningful for a constant (not "
            f"{', '.join(_NOT_OF_A_CONSTANT)}). Default: true if there are thresholds. If true "
            "without thresholds, this is the only condition."
        ),
    )
    baselines: bool = Field(
        default=True,
        description=(
            "Also show the metrics of a constant and of a linear model on the same rows. Set it "
            "to false to save the time to fit them."
        ),
    )

    @pydantic.field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            _check_metric_name(name)
        return names

    @pydantic.field_validator("thresholds")
    @classmethod
    def _known_thresholds(
        cls, thresholds: dict[str, MetricThreshold]
    ) -> dict[str, MetricThreshold]:
        for name, threshold in thresholds.items():
            _check_metric_name(name)
            if threshold == MetricThreshold():
                raise ValueError(
                    f"{name}: a threshold needs at least one of lower_bound, upper_bound, max_loss"
                )
        return thresholds

    def check_kind(self, kind: _LabelKind) -> None:
        """Check that each metric suits this kind of label.

        Raises:
            ValueError: Names the metric, the label's kind and the metrics that fit it.
        """
        for name in (*self.metrics, *self.thresholds):
            if kind not in METRICS[name].kinds:
                fitting = [n for n, metric in METRICS.items() if kind in metric.kinds]
                raise ValueError(
                    f"evaluation: metric {name!r} does not fit a {kind} label "
                    f"(features.label.kind); use {', '.join(fitting)}"
                )

    def metric_names(self, kind: _LabelKind) -> tuple[str, ...]:
        """Return the metrics to compute without duplicates, in the order of the YAML."""
        return tuple(dict.fromkeys((*(self.metrics or _DEFAULT_METRICS[kind]), *self.thresholds)))

    @property
    def is_judged(self) -> bool:
        """Whether a blessing depends on any threshold or comparison."""
        return bool(self.thresholds) or self.against_constant

    @property
    def against_constant(self) -> bool:
        """Whether a blessed model must be better than a constant."""
        required = self.require_better_than_constant
        return bool(self.thresholds) if required is None else required

    def judged_by(self, kind: _LabelKind) -> str:
        """Return the metric for the comparison with a constant and with a linear model."""
        names = (*self.thresholds, *self.metrics, *_DEFAULT_METRICS[kind])
        return next(name for name in names if name not in _NOT_OF_A_CONSTANT)

    def eval_config(self, *, label: str, kind: _LabelKind, weight: str | None) -> tfma.EvalConfig:
        """Return TFMA's configuration; label and weight are names in the transformed features."""
        from tensorflow_model_analysis.proto import config_pb2 as tfma

        # Transform creates the label, so TFMA reads it from `transform_features`. Slices are raw
        # columns, which only the raw examples have.
        model = tfma.ModelSpec(
            signature_name="serving_default",
            label_key=label,
            example_weight_key=weight or "",
            preprocessing_function_names=["transform_features"],
            model_type="tf_generic",
        )
        names = self.metric_names(kind)
        metrics = [
            tfma.MetricConfig(
                class_name=METRICS[name].class_name,
                module=METRICS[name].module,
                config=f'"name": "{name}"{METRICS[name].options}',
                per_slice_thresholds=self._tfma_thresholds(name),
            )
            for name in dict.fromkeys(
                names if kind == "regression" else (*names, CALIBRATION_ERROR)
            )
        ]
        if self.against_constant:
            metrics.append(self._better_than_constant(kind))
        if kind == "binary":
            metrics.append(
                tfma.MetricConfig(
                    class_name="ScoreHistogram",
                    module="components.evaluator_metrics.score_histogram",
                    config=f'"name": "{SCORE_HISTOGRAM}"',
                )
            )
        if kind == "multiclass":
            metrics.append(
                tfma.MetricConfig(
                    class_name="MultiClassConfusionMatrixAtThresholds",
                    # Below all outputs of a model: the predicted class is the most probable one.
                    config=f'"name": "{CONFUSION_MATRIX}", "thresholds": [-1e30]',
                )
            )
        return tfma.EvalConfig(
            model_specs=[model],
            slicing_specs=[
                tfma.SlicingSpec(),
                *(tfma.SlicingSpec(feature_keys=[column]) for column in self.slices),
            ],
            metrics_specs=[
                tfma.MetricsSpec(
                    metrics=[
                        _example_count(WEIGHTS),
                        tfma.MetricConfig(
                            class_name="MeanLabel",
                            config=f'"name": "{MEAN_LABEL}"',
                            per_slice_thresholds=self._tfma_thresholds(MEAN_LABEL),
                        ),
                        *metrics,
                    ]
                ),
                tfma.MetricsSpec(
                    metrics=[_example_count(ROWS)],
                    example_weights=tfma.ExampleWeightOptions(unweighted=True),
                ),
            ],
        )

    def _better_than_constant(self, kind: _LabelKind) -> tfma.MetricConfig:
        from tensorflow_model_analysis.proto import config_pb2 as tfma

        return tfma.MetricConfig(
            class_name="BetterThanConstant",
            module="components.evaluator_metrics.better_than_constant",
            config=f'"name": "{BETTER_THAN_CONSTANT}", "metric": "{self.judged_by(kind)}"',
            per_slice_thresholds=_tfma_threshold(MetricThreshold(lower_bound=1.0), True),
        )

    def _tfma_thresholds(self, name: str) -> list[tfma.PerSliceMetricThreshold]:
        """Return TFMA's thresholds; labels and probabilities must at least be numbers.

        An accuracy counts a NaN as 0, and would satisfy its bound.
        """
        numbers = (MEAN_LABEL, CALIBRATION_ERROR)
        if not self.is_judged or (name not in self.thresholds and name not in numbers):
            return []
        better = METRICS[name].higher_is_better if name in METRICS else True
        return _tfma_threshold(self.thresholds.get(name, MetricThreshold()), better)


def _example_count(name: str) -> tfma.MetricConfig:
    from tensorflow_model_analysis.proto import config_pb2 as tfma

    return tfma.MetricConfig(class_name="ExampleCount", config=f'"name": "{name}"')


def _check_metric_name(name: str) -> None:
    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown metric {name!r}: {hint}known are {', '.join(METRICS)}")


def _tfma_threshold(
    threshold: MetricThreshold, higher_is_better: bool
) -> list[tfma.PerSliceMetricThreshold]:
    """Return thresholds on all rows; TFMA's plain `threshold` would also apply to each slice."""
    from tensorflow_model_analysis.proto import config_pb2 as tfma

    result = tfma.MetricThreshold()
    # Without bounds, any number passes. The value threshold is always set, because TFX's Evaluator
    # omits change thresholds while there is no baseline, and blesses nothing without a threshold:
    # with only `max_loss`, there would never be a baseline.
    result.value_threshold.SetInParent()
    if threshold.lower_bound is not None:
        result.value_threshold.lower_bound.value = threshold.lower_bound
    if threshold.upper_bound is not None:
        result.value_threshold.upper_bound.value = threshold.upper_bound
    if threshold.max_loss is not None:
        direction = tfma.MetricDirection
        change = result.change_threshold
        if higher_is_better:
            change.direction = direction.HIGHER_IS_BETTER
            change.absolute.value = -threshold.max_loss
        else:
            change.direction = direction.LOWER_IS_BETTER
            change.absolute.value = threshold.max_loss
    return [tfma.PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=result)]
