"""How much of an earlier withdrawal a bucket may still be given back.

Had the bucket known a call's true cost from the start, it would have refilled meanwhile, up to its brim and no
further. So a surplus that is returned late is worth only what would not have spilled over. With withdrawals i of cost
c_i at times a_i, the bucket is full again at

    tat = max over j of (a_j + sum of c_i for i >= j) / rate      (Lindley's recursion)

and correcting withdrawal i moves only the terms j <= i. The correction is therefore worth at most the lead of those
terms over the later ones. The lead over j was, when j was taken, how far `tat` lay ahead of the clock; so it is enough
to remember the least such lead since every withdrawal: a list that grows from left to right.
"""

from __future__ import annotations

from bisect import bisect_right

# More than so many different leads are thinned to half, to the disadvantage of the caller, never of the limit.
_MOST = 256


class Ledger:
    """Leads of a bucket's withdrawals, in seconds. Guarded by its owner."""

    __slots__ = ("_leads", "_marks", "_next")

    def __init__(self) -> None:
        """Start empty."""
        self._next = 0
        # Strictly increasing both: `_leads[k]` is the least lead at `_marks[k]` and after it.
        self._marks: list[int] = []
        self._leads: list[float] = []

    def note(self, lead: float) -> int:
        """Enter a withdrawal made while the bucket was `lead` seconds from full; return its number."""
        leads, marks = self._leads, self._marks
        while leads and leads[-1] >= lead:
            leads.pop()
            marks.pop()
        self._next += 1
        leads.append(lead)
        marks.append(self._next)
        if len(leads) > _MOST:
            # Of two neighbours keep the smaller lead and the later place.
            self._leads, self._marks = leads[0:-1:2] + leads[-1:], marks[1:-1:2] + marks[-1:]
        return self._next

    def surplus(self, number: int, seconds: float) -> float:
        """Take `seconds` of refill off withdrawal `number`; return how much of it comes back.

        A deficit needs no entry: charged in full it can only raise leads, and lower ones err on the limit's side.
        """
        leads, marks = self._leads, self._marks
        if not marks or marks[-1] <= number:
            return seconds
        first = bisect_right(marks, number)
        seconds = min(seconds, leads[first])
        for place in range(first, len(leads)):
            leads[place] -= seconds
        # Leads before the place may now be larger than the least one after it.
        keep = first
        while keep and leads[keep - 1] >= leads[first]:
            keep -= 1
        del leads[keep:first], marks[keep:first]
        return seconds

    def forget(self) -> None:
        """Drop all leads: no withdrawal is open that could be corrected."""
        self._marks.clear()
        self._leads.clear()
