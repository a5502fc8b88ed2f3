"""The table of the columns that are left out: complete, at most 80 wide, plain in a pipe."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.cli import main
from pipeline.features.left_out import SHOWN, WIDTH, LeftOut, show_left_out


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(columns: list[LeftOut], stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    show_left_out(columns, stream)
    return stream.getvalue()


def test_nothing_left_out_prints_nothing() -> None:
    assert shown([]) == ""


def test_a_pipe_gets_neither_colours_nor_lines() -> None:
    text = shown([LeftOut("user_id", "ids"), LeftOut("note", "free text")])
    assert [line.split() for line in text.splitlines()] == [
        ["left", "out", "reason"],
        ["user_id", "ids"],
        ["note", "free", "text"],
    ]


def test_a_terminal_gets_a_bold_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in shown([LeftOut("a", "ids")], Terminal())


@given(
    st.lists(
        st.builds(LeftOut, st.text(min_size=1, max_size=200), st.text(max_size=300)),
        min_size=1,
        max_size=5,
    )
)
def test_any_name_fits_and_cannot_control_the_terminal(columns: list[LeftOut]) -> None:
    from rich.cells import cell_len

    lines = shown(columns).splitlines()
    assert max(map(cell_len, lines)) <= WIDTH
    assert all(character.isprintable() for line in lines for character in line)


def test_names_are_no_markup_and_reasons_wrap() -> None:
    text = shown([LeftOut("[bold]price[/] :smile:", "many words " * 20)])
    assert "[bold]price[/] :smile:" in text
    assert text.count("many words") + text.count("many\n") >= 19


def test_many_columns_end_with_how_many_more() -> None:
    text = shown([LeftOut(f"c{i}", "constant") for i in range(SHOWN + 70)])
    assert len(text.splitlines()) == SHOWN + 1
    assert "71 more: the YAML lists them" in text


def test_init_and_suggest_list_each_column(tmp_path, capsys) -> None:
    """What is left out by a rule, by a leak and by the measurements: the same rows as the YAML."""
    n = 120
    frame = pd.DataFrame(
        {
            "size": [(i * 37 % 101) / 7 for i in range(n)],
            "empty": [None] * n,
            "same": ["x"] * n,
            "note": [f"called at {i}, said {i * 7}" for i in range(n)],
            "sold": [i * 13 % 7 % 2 for i in range(n)],
        }
    )
    frame["copy"] = frame["sold"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    data, output = str(tmp_path / "t.csv"), str(tmp_path / "t.yaml")
    for command in (
        ["init", "--data", data, "--label", "sold", "--output", output],
        ["features", "suggest", "--data", data, "--label", "sold", "--output", output, "--force"],
    ):
        assert main(command) == 0
        printed = capsys.readouterr().out
        table = printed[printed.index("left out") : printed.index(f"{output}: ")].splitlines()
        columns = [line.split()[0] for line in table if not line.startswith(" ")]
        assert columns == ["left", "empty", "same", "note", "copy"]
        assert "no row has a value" in table[1]
