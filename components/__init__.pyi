"""The public names of `components`, by use; `lazy_loader` reads this file."""

# ruff: noqa: I001 - grouped by use. ASCII only: lazy_loader reads it in the locale's encoding.

# Read data
from .arrow_example_gen.component import ArrowExampleGen as ArrowExampleGen
from .arrow_example_gen.csv_options import CsvOptions as CsvOptions
from .arrow_example_gen.images import Images as Images
from .arrow_example_gen.splitting import Splitting as Splitting
from .tf_examples.component import TFExamples as TFExamples

# Transform
from .transform.executor import ParquetTransform as ParquetTransform

# Check normalisation
from .normalization_validator.component import NormalizationValidator as NormalizationValidator
from .normalization_validator.limits import NormalizationLimits as NormalizationLimits
from .normalization_validator.component import NormalizationReport as NormalizationReport
from .normalization_validator.component import NormalizationBlessing as NormalizationBlessing

# Explain
from .input_gradients.component import InputGradients as InputGradients
from .input_gradients.component import Attributions as Attributions
from .input_gradients.summary import AttributionSummary as AttributionSummary

# Train and tune
from .trainer.component import create_trainer as create_trainer
from .trainer.component import create_tuner as create_tuner

# Compare with the blessed model
from .blessed_models.component import LatestBlessedModel as LatestBlessedModel
from .blessed_models.component import BlessedModelRecord as BlessedModelRecord
from .blessed_models.component import EvaluatorOfRecords as EvaluatorOfRecords
