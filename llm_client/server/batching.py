"""How a GPU serves many at once: a pure model of continuous batching, step by step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .text import BLOCK_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One GPU with one model on it.

    A step reads all weights once (`base`), does a little for each sequence (`per_sequence`), reads the cache
    of every token in context (`per_context`) and computes the prompt tokens of that step (`1 / prefill`).
    So throughput grows with the batch until the second and third terms outweigh the first.

    Attributes:
        slots: sequences in one batch at most.
        base: seconds of a step, whatever is in it.
        per_sequence: seconds a step takes longer for each sequence in it.
        per_context: seconds a step takes longer for each token in context.
        prefill: prompt tokens computed in a second.
        chunk: prompt tokens computed in one step at most.
        cache_tokens: tokens the key-value cache holds.
        context: longest prompt and answer together.
    """

    name: str
    slots: int
    base: float
    per_sequence: float
    per_context: float
    prefill: float
    chunk: int
    cache_tokens: int
    context: int


# From the hardware's memory bandwidth and arithmetic at half precision: weights ÷ bandwidth gives the base,
# cache bytes of a token ÷ bandwidth the cost of context, 2 FLOP a weight at 40-50 % of the peak the prefill rate,
# memory left beside the weights the size of the cache. Orders of magnitude, not measurements.
PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="h100-8b", slots=256, base=0.0065, per_sequence=4.0e-5, per_context=4.0e-8, prefill=30_000.0,
               chunk=2048, cache_tokens=380_000, context=32_768),
        Preset(name="a100-70b", slots=256, base=0.022, per_sequence=1.2e-4, per_context=4.0e-8, prefill=4_000.0,
               chunk=2048, cache_tokens=430_000, context=32_768),
        Preset(name="l40s-7b", slots=128, base=0.018, per_sequence=1.0e-4, per_context=1.5e-7, prefill=10_000.0,
               chunk=2048, cache_tokens=200_000, context=16_384),
        Preset(name="laptop", slots=32, base=0.045, per_sequence=8.0e-4, per_context=1.3e-6, prefill=400.0,
               chunk=256, cache_tokens=32_768, context=8_192),
    )
}  # fmt: skip


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One request inside the engine.

    Attributes:
        prompt: prompt tokens.
        output: tokens to produce for each choice.
        width: how many choices share the prompt.
        rank: its class; the least urgent is preempted first.
        blocks: hashes of the prompt's full blocks, for the prefix cache.
        todo: tokens that must still be computed before the next token can be produced.
        produced: tokens of each choice so far.
        cached: prompt tokens found in the prefix cache.
    """

    prompt: int
    output: int
    width: int = 1
    rank: int = 2
    blocks: tuple[int, ...] = ()
    todo: int = 0
    produced: int = 0
    cached: int = 0

    @property
    def context(self) -> int:
        """Tokens it holds in the cache."""
        return self.prompt + self.produced * self.width


@dataclass(slots=True)
class Step:
    """What one step does.

    Attributes:
        seconds: how long it takes.
        decoding: sequences that get a token at its end.
        finished: those of them that are complete then.
        preempted: sequences that lost their place before it began.
    """

    seconds: float
    decoding: list[Sequence] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)


class PrefixCache:
    """Remembers which blocks of prompts were computed, the least recently used one forgotten first.

    Args:
        blocks: how many it remembers.
    """

    def __init__(self, blocks: int) -> None:
        self._size = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: tuple[int, ...]) -> int:
        """How many leading blocks are known."""
        count = 0
        for block in blocks:
            if block not in self._known:
                break
            self._known.move_to_end(block)
            count += 1
        return count

    def store(self, blocks: tuple[int, ...]) -> None:
        """Remember them."""
        for block in blocks:
            self._known[block] = None
            self._known.move_to_end(block)
        while len(self._known) > self._size:
            self._known.popitem(last=False)


class Batch:
    """The sequences on one GPU.

    Call `plan` for the next step, let its time pass, then `commit` it.

    Args:
        preset: the GPU and its model.
    """

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.running: dict[Sequence, None] = {}  # in the order they were admitted
        self.waiting: list[Sequence] = []  # preempted; they go before anything new
        self.prefix = PrefixCache(preset.cache_tokens // BLOCK_TOKENS)
        self.preemptions = 0
        self.hit_tokens = 0
        self._context = 0

    @property
    def width(self) -> int:
        """Sequences in the batch, choices counted apart."""
        return sum(sequence.width for sequence in self.running)

    @property
    def usage(self) -> float:
        """Share of the cache in use, 0 to 1."""
        return min(1.0, self._context / self.preset.cache_tokens)

    def fits(self, prompt: int) -> bool:
        """Whether one more with this prompt may be admitted now."""
        if self.waiting or len(self.running) >= self.preset.slots:
            return False
        return not self.running or self._context + prompt <= self.preset.cache_tokens

    def admit(self, sequence: Sequence) -> None:
        """Take it into the batch; ask `fits` first."""
        hit = min(self.prefix.match(sequence.blocks) * BLOCK_TOKENS, sequence.prompt - 1)
        sequence.cached = hit
        sequence.todo = sequence.prompt - hit
        self.hit_tokens += hit
        self._enter(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Take it out at once, wherever it is; False when it is not here."""
        if sequence in self.running:
            self._leave(sequence)
            return True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return True
        return False

    def plan(self) -> Step | None:
        """Decide what the next step does; None when there is nothing to do."""
        self._resume()
        step = Step(0.0)
        self._preempt(step)
        if not self.running:
            return None
        budget = self.preset.chunk
        prefilled = width = 0
        for sequence in self.running:
            if sequence.todo:
                share = min(sequence.todo, budget)
                budget -= share
                prefilled += share
                sequence.todo -= share
                if sequence.todo:
                    continue
                self.prefix.store(sequence.blocks)
            width += sequence.width
            step.decoding.append(sequence)
        preset = self.preset
        step.seconds = (
            preset.base
            + preset.per_sequence * width
            + preset.per_context * self._context
            + prefilled / preset.prefill
        )  # fmt: skip
        return step

    def commit(self, step: Step) -> None:
        """The step's time has passed: hand out its tokens, let the finished go."""
        for sequence in step.decoding:
            if sequence not in self.running:
                continue  # its client left during the step
            sequence.produced += 1
            self._context += sequence.width
            if sequence.produced >= sequence.output:
                self._leave(sequence)
                step.finished.append(sequence)

    def _enter(self, sequence: Sequence) -> None:
        self.running[sequence] = None
        self._context += sequence.context

    def _leave(self, sequence: Sequence) -> None:
        del self.running[sequence]
        self._context -= sequence.context

    def _resume(self) -> None:
        while self.waiting and len(self.running) < self.preset.slots:
            sequence = self.waiting[0]
            if self.running and self._context + sequence.context + sequence.width > self.preset.cache_tokens:
                return
            del self.waiting[0]
            # What it had computed is gone from the cache: prompt and answer so far are computed again.
            sequence.todo = sequence.context
            self._enter(sequence)

    def _preempt(self, step: Step) -> None:
        while len(self.running) > 1 and self._context + self.width > self.preset.cache_tokens:
            victim = max(enumerate(self.running), key=lambda pair: (pair[1].rank, pair[0]))[1]
            self._leave(victim)
            self.waiting.insert(0, victim)
            self.preemptions += 1
            step.preempted.append(victim)
