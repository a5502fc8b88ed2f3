"""Mean and variance of the channels of pictures, from the sums that Transform wrote of each row.

The pixels x of channel c, over all N pixels of the analysis data, have

    mean_c = Σ x / N        variance_c = (N Σ x² - (Σ x)²) / N²

in whole numbers up to the division. The model normalises by them, (x - mean_c) / sqrt(variance_c).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from shared_core.atomic_files import atomic_write_text
from shared_core.feature_layout import ASSET, ASSETS, IMAGE_STATISTICS, FeatureLayout


def write_image_statistics(graph: str, folders: Sequence[str]) -> None:
    """Write the statistics of each picture beside a transform graph, if there are pictures.

    Args:
        graph: Folder of a TransformGraph artifact.
        folders: Of the transformed analysis data, in Parquet. ValueError: one has no file.
    """
    path = os.path.join(graph, ASSETS, ASSET)
    if not FileSystems.exists(path):
        return  # another preprocessing_fn
    with FileSystems.open(path) as file:
        images = FeatureLayout.from_json(file.read().decode()).images
    statistics = {}
    for image in images:
        rows, total = 0, np.zeros(2 * image.channels, object)  # of whole numbers, of any size
        for sums in _read(image.sums, folders):
            rows += len(sums) // len(total)
            total += sums.reshape(-1, len(total)).sum(axis=0)
        n = max(rows * image.height * image.width, 1)
        pairs = total.reshape(2, -1).T
        statistics[image.name] = {
            "mean": [x / n for x, _ in pairs],
            "variance": [(n * square - x * x) / n**2 for x, square in pairs],
        }
    if images:
        atomic_write_text(os.path.join(graph, IMAGE_STATISTICS), json.dumps(statistics))


def _read(column: str, folders: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the numbers of a column of lists, some rows at a time."""
    matches = FileSystems.match([f"{folder}/*" for folder in folders])
    if not matches or not all(match.metadata_list for match in matches):
        raise ValueError(
            f"there are no files in one of {folders}: with pictures, Transform has to write all "
            "splits that it analyzes (materialize, splits_config)"
        )
    for metadata in (each for match in matches for each in match.metadata_list):
        with FileSystems.open(metadata.path) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=[column]):
                yield pc.list_flatten(batch.column(0)).to_numpy(zero_copy_only=False)
