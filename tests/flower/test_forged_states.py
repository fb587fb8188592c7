"""A client's files with a right checksum and wrong content: it starts clean and trains, or one line says why not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gammafl as gf
from gammafl.federated.exchange import ClientState
from gammafl.federated.task import LocalUpdate
from gammafl.files import tensor_files
from gammafl.flower.disk import ClientDisk
from gammafl.flower.layout import Layout
from tests.conftest import vectors
from tests.flower.grid import InProcessGrid
from tests.flower.problem import by_hand, quadratic_app, strategy
from tests.problems import Quadratic
from tests.runs.forging import DEEP, NO_FILES, changes, forge, forge_header, not_for_ever, one_line, put

DIM, METHOD, TRAINING = 50, gf.top_k(k=3), "training"
RECORD = ArrayRecord(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict())
LAYOUT = Layout.of(RECORD)


def disk_in(directory: Path, name: Any = 0) -> ClientDisk:
    context = InProcessGrid(quadratic_app(Quadratic(), directory), 1).contexts[100]
    context.node_config["partition-id"] = name
    return ClientDisk(directory, context, TRAINING)


def use(disk: ClientDisk, state: ClientState) -> None:
    """What a round does with a state, and that it can be stored and read again."""
    (delta,) = vectors(1, DIM)
    state.outbox.settle(0)
    state.outbox.send(LocalUpdate(delta, 0.0), gf.Moment())
    disk.save(state, METHOD)
    again = disk.load(METHOD, DIM, TRAINING)
    assert (again.incarnation, again.outbox.number) == (state.incarnation, state.outbox.number)


def begin(directory: Path) -> ClientDisk:
    """A client with a residual, an open upload and a model."""
    disk = disk_in(directory)
    with disk.locked(1.0):
        use(disk, disk.load(METHOD, DIM, TRAINING))
        disk.save_model(LAYOUT.flatten(RECORD, "it"), LAYOUT, 3)
    return disk


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept")
    begin(path)
    return path


@pytest.fixture(scope="module")
def folder(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


def copy_of(kept: Path, directory: Path) -> ClientDisk:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(kept, directory)
    return disk_in(directory)


Spoil = Callable[[Any, Any], Any]


def facts_with(**changes: Any) -> Spoil:
    return lambda facts, tensors: ({**facts, **changes}, tensors)


def tensors_with(**changes: Any) -> Spoil:
    return lambda facts, tensors: (facts, {**tensors, **changes})


STATES: dict[str, Spoil] = {
    "a number below zero": facts_with(number=-1),
    "a number of no upload, with one open": facts_with(number=0),
    "a number beyond any": facts_with(number=10**400),
    "an incarnation that is a number": facts_with(incarnation=5),
    "an incarnation that no message can carry": facts_with(incarnation="²"),
    "a round in words": facts_with(round="x"),
    "an address in words": facts_with(address="x"),
    "a time before all times": facts_with(sent_at=-1e308),
    "a time that is none": facts_with(sent_at=float("nan")),
    "a debt that is none": facts_with(owed_bytes=-1.0),
    "a method that is a list": facts_with(method=[1]),
    "a training that is none": facts_with(training=None),
    "no facts": lambda facts, tensors: ({}, tensors),
    "a short residual": tensors_with(residual=np.zeros(9, np.float32)),
    "a residual of bytes": tensors_with(residual=np.zeros(DIM, np.uint8)),
    "a matrix": tensors_with(residual=np.zeros((5, 10), np.float32)),
    "a residual that is not finite": tensors_with(residual=np.full(DIM, np.nan, np.float32)),
    "no residual": lambda facts, tensors: (facts, {"open": tensors["open"]}),
    "an upload that is no message": tensors_with(open=np.zeros(30, np.uint8)),
    "an upload of another model": tensors_with(open=np.frombuffer(gf.encode(METHOD(np.ones(9, np.float32))), np.uint8)),
    "an upload of numbers": tensors_with(open=np.ones(9, np.float32)),
    "more than there is": tensors_with(more=np.ones(9, np.float32)),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_nonsense_is_put_aside_with_a_warning_and_the_client_starts_clean(
    name: str, kept: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = copy_of(kept, tmp_path / "state")
    forge(disk.state_file, *STATES[name](*tensor_files.read(disk.state_file)))
    with disk.locked(1.0):
        state = disk.load(METHOD, DIM, TRAINING)
        assert (state.round, state.outbox.number, state.outbox.memory.state()["residual"].any()) == (0, 0, False)
        use(disk, state)
    assert len(list(disk.state_file.parent.glob("0.damaged-*"))) == 1
    assert ["moved to" in record.message and one_line(record.message) for record in caplog.records] == [True]


@pytest.mark.parametrize("kind", ["a pipe", "a directory", "a device that never ends", "a socket"])
def test_a_state_that_is_no_file_is_put_aside_and_not_waited_for(kind: str, kept: Path, tmp_path: Path) -> None:
    disk = copy_of(kept, tmp_path / "state")
    put(kind, disk.state_file)
    with not_for_ever(), disk.locked(1.0):
        use(disk, disk.load(METHOD, DIM, TRAINING))


@pytest.mark.parametrize("kind", ["a link to itself", "a link to nothing"])
def test_a_state_that_may_come_back_is_not_replaced_by_a_clean_one(kind: str, kept: Path, tmp_path: Path) -> None:
    """A link may lead to a volume that is not there for now."""
    disk = copy_of(kept, tmp_path / "state")
    put(kind, disk.state_file)
    with disk.locked(1.0), pytest.raises(gf.InputError, match=r"can't read .*; this client does not train"):
        disk.load(METHOD, DIM, TRAINING)
    assert disk.state_file.is_symlink()


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_lock_or_a_model_that_is_no_file_is_not_waited_for(kind: str, kept: Path, tmp_path: Path) -> None:
    disk = copy_of(kept, tmp_path / "state")
    put(kind, disk.model_file)
    with not_for_ever():
        assert disk.load_model(0, 9) is None
    put(kind, disk.lock_file)
    try:
        with not_for_ever(), disk.locked(0.0):
            pass
    except gf.InputError as error:
        reason = str(error)
    else:
        reason = "a pipe can be locked as well as a file"
    assert one_line(reason)


@pytest.mark.parametrize("text", ["null", "3", "[]", f'{{"a": {DEEP}}}'], ids=range(4))
def test_facts_that_are_none_are_damage(text: str, kept: Path, tmp_path: Path) -> None:
    disk = copy_of(kept, tmp_path / "state")
    forge_header(disk.state_file, text)
    forge_header(disk.model_file, text)
    assert disk.load_model(0, 9) is None
    with disk.locked(1.0):
        use(disk, disk.load(METHOD, DIM, TRAINING))


def layout_with(**changes: Any) -> Spoil:
    return lambda facts, tensors: ({**facts, "layout": {**facts["layout"], **changes}}, tensors)


MODELS: dict[str, Spoil] = {
    "shapes that are a list": layout_with(shapes=[1]),
    "shapes in words": layout_with(shapes={"0.weight": ["x"]}),
    "a shape below zero": layout_with(shapes={"0.weight": [-4, 3]}),
    "other shapes": layout_with(shapes={"0.weight": [4, 3]}),
    "types that are none": layout_with(types={"0.weight": "object"}),
    "more sent whole than there is": layout_with(whole=1000),
    "names that are not the tensors'": layout_with(names=["x"]),
    "a name twice": lambda facts, tensors: layout_with(names=[*facts["layout"]["names"], "0.bias"])(facts, tensors),
    "a fixed tensor that is not there": layout_with(fixed={"x": ["int64", [], "numpy.ndarray"]}),
    "a fixed tensor of another type": layout_with(fixed={"1.num_batches_tracked": ["int32", [], "numpy.ndarray"]}),
    "a fixed tensor of no type": layout_with(fixed={"1.num_batches_tracked": 3}),
    "a fixed tensor of nonsense": tensors_with(**{"fixed.1.num_batches_tracked": np.zeros(200, np.uint8)}),
    "no layout": facts_with(layout=None),
    "a version in words": facts_with(version="3"),
    "a short model": tensors_with(model=np.zeros(9, np.float32)),
    "a model of bytes": tensors_with(model=np.zeros(LAYOUT.dim, np.uint8)),
    "no model": lambda facts, tensors: (facts, {name: tensors[name] for name in tensors if name != "model"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_nonsense_is_not_built_on(name: str, kept: Path, tmp_path: Path) -> None:
    disk = copy_of(kept, tmp_path / "state")
    assert disk.load_model(3, 3) is not None
    forge(disk.model_file, *MODELS[name](*tensor_files.read(disk.model_file)))
    assert disk.load_model(0, 9) is None


@given(data=st.data())
def test_whatever_is_in_a_state_the_client_can_use_it_or_starts_clean(
    data: st.DataObject, kept: Path, folder: Path
) -> None:
    disk = copy_of(kept, folder / "state")
    facts, tensors = tensor_files.read(disk.state_file)
    forge(disk.state_file, *data.draw(changes(facts, list(tensors), DIM))(facts, tensors))
    with not_for_ever(), disk.locked(1.0):
        state = disk.load(METHOD, DIM, TRAINING)
        try:
            use(disk, state)
        except gf.InputError as error:  # of values that are finite, and too large to add anything to
            reason = str(error)
        else:
            reason = ""
    assert one_line(reason)


@given(data=st.data())
def test_whatever_is_in_a_stored_model_it_is_a_whole_one_or_none(data: st.DataObject, kept: Path, folder: Path) -> None:
    disk = copy_of(kept, folder / "state")
    facts, tensors = tensor_files.read(disk.model_file)
    spoil = data.draw(changes(facts, list(tensors), LAYOUT.dim) | changes(facts["layout"], list(tensors), LAYOUT.dim))
    new_facts, new_tensors = spoil(facts, tensors)
    layout = {key: new_facts.pop(key) for key in facts["layout"] if key in new_facts}
    if isinstance(new_facts.get("layout"), dict):
        new_facts["layout"] = {**new_facts["layout"], **layout}
    forge(disk.model_file, new_facts, new_tensors)
    with not_for_ever():
        found = disk.load_model(0, 2**70)
    if found is not None:
        _, model, made = found
        again = made.flatten(made.record(model), "it")
        np.testing.assert_array_equal(again, made.rounded(model))
        made.record(model).to_torch_state_dict()


@pytest.mark.parametrize("name", ["²", "١", "é", ".", "..", ".hidden", "", "a/b", "a b", "a\n", "x" * 101, "x" * 5000])
def test_a_name_that_is_no_plain_word_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="partition-id must be") as caught:
        disk_in(tmp_path, name)
    assert one_line(str(caught.value))


def test_no_two_names_share_a_file(tmp_path: Path) -> None:
    """Also if one name is what another one's files are called."""
    names = ["0", "0.state", "0.state.part", "0.part", "0.lock", "0.model", "0.damaged-1234", "a:b", "x" * 100]
    files = []
    for name in names:
        disk = disk_in(tmp_path, name)
        with disk.locked(1.0):
            before = set((disk.state_file.parent).iterdir()) - {disk.lock_file}
            disk.state_file.write_bytes(b"nonsense")
            use(disk, disk.load(METHOD, DIM, TRAINING))
            disk.save_model(LAYOUT.flatten(RECORD, "it"), LAYOUT, 3)
            files += sorted(set((disk.state_file.parent).iterdir()) - before)
    assert len(files) == len(set(files)) == 4 * len(names)


def test_a_client_whose_state_was_forged_takes_part_in_the_same_round(tmp_path: Path) -> None:
    chosen = strategy(method=METHOD, fraction_train=1.0)
    with by_hand(chosen, InProcessGrid(quadratic_app(Quadratic((10, 20)), tmp_path), 2), 4) as play:
        for number in range(1, 5):
            play(number)
            for file in tmp_path.rglob("*.state") if number == 2 else ():
                facts, tensors = tensor_files.read(file)
                forge(file, {**facts, "number": -1}, tensors)
    assert [record["failed"] for record in chosen.history] == [0, 0, 0, 0]
    assert all(len(record["clients"]) == 2 for record in chosen.history)
