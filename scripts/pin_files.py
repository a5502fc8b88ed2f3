"""Turn a pylock.toml for one Python and platform into pins with the hashes of its files alone.

`uv pip compile --generate-hashes` lists the files for every platform: ten times the size.

    python scripts/pin_files.py pylock.toml
"""

import re
import sys
from pathlib import Path

print("# Made by `make lock`: for each pin, the wheels for this image, or the sources without one.")
text = Path(sys.argv[1]).read_text(encoding="utf-8")
for package in text.split("[[packages]]")[1:]:
    name, version = re.findall(r'^(?:name|version) = "(.+)"$', package, re.MULTILINE)[:2]
    wheels = package.partition("\nwheels = ")[2]
    hashes = sorted(re.findall(r'sha256 = "(\w+)"', wheels or package))
    print(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in hashes)]))
