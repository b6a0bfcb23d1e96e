"""What every measurement shares: results with a target, interleaved rounds, medians."""

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ROUNDS = 5
"""At least five, of which the median counts."""


@dataclass(frozen=True)
class Result:
    """One line of the table. `ok` None: a figure to report, without a target."""

    id: str
    what: str
    value: float
    unit: str
    target: str
    ok: bool | None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the form of results.json."""
        return {
            "id": self.id,
            "what": self.what,
            "value": round(self.value, 4),
            "unit": self.unit,
            "target": self.target,
            "ok": self.ok,
            "detail": dict(self.detail),
        }


def at_most(name: str, what: str, value: float, limit: float, unit: str, **detail: Any) -> Result:
    """A result that must not be above `limit`."""
    return Result(name, what, value, unit, f"<= {limit:g}", value <= limit, detail)


def at_least(name: str, what: str, value: float, limit: float, unit: str, **detail: Any) -> Result:
    """A result that must not be below `limit`."""
    return Result(name, what, value, unit, f">= {limit:g}", value >= limit, detail)


def interleaved(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run each variant once a round, in turn, and return their figures.

    The order turns round each time, so that a drift of the machine meets all alike.
    """
    figures: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            figures[name].append(variants[name]())
            say(f"  round {number + 1}: {name}: {figures[name][-1]:.4g}")
    return figures


def ratio(figures: Mapping[str, list[float]], name: str, other: str) -> float:
    """Return the median over the rounds of `name` divided by `other`, each within its round."""
    pairs = zip(figures[name], figures[other], strict=True)
    return statistics.median(one / two for one, two in pairs)


def rounded(figures: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return figures as results.json keeps them."""
    return {name: [round(value, 4) for value in values] for name, values in figures.items()}


def say(text: str) -> None:
    """Tell on stderr how far it is."""
    print(text, file=sys.stderr, flush=True)
