"""The studies by name."""

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.experiments.compare import COMPARE
from gammafl.experiments.grid import Study
from gammafl.experiments.pareto import PARETO
from gammafl.paper.alpha import ALPHA
from gammafl.paper.averaging import AVERAGING
from gammafl.paper.beyond import BEYOND
from gammafl.paper.cost import COST
from gammafl.paper.fig1 import FIG1
from gammafl.paper.fig2 import FIG2
from gammafl.paper.fig3 import FIG3
from gammafl.paper.fig4 import FIG4
from gammafl.paper.setting import SETTING
from gammafl.paper.table2 import TABLE2
from gammafl.paper.theory import THEORY
from gammafl.paper.traffic import TABLE3, TABLE4

_ALL = (TABLE2, TABLE3, TABLE4, FIG1, FIG2, FIG3, FIG4, ALPHA, AVERAGING, SETTING, BEYOND, THEORY, COST)
STUDIES = {study.name: study for study in _ALL}
KNOWN = {**STUDIES, COMPARE.name: COMPARE, PARETO.name: PARETO}
"""All studies whose rows can be shown, also those that are made on the command line."""


def study_named(name: str) -> Study:
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}{did_you_mean(name, STUDIES)}; there are {', '.join(STUDIES)}")
    return STUDIES[name]
