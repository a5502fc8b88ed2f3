"""NormalizationValidator: checks that what Transform wrote is normalised, column by column."""
