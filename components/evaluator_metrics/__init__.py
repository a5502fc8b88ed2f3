"""Metrics that TFMA lacks, for `tfma.MetricConfig(class_name=..., module=...)` of an Evaluator."""
