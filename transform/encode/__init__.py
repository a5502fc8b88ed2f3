"""What becomes ids or 0/1 columns: categories, buckets, dates, lists, texts, crosses, the label.

One file per encoder, with all that is known of it: an `Encoder` (encoder.py), named in table.py.
May use `scale` (to clip) and what is below it.
"""
