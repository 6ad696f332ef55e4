"""Deterministic text: the same prompt always gets the same words, so that tests can assert content."""

from __future__ import annotations

import hashlib

# Fixed for ever: tests of users assert on what comes out of this list.
_LIST = (
    "amber anchor apple arrow autumn badge basket beacon birch bottle branch breeze bridge bronze candle canyon "
    "carbon cedar circle clover cobalt copper coral cotton crystal dawn delta desert diamond drift eagle ember "
    "engine falcon feather field flame forest fossil garden ginger glacier granite harbor harvest hazel hollow "
    "horizon indigo island ivory jade jasmine jungle juniper kettle lagoon lantern laurel lemon linen lotus "
    "magnet maple marble meadow mercury mirror mosaic nectar needle nickel nutmeg oasis ocean olive onyx orbit "
    "orchid oxygen paper pebble pepper pilot planet pollen prism quartz quiver radar raven reef ribbon river "
    "rocket saddle saffron satin signal silver spiral spruce summit sunset temple thunder timber topaz tulip "
    "tundra turbine valley velvet violet voyage walnut willow window winter zenith zephyr "
)
WORDS = tuple(_LIST.split())

BYTES_PER_TOKEN = 4  # the usual rule of thumb for English text
BLOCK_TOKENS = 16  # prefix caches share blocks of this many tokens
_BLOCK_BYTES = BYTES_PER_TOKEN * BLOCK_TOKENS


def count_tokens(text: str) -> int:
    """How many tokens `text` counts for: a quarter of its UTF-8 bytes, at least one."""
    return max(1, -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN))


def encode(text: str) -> list[int]:
    """A text as token ids: four bytes each, the last one what is left, a one in front of each."""
    data = text.encode("utf-8", "surrogatepass")
    starts = range(0, len(data), BYTES_PER_TOKEN)
    return [int.from_bytes(b"\1" + data[start : start + BYTES_PER_TOKEN], "big") for start in starts]


def decode(ids: list[int]) -> str:
    """The text of token ids made by `encode`; others give what they give."""
    parts = [each.to_bytes(8, "big").lstrip(b"\0")[1:] for each in ids]
    return b"".join(parts).decode("utf-8", "replace")


def digest(prompt: str, choice: int = 0) -> bytes:
    """What the answer depends on: the prompt and the number of the choice, nothing else."""
    data = prompt.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data if choice == 0 else data + b"\0%d" % choice).digest()


def natural_length(prompt: str) -> int:
    """How many tokens the answer has when nothing cuts it: 16 to 79."""
    return 16 + digest(prompt)[31] % 64


def tokens(prompt: str, count: int, choice: int = 0) -> list[str]:
    """The first `count` tokens of the answer to `prompt`.

    The first one is eight hex digits of the prompt's hash, so that no two prompts share an answer
    however short it is; the rest are words with a space in front.
    """
    seed = digest(prompt, choice)
    out = [seed.hex()[:8]]
    size = len(WORDS)
    out.extend(" " + WORDS[(seed[i & 31] + i * (1 + seed[(i >> 5) & 31])) % size] for i in range(1, count))
    return out[:count]


def answer(prompt: str, count: int | None = None, choice: int = 0) -> str:
    """The text a client gets for `prompt` when it asks for `count` tokens."""
    length = natural_length(prompt)
    return "".join(tokens(prompt, length if count is None else min(count, length), choice))


def prefix_blocks(prompt: str) -> tuple[int, ...]:
    """One hash for each full block of the prompt, each depending on all before it."""
    data = prompt.encode("utf-8", "surrogatepass")
    value = 0
    out: list[int] = []
    for start in range(0, len(data) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        value = hash((value, data[start : start + _BLOCK_BYTES]))
        out.append(value)
    return tuple(out)
