"""TFExamples: examples in Parquet as tf.Examples, for components that read nothing else."""
