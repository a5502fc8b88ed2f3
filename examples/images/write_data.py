"""Write scikit-learn's digits as 1,797 PNG files of 64 x 64 pixels, one folder per digit.

    python examples/images/write_data.py output/digits

The pictures of the data set have 8 x 8 pixels with values from 0 to 16; here they are enlarged
eight times and have values from 0 to 255. Files that exist are left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def main(folder: Path) -> None:
    """Write `<folder>/<digit>/<number>.png`."""
    digits = load_digits()
    for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(digit) / f"{number:04}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            values = np.round(pixels * (255 / 16)).astype(np.uint8)
            Image.fromarray(values).resize((64, 64), Image.Resampling.BICUBIC).save(path)
    print(f"{len(digits.target):,} pictures in {folder}")


if __name__ == "__main__":
    default = Path(__file__).parents[2] / "output" / "digits" / "pictures"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
