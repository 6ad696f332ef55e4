"""How much memory something takes at once."""

import tracemalloc


class Peak:
    """How much more memory than before was in use at once, within its block."""

    def __enter__(self):
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_):
        self.bytes = tracemalloc.get_traced_memory()[1] - self.before
        tracemalloc.stop()
