"""Failures in the order of sending: what became of the calls that were sent since the first of them."""

from __future__ import annotations

from llm_client.core.circuit import Verdict


class Streak:
    """One failure, and what followed it.

    A count of failures in a row is read in the order in which outcomes come. A server that goes out of service answers
    what is new at once and finishes what it has: every answer to an old call ends the row, and the circuit stays closed
    for as long as those last. Here an old answer ends nothing; only a call that was sent since the first failure can.

    Attributes:
        failed: failures so far, the first included; 0 outside of a streak.
        going: calls sent since the first failure that are still under way. A server that keeps them may be at work on
            them, however many others it failed.
    """

    __slots__ = ("_number", "failed", "going")

    def __init__(self) -> None:
        self._number = 0
        self.failed = 0
        self.going = 0

    def sent(self) -> int:
        """Count a call that is sent now; return its mark."""
        self.going += self.failed > 0
        return self._number

    def settled(self, mark: int, verdict: Verdict) -> None:
        """Count what became of a call; one that was neither only leaves."""
        since = self.failed > 0 and mark == self._number
        self.going -= since
        if verdict == "failure" and not self.failed:
            self._number += 1
            self.failed = 1
        elif verdict == "failure" and since:
            self.failed += 1
        elif verdict == "success" and since:
            self.end()

    def end(self) -> None:
        """Begin anew: calls under way belong to no streak."""
        self._number += 1
        self.failed = self.going = 0
