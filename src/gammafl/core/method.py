"""A method: a compressor, a memory and a rounding of values under one name. Clients and server use the same method."""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.device.vectors import is_on_device, on_host, vector_on, zeros_like
from gammafl.core.errors import InputError, require
from gammafl.core.inputs import floats_of
from gammafl.core.levels import Level
from gammafl.core.memory import ErrorFeedback, Memory
from gammafl.core.moment import Moment, Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.core.values import Exact, Values

Setting = str | int | float | bool | None
"""A hyperparameter as a user types it."""

PACKAGE = __name__.partition(".")[0]

ROUNDING = 2.0**-20
"""The allowed difference of sent + rest and the vector, relative to all three: a few roundings of float32."""


@dataclass(frozen=True)
class Method:
    """A method of compression: compressor × memory × values.

    compressor   which entries are sent, such as gf.TopK(100)
    memory       what happens to the rest; by default gf.ErrorFeedback()
    values       how kept values are rounded; by default gf.Exact()
    level        sets the scale of a threshold, or how much it keeps (`core/levels.py`). None: the threshold itself
    name         the name of its factory, or of its compressor
    settings     the arguments of the factory; None if the method was put together by hand

    >>> from gammafl.core.compressors import TopK
    >>> from gammafl.core.values import Ternary
    >>> Method(TopK(100), values=Ternary())
    Method(TopK(k=100, scope='global'), values=Ternary())
    """

    compressor: Compressor
    memory: Memory = field(default_factory=ErrorFeedback)
    values: Values = field(default_factory=Exact)
    level: Level | None = None
    name: str = ""
    settings: tuple[tuple[str, Setting], ...] | None = None

    def __post_init__(self) -> None:
        parts: dict[str, tuple[Any, type[Any]]] = {
            "compressor": (self.compressor, Compressor),
            "memory": (self.memory, Memory),
            "values": (self.values, Values),
        }
        for part, (value, kind) in parts.items():
            hint = f"{value.__name__}; did you forget the ()?" if isinstance(value, type) else repr(value)
            require(isinstance(value, kind), f"the {part} of a method must be a {kind.__name__}, got {hint}")
        require(
            self.level is None or isinstance(self.level, Level),
            f"level must be a level such as gf.UploadLevel(0.01), got {self.level!r}",
        )
        if self.level is not None:
            self.level.check(self.compressor)
        if not self.name:
            object.__setattr__(self, "name", type(self.compressor).__name__)

    def __str__(self) -> str:
        """As a user types it: top-k:keep=0.001,scope=tensor. For a method that was put together by hand, its parts."""
        if self.settings is None:
            return self._parts()
        settings = ",".join(f"{key}={value}" for key, value in self.settings)
        return f"{self.name}:{settings}" if settings else self.name

    def __repr__(self) -> str:
        return f"Method({self._parts()})"

    def _parts(self) -> str:
        """The compressor, and all other parts that are not the default."""
        usual = {"memory": ErrorFeedback(), "values": Exact(), "level": None}
        others = {part: getattr(self, part) for part in usual}
        unusual = [f"{part}={value!r}" for part, value in others.items() if value != usual[part]]
        return ", ".join([repr(self.compressor), *unusual])

    @property
    def factory_made(self) -> bool:
        """Whether a factory made it. Then name and settings describe it completely."""
        return self.settings is not None

    @property
    def leaves_a_rest(self) -> bool:
        """Whether anything is ever left for the memory."""
        return self.compressor.leaves_a_rest or not self.values.exact

    @property
    def proven(self) -> bool:
        """Whether compressor and values belong to this package, where tests prove that sent + rest = vector.

        The messages of such a method are not checked.
        """
        return is_ours(type(self.compressor)) and is_ours(type(self.values))

    def scale(self, dim: int, schedule: Schedule) -> float:
        """The factor of the compressor's threshold, in a run over `schedule` with a model of `dim` elements."""
        return 1.0 if self.level is None else self.level.scale(self.compressor, dim, schedule)

    def step(self, schedule: Schedule, round_number: int, local_steps: int, scale: float) -> float:
        """`Moment.step` of a round. Shifts are used only when the `scale` of the threshold is found."""
        if not self.memory.commits:
            return 1.0
        searching = self.level is not None and self.level.asks(Moment(scale=scale))
        return 0.0 if searching else schedule.step(round_number, local_steps)

    def planned(self, moment: Moment) -> float | None:
        """keep_t: the planned fraction of the entries in an upload at this moment; None if it is not known.

        Tensors that are sent whole are not included.

        >>> from gammafl.core.compressors import Dense
        >>> Method(Dense()).planned(Moment())
        1.0
        """
        if moment.keep is not None and self.compressor.follows_keep:
            return moment.keep
        return self.compressor.planned(moment) if self.level is None else self.level.planned(moment)

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        """residual ← residual + delta, then moves the entries to send out of the residual. Algorithm 1, lines 12-13.

        Tensors that are sent whole are at the end of the vector. They are always sent, and not rounded.
        """
        if self.level is not None:
            moment = self.level.told(moment)
        tail = 0 if moment.layout is None else moment.layout.tail
        if not tail:
            return self._rounded(self.compressor.add_and_take(delta, residual, moment), residual, moment)
        head = residual.size - tail
        exact = self.compressor.add_and_take(delta[:head], residual[:head], moment)
        update = self._rounded(exact, residual[:head], moment)
        whole = on_host(residual[head:]) + on_host(delta[head:])
        residual[head:] = 0
        return update.with_whole(whole)

    def _rounded(self, exact: SparseUpdate, rest: Vector, moment: Moment) -> SparseUpdate:
        """The update with rounded values. The rounding errors return to the rest."""
        if self.values.exact:
            return exact
        if exact.entire and not self.values.sends_zeros:  # zeros have no sign
            kept = np.flatnonzero(exact.values).astype(np.uint32)
            exact = SparseUpdate(exact.dim, kept, exact.values[kept])
        sent = self._sent(exact, moment)
        rest[slice(None) if exact.entire else exact.indices] += exact.values - sent.values
        return sent

    def _sent(self, exact: SparseUpdate, moment: Moment) -> SparseUpdate:
        sizes = self.compressor.parts(exact.dim, moment)
        if is_ours(type(self.values)):
            return self.values.sent(exact, sizes, moment.key)
        name, own = type(self.values).__name__, type(self.values).sent is not Values.sent
        made: Any = self.values.sent(exact, sizes, moment.key) if own else self.values.round(exact, sizes)
        values = made.values if isinstance(made, SparseUpdate) else made
        fits = isinstance(values, np.ndarray) and values.shape == exact.values.shape and values.dtype.kind == "f"
        require(fits, f"{name}.round must return {len(exact)} floats as a numpy vector, one for each value")
        require(bool(np.isfinite(values).all()), f"{name}.round returned values that are not finite")
        if not own:
            return exact.with_values(values)
        right = isinstance(made, SparseUpdate) and made == exact.with_values(values)
        require(right, f"{name}.sent must return the update with other values at the same positions")
        return made

    def rounded(self, exact: SparseUpdate, moment: Moment) -> SparseUpdate:
        """`exact` with rounded values. Values of tensors that are sent whole are not rounded."""
        tail = 0 if moment.layout is None else moment.layout.tail
        split = len(exact) - tail
        part = SparseUpdate(exact.dim - tail, exact.indices[:split], exact.values[:split])
        if not self.values.exact and split:
            part = self._sent(part, moment)
        return part.with_whole(exact.values[split:]) if tail else part

    def __call__(self, vector: Any, moment: Moment | None = None) -> SparseUpdate:
        """The update that would be sent for `vector`: an array, a tensor or a list. It does not change.

        A tensor on a device is compressed there, and only the entries to send are copied to the host. Without a
        moment, it counts as the only upload of a run.
        """
        whole = self.placed(vector, "vector")
        if moment is None:
            moment = Moment(scale=self.scale(max(1, whole.size), Schedule(1.0, iterations=1)))
        rest = whole.copy()
        update = self.add_and_take(zeros_like(rest), rest, moment)
        if not self.proven:
            self.check(whole, update, rest)
        return update

    @property
    def on_device(self) -> bool:
        """Whether the method works on a device, so that only entries to send are copied to the host.

        If all values are sent and rounded, it does not: the whole vector would have to be copied first.
        """
        crosses = self.values.exact or self.compressor.leaves_a_rest
        ours = self.proven and is_ours(type(self.memory))  # other memories may expect numpy vectors
        return self.compressor.on_device and self.memory.on_device and ours and crosses

    def placed(self, vector: Any, name: str) -> Vector:
        """`vector` as floats, in its place. An error if it is on a device and the method can't work there."""
        if not is_on_device(vector):
            return floats_of(vector, name)
        require(self.on_device, f"{self.name} has no form for a device; give it {name}.cpu(), which copies all of it")
        return cast(Vector, vector_on(vector, name))

    def check(self, vector: Vector, update: Any, rest: Vector) -> None:
        """Raises an error unless `update` is well formed and update + rest = `vector`."""
        name = type(self.compressor).__name__
        if not isinstance(update, SparseUpdate):
            raise InputError(
                f"{name}.take must return what it took as gf.SparseUpdate(vector.size, indices, values), got"
                f" {type(update).__name__}"
            )
        size = vector.size
        require(update.dim == size, f"{name}.take returned an update of {update.dim} elements, not {size}")
        ordered = update.entire or bool((update.indices[:-1] < update.indices[1:]).all())
        require(ordered, f"{name}.take returned positions that do not increase; sort them, each once")
        require(bool(np.isfinite(update.values).all()), f"{name}.take returned values that are not finite")
        sent, whole = update.dense().astype(np.float64), vector.astype(np.float64)
        sizes = np.abs(whole) + np.abs(sent) + np.abs(rest)
        wrong = np.flatnonzero(~(np.abs(whole - sent - rest) <= ROUNDING * sizes))
        if wrong.size:
            j = wrong[0]
            if sent[j] == rest[j] == 0:
                raise InputError(
                    f"{name}.take lost what was at position {j}: it returned 0 and left 0 of {whole[j]:g}. Copy what"
                    " you return before you zero it: values = vector[indices].copy()"
                )
            raise InputError(
                f"{name}.take must move what it returns out of the vector: at position {j} it returned {sent[j]:g} and"
                f" left {rest[j]:g} of {whole[j]:g}; write vector[indices] = 0 there, or vector[indices] -= values"
            )
        left = not self.leaves_a_rest and bool(rest.any())
        require(not left, f"{name} says leaves_a_rest = False but left something; remove that line")


def is_ours(kind: type[Any]) -> bool:
    """Whether the class of a method's part belongs to this package."""
    return kind.__module__.partition(".")[0] == PACKAGE


def as_method(value: Any) -> Method:
    """`value` as a method. A compressor becomes a method with that compressor and error feedback."""
    if isinstance(value, Compressor):
        return Method(value)
    if not isinstance(value, Method):
        raise InputError(f"a method is a gf.Method such as gf.top_k(keep=0.01), a compressor or a name; got {value!r}")
    return value
