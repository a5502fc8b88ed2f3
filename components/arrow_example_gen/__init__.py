"""ArrowExampleGen: tables that Arrow reads, as tf.Examples."""
