"""A random state of torch for one thread.

torch has one random state that all threads draw from, so two clients with dropout at a time would get each other's
numbers. Here a thread gets its own the way torch's `vmap` does it: by a dispatch key that counts in this thread alone,
where the operations that take a generator have a kernel, which gives them one. All others fall through it at no cost.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

KEY = "TESTING_ONLY_GenericMode"
"""Nothing of torch's own is at this key."""


class _Thread(threading.local):
    """This thread's generator; none: it draws from torch's one state."""

    generator: torch.Generator | None = None


class _State:
    """In place of `torch.random.default_generator`, by which `torch.get_rng_state`, `torch.manual_seed`, … work."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_thread.generator or torch.default_generator, name)


_random: Any = torch.random
_thread, _state = _Thread(), _State()
_lock, _inside = threading.Lock(), 0


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Whatever this thread would draw from torch's state, it draws from `generator`: the numbers are the same.

    It is this thread's state for torch's functions too, so that what saves and restores the state, as
    `torch.utils.checkpoint` does, works. A generator of somebody's own is used as ever, and so is a device's state.
    """
    _count(1)
    before, _thread.generator = _thread.generator, generator
    try:
        with torch._C._IncludeDispatchKeyGuard(_key):
            yield
    finally:
        _thread.generator = before
        _count(-1)


def _count(change: int) -> None:
    """While anybody is inside, `_state` is in its place."""
    global _inside
    with _lock:
        _inside += change
        _random.default_generator = _state if _inside else torch.default_generator


def _kernel(operation: Any, names: list[str]) -> Callable[..., Any]:
    shared: Any = torch.default_generator

    def with_own_generator(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        generator = given.get("generator")
        if (generator is None or generator._cdata == shared._cdata) and not _draws_on_a_device(given):
            given["generator"] = _thread.generator
        with torch._C._ExcludeDispatchKeyGuard(_keys):
            return operation(**given)

    return with_own_generator


def _draws_on_a_device(given: dict[str, Any]) -> bool:
    """Whether the numbers are drawn elsewhere than on the CPU: a device has a state of its own, and takes no other."""
    device = given.get("device") or next((part.device for part in given.values() if hasattr(part, "device")), "cpu")
    return torch.device(device).type != "cpu"


def _register() -> list[torch.library.Library]:
    """The kernels; they are there as long as the libraries are."""
    rest: Any = torch.library.Library("_", "IMPL", KEY)
    rest.m.fallback_fallthrough()
    draws = torch.library.Library("aten", "IMPL", KEY)
    for name, overload in (name.partition(".")[::2] for name in torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::"):
            names = [argument.name for argument in torch._C._get_schema(name, overload).arguments]
            if "generator" in names:
                packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
                operation = getattr(packet, overload or "default")
                draws.impl(operation, _kernel(operation, names))
    return [rest, draws]


_key = torch._C._dispatch_key_parse(KEY)
_keys = torch._C.DispatchKeySet(_key)
_libraries = _register()
