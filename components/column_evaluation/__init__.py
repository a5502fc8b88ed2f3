"""Evaluate by columns in TFX's Evaluator: `module_path="components.column_evaluation"`."""

from components.column_evaluation.extractors import custom_extractors as custom_extractors
