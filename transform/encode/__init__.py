"""What becomes ids or 0/1 columns: categories, buckets, dates, lists, texts, crosses, the label.

All that is known of one encoder is an `Encoder` (encoder.py), named in table.py. May use `columns`
and what is below it.
"""
