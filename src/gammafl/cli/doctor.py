"""`gammafl doctor`: facts about this machine, to read or to paste into an issue."""

import json
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Annotated, Any

import typer

from gammafl.core.errors import InputError

PURPOSES = {
    "train": "train: run, compare, study, pareto, gf.simulate",
    "report": "draw charts, write report pages",
    "flower": "Flower apps: gf.flower",
    "gpt2": "the GPT-2 tasks",
    "privacy": "account for differential privacy",
    "triton": "one fused pass on NVIDIA devices, where there are any",
}
"""Extra → what it is for. Other extras are shown by their name."""

VARIABLES = ("GAMMAFL_CACHE", "GAMMAFL_STATE", "NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT", "OMP_NUM_THREADS")
Facts = dict[str, Any]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain text, to paste into an issue.")] = False,
) -> None:
    """Show versions, devices, directories, and which packages are missing for which feature. Nothing is sent."""
    facts = examination()
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
    elif plain or not sys.stdout.isatty():
        print(_plain(facts))
    else:
        from gammafl.report.tables import TextTable

        for title, found in facts.items():
            rows = [[name, _words(value)] for name, value in found.items()]
            TextTable(title, ["what", "found"], rows, prose=True).print()


def examination() -> dict[str, Facts]:
    """Group → facts. The user's home directory is shown as ~; of the environment, only `VARIABLES` are shown."""
    return {
        "versions": _versions(),
        "machine": _machine(),
        "features": _features(),
        "directories": _directories(),
        "environment": {name: _shown(os.environ[name]) for name in VARIABLES if name in os.environ},
    }


def _plain(facts: dict[str, Facts]) -> str:
    parts = [[title, *(f"  {name}: {_words(value)}" for name, value in rows.items())] for title, rows in facts.items()]
    return "\n".join(line for part in parts if len(part) > 1 for line in part)


def _words(value: Any) -> str:
    from gammafl.federated.units import show_bytes

    if isinstance(value, dict):
        size = f", {show_bytes(value['bytes'])}" if "bytes" in value else ""
        return f"{value['text']}{size}"
    return str(value)


def _shown(path: Path | str) -> str:
    """The path with ~ for the home directory."""
    text, home = str(path), str(Path.home())
    return text if home == "/" else re.sub(rf"{re.escape(home)}(?=$|[/\\:])", "~", text)


def _requirements() -> dict[str, list[str]]:
    """Extra → its packages; "" → those without an extra. Empty if gammafl is not installed as a package."""
    found: dict[str, list[str]] = {}
    try:
        lines = distribution("gammafl").requires or []
    except PackageNotFoundError:
        return found
    for line in lines:
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"](.+?)['\"]", line)
        if name and name[0] != "gammafl":
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _versions() -> Facts:
    import gammafl

    wanted = [name for extra, names in _requirements().items() if extra != "dev" for name in names]
    found = {name: number for name in dict.fromkeys(wanted) if (number := _version(name))}
    return {"gammafl": gammafl.__version__, "python": platform.python_version(), **found}


def _machine() -> Facts:
    import llvmlite.binding

    from gammafl.core import threads

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.platform(),
        "processor": f"{llvmlite.binding.get_host_cpu_name()}, {platform.machine()}",
        "cores": f"{os.cpu_count()}, of which this process may use {usable}",
        "threads of gammafl": threads.count(),
        **_torch(),
    }


def _torch() -> Facts:
    """Devices and threads of torch; or why an installed torch can't be imported."""
    if _version("torch") is None:
        return {"devices": "cpu"}
    try:
        import torch
    except Exception as error:  # a library is missing, or made for another processor
        return {"devices": f"cpu; torch can't be imported: {type(error).__name__}: {_shown(str(error))}"}
    devices = ["cpu", *(f"cuda: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count()))]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    return {"threads of torch": torch.get_num_threads(), "devices": ", ".join(devices)}


def _features() -> Facts:
    """Extra → its missing packages, with the command that installs them."""
    found = {}
    for extra, packages in _requirements().items():
        missing = [name for name in packages if _version(name) is None]
        if extra not in ("", "dev"):
            text = f"missing: {', '.join(missing)}; pip install 'gammafl[{extra}]'" if missing else "yes"
            found[PURPOSES.get(extra, extra)] = text
    return found or {"extras": "not known: gammafl is not installed as a package"}


def _directories() -> Facts:
    from gammafl.core.golomb import plan
    from gammafl.tasks.data.files import cache_directory

    code = getattr(getattr(plan, "stats", None), "cache_path", None)
    return {
        "data sets": _directory(cache_directory()),
        **_states(),
        "compiled loops": _loops(Path(code)) if code else "not kept: every start compiles them",
    }


def _states() -> Facts:
    try:
        from gammafl.flower.states import simulation_directory, state_directory
    except ImportError:  # without Flower there are none
        return {}
    found: Facts = {"states of Flower clients": _directory(state_directory())}
    try:
        found["states of simulated clients"] = _directory(simulation_directory())
    except InputError as error:  # the directory belongs to another user
        found["states of simulated clients"] = _shown(str(error))
    return found


def _loops(path: Path) -> Facts:
    found = _directory(path, "*.nb?")
    return found if found["bytes"] else {**found, "text": f"{found['path']}, none yet: the first use compiles them"}


def _directory(path: Path, pattern: str = "*") -> Facts:
    sizes = []
    for file in path.rglob(pattern):
        try:
            sizes.append(file.stat().st_size if file.is_file() else 0)
        except OSError:  # another process has removed it
            continue
    missing = "" if path.exists() else ", not made yet"
    return {"text": f"{_shown(path)}{missing}", "path": _shown(path), "bytes": sum(sizes)}
