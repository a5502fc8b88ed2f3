"""Attributes predictions to columns, by integrated gradients through the exported model."""

from tfx import v1 as tfx

from components import InputGradients

artifacts = tfx.types.standard_artifacts
gradients = InputGradients(
    examples=tfx.dsl.Channel(type=artifacts.Examples),  # raw rows
    model=tfx.dsl.Channel(type=artifacts.Model),  # of create_trainer(input_gradients=True)
    rows=500,
)
print(sorted(gradients.outputs))  # ['attributions']
