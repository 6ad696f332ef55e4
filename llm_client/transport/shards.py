"""Several small clients in the place of a large one.

A connection pool looks at every one of its connections for every request, several times: at 500 connections that is
more work than all the rest. So requests go to the first client that has room, and a client more is made when none has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

# Requests at a time per client. One more client costs 0.2 ms once; one more connection costs 10 to 30 us per request.
SIZE: Final = 16

# An HTTP/2 connection carries about a hundred requests; sharing it is its purpose.
SIZE_MULTIPLEXED: Final = 100


class Shard:
    """One client and how busy it is."""

    __slots__ = ("active", "client", "used")

    def __init__(self, client: Any) -> None:
        """Begin with nothing to do."""
        self.client = client
        self.active = 0
        self.used = 0.0


class Shards:
    """The clients of one kind. Thread-safe; not for finalizers.

    Args:
        make: makes one more client.
        size: requests at a time per client.
        keep: seconds after which a client is given up that was needed in a rush only.
    """

    def __init__(self, make: Callable[[], Any], *, size: int, keep: float) -> None:
        self._make = make
        self._size = size
        self._keep = keep
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._shards = [Shard(make())]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the clients."""
        return iter([shard.client for shard in self._shards])

    def take(self, now: float) -> Shard:
        """Choose a client for one request; `give` must follow."""
        with self._lock:
            for shard in self._shards:
                if shard.active < self._size:
                    break
            else:
                shard = Shard(self._make())
                self._shards.append(shard)
            shard.active += 1
            shard.used = now
            return shard

    def give(self, shard: Shard) -> None:
        """Note that a request has ended and its connection was given back."""
        with self._lock:
            shard.active -= 1

    def retire(self, now: float) -> list[Any]:
        """Take out the clients that are not needed any more; the caller closes them."""
        if len(self._shards) == 1:
            return []
        with self._lock:
            gone = []
            while len(self._shards) > 1 and self._shards[-1].active == 0 and now - self._shards[-1].used > self._keep:
                gone.append(self._shards.pop().client)
            return gone
