"""The word check of `make lint`: codespell with scripts/plain_english.txt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from command_line import ROOT

LINES = (ROOT / "scripts" / "plain_english.txt").read_text(encoding="utf-8").splitlines()
SUGGESTIONS = dict(line.split("->") for line in LINES)


def findings(file: Path) -> dict[int, str]:
    """Line -> what codespell says of it, with the settings of pyproject.toml."""
    command = [sys.executable, "-m", "codespell_lib", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr
    lines = (line.removeprefix(f"{file}:").partition(": ") for line in done.stdout.splitlines())
    return {int(number): text for number, _, text in lines}


def test_every_word_and_phrase_is_found(tmp_path):
    """The regex of pyproject.toml lists the phrases: one that is missing there is never found."""
    file = tmp_path / "words.md"
    forms = ("They {} it.", "# {}.", "({}, here)", "`{}`")
    lines = [(form, word) for form in forms for word in SUGGESTIONS]
    file.write_text("".join(f"{form.format(word)}\n" for form, word in lines))
    expected = {
        number: f"{word} ==> {SUGGESTIONS[word].rstrip(', ')}"
        for number, (_, word) in enumerate(lines, 1)
    }
    assert findings(file) == expected


def test_parts_of_identifiers_are_found_and_code_is_left_alone(tmp_path):
    file = tmp_path / "code.py"
    name = f"test_it_is_{next(iter(SUGGESTIONS))}"
    file.write_text(f"def {name}():\n    stream.tell()\n    return [w for w in words]\n")
    assert list(findings(file)) == [1]
