"""Converts results of gammafl 0.1 (study.json) to rows.jsonl in their directories. Then run gammafl redraw DIRECTORY.

python tools/convert_study_json.py results/table3-logistic-fmnist
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gammafl.core.errors import InputError
from gammafl.experiments.grid import TASK, Study
from gammafl.experiments.rows import Row, Rows, joined, levels_of, write_rows
from gammafl.experiments.runner import Options, order_of, plan_campaign, run_campaign
from gammafl.experiments.trial_runs import run_name, trial_config
from gammafl.paper.catalogue import KNOWN
from gammafl.runs.progress import Silent

OLD = "study.json"


def rows_of_study_json(path: Path, studies: Mapping[str, Study]) -> Rows:
    """The rows of all runs in a study.json. Runs that diverged have only a name there, which tells their place.

    A study without training has no runs in its study.json, so it is computed again.
    """
    document = json.loads((path / OLD).read_text("utf-8"))
    name = document["study"]
    if name not in studies:
        raise InputError(f"{path / OLD} is of a study {name!r}, which this version does not know")
    study, order = studies[name], order_of(studies[name])
    task = {TASK: document["task"]} if document["task"] else {}
    made = ", ".join(f"{package} {version}" for package, version in document["versions"].items())
    rows = [
        Row(run["name"], {**task, **run["cell"]}, run["seed"], run["figures"], run["curve"], versions=made)
        for run in document["runs"]
    ]
    rows += [_diverged(study, run, why, document, made) for run, why in document.get("diverged", {}).items()]
    if not rows:
        campaign = plan_campaign(study, Options(path))
        run_campaign(campaign, Silent())
        return campaign.rows("")
    made_rows = Rows(name, levels_of(rows, order), rows, document["quick"], document["settings"])
    return joined(made_rows, made_rows, order)


def _diverged(study: Study, name: str, why: str, document: Mapping[str, Any], made: str) -> Row:
    seeds = sorted({*document["seeds"], int(name.rpartition("-seed")[2])})
    chosen = study.restricted({TASK: [document["task"]]}, document["quick"])
    for trial in chosen.trials(seeds, document["quick"], document["settings"]):
        if run_name(trial_config(trial)) == name:
            return Row(name, dict(trial.cell), trial.seed, {}, diverged=why, versions=made)
    raise InputError(f"the run {name}, which diverged, has no place in the grid of {study.name}")


if __name__ == "__main__":
    for directory in map(Path, sys.argv[1:]):
        write_rows(directory, rows_of_study_json(directory, KNOWN))
        print(directory / "rows.jsonl")
