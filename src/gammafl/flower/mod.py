"""A mod for clients: it sends a compressed update instead of the model that the train function returns."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from gammafl.core.errors import GammaflError, InputError, require
from gammafl.core.method import Method
from gammafl.flower import states
from gammafl.flower.client import Exchange, Train
from gammafl.flower.disk import ClientDisk, Residuals
from gammafl.flower.messages import KEY, Notice, Offer, difference, kind_of, notice_in
from gammafl.flower.states import simulation_directory, state_directory
from gammafl.methods.description import build, describe, own_entries
from gammafl.methods.registry import Entry, resolve

LOG = logging.getLogger("flwr")

Mod = Callable[[Message, Context, Train], Message]


def compress(
    state_dir: str | os.PathLike[str] | None = None,
    *,
    method: Method | None = None,
    methods: Sequence[Callable[..., Any]] = (),
    forget_after: int | None = None,
    state_days: float | None = 30.0,
    state_bytes: int | None = None,
    residuals: Residuals = "f32",
) -> Mod:
    """The first mod for `ClientApp(mods=[compress()])`. The server's strategy must be inside `Compressed`.

    state_dir      where the client stores its residual, and uploads that are not confirmed yet. By default
                   $GAMMAFL_STATE, or the user's directory for state; in Flower's simulation a temporary directory
    method         the method that this client expects. The server chooses the method; if it chooses another one, the
                   client does not train
    methods        functions that make your own methods, the same as on the server. Not needed for methods of gammafl
                   and of installed packages that register theirs
    forget_after   a client that missed more rounds than this drops its residual, which belongs to an old model
    state_days     a state is removed at the end of its training. If the client missed the end: after this number of
                   days without a change
    state_bytes    if all states together need more, the oldest of other trainings are removed
    residuals      "bf16" stores residuals in half the bytes, rounded at random: see docs/deploy.md

    Returns the mod, for the first place in `mods`.

    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[compress()])
    """
    own = None if method is None else describe(resolve(method))
    entries = own_entries(methods)
    require(forget_after is None or forget_after >= 1, f"forget_after must be at least 1 round, got {forget_after}")
    require(residuals in get_args(Residuals), f"residuals must be 'f32' or 'bf16', got {residuals!r}")
    require(state_days is None or state_days > 0, f"state_days must be positive, got {state_days}")

    def directory(simulated: bool) -> Path:
        if state_dir is not None:
            return Path(state_dir)
        return simulation_directory() if simulated and "GAMMAFL_STATE" not in os.environ else state_directory()

    def mod(message: Message, context: Context, call_next: Train) -> Message:
        try:
            if (notice := notice_in(message.content)) is not None:
                return _obey(notice, directory(notice.simulated), message, context, call_next)
            offer = Offer.read(message.content)
            kind = kind_of(message)
            if offer is None:
                require(kind != MessageType.TRAIN, LEGACY if _is_legacy(message) else NOT_OFFERED)
                return call_next(message, context)
            _agree(own, offer, entries)
            place = directory(offer.simulated)
            disk = ClientDisk(place, context, offer.training, residuals)
            if disk.is_new:
                _clean(place, state_days, state_bytes, offer.training)
            with disk.locked(message.metadata.ttl):
                exchange = Exchange(message, context, offer, disk, forget_after, entries)
                return exchange.train(call_next) if kind == MessageType.TRAIN else exchange.evaluate(call_next)
        except GammaflError as error:
            LOG.error("gammafl: %s", error)
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, f"gammafl: {error}"), reply_to=message)

    return mod


NOT_OFFERED = (
    "the server does not expect compressed updates: wrap its strategy in gammafl.flower.Compressed(strategy, …), or"
    " remove gammafl.flower.compress() from the client's mods"
)
LEGACY = (
    "this app is written with Flower's old API (NumPyClient, server_fn), which can't be compressed: write it with"
    " @app.train() and @app.main(), as Flower's guide 'Upgrade to Message API' shows, or remove"
    " gammafl.flower.compress() from the client's mods"
)


def _is_legacy(message: Message) -> bool:
    return any(key.startswith("fitins.") for key in message.content)


def _obey(notice: Notice, directory: Path, message: Message, context: Context, call_next: Train) -> Message:
    """Follows a notice: trains without compression, or removes the state because the training is over."""
    if notice.notice == "off":
        del message.content[KEY]
        return call_next(message, context)
    if notice.training is not None:
        ClientDisk(directory, context, notice.training).forget(message.metadata.ttl)
    return Message(RecordDict(), reply_to=message)


def _clean(directory: Path, days: float | None, most_bytes: int | None, training: str) -> None:
    try:
        gone = states.clean(directory, days, most_bytes, spare=training)
    except OSError as error:
        LOG.warning("gammafl: old states in %s could not be removed: %s", directory, error)
        return
    if gone:
        LOG.info("gammafl: states of %d earlier trainings removed from %s", len(gone), directory)


def _agree(own: str | None, offer: Offer, entries: Mapping[str, Entry]) -> None:
    if own is not None and own != describe(build(offer.method, entries)):
        raise InputError(f"client and server disagree on the method: {difference(own, offer.method)}")
