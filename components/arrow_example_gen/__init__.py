"""ArrowExampleGen: tables that Arrow reads, as Parquet examples."""
