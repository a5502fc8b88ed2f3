"""What becomes an id or 0/1 columns: categories, buckets, dates, lists, crosses, and the label.

One file per encoder, with all that is known of it: an `Encoder` (encoder.py), named in table.py.
May use `scale` (to clip) and what is below it.
"""
