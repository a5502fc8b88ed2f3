"""docs/kubeflow.md and docs/vertex.md up to their replay, as a newcomer follows them."""

from __future__ import annotations

import pytest
from command_line import ROOT
from doc_pages import difference, execute, fresh_clone, page_commands

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SHOWN_CLONE = "/home/me/tfx-largebatch"
"""Where the pages' outputs say that the clone is."""


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_the_replay_of_a_page_prints_what_the_page_shows(target, tmp_path):
    commands = page_commands((ROOT / "docs" / f"{target}.md").read_text(encoding="utf-8"))
    (replay,) = (i for i, each in enumerate(commands) if " replay " in each.text)
    last = execute(commands[: replay + 1], fresh_clone(tmp_path))[-1]
    assert last.command == commands[replay]
    wrong = difference(last.command.shown, last.output, {str(tmp_path): SHOWN_CLONE})
    assert not wrong, wrong
    assert (
        len(list(tmp_path.glob("output/replay/chicago-taxi/serving_model/*/saved_model.pb"))) == 1
    )
