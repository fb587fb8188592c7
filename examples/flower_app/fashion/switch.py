"""For the comparison only: the same app with and without compression, by the run's setting `compress`."""

from collections.abc import Callable

from flwr.app import Context, Message

Next = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Next], Message]


def if_compressing(mod: Mod) -> Mod:
    def switched(message: Message, context: Context, call_next: Next) -> Message:
        return mod(message, context, call_next) if context.run_config["compress"] else call_next(message, context)

    return switched
