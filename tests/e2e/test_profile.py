"""`profile` of the taxi run, as docs/profiling.md shows it. The numbers are times: words count."""

from __future__ import annotations

import re

import pytest
from command_line import ROOT, TAXI

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "profiling.md").read_text(encoding="utf-8")


def test_the_command_of_the_page(taxi, pipeline):
    (shown,) = re.findall(r"```console\n\$ python -m pipeline (profile.*)\n", PAGE)
    assert shown == f"profile --config {TAXI.relative_to(ROOT)}"
    before = sorted(taxi.folder.rglob("*"))
    result = pipeline("profile", "--config", TAXI, f"--set=output.folder={taxi.folder}")
    assert result.code == 0, result.output
    (title,) = re.findall(r"^50 steps of \d+ rows on 1 replica.*$", PAGE, flags=re.MULTILINE)
    assert title in result.output
    found = {}
    for line in result.output.partition("wall time")[0].splitlines():
        if numbers := re.fullmatch(r"([a-z ]+?) +([\d,.]+) +([\d.]+)%", line):
            found[numbers[1]] = float(numbers[3])
    assert {"reading", "forward", "backward", "update", "host overhead"} <= found.keys()
    assert sum(found.values()) == pytest.approx(100, abs=1)
    assert sorted(taxi.folder.rglob("*")) == before
