"""Functions in a user's own file, named `file.py:function`, that make a method or a task."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gammafl.core.errors import InputError, require


def is_file(name: str) -> bool:
    """Whether `name` has the form `file.py:function`."""
    return ".py:" in name


def function_in_file(name: str) -> Callable[..., Any]:
    """The function with this name."""
    function = getattr(module_of(name), name.partition(".py:")[2], None)
    if not callable(function):
        raise InputError(f"{name}: the file has no function of that name")
    return function


def digest_of(name: str) -> str:
    """A digest of the file. A run with another version of the file is another run."""
    return hashlib.sha256(_path(name).read_bytes()).hexdigest()


def module_of(name: str) -> ModuleType:
    """The module of the file, which is imported only once."""
    path = _path(name)
    if (known := sys.modules.get(_module_name(path))) is not None:
        return known
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.append(str(path.parent))  # so the file can import modules of its own directory
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[spec.name]
        if isinstance(error, SyntaxError):
            raise InputError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
        if isinstance(error, ImportError):
            raise InputError(f"{path} can't be imported: {error}") from None
        raise
    return module


def _path(name: str) -> Path:
    path = Path(name.partition(".py:")[0] + ".py").resolve()
    require(path.is_file(), f"there is no file {path} for {name}")
    return path


def _module_name(path: Path) -> str:
    return f"gammafl_own_{path.stem}_{abs(hash(str(path)))}"
