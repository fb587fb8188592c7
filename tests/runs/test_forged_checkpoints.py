"""A checkpoint with a right checksum and wrong content: a run goes on from the one before, or one line says why not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.schema import Faults
from gammafl.federated import rounds
from gammafl.federated.faults import carrier
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.summary import summarise
from gammafl.files import tensor_files
from gammafl.runs import checkpoint
from gammafl.runs.checkpoint import Saved
from gammafl.runs.directory import RunDirectory
from tests.problems import plan_for
from tests.runs.forging import DEEP, NO_FILES, changes, forge, forge_header, not_for_ever, one_line, put
from tests.runs.stopped import stopped_run

DIM, STOPPED = 50, 6


def make_plan() -> Plan:
    return plan_for(gf.TopK(0.1), faults=Faults(lost=0.4))


def begin(path: Path) -> None:
    """A run that stopped after some rounds, with two checkpoints, and lost uploads in both."""
    path.mkdir()
    stopped_run(make_plan(), path, STOPPED)


def load(path: Path, said: list[str]) -> Saved | None:
    directory = RunDirectory(path)
    return checkpoint.load(directory.checkpoints, make_plan(), directory.ledger_file, said.append)


def go_on(path: Path, saved: Saved) -> bytes:
    """The rest of the run; the model that it ends with."""
    plan, directory = make_plan(), RunDirectory(path)
    residuals = ResidualStore(plan.method, plan.dim)
    residuals.restore(saved.residuals, saved.lost)
    with directory.open_ledger(saved.ledger_bytes) as ledger:
        for record in rounds.run_rounds(plan, saved.state, carrier(plan, residuals, None)):
            ledger.append(record)
    summarise(plan, saved.state.totals, directory.records(), saved.wall_seconds)
    return saved.state.model.tobytes()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stopped") / "run"
    begin(path)
    return path


@pytest.fixture(scope="module")
def ending(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of the run if nothing happens to it."""
    path = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(stopped, path)
    saved = load(path, [])
    assert saved is not None
    assert saved.state.round == STOPPED
    assert saved.lost
    return go_on(path, saved)


Spoil = Callable[[Any, Any], Any]


def facts_with(**changes: Any) -> Spoil:
    return lambda facts, tensors: ({**facts, **changes}, tensors)


def tensors_with(**changes: Any) -> Spoil:
    return lambda facts, tensors: (facts, {**tensors, **{name.replace("_", "."): t for name, t in changes.items()}})


def totals_with(**changes: Any) -> Spoil:
    return lambda facts, tensors: ({**facts, "totals": facts["totals"] | changes}, tensors)


def poisoned(value: float) -> Any:
    vector = np.zeros(DIM, np.float32)
    vector[7] = value
    return vector


def message_of(dim: int) -> Any:
    return np.frombuffer(gf.encode(gf.TopK(1)(np.ones(dim, np.float32))), np.uint8)


NONSENSE: dict[str, Spoil] = {
    "a round in words": facts_with(round="x"),
    "a round below zero": facts_with(round=-1),
    "a round after the last": facts_with(round=41),
    "a round that the ledger does not have": facts_with(round=5),
    "true for a round": facts_with(round=True),
    "totals that are a number": facts_with(totals=3),
    "totals that are not complete": facts_with(totals={"uploads": 1}),
    "totals beyond any": totals_with(kept=10**400),
    "totals in parts": totals_with(uploads=1.5),
    "a clock without a link": totals_with(link_seconds=1.5),
    "a clock that runs backwards": totals_with(link_seconds=-1.5),
    "times that are a list": facts_with(phase_seconds=[1]),
    "a time in words": facts_with(phase_seconds={"setup": "long"}),
    "no time at all": facts_with(wall_seconds=float("nan")),
    "a client that is paid for what it sends": facts_with(paces={"1": [3.0, -1e9]}),
    "a link that is busy since before the run": facts_with(paces={"1": [-1e308, 0.0]}),
    "a link of nobody": facts_with(paces={"-1": [3.0, 0.0]}),
    "a ledger of no bytes": facts_with(ledger_bytes=0),
    "a ledger cut off in a line": lambda facts, tensors: (
        {**facts, "ledger_bytes": facts["ledger_bytes"] - 1},
        tensors,
    ),
    "a ledger that is too long": facts_with(ledger_bytes=2**40),
    "an average of no models": facts_with(averaged_rounds=3),
    "a fact that nobody knows": facts_with(more=1),
    "a fact less": lambda facts, tensors: ({k: v for k, v in facts.items() if k != "totals"}, tensors),
    "a short model": tensors_with(model=np.zeros(9, np.float32)),
    "a model of bytes": tensors_with(model=np.zeros(DIM, np.uint8)),
    "a matrix": tensors_with(model=np.zeros((5, 10), np.float32)),
    "a model that is not finite": tensors_with(model=poisoned(np.nan)),
    "no model": lambda facts, tensors: (facts, {name: tensors[name] for name in tensors if name != "model"}),
    "a short residual": tensors_with(residual_1=np.zeros(9, np.float32)),
    "a residual of bytes": tensors_with(residual_1=np.zeros(DIM, np.uint8)),
    "a residual that is not finite": tensors_with(residual_1=poisoned(np.inf)),
    "a residual of nobody": tensors_with(residual_4=poisoned(1)),
    "a residual without a number": tensors_with(residual_x=poisoned(1)),
    "a residual whose number is not one": tensors_with(**{"residual_²": poisoned(1)}),
    "two residuals of one client": tensors_with(residual_01=poisoned(1)),
    "a lost upload that is no message": tensors_with(lost_1=np.zeros(30, np.uint8)),
    "a lost upload of another model": tensors_with(lost_1=message_of(DIM + 1)),
    "a lost upload of numbers": tensors_with(lost_1=poisoned(1)),
    "a tensor that nobody knows": tensors_with(more=poisoned(1)),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_with_a_right_checksum_is_passed_over_for_the_checkpoint_before(
    name: str, stopped: Path, ending: bytes, tmp_path: Path
) -> None:
    path, said = tmp_path / "run", list[str]()
    shutil.copytree(stopped, path)
    last = path / "checkpoint" / checkpoint.LAST
    forge(last, *NONSENSE[name](*tensor_files.read(last)))
    saved = load(path, said)
    assert len(said) == 1
    assert one_line(said[0])
    assert saved is not None
    assert saved.state.round == STOPPED - 1
    assert go_on(path, saved) == ending


TEXTS = {text[:20]: text for text in ("null", "3", '"words"', "[]", "{}", "{", f'{{"a": {DEEP}}}', '{"checksum": 5}')}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["F32", "F64", "BF16", "BOOL"])
def test_facts_that_are_none_and_types_that_are_not_ours_are_passed_over_too(
    text: str, kind: str, stopped: Path, ending: bytes, tmp_path: Path
) -> None:
    path, said = tmp_path / "run", list[str]()
    shutil.copytree(stopped, path)
    forge_header(path / "checkpoint" / checkpoint.LAST, TEXTS[text], kind)
    saved = load(path, said)
    assert one_line(said[0])
    assert saved is not None
    assert go_on(path, saved) == ending


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_passed_over_without_waiting_for_it(
    kind: str, stopped: Path, ending: bytes, tmp_path: Path
) -> None:
    path, said = tmp_path / "run", list[str]()
    shutil.copytree(stopped, path)
    put(kind, path / "checkpoint" / checkpoint.LAST)
    with not_for_ever():
        saved = load(path, said)
    assert len(said) == 1
    assert saved is not None
    assert go_on(path, saved) == ending


@pytest.mark.parametrize("kind", NO_FILES)
def test_where_no_checkpoint_is_a_file_one_line_says_so_and_nothing_is_begun_anew(
    kind: str, stopped: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(stopped, path)
    for name in (checkpoint.LAST, checkpoint.PREVIOUS):
        put(kind, path / "checkpoint" / name)
    with not_for_ever(), pytest.raises(gf.InputError, match=r"no checkpoint in .* can be used"):
        load(path, [])


def test_checkpoints_that_can_not_be_looked_at_are_not_taken_for_none(stopped: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(stopped, path)
    shutil.rmtree(path / "checkpoint")
    (path / "checkpoint").write_bytes(b"a file where a directory should be")
    with pytest.raises(gf.InputError, match="can't read"):
        load(path, [])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (facts_with(fingerprint=1), "began with other data"),
        (
            lambda facts, tensors: (facts, {name: np.zeros(9, np.float32) for name in tensors if "lost" not in name}),
            "is of another model",
        ),
    ],
    ids=["data", "model"],
)
def test_a_checkpoint_that_makes_sense_and_is_of_another_run_is_refused(
    spoil: Spoil, reason: str, stopped: Path, tmp_path: Path
) -> None:
    """The one before would be of another run too, or this is the wrong directory."""
    path = tmp_path / "run"
    shutil.copytree(stopped, path)
    last = path / "checkpoint" / checkpoint.LAST
    forge(last, *spoil(*tensor_files.read(last)))
    before = {file: file.read_bytes() for file in path.rglob("*.*")}
    with pytest.raises(gf.InputError, match=reason):
        load(path, [])
    assert {file: file.read_bytes() for file in path.rglob("*.*")} == before


@pytest.fixture(scope="module")
def folder(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where examples are spoilt one after the other."""
    return tmp_path_factory.mktemp("examples")


@given(data=st.data())
def test_whatever_is_in_a_checkpoint_the_run_goes_on_or_one_line_says_why_not(
    data: st.DataObject, stopped: Path, ending: bytes, folder: Path
) -> None:
    path, said = folder / "run", list[str]()
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(stopped, path)
    last = path / "checkpoint" / checkpoint.LAST
    facts, tensors = tensor_files.read(last)
    forge(last, *data.draw(changes(facts, list(tensors), DIM))(facts, tensors))
    model = None
    try:
        with not_for_ever():
            saved = load(path, said)
        assert saved is not None
        model = go_on(path, saved)
    except gf.InputError as error:  # also of values that are finite, and too large to add anything to
        said.append(str(error))
    assert all(one_line(line) for line in said)
    assert not said or model in (None, ending)


@pytest.mark.parametrize("text", [DEEP, "3", "[]", '{"round": "x"}', '{"round": 1}', "null", '"words"'], ids=range(7))
def test_a_ledger_or_a_summary_of_nonsense_is_named(text: str, stopped: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(stopped, path)
    directory = RunDirectory(path)
    directory.ledger_file.write_text(text + "\n")
    directory.summary_file.write_text(text)
    for read in (directory.records, directory.summary):
        with pytest.raises(gf.InputError, match="is damaged") as caught:
            read()
        assert one_line(str(caught.value))


@pytest.mark.parametrize("kind", ["a pipe", "a directory", "a device that never ends", "a socket"])
def test_a_ledger_a_summary_or_a_configuration_that_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for file in (directory.ledger_file, directory.summary_file, directory.config_file):
        put(kind, file)
    for read in (directory.records, directory.summary, directory.config, lambda: directory.open_ledger(0).__enter__()):
        with not_for_ever(), pytest.raises(gf.InputError, match="not a regular file"):
            read()


def test_a_records_line_is_checked_as_it_is_written(stopped: Path) -> None:
    records = RunDirectory(stopped).records()
    assert [record.round for record in records] == list(range(1, STOPPED + 1))
    lines = (stopped / "rounds.jsonl").read_text().splitlines()
    assert [json.dumps(record.table()) for record in records] == lines


def test_a_view_of_a_version_that_no_round_made_is_refused(tmp_path: Path) -> None:
    said: list[str] = []
    plan, directory = plan_for(gf.TopK(0.1), downlink=gf.top_k(keep=0.2)), RunDirectory(tmp_path)
    state, residuals = rounds.start(plan), ResidualStore(plan.method, plan.dim)
    with directory.open_ledger(0) as ledger:
        for record in rounds.run_rounds(plan, state, carrier(plan, residuals, None)):
            ledger.append(record)
            if state.round == STOPPED:
                break
        assert state.down is not None
        state.down.version = 2**40
        saved = Saved(state, ledger_bytes=ledger.sync(), fingerprint=0, **residuals.held())
        checkpoint.save(directory.checkpoints, saved)
    with pytest.raises(gf.InputError, match="version 1099511627776 of its view after round 6"):
        checkpoint.load(directory.checkpoints, plan, directory.ledger_file, said.append)
