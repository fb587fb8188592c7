"""Studies as runs: nothing is run twice, nothing finished is lost, and study.json is enough to judge again."""

import json
from pathlib import Path
from typing import Any

import pytest

import gammafl as gf
from gammafl.cli.studies import asked_for
from gammafl.config.layers import make_config
from gammafl.experiments.results import Results, Run, training_curve
from gammafl.experiments.runner import Campaign, Options, cost_line, plan_campaign, run_campaign
from gammafl.experiments.store import read_document, read_results, verdicts, write_study
from gammafl.experiments.trial_runs import run_name, training_job, trial_config
from gammafl.federated.records import RoundRecord
from gammafl.paper.catalogue import STUDIES
from gammafl.runs.directory import RunDirectory
from gammafl.runs.progress import Overall, Silent, Status
from gammafl.tasks.registry import settings_of
from tests.report.made import figures

TINY = {"iterations": 10, "evaluation": {"every": 1}}
METHODS = {"method": ["gamma-fedht", "top-k", "fedavg"]}


def campaign(out: Path, name: str = "table3", **changes: Any) -> Campaign:
    given: dict[str, Any] = {"tasks": ("logistic-mini",), "seeds": (0, 1), "quick": True, "only": METHODS}
    return plan_campaign(STUDIES[name], Options(out, settings=TINY, **given | changes))


class Stops(Silent):
    """A user who presses Ctrl-C when so many runs have ended."""

    def __init__(self, after: int) -> None:
        self.left = after

    def say(self, text: str) -> None:
        if "/" in text.split(" ")[0]:  # 3/6 name: …
            self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Hears(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def written(out: Path) -> dict[str, int]:
    """Run → when its ledger was last written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.rglob("rounds.jsonl")}


def test_a_study_that_is_run_twice_runs_nothing_the_second_time(tmp_path: Path) -> None:
    assert run_campaign(campaign(tmp_path), Silent()) == 6
    before, hears = written(tmp_path), Hears()
    again = campaign(tmp_path)
    assert run_campaign(again, hears) == 0
    assert written(tmp_path) == before
    assert hears.said == ["table3: 6 runs, 6 finished; nothing to run"]
    assert len(again.results("logistic-mini").runs) == 6


def test_a_study_stopped_in_the_middle_keeps_what_is_finished(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_campaign(campaign(tmp_path), Stops(after=3))
    finished = {path.parent.name for path in tmp_path.rglob("summary.json")}
    assert len(finished) == 2  # the third had made its last round, and no summary yet
    before = {name: at for name, at in written(tmp_path).items() if name in finished}
    hears = Hears()
    assert run_campaign(campaign(tmp_path), hears) == 4
    assert "6 runs, 2 finished" in hears.said[0]
    after = written(tmp_path)
    assert {name: after[name] for name in finished} == before
    assert len(after) == 6


def test_a_run_that_was_begun_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Its ledger has every round once: none is lost, none is run twice."""
    eager = TINY | {"iterations": 20, "checkpoint": {"every_seconds": 0.0}}
    plan = plan_campaign(
        STUDIES["table3"],
        Options(tmp_path, ("logistic-mini",), (0,), True, only={"method": ["fedavg"]}, settings=eager),
    )
    job = plan.ready()[0]

    class Breaks(Silent):
        def update(self, status: Status) -> None:
            if status.round == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.run(Breaks())
    job.run(Silent())
    assert [record.round for record in RunDirectory(job.path).records()] == [1, 2, 3, 4]


def test_jobs_in_parallel_find_their_followers(tmp_path: Path) -> None:
    alone, beside = campaign(tmp_path / "1"), campaign(tmp_path / "2", workers=2)
    for one in (alone, beside):
        run_campaign(one, Silent())
    for task in ("logistic-mini",):
        first, second = alone.results(task), beside.results(task)
        assert {r.name for r in first.runs} == {r.name for r in second.runs}
        for method in METHODS["method"]:
            assert first.by_seed("last_loss", method=method) == second.by_seed("last_loss", method=method)


def test_top_k_keeps_as_many_entries_as_its_leader_did(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    results = one.results("logistic-mini")
    leader, follower = (results.by_seed("kept_per_upload", method=m) for m in ("gamma-fedht", "top-k"))
    assert follower == {seed: max(1, round(count)) for seed, count in leader.items()}


def test_studies_that_ask_for_the_same_run_share_it(tmp_path: Path) -> None:
    run_campaign(campaign(tmp_path, "table3"), Silent())
    assert run_campaign(campaign(tmp_path, "averaging"), Silent()) == 0


def test_different_configurations_have_different_names() -> None:
    """Over all trials of all studies at full size; equal names are equal configurations."""
    seen: dict[str, str] = {}
    for study in STUDIES.values():
        for task in {*study.tasks, *study.further_tasks} & {"logistic-fmnist", "cnn-cifar10", "logistic-mini"}:
            for trial in study.trials(task, (0, 1), False, {}):
                config = trial_config(trial)
                text = config.model_dump_json()
                assert seen.setdefault(run_name(config), text) == text


def test_a_name_says_what_is_not_the_presets() -> None:
    changed = {"method": "top-k", "partition": {"classes": 3}, "compression": {"k": 73, "scope": "tensor"}}
    config = make_config(settings_of("cnn-cifar10"), {"task": "cnn-cifar10", "seed": 1}, changed)
    assert run_name(config) == "cnn-cifar10-top-k-k73-tensor-classes3-seed1"


@pytest.mark.parametrize("name", [name for name in STUDIES if STUDIES[name].tasks[:1] == ("logistic-fmnist",)])
def test_every_trial_of_a_study_is_a_valid_run(name: str, tmp_path: Path) -> None:
    study = STUDIES[name]
    for task in study.tasks:
        for trial in study.trials(task, (0,), False, {}):
            job = training_job(trial, None, tmp_path, None)
            assert job.config.iterations == make_config(settings_of(task), {"task": task}).iterations


def test_fig2_is_the_full_factorial() -> None:
    cells = {trial.cell for trial in STUDIES["fig2"].trials("logistic-fmnist", (0,), False, {})}
    configs = {trial_config(t).model_dump_json() for t in STUDIES["fig2"].trials("logistic-fmnist", (0,), False, {})}
    assert len(cells) == len(configs) == 16


def test_the_cost_is_told_before_the_start(tmp_path: Path) -> None:
    """Logistic: 3 × 5 × 3 runs of about 16 s, which is the unit cost this rests on."""
    plan = plan_campaign(STUDIES["table3"], Options(tmp_path, ("logistic-fmnist",), workers=2))
    plan.ready()
    assert len(plan.remaining()) == 45
    assert 45 * 10 < sum(plan.remaining()) < 45 * 25
    assert "45 runs, 0 finished; the rest takes about" in cost_line(plan, plan.remaining())
    assert "with 2 jobs" in cost_line(plan, plan.remaining())


def test_the_time_left_comes_from_the_pace_of_this_session() -> None:
    hears = Hears()
    overall = Overall(hears, total=100.0, runs=2)
    overall.expected = {"first": 80.0, "second": 20.0}
    status = Status("first", 1, 100, "accuracy", 0.5, 0.01, 10, True)
    overall.update(status)
    overall._began -= 8  # eight seconds ago
    overall.update(Status("first", 100, 100, "accuracy", 0.5, 0.01, 10, True))
    assert hears.said[-1].startswith("1/2 first: accuracy 50.00%")
    assert "about 2 s left" in hears.said[-1]  # 80 of 100 units in 8 s leave 20 units: 2 s


def test_a_study_json_is_enough_to_judge_again(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    results = one.results("logistic-mini")
    tables, pictures = write_study(tmp_path / "study", one.study, results, TINY)
    again = read_results(read_document(tmp_path / "study/study.json"))
    first, second = (verdicts(one.study, found) for found in (results, again))
    assert [(v.answer, [p.found for p in v.parts]) for v in first] == [
        (v.answer, [p.found for p in v.parts]) for v in second
    ]
    assert {path.suffix for path in pictures} == {".png", ".svg"}
    assert all(path.stat().st_size > 1000 for path in pictures)
    before = {path: path.read_bytes() for path in pictures}
    write_study(tmp_path / "study", one.study, again, TINY)
    assert {path: path.read_bytes() for path in pictures} == before
    assert len(tables) == 2


def test_quick_results_say_that_they_prove_nothing(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    tables, _ = write_study(tmp_path / "study", one.study, one.results("logistic-mini"), TINY)
    document = json.loads((tmp_path / "study/study.json").read_text())
    assert document["quick"] is True
    assert "prove nothing" in document["note"]
    assert "prove nothing" in tables[-1].note
    assert "prove nothing" in (tmp_path / "study/tables.md").read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_diverges_is_named_and_the_others_go_on(tmp_path: Path, workers: int) -> None:
    """Top-k of seed 1 never gets its k, and is missing as well."""
    one, hears = campaign(tmp_path, workers=workers), Hears()
    for trial in one.trials:
        if trial.seed == 1:
            trial.settings["stepsize"] = {"kind": "constant", "value": 1e38}
    run_campaign(one, hears)
    results = one.results("logistic-mini")
    assert {(run.cell["method"], run.seed) for run in results.runs} == {(method, 0) for method in METHODS["method"]}
    assert len(results.diverged) == 2
    for name, why in results.diverged.items():
        assert "seed1" in name
        assert "not finite" in why
        assert any(name in line for line in hears.said)
    tables, _ = write_study(tmp_path / "study", one.study, results, TINY)
    assert "runs that diverged" in [table.title for table in tables]
    assert read_results(read_document(tmp_path / "study" / "study.json")).diverged == results.diverged
    collected = campaign(tmp_path, collect=True)
    for trial in collected.trials:
        if trial.seed == 1:
            trial.settings["stepsize"] = {"kind": "constant", "value": 1e38}
    assert run_campaign(collected, Silent()) == 0
    assert collected.results("logistic-mini").diverged == results.diverged


def test_a_level_without_the_one_it_follows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="keeps as many entries as gamma-fedht"):
        campaign(tmp_path, only={"method": ["top-k"]})


def test_levels_are_asked_for_in_one_option_or_in_several() -> None:
    table3, theory = STUDIES["table3"], STUDIES["theory"]
    assert (
        asked_for(table3, ["classes=2,3"]) == asked_for(table3, ["classes=2", "classes=3"]) == {"classes": ["2", "3"]}
    )
    with_comma = theory.factors[0].levels[1].name
    assert "," in with_comma
    assert asked_for(theory, [f"method={with_comma}", "method=FedAVG"]) == {"method": [with_comma, "FedAVG"]}


def test_where_some_places_have_fewer_seeds_the_title_says_so() -> None:
    runs = [Run("", {"classes": c}, seed, {}) for c, seed in (("2", 0), ("3", 0), ("3", 1))]
    assert Results("table3", "logistic-mini", False, {}, runs).seeds_in_words() == "1 to 2 seeds"
    assert Results("table3", "logistic-mini", False, {}, runs[1:]).seeds_in_words() == "2 seeds"
    assert Results("table3", "logistic-mini", False, {}, runs[:1]).seeds_in_words() == "1 seed"


def test_full_and_quick_runs_do_not_meet(tmp_path: Path) -> None:
    run_campaign(campaign(tmp_path), Silent())
    full = plan_campaign(STUDIES["table3"], Options(tmp_path, ("logistic-mini",), (0, 1), only=METHODS, collect=True))
    assert run_campaign(full, Silent()) == 0
    assert full.results("logistic-mini").runs == []


def ledger_of(rounds: int, evaluated: set[int]) -> list[RoundRecord]:
    shared: dict[str, Any] = {"participants": [0], "train_loss": 1.0, "kept": 1, "uplink_bytes": 8}
    metrics = {r: {"metric": r / rounds, "loss": 1.0} for r in evaluated}
    numbers = range(1, rounds + 1)
    return [
        RoundRecord.model_validate({"round": r, "iteration": 5 * r, **shared, **metrics.get(r, {})}) for r in numbers
    ]


def test_a_curve_has_a_new_evaluation_in_each_point_also_where_some_are_denser() -> None:
    """Of points with the same evaluation, the mean of neighbours would be of one."""
    coarse = training_curve(ledger_of(400, set(range(20, 401, 20))), 10)
    dense = training_curve(ledger_of(400, {*range(20, 321, 20), *range(322, 401, 2)}), 10)
    assert coarse["iteration"] == dense["iteration"] == [100.0 * i for i in range(1, 21)]
    assert coarse["metric"][:16] == dense["metric"][:16]
    assert len(set(dense["metric"])) == 20


def test_the_traffic_table_shows_the_best_and_the_number_of_evaluations_it_was_picked_from() -> None:
    cell = {"classes": "2", "method": "ht"}
    found = {**figures(0.5), "best": 0.75, "evaluations": 112}
    results = Results("table3", "cnn-cifar10", False, {"classes": ["2"], "method": ["ht"]}, [Run("r", cell, 0, found)])
    (table,) = STUDIES["table3"].tables(results)
    assert table.rows[0][table.columns.index("best of 112")] == "75.00"
    assert "picked on the test set" in table.note
