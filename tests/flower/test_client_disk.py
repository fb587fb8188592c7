"""A client's disk that goes, comes back, is full, damaged or shared: what it holds counts once, or a warning tells."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from gammafl.files import tensor_files
from gammafl.flower.disk import ClientDisk
from tests.flower.books import check_books, computed, remembered
from tests.flower.grid import InProcessGrid, folder, state_files
from tests.flower.problem import by_hand, quadratic_app, run, strategy
from tests.problems import METHODS, Quadratic
from tests.runs.test_private_files import every_umask, mode, open_to_others, watched

METHOD = METHODS["top-k"]


def rounds_of(
    task: Quadratic, directory: Path, count: int, each: Any = lambda number: None, **settings: Any
) -> gammafl.flower.CompressedFedAvg:
    """`count` rounds, with `each(number)` before every one."""
    grid = InProcessGrid(quadratic_app(task, directory), 2)
    chosen = strategy(**{"method": gf.TopK(3), "fraction_train": 1.0} | settings)
    with by_hand(chosen, grid, count) as play:
        for number in range(1, count + 1):
            each(number)
            play(number)
    return chosen


def test_a_disk_that_goes_and_comes_back_counts_nothing_twice(tmp_path: Path, applied: dict[str, Vector]) -> None:
    """Client 0's volume is not there in round 2: its upload of round 1 was accepted, whoever answered since."""
    task, away = Quadratic((10, 20)), tmp_path / "0.away"

    def move(number: int) -> None:
        if number == 1:
            return
        home = folder(tmp_path) / "0.state"
        if number == 2:
            home.rename(away)
        if number == 3:
            home.rename(tmp_path / "meanwhile")
            away.rename(home)

    chosen = rounds_of(task, tmp_path, 5, move, method=gf.Dense())
    np.testing.assert_allclose(applied["0"] + remembered(tmp_path, chosen)["0"], computed(task, "0"), atol=1e-5)


def test_a_state_that_was_put_back_from_a_copy_starts_clean(
    tmp_path: Path, applied: dict[str, Vector], caplog: pytest.LogCaptureFixture
) -> None:
    """What the old residual held was sent since: sending it again would count it twice."""
    task, copy = Quadratic((10, 20)), tmp_path / "copy"
    before: list[Vector] = []

    def restore(number: int) -> None:
        if number == 3:
            shutil.copy(folder(tmp_path) / "0.state", copy)
        if number == 6:
            before.append(applied["0"].copy())
            shutil.copy(copy, folder(tmp_path) / "0.state")
            task.deltas.clear()

    chosen = rounds_of(task, tmp_path, 8, restore)
    assert "client 0 starts clean: its stored state is an old one" in caplog.text
    since = applied["0"] - before[0] + remembered(tmp_path, chosen)["0"]
    np.testing.assert_allclose(since, computed(task, "0"), atol=1e-5)


def test_states_that_lie_under_each_others_names_count_nothing_twice(
    tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """As after partitions were numbered anew: what the server has of a state it has whatever that is called."""
    task, aside = Quadratic((10, 20)), tmp_path / "aside"

    def swap(number: int) -> None:
        if number == 3:
            one, other = (folder(tmp_path) / f"{client}.state" for client in "01")
            one.rename(aside)
            other.rename(one)
            aside.rename(other)

    chosen = rounds_of(task, tmp_path, 6, swap)
    assert len(chosen.history[2]["clients"]) == 0
    everything = sum(applied.values()) + sum(remembered(tmp_path, chosen).values())
    np.testing.assert_allclose(everything, computed(task, "0") + computed(task, "1"), atol=1e-5)


@pytest.mark.parametrize("method", ["qsgd", "terngrad", "drive"])
def test_a_client_without_a_residual_knows_its_open_upload_again(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such methods remember nothing but what did not count: that is sent with the next upload."""
    lost, task = iter([None]), Quadratic((10, 20))
    chosen, _, _ = run(tmp_path, 4, task, lambda message, reply: next(lost, reply), method=method, fraction_train=1.0)
    assert "can't be used" not in caplog.text
    assert len(state_files(tmp_path)) == len(list(folder(tmp_path).glob("*.state*"))) == 2
    assert "upload 1 of client 0 (round 1) did not count; its update is sent with the next ones" in caplog.text
    assert len(chosen.training.exchange.receipts.table()["last"]) == 2


def test_a_file_that_can_not_be_read_for_now_is_kept(
    tmp_path: Path, applied: dict[str, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, a disk that stumbles: the client sits the round out."""
    task, read = Quadratic((10, 20)), tensor_files.read

    def stumble(number: int) -> None:
        def fails(path: Path) -> Any:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(tensor_files, "read", fails if number == 3 else read)

    chosen = rounds_of(task, tmp_path, 5, stumble)
    assert [record["failed"] for record in chosen.history] == [0, 0, 2, 0, 0]
    check_books(task, tmp_path, chosen, applied, "01")


def test_without_room_on_the_disk_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = Quadratic((10, 20))
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert rounds_of(task, tmp_path, 1).history[0]["failed"] == 2
    assert not task.deltas
    assert "make room" in caplog.text


@pytest.mark.parametrize(("number", "advice"), [(errno.ENOSPC, "make room"), (errno.EROFS, "make it writable")])
def test_a_disk_that_fills_up_meanwhile_is_told_from_one_that_can_not_be_written(
    number: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(path: Path, tensors: Any, facts: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tensor_files, "replace", fails)
    assert rounds_of(Quadratic((10, 20)), tmp_path, 1).history[0]["failed"] == 2
    assert f"{advice}, then it takes part again; its training of this round is lost" in caplog.text


def test_a_directory_that_can_not_be_written_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(gf.InputError, match="every client failed"):
        run(tmp_path / "file", 1, method=METHOD, fraction_train=1.0)
    assert "GAMMAFL_STATE" in caplog.text


def test_a_client_waits_for_one_that_still_trains_and_gives_up_with_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a SuperNode was killed and its training process was not."""
    context = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 1).contexts[100]
    with (
        ClientDisk(tmp_path, context, "t").locked(1.0),
        pytest.raises(gf.InputError, match="still trains as client 0"),
        ClientDisk(tmp_path, context, "t").locked(0.0),
    ):
        pass
    with ClientDisk(tmp_path, context, "t").locked(0.0):
        pass
    assert "waiting for it" in caplog.text


def test_a_client_that_lost_its_disk_starts_clean_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fate(message: Message, reply: Message) -> Message:
        if message.content["config"]["server-round"] == 3 and message.metadata.dst_node_id == 101:
            shutil.rmtree(folder(tmp_path))
        return reply

    chosen, _, _ = run(tmp_path, 6, Quadratic((10, 20)), fate, method=gf.TopK(3), fraction_train=1.0)
    assert all(len(record["clients"]) == 2 for record in chosen.history)
    for side in ("it took part in this run before", "lost its stored state"):
        said = [record.message for record in caplog.records if side in record.message]
        assert sorted(text.split("client ")[1][0] for text in said) == ["0", "1"]


def test_a_damaged_state_is_put_aside_and_the_client_starts_clean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fate(message: Message, reply: Message) -> Message:
        if message.content["config"]["server-round"] == 2 and message.metadata.dst_node_id == 101:
            for path in state_files(tmp_path):
                content = bytearray(path.read_bytes())
                content[-1] ^= 1
                path.write_bytes(content)
        return reply

    run(tmp_path, 4, Quadratic((10, 20)), fate, method=gf.TopK(3), fraction_train=1.0)
    assert "checksum differs" in caplog.text
    assert len(list(tmp_path.rglob("*.damaged-*"))) == 2
    assert len(state_files(tmp_path)) == 2


def test_runs_and_partitions_do_not_share_state(tmp_path: Path) -> None:
    run(tmp_path, 2, method=gf.TopK(3), fraction_train=1.0)
    assert [str(path.relative_to(tmp_path)) for path in state_files(tmp_path)] == [
        f"{folder(tmp_path).name}/{partition}.state" for partition in range(4)
    ]


def test_a_residual_that_is_too_old_is_forgotten_if_one_asks_for_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path, forget_after=2), 2)
    chosen = strategy(method=gf.TopK(3), fraction_train=1.0)
    with by_hand(chosen, grid, 6) as play:
        for number in range(1, 7):
            grid.reached = {101} if number in (3, 4, 5) else {100, 101}
            play(number)
    assert [r.message for r in caplog.records if "missed" in r.message] == [
        "gammafl: client 0 starts clean: it missed 3 rounds"
    ]
    assert "its state is not in" not in caplog.text
    last = next(delta for client, delta in reversed(task.deltas) if client == 0)
    tensors = tensor_files.read(folder(tmp_path) / "0.state")[1]
    np.testing.assert_allclose(tensors["residual"] + gf.decode(tensors["open"].tobytes()).dense(), last, atol=1e-5)


@every_umask
def test_what_a_client_keeps_is_private_from_the_first_instant(umask: int, tmp_path: Path) -> None:
    with watched(umask, tmp_path / "state") as seen:
        run(tmp_path / "state", 3, Quadratic((10, 20)), method=METHOD, fraction_train=1.0, downlink="changes")
    kinds = ("state", "model", "state.part", "model.part", "lock")
    assert seen == {folder(tmp_path / "state").name, *(f"{client}.{kind}" for client in (0, 1) for kind in kinds)}


def test_a_folder_that_was_open_is_closed_and_the_directory_that_was_given_stays_as_it_is(tmp_path: Path) -> None:
    given, open_folder = tmp_path / "given", tmp_path / "given" / "training-t"
    open_folder.mkdir(parents=True)
    for path in (given, open_folder):
        path.chmod(0o755)
    (open_folder / "0.state.part").write_bytes(b"left by a process that was killed")
    (open_folder / "0.state.part").chmod(0o644)
    context = InProcessGrid(quadratic_app(Quadratic(), given), 1).contexts[100]
    disk = ClientDisk(given, context, "t")
    with disk.locked(1.0):
        disk.save(disk.load(METHOD, 50, "t"), METHOD)
    assert mode(given) == 0o755
    assert not open_to_others(open_folder)
