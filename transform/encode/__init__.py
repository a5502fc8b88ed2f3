"""What becomes an id or 0/1 columns: categories, buckets, dates, lists, crosses, and the label.

May use `scale` (to impute and clip) and what is below it.
"""
