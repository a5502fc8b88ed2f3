"""CompressedCsvExampleGen: CSV files whose names end in .gz."""
