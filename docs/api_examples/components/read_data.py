"""ExampleGens whose rows stay columns: [ArrowExampleGen](../../packages/arrow_example_gen.md)."""

from components import ArrowExampleGen, CsvOptions, Splitting, TFExamples

example_gen = ArrowExampleGen(
    input_base="data/trips",
    csv=CsvOptions(missing=("", "-999")),
    splitting=Splitting(by="time", column="day"),
)
tf_examples = TFExamples(examples=example_gen.outputs["examples"])
