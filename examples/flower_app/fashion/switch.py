"""Only for the comparison: switches compression on or off by the run's setting `compress`, and measures its time."""

import time
from collections.abc import Callable

from flwr.app import Context, Message

Next = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Next], Message]


def if_compressing(mod: Mod) -> Mod:
    def switched(message: Message, context: Context, call_next: Next) -> Message:
        inside = 0.0

        def timed(message: Message, context: Context) -> Message:
            nonlocal inside
            began = time.perf_counter()
            reply = call_next(message, context)
            inside += time.perf_counter() - began
            return reply

        began = time.perf_counter()
        reply = mod(message, context, timed) if context.run_config["compress"] else timed(message, context)
        if reply.has_content() and "metrics" in reply.content.metric_records:
            reply.content.metric_records["metrics"]["compress_seconds"] = time.perf_counter() - began - inside
        return reply

    return switched
