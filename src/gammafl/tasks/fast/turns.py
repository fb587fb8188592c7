"""The order in which threads take the clients of a round."""

from typing import NamedTuple


class Turn(NamedTuple):
    """Some of the local steps of a client, which one thread makes."""

    client: int
    steps: range


def turns(clients: int, steps: int, threads: int) -> list[Turn]:
    """What a thread takes next when it is free, from first to last.

    Five clients on two threads would take as long as six. So if the last wave of clients fills at most half of the
    threads, their steps are split in two: the first half runs before the last full wave, the second half after it.
    A client's turns never overlap, and nothing that it computes depends on them.
    """
    odd, half = clients % threads, steps // 2
    if clients < threads or not 0 < odd <= threads // 2 or half == 0:
        return [Turn(client, range(steps)) for client in range(clients)]
    filled = clients - odd
    early, filling, last = range(filled - threads), range(filled - threads, filled), range(filled, clients)
    return [
        *(Turn(client, range(steps)) for client in early),
        *(Turn(client, range(half)) for client in last),
        *(Turn(client, range(steps)) for client in filling),
        *(Turn(client, range(half, steps)) for client in last),
    ]
