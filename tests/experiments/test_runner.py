"""Studies as runs: nothing is run twice, nothing finished is lost, and rows are enough to judge again."""

import json
import re
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

import gammafl as gf
from gammafl.cli.studies import asked_for, redraw
from gammafl.config.layers import make_config, result_settings
from gammafl.experiments import trial_runs
from gammafl.experiments.claims import verdicts
from gammafl.experiments.grid import Study, Trial
from gammafl.experiments.rows import Row, Rows, training_curve
from gammafl.experiments.runner import Campaign, Options, plan_campaign, run_campaign
from gammafl.experiments.store import all_rows, kept_rows, load_rows, rows_by_run, study_directory, write_study
from gammafl.experiments.trial_runs import TrainingJob, run_name, training_job, trial_config
from gammafl.federated.records import RoundRecord
from gammafl.paper.catalogue import STUDIES
from gammafl.runs.directory import RunDirectory
from gammafl.runs.progress import Overall, Silent, Status
from gammafl.tasks.registry import settings_of
from tests.report.made import figures

TINY = {"iterations": 10, "evaluation": {"every": 1}}
METHODS = {"method": ["gamma-fedht", "top-k", "fedavg"]}
MINI = {"task": ["logistic-mini"]}


def campaign(out: Path, name: str = "table3", **changes: Any) -> Campaign:
    given: dict[str, Any] = {"seeds": (0, 1), "quick": True, "only": METHODS | MINI, "settings": TINY}
    return plan_campaign(STUDIES[name], Options(out, **given | changes))


def stored(one: Campaign) -> Path:
    """Writes its rows as the command does; returns the directory."""
    path = study_directory(one.options, one.whole, "logistic-mini")
    rows = all_rows(one.whole, one.rows("logistic-mini"), kept_rows(one.whole, "logistic-mini", one.options))
    write_study(path, one.whole, rows)
    return path


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
    assert len(again.rows("logistic-mini").finished) == 6


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


def test_a_study_runs_seed_by_seed_and_followers_after_their_leaders(tmp_path: Path) -> None:
    """So that a study that is stopped early has seen the whole grid as often as time allowed."""
    hears = Hears()
    run_campaign(campaign(tmp_path, seeds=(1, 0)), hears)
    ended = [line for line in hears.said if re.match(r"\d+/\d+ ", line)]
    wanted = [(method, seed) for seed in (1, 0) for method in METHODS["method"]]
    for line, (method, seed) in zip(ended, wanted, strict=True):
        assert re.search(f"-{method}-.*seed{seed}", line)


def test_a_run_that_was_begun_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Its ledger has every round once: none is lost, none is run twice."""
    eager = TINY | {"iterations": 20, "checkpoint": {"every_seconds": 0.0}}
    plan = plan_campaign(
        STUDIES["table3"],
        Options(tmp_path, (0,), True, only={"method": ["fedavg"]} | MINI, settings=eager),
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
    first, second = alone.rows("logistic-mini"), beside.rows("logistic-mini")
    assert [(row.run, row.cell, row.curve) for row in first.all] == [
        (row.run, row.cell, row.curve) for row in second.all
    ]
    for method in METHODS["method"]:
        assert first.by_seed("last_loss", method=method) == second.by_seed("last_loss", method=method)


def test_top_k_keeps_as_many_entries_as_its_leader_did(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    rows = one.rows("logistic-mini")
    leader, follower = (rows.by_seed("kept_per_upload", method=m) for m in ("gamma-fedht", "top-k"))
    assert follower == {seed: max(1, round(count)) for seed, count in leader.items()}


def test_studies_that_ask_for_the_same_run_share_it(tmp_path: Path) -> None:
    run_campaign(campaign(tmp_path, "table3"), Silent())
    assert run_campaign(campaign(tmp_path, "averaging"), Silent()) == 0


def test_different_configurations_have_different_names() -> None:
    """Over all trials of all studies at full size; equal names are equal configurations."""
    seen: dict[str, str] = {}
    for study in STUDIES.values():
        for trial in trained(study, "logistic-fmnist", "cnn-cifar10", "logistic-mini"):
            config = trial_config(trial)
            text = config.model_dump_json()
            assert seen.setdefault(run_name(config), text) == text


def trained(study: Study, *tasks: str) -> list[Trial]:
    """The trials of those of the tasks that a study trains."""
    factor = study.factor("task")
    chosen = [task for task in tasks if factor and task in factor.names] if study.make_job is None else []
    return list(study.restricted({"task": chosen}, False).trials((0, 1))) if chosen else []


def test_a_name_says_what_is_not_the_presets() -> None:
    changed = {"method": "top-k", "partition": {"classes": 3}, "compression": {"k": 73, "scope": "tensor"}}
    config = make_config(settings_of("cnn-cifar10"), {"task": "cnn-cifar10", "seed": 1}, changed)
    assert run_name(config) == "cnn-cifar10-top-k-k73-tensor-classes3-seed1"


@pytest.mark.parametrize("name", [name for name in STUDIES if STUDIES[name].tasks[:1] == ("logistic-fmnist",)])
def test_every_trial_of_a_study_is_a_valid_run(name: str, tmp_path: Path) -> None:
    for trial in trained(STUDIES[name], *STUDIES[name].tasks):
        job, task = training_job(trial, None, tmp_path, None), trial.settings["task"]
        assert job.config.iterations == make_config(settings_of(task), {"task": task}).iterations


@pytest.mark.parametrize("name", ["alpha", "fig1", "fig2"])
def test_what_a_level_depends_on_is_the_papers_for_the_small_task_too(name: str) -> None:
    """Settings that differ between the paper's tasks: the task that needs no download has those of Logistic."""
    full, mini = (trained(STUDIES[name], task) for task in ("logistic-fmnist", "logistic-mini"))
    for one, other in zip(full, mini, strict=True):
        assert {**one.settings, "task": ""} == {**other.settings, "task": ""}


def test_fig2_is_the_full_factorial() -> None:
    trials = [trial for trial in trained(STUDIES["fig2"], "logistic-fmnist") if trial.seed == 0]
    assert len({trial.cell for trial in trials}) == 16
    assert len({trial_config(trial).model_dump_json() for trial in trials}) == 16


def test_what_is_left_to_run_is_told_before_the_start(tmp_path: Path) -> None:
    hears = Hears()
    run_campaign(campaign(tmp_path, collect=True, workers=2), hears)
    assert hears.said == ["table3: 6 runs, 0 finished; 6 to run, 2 at a time"]


def test_the_time_left_comes_from_the_pace_of_this_session() -> None:
    hears = Hears()
    overall = Overall(hears, runs=5)
    overall.update(Status("first", 1, 100, "accuracy", 0.5, 0.01, 10, True))
    overall._began -= 8  # eight seconds ago
    overall.update(Status("first", 100, 100, "accuracy", 0.5, 0.01, 10, True))
    assert hears.said[-1].startswith("1/5 first: accuracy 50.00%")
    assert "about 32 s left" in hears.said[-1]  # one of five in 8 s leaves four


def test_rows_are_enough_to_judge_and_to_draw_again(tmp_path: Path) -> None:
    """Without a run directory, to the byte."""
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    path = stored(one)
    files = {file: file.read_bytes() for file in path.iterdir()}
    assert {file.suffix for file in files} == {".png", ".svg", ".md", ".jsonl"}
    assert all(len(content) > 1000 for content in files.values())
    rmtree(tmp_path / "runs")
    study, again = load_rows(path, STUDIES)
    first, second = (verdicts(study.claims, rows) for rows in (one.rows("logistic-mini"), again))
    assert [(v.answer, v.parts) for v in first] == [(v.answer, v.parts) for v in second]
    for file in files:
        if file.name != "rows.jsonl":
            file.unlink()
    redraw([path])
    assert {file: file.read_bytes() for file in path.iterdir()} == files


def test_a_study_whose_rows_are_there_runs_nothing_without_its_runs(tmp_path: Path) -> None:
    """Also the followers: their k comes from their leaders' rows."""
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    stored(one)
    rmtree(tmp_path / "runs")
    again, hears = campaign(tmp_path), Hears()
    assert run_campaign(again, hears) == 0
    assert hears.said == ["table3: 6 runs, 6 finished; nothing to run"]
    assert not (tmp_path / "runs").exists()


def test_a_study_takes_runs_from_the_rows_of_another(tmp_path: Path) -> None:
    """By their names, and so that they count later without the other's rows."""
    one = campaign(tmp_path / "first")
    run_campaign(one, Silent())
    rows = rows_by_run([stored(one)], STUDIES)
    other = campaign(tmp_path / "second", "averaging", rows=rows)
    assert run_campaign(other, Silent()) == 0
    assert other.rows("logistic-mini").by_seed("last_loss") == one.rows("logistic-mini").by_seed("last_loss")
    write_study(tmp_path / "second/averaging-logistic-mini-quick", other.whole, other.rows("logistic-mini"))
    assert run_campaign(campaign(tmp_path / "second", "averaging"), Silent()) == 0


def test_rows_of_an_earlier_version_are_not_taken_for_runs_of_the_same_name(tmp_path: Path) -> None:
    old = Row("logistic-mini-fedavg-seed0", {"task": "logistic-mini", "classes": "2", "method": "fedavg"}, 0, {})
    write_study(tmp_path, STUDIES["table3"], Rows("table3", {f: [x] for f, x in old.cell.items()}, [old]))
    assert rows_by_run([tmp_path], STUDIES) == {}


def test_a_setting_that_is_new_in_a_later_version_does_not_change_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    job = training_job(next(STUDIES["table3"].trials((0,))), None, Path(), None)
    before = job.config_digest
    monkeypatch.setattr(trial_runs, "result_settings", lambda config: {**result_settings(config), "new": 1})
    assert job.config_digest == before
    other = TrainingJob(make_config(job.config.model_dump(exclude_none=True), {"iterations": 5}), job.path)
    assert other.config_digest != before


def test_a_row_of_another_configuration_is_run_again(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    file = stored(one) / "rows.jsonl"
    rmtree(tmp_path / "runs")
    file.write_text(re.sub(r'"config": "[0-9a-f]+"', '"config": "000000000000"', file.read_text(), count=1))
    again = campaign(tmp_path)
    again.ready()
    assert again.unfinished() == 2  # a leader and its follower


def test_rows_are_added_to_a_study_and_none_is_lost(tmp_path: Path) -> None:
    first = campaign(tmp_path, seeds=(0,))
    run_campaign(first, Silent())
    path = stored(first)
    second = campaign(tmp_path, seeds=(1,), only={"method": ["fedavg"]} | MINI)
    run_campaign(second, Silent())
    stored(second)
    rows = load_rows(path, STUDIES)[1]
    assert [(row.cell["method"], row.seed) for row in rows.all] == [
        ("gamma-fedht", 0), ("top-k", 0), ("fedavg", 0), ("fedavg", 1),
    ]  # fmt: skip


def planned(name: str, **only: list[str]) -> dict[str, dict[str, Any]]:
    """Method → settings of its run in the preset, of a study on the small task."""
    settings = {**TINY, "preset": "dagc-code"}
    plan = plan_campaign(STUDIES[name], Options(Path("nowhere"), (0,), only=MINI | only, settings=settings))
    return {dict(trial.cell)["method"]: trial_config(trial).model_dump() for trial in plan.trials}


def test_a_study_in_a_preset_varies_what_it_varies_and_takes_the_rest_from_it() -> None:
    """Both scopes are shown where a study has both, also where one of them was asked for; else Top-k is per tensor."""
    for only in ({}, {"method": ["gamma-fedht", "top-k"]}):
        found = planned("table3", classes=["3"], **only)
        assert all(
            config["partition"] == {"kind": "labels", "classes": 3, "scheme": "cyclic"} for config in found.values()
        )
        assert {config["sampler"] for config in found.values()} == {"epochs-fixed"}
        assert found["top-k"]["compression"] == {}
    assert planned("table3")["top-k per tensor"]["compression"] == {"scope": "tensor"}
    assert planned("fig4")["top-k"]["compression"] == {"scope": "tensor"}
    assert planned("fig4")["gamma-fedht"]["compression"] == {}


def test_levels_that_say_another_partition_keep_it_in_a_preset() -> None:
    settings = {"preset": "dagc-code"}
    plan = plan_campaign(STUDIES["fig2"], Options(Path("nowhere"), (0,), only=MINI, settings=settings))
    kinds = {dict(trial.cell)["data"]: trial_config(trial).partition.model_dump() for trial in plan.trials}
    assert kinds == {"IID": {"kind": "iid"}, "non-IID": {"kind": "labels", "classes": 2, "scheme": "cyclic"}}


def test_results_in_a_preset_have_a_place_of_their_own_and_say_so(tmp_path: Path) -> None:
    plain, preset = campaign(tmp_path), campaign(tmp_path, settings={**TINY, "preset": "dagc-code"})
    for one in (plain, preset):
        run_campaign(one, Silent())
    assert stored(plain) != (path := stored(preset)) == tmp_path / "table3-logistic-mini-dagc-code-quick"
    assert "table3: logistic-mini, dagc-code, 2 seeds" in (path / "tables.md").read_text()
    assert "preset = dagc-code" in (path / "tables.md").read_text()
    again = campaign(tmp_path, settings={**TINY, "preset": "dagc-code"})
    assert run_campaign(again, Silent()) == 0


def test_rows_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    stored(one)
    with pytest.raises(gf.InputError, match=r"--set iterations=10.*choose another --out"):
        campaign(tmp_path, settings=TINY | {"iterations": 20})


def test_quick_results_say_that_they_prove_nothing(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    path = stored(one)
    assert load_rows(path, STUDIES)[1].quick
    assert (path / "tables.md").read_text().count("prove nothing") == 2


def test_pandas_and_polars_read_rows_in_one_line(tmp_path: Path) -> None:
    """A flat table: every line is a JSON object of the same keys, its factors are words, its figures numbers."""
    one = campaign(tmp_path)
    run_campaign(one, Silent())
    lines = [json.loads(line) for line in (stored(one) / "rows.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    assert len({tuple(line) for line in lines}) == 1
    assert {type(line["last_mean"]) for line in lines} == {float}
    assert [(line["classes"], line["method"], line["seed"]) for line in lines[:2]] == [
        ("2", "gamma-fedht", 0), ("2", "gamma-fedht", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_diverges_is_named_and_the_others_go_on(tmp_path: Path, workers: int) -> None:
    """Top-k of seed 1 never gets its k, and is missing as well."""
    one, hears = campaign(tmp_path, workers=workers), Hears()
    for trial in one.trials:
        if trial.seed == 1:
            trial.settings["stepsize"] = {"kind": "constant", "value": 1e38}
    run_campaign(one, hears)
    rows = one.rows("logistic-mini")
    assert {(row.cell["method"], row.seed) for row in rows.finished} == {(method, 0) for method in METHODS["method"]}
    diverged = {row.cell["method"]: row for row in rows.all if row.diverged}
    assert {row.seed for row in diverged.values()} == {1}
    for method in ("gamma-fedht", "fedavg"):
        assert "not finite" in diverged[method].diverged
        assert any(diverged[method].run in line for line in hears.said)
    assert "which diverged" in diverged["top-k"].diverged
    path = stored(one)
    assert "runs that diverged" in (path / "tables.md").read_text()
    assert {row.run for row in load_rows(path, STUDIES)[1].all if row.diverged} == {r.run for r in diverged.values()}
    collected = campaign(tmp_path, collect=True)
    for trial in collected.trials:
        if trial.seed == 1:
            trial.settings["stepsize"] = {"kind": "constant", "value": 1e38}
    assert run_campaign(collected, Silent()) == 0
    assert {row.diverged for row in collected.rows("logistic-mini").all} == {row.diverged for row in rows.all}


def test_a_level_without_the_one_it_follows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="keeps as many entries as gamma-fedht"):
        campaign(tmp_path, only={"method": ["top-k"]} | MINI)


def test_levels_are_asked_for_in_one_option_or_in_several() -> None:
    table3, theory = STUDIES["table3"], STUDIES["theory"]
    assert (
        asked_for(table3, ["classes=2,3"]) == asked_for(table3, ["classes=2", "classes=3"]) == {"classes": ["2", "3"]}
    )
    with_comma = theory.factors[1].levels[1].name
    assert "," in with_comma
    assert asked_for(theory, [f"method={with_comma}", "method=FedAVG"]) == {"method": [with_comma, "FedAVG"]}


def test_where_some_places_have_fewer_seeds_the_title_says_so() -> None:
    rows = [Row("", {"classes": c}, seed, {}) for c, seed in (("2", 0), ("3", 0), ("3", 1))]
    assert Rows("table3", {}, rows).seeds_in_words() == "1 to 2 seeds"
    assert Rows("table3", {}, rows[1:]).seeds_in_words() == "2 seeds"
    assert Rows("table3", {}, rows[:1]).seeds_in_words() == "1 seed"


def test_full_and_quick_runs_do_not_meet(tmp_path: Path) -> None:
    run_campaign(campaign(tmp_path), Silent())
    full = plan_campaign(STUDIES["table3"], Options(tmp_path, (0, 1), only=METHODS | MINI, collect=True))
    assert run_campaign(full, Silent()) == 0
    assert full.rows("logistic-mini").all == []


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
    cell = {"task": "cnn-cifar10", "classes": "2", "method": "ht"}
    found = {**figures(0.5), "best": 0.75, "evaluations": 112}
    rows = Rows("table3", {name: [level] for name, level in cell.items()}, [Row("r", cell, 0, found)])
    table = STUDIES["table3"].tables[0](rows)
    assert table is not None
    assert table.rows[0][table.columns.index("best of 112")] == "75.00"
    assert "picked on the test set" in table.note


def test_a_curve_has_bytes_both_ways_and_seconds_on_a_link_where_there_are_some() -> None:
    plain = ledger_of(20, {10, 20})
    assert set(training_curve(plain, 10)) == {"iteration", "kept_fraction", "sent_bytes", "metric", "loss"}
    linked = [
        RoundRecord.model_validate({**record.table(), "downlink_bytes": 12, "link_seconds": 0.5 * record.round})
        for record in plain
    ]
    curve = training_curve(linked, 10)
    assert curve["link_seconds"][-1] == 10.0
    assert curve["both_bytes"][-1] == curve["sent_bytes"][-1] + 20 * 12 == 20 * (8 + 12)
