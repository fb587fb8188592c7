"""A run's directory: config.toml, rounds.jsonl, checkpoint/, and at the end summary.json and the models.

A run that a callback ended has stopped.json instead of summary.json, in the same format. It is removed when the run
continues.

config.toml says which run it is: the settings of `gammafl run`, or the arguments of `gf.simulate`. The file of a user's
own task or method, and a trace of links, are part of the settings: task.sha256, method.sha256 and link.sha256 hold
their digests. run.lock is empty; the process that runs in the directory holds its lock.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from gammafl.config.layers import make_config, read_toml, result_settings, to_toml
from gammafl.config.link_trace import is_trace, read_trace
from gammafl.config.schema import RunConfig
from gammafl.config.simulation import DIGESTS, AnyConfig, SimulationConfig, make_simulation_config
from gammafl.core.errors import InputError
from gammafl.federated.records import RoundRecord, Summary
from gammafl.files import locks
from gammafl.files.atomic import write_atomically
from gammafl.files.disk_errors import storing
from gammafl.files.reading import checked, is_there, require_regular
from gammafl.methods.files import digest_of, is_file

HEADING = "# a run of gammafl, format 2\n"
SIMULATION_HEADING = "# a run of gf.simulate, format 1\n"
"""The first line of the config.toml of `gf.simulate`."""
ARITHMETIC = "# computed by "
"""The beginning of the line in config.toml that says which loops compute, because they decide about rounding."""


class RunDirectory:
    """The files of one run. `claimed` creates the directory; nothing exists before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.ledger_file = path / "rounds.jsonl"
        self.summary_file = path / "summary.json"
        self.stopped_file = path / "stopped.json"
        self.checkpoints = path / "checkpoint"
        self.model_file = path / "model.safetensors"
        self.averaged_model_file = path / "averaged-model.safetensors"
        self.lock_file = path / "run.lock"

    def holds(self, config: AnyConfig) -> bool:
        """Whether the directory has a run of `config`. Another run, or other files, raise an `InputError`.

        It is the same run if all settings on which results depend are the same. config.toml keeps the settings with
        which the run began.
        """
        if not self.config_file.exists():
            files = self.path.iterdir() if self.path.exists() else ()
            if any(path.suffix != ".part" and path != self.lock_file for path in files):
                raise InputError(f"{self.path} is not empty and holds no run; choose another --out")
            return False
        there = self.config()
        if type(there) is not type(config):
            kind = "gf.simulate" if isinstance(there, SimulationConfig) else "gammafl run"
            raise InputError(f"{self.path} holds a run of {kind}; choose another --out")
        if differences := _differences(there, config):
            raise InputError(f"{self.path} holds another run ({', '.join(differences[:3])}); choose another --out")
        for path, name in self._own_files(config).items():
            if not is_there(path):
                continue
            with _reading(path, "remove it"):
                noted = path.read_bytes()
            if noted != file_digest(name):
                raise InputError(
                    f"{name.partition(':')[0]} has changed since the run in {self.path} began; choose another --out,"
                    f" or remove {path} if the file still means the same"
                )
        return True

    def _own_files(self, config: AnyConfig) -> dict[Path, str]:
        """The file of each digest → the user's own file that it belongs to."""
        names = {} if isinstance(config, SimulationConfig) else own_files(config)
        return {self.path / f"{kind}.sha256": name for kind, name in names.items()}

    def config(self) -> AnyConfig:
        """The configuration of the run."""
        with _reading(self.config_file, "choose another --out"):
            table = read_toml(self.config_file)
        text = self.config_file.read_text("utf-8")
        if text.startswith(SIMULATION_HEADING):
            with _reading(self.config_file, "choose another --out"):
                return make_simulation_config(table)
        if not text.startswith(HEADING):
            raise InputError(
                f"the run in {self.path} was written by gammafl 0.1, which had other settings for methods; choose"
                " another --out to run it again, or read it with gammafl 0.1"
            )
        with _reading(self.config_file, "choose another --out"):
            return make_config(table)

    def summary(self) -> Summary | None:
        """The summary of a finished run, else None."""
        if not self.summary_file.exists():
            return None
        with _reading(self.summary_file, "remove it, and run the same command again (`run` with --resume)"):
            return checked(Summary, json.loads(self.summary_file.read_text("utf-8")))

    def _refuse_other(self, arithmetic: str) -> None:
        """Raises an `InputError` if the run began with other arithmetic: its bytes must not depend on interruptions."""
        lines = self.config_file.read_text("utf-8").splitlines()
        noted = [line.removeprefix(ARITHMETIC) for line in lines if line.startswith(ARITHMETIC)]
        if noted and arithmetic and noted[0] != arithmetic:
            raise InputError(
                f"the run in {self.path} was begun by {noted[0]}, and this machine would go on by {arithmetic}, which"
                " rounds differently; go on where it began, or choose another --out"
            )

    @contextmanager
    def claimed(self, config: AnyConfig, arithmetic: str = "") -> Iterator[None]:
        """Holds the directory for a run of `config` by this process alone; `arithmetic` says which loops compute."""
        with storing(self.path, "start the run again"):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = locks.take(
                self.lock_file, f"another process runs in {self.path}; wait for it or choose another --out"
            )
        with lock:
            if not self.holds(config):
                with storing(self.config_file, "start the run again"):
                    for path, name in self._own_files(config).items():
                        write_atomically(path, file_digest(name))
                    heading = SIMULATION_HEADING if isinstance(config, SimulationConfig) else HEADING
                    noted = f"{ARITHMETIC}{arithmetic}\n" if arithmetic else ""
                    write_atomically(self.config_file, (heading + noted + to_toml(config)).encode())
            self._refuse_other(arithmetic)
            yield

    @contextmanager
    def open_ledger(self, keep_bytes: int) -> Iterator["Ledger"]:
        """Opens the ledger for appending. It is cut to `keep_bytes`, because rounds after the checkpoint run again."""
        if self.ledger_file.exists():
            with _reading(self.ledger_file, f"remove {self.path}"):
                pass
        with storing(self.ledger_file):
            stream = self.ledger_file.open("ab", buffering=0)
        with stream:
            if os.fstat(stream.fileno()).st_size < keep_bytes:
                advice = f"remove {self.path} to run it again"
                raise InputError(f"{self.ledger_file} is shorter than its checkpoint says; {advice}")
            stream.truncate(keep_bytes)
            yield Ledger(stream)

    def records(self) -> list[RoundRecord]:
        """The records so far; a line that is still being written is left out."""
        if not self.ledger_file.exists():
            return []
        with (
            _reading(self.ledger_file, f"remove {self.path} to run it again"),
            self.ledger_file.open(encoding="utf-8") as lines,
        ):
            return [checked(RoundRecord, json.loads(line)) for line in lines if line.endswith("\n")]

    def go_on(self) -> None:
        """Removes the summary of a run that a callback ended, because the run continues."""
        with storing(self.stopped_file):
            self.stopped_file.unlink(missing_ok=True)

    def finish(self, summary: Summary) -> None:
        """Writes the summary: as stopped.json if a callback ended the run, which then is not finished."""
        path = self.summary_file if summary.stopped is None else self.stopped_file
        text = json.dumps(summary.table(), indent=2, ensure_ascii=False) + "\n"
        with storing(path):
            write_atomically(path, text.encode())


class Ledger:
    """rounds.jsonl while the run writes it. Others can read its whole lines meanwhile.

    `stream` has no buffer. After a failed write, a buffer would write again when it is closed, and fail again.
    """

    def __init__(self, stream: FileIO) -> None:
        self.stream = stream

    def append(self, record: RoundRecord) -> None:
        line = json.dumps(record.table()).encode() + b"\n"
        with storing(str(self.stream.name)):
            while line:
                line = line[self.stream.write(line) :]

    def sync(self) -> int:
        """Flushes all records to disk. Returns the length of the ledger in bytes."""
        with storing(str(self.stream.name)):
            os.fsync(self.stream.fileno())
        return os.fstat(self.stream.fileno()).st_size


def own_files(config: RunConfig) -> dict[str, str]:
    """The user's own files that a run depends on: "task", "method" or "link" → the file's name."""
    own = {"task": config.task, "method": config.method, "link": config.link or ""}
    return {kind: name for kind, name in own.items() if is_file(name) or is_trace(name)}


def file_digest(name: str) -> bytes:
    """The digest of a user's own file, or of a trace of links."""
    return (read_trace(Path(name)).digest if is_trace(name) else digest_of(name)).encode()


@contextmanager
def _reading(path: Path, advice: str) -> Iterator[None]:
    """Turns an error about the content of `path` into an `InputError` that names the file and the fix."""
    try:
        require_regular(path)
        yield
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); {advice}") from None


def free_directory(parent: Path, name: str) -> Path:
    """The first of `parent/name`, `parent/name-2`, `parent/name-3`, … that does not exist."""
    return next(path for path in _numbered(parent, name) if not path.exists())


def latest_directory(parent: Path, name: str) -> Path:
    """The last of `parent/name`, `parent/name-2`, … that exists; `parent/name` if none does."""
    latest = parent / name
    for path in _numbered(parent, name):
        if not path.exists():
            return latest
        latest = path
    raise AssertionError("unreachable")


def _numbered(parent: Path, name: str) -> Iterator[Path]:
    yield parent / name
    number = 2
    while True:
        yield parent / f"{name}-{number}"
        number += 1


def _differences(here: AnyConfig, wanted: AnyConfig) -> list[str]:
    """The differences in words. Values are compared by repr: k = 1 (an entry) and k = 1.0 (all) are equal to ==."""
    ours, theirs = result_settings(here), result_settings(wanted)
    keys = [key for key in sorted(ours.keys() | theirs.keys()) if repr(ours.get(key)) != repr(theirs.get(key))]
    plain = [f"{key} = {ours.get(key)} there, {theirs.get(key)} asked for" for key in keys if key not in DIGESTS]
    return plain or [DIGESTS[key] for key in keys]
