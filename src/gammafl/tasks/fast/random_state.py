"""A random state of torch for one thread.

In torch, all threads draw from one random state. Two clients with dropout at the same time would get each other's
numbers. Here a thread gets its own state, in the way of torch's `vmap`: with a dispatch key that is active only in this
thread. At this key, operations that take a generator have a kernel, which gives them one. All others pass at no cost.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

KEY = "TESTING_ONLY_GenericMode"
"""A dispatch key that torch itself does not use."""


class _Thread(threading.local):
    """This thread's generator. None: it draws from torch's common state."""

    generator: torch.Generator | None = None


class _State:
    """Replaces `torch.random.default_generator`, which `torch.get_rng_state`, `torch.manual_seed`, … use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_thread.generator or torch.default_generator, name)


_random: Any = torch.random
_thread, _state = _Thread(), _State()
_lock, _inside = threading.Lock(), 0


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """While it lasts, this thread draws from `generator` instead of torch's state.

    torch's functions also use it as this thread's state, so that code that saves and restores the state works, such as
    `torch.utils.checkpoint`. Generators that are given explicitly, and states of devices, are used as usual.
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
    """Installs `_state` while any thread is inside `drawing_from`."""
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
    """Whether a device draws the numbers. It has its own state and can't use another one."""
    device = given.get("device") or next((part.device for part in given.values() if hasattr(part, "device")), "cpu")
    return torch.device(device).type != "cpu"


def _register() -> list[torch.library.Library]:
    """Registers the kernels. They exist as long as the returned libraries."""
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
