"""The studies by name."""

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.studies.alpha import ALPHA
from gammafl.studies.averaging import AVERAGING
from gammafl.studies.cost import COST
from gammafl.studies.declare import Study
from gammafl.studies.fig1 import FIG1
from gammafl.studies.fig2 import FIG2
from gammafl.studies.fig3 import FIG3
from gammafl.studies.fig4 import FIG4
from gammafl.studies.table2 import TABLE2
from gammafl.studies.tables34 import TABLE3, TABLE4
from gammafl.studies.theory import THEORY

_ALL = (TABLE2, TABLE3, TABLE4, FIG1, FIG2, FIG3, FIG4, ALPHA, AVERAGING, THEORY, COST)
STUDIES = {study.name: study for study in _ALL}


def study_named(name: str) -> Study:
    if name not in STUDIES:
        raise InputError(f"no study {name!r}{did_you_mean(name, STUDIES)}; they are {', '.join(STUDIES)}")
    return STUDIES[name]
