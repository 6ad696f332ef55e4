"""Whose turn it is among tenants of one class: fair shares of tokens, not of calls."""

from __future__ import annotations

# Tenants are the callers' words; the least active beyond so many are forgotten and start level with the rest.
MOST = 4096


class Fairness:
    """Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over tokens. Guarded by its owner.

    Every tenant has a virtual time that runs ahead by the tokens it was served; the tenant furthest behind goes
    next. One that comes back after a pause starts level with the others: it has saved nothing up.
    """

    __slots__ = ("_ahead", "_now")

    def __init__(self) -> None:
        self._now = 0.0
        self._ahead: dict[str | None, float] = {}

    def start(self, tenant: str | None) -> float:
        """Return the virtual time at which the tenant's next call would start; the smallest goes next."""
        if not self._ahead:
            return 0.0
        return max(self._now, self._ahead.get(tenant, 0.0))

    def charge(self, tenant: str | None, tokens: float) -> None:
        """Book a call that goes now."""
        if tenant is None and not self._ahead:
            return  # nobody names tenants: the order is that of arrival
        begin = self.start(tenant)
        self._now = begin
        self._ahead[tenant] = begin + max(1.0, tokens)
        if len(self._ahead) > MOST:
            behind = sorted(self._ahead, key=lambda each: self._ahead[each])
            for each in behind[: MOST // 2]:
                del self._ahead[each]
