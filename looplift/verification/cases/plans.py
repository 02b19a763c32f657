"""What each case is made of: sizes of unknown dims, how often loops run, the kind of the other values.

The first cases are chosen: every trip count of `COUNTS`, every size of `SIZES`, every kind of values. The later ones
are drawn: thresholds of the models (see `thresholds`) one after the other, in log scale beside them. What a case says
of the original, that it ran or failed, is learned: which dims have to agree, and what can't be.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np

from looplift.verification.cases.thresholds import Number, Thresholds, candidates

COUNTS = (2, 1, 0, -1, 17, 300)
SIZES = (2, 3, 1, 17, 4, 0)
KINDS = ("plain", "special", "ties", "bits", "small", "lengths")

_SHARES = (0.2, 0.2, 0.2, 0.16, 0.2, 0.04)
"""How often each size is drawn: where nothing is, nothing differs."""

LARGEST_COUNT = 20_000
"""Iterations; a larger threshold is not tried."""

LARGEST_SIZE = 5_000
"""Of one dim; a larger threshold is not tried."""

SECONDS = 0.5
"""That a case may take, as far as the ones before tell, for its number of iterations to be tried."""

_MANY = 64
"""A dim or trip count above is drawn for one dim, or one loop, at a time."""

_TRIES = 300
"""Plans that are tried to find sizes with which the original runs, where it failed from the beginning."""

_PROBES = "near special near log near special near bits near special near log near ties".split()
"""Kinds of the drawn cases; ``near``: the models' constants and their neighbours, ``log``: all magnitudes."""

_STYLES = ("same", "small", "mixed", "good")
"""What the other dims are where one gets a size of its own: that size, 2 or 3, any of `SIZES`, what ran before."""

Item = TypeVar("Item")


class Queue(Generic[Item]):
    """Candidates, one after the other; begun anew at the end."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = collections.deque(items)
        self._fresh = len(self._items)

    @property
    def fresh(self) -> bool:
        """Whether there are candidates that were never taken."""
        return self._fresh > 0

    def __len__(self) -> int:
        return len(self._items)

    def next(self) -> Item:
        """Takes the next one."""
        item = self._items.popleft()
        self._items.append(item)
        self._fresh -= 1
        return item

    def again(self, item: Item) -> None:
        """Puts the one taken last in front again: it was not tried."""
        self._items.remove(item)
        self._items.appendleft(item)
        self._fresh = max(self._fresh, 0) + 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one case is made of.

    Attributes:
        number: of the case.
        kind: of the values that decide nothing.
        sizes: of unknown dims, by their symbol or place.
        counts: what inputs that decide how often loops run are, by name.
        flag: whether conditions with which loops begin hold.
        override: whether inputs with a default get a value.
        free: whether floats that decide how often loops run are of the kind, too, instead of counts.
        style: which dims were made equal; see `_STYLES`.
        dim: a threshold tried for one of the dims.
        trip: a threshold tried for the loops.
    """

    number: int
    kind: str
    sizes: Mapping[str, int]
    counts: Mapping[str, Number]
    flag: bool = True
    override: bool = False
    free: bool = False
    style: str = "same"
    dim: tuple[str, int] | None = None
    trip: Number | None = None

    @property
    def drawn(self) -> bool:
        """Whether it is none of the chosen ones."""
        return self.number >= len(_CHOSEN)

    @property
    def label(self) -> str:
        """In words."""
        sizes = set(self.sizes.values())
        counts = set(self.counts.values())
        parts = [f"unknown dims {min(sizes)}" if len(sizes) == 1 else "mixed dims" if sizes else ""]
        parts += [f"trip count {min(counts)}" if len(counts) == 1 else "mixed trip counts" if counts else ""]
        if self.free:
            parts[1] = f"{self.kind} trip counts"
        return ", ".join([f"case {self.number}: {self.kind} values", *filter(None, parts)])


class Planner:
    """Makes plans, and learns from what became of them.

    Args:
        keys: unknown dims, and for each the inputs that have it.
        counted: the numbers that decide how often loops run; True for floats.
        thresholds: of the models.
        seed: all plans follow from it, and from what is learned.
        endless: whether floats may get values with which loops never end.
    """

    def __init__(
        self,
        keys: Mapping[str, Sequence[str]],
        counted: Mapping[str, bool],
        thresholds: Thresholds,
        seed: int,
        *,
        endless: bool,
    ) -> None:
        self._keys = list(keys)
        self._counted = list(counted)
        self._seed = seed
        self._any_float = endless and any(counted.values())
        self._trips = Queue(c for c in candidates(thresholds.trips) if -2 <= c <= LARGEST_COUNT and c not in COUNTS)
        dims = list(_dim_candidates(keys, thresholds))
        self._dims = Queue(dims)
        self._pool = (1, 2, 3, 4, *thresholds.sizes[:8], 17, *[size for _, size in dims if size <= 300][:8])
        self._ran: collections.Counter[str] = collections.Counter()
        self._failed: collections.Counter[str] = collections.Counter()
        self._tries: collections.Counter[object] = collections.Counter()
        self._good: Mapping[str, int] = MappingProxyType({})
        self._turn = seed
        self._rate, self._most = 0.0, 17.0
        self._largest = LARGEST_SIZE
        self._sizes_ran: dict[str, set[int]] = {key: set() for key in self._keys}
        self._sizes_failed: dict[str, set[int]] = {key: set() for key in self._keys}
        self._groups: dict[str, tuple[str, ...]] = {key: (key,) for key in self._keys}

    @property
    def stuck(self) -> bool:
        """Whether the original failed from the beginning."""
        return not self._ran and self._failed.total() >= 3

    def plan(self, number: int) -> Plan:
        """The plan of a case."""
        rng = np.random.default_rng((self._seed, number, 1))
        chosen = _CHOSEN[number] if number < len(_CHOSEN) else None
        if chosen is None:
            return self._drawn(number, rng)
        kind, size, count = chosen
        never = self._failed["style same"] >= 2 and not self._ran["style same"]
        style = "good" if self._good and (never or size > _MANY) else "small" if size > _MANY else "same"
        key = self._any_key()
        size = min(round(2 ** rng.uniform(9, 11.5)), self._largest) if size > _MANY else size
        sizes = self._one(key, self._likely(key, size, rng), rng, style)
        return Plan(number, self._kind(kind), sizes, self._counts(number, count, rng), count != 0, style=style)

    def learn(self, plan: Plan, *, ran: bool, seconds: float = 0.0) -> None:
        """What became of a plan: whether the original gave a result, how long all engines took."""
        features = (f"style {plan.style}", f"kind {plan.kind}", *(["free"] if plan.free else []))
        (self._ran if ran else self._failed).update(features)
        most = max(plan.counts.values(), default=0)
        if ran and all(0 < size <= _MANY for size in plan.sizes.values()):
            self._good = plan.sizes
        for key, size in ((key, size) for key, size in plan.sizes.items() if size > 0):
            (self._sizes_ran if ran else self._sizes_failed)[key].add(size)
        if most > 16 and most >= self._most / 2:
            self._rate, self._most = seconds / float(most), max(self._most, most)
        if seconds > SECONDS and (large := max(plan.sizes.values(), default=0)) > _MANY:
            self._largest = min(self._largest, large // 2)
        if plan.free and not ran and seconds > SECONDS:
            self._any_float = False  # endless loops: enough of them
        if not ran:
            self._again(self._dims, plan.dim)
            self._again(self._trips, plan.trip)

    def _again(self, queue: Queue[Item], item: Item | None) -> None:
        if item is not None and self._tries[item] < 3:
            self._tries[item] += 1
            queue.again(item)

    def scout(self, runs: Callable[[Plan], bool]) -> None:
        """Looks for sizes with which the original runs, then for the dims of which others are possible, too."""
        for number in range(_TRIES):
            rng = np.random.default_rng((self._seed, number, 2))
            sizes = {key: int(rng.choice(self._pool)) for key in self._keys}
            counts: dict[str, Number] = dict.fromkeys(self._counted, int(rng.choice((1, 2))))
            plan = Plan(number, "small", sizes, counts, style="good")
            if runs(plan):
                self.learn(plan, ran=True)
                self._failed.update(f"style {style}" for style in ("same", "same", "small", "mixed"))
                self._groups = _linked(plan, runs)
                return

    def _drawn(self, number: int, rng: np.random.Generator) -> Plan:
        index = number - len(_CHOSEN)
        kind = self._kind(_PROBES[index % len(_PROBES)])
        free = self._any_float and index % 5 == 1
        telling = kind not in ("special", "bits") and not free  # NaN everywhere would hide what is tried
        trip = self._trips.next() if telling and self._counted and self._trips.fresh and index % 4 != 3 else None
        dim = self._next_dim() if telling and index % 4 != 2 else None
        if trip is not None and dim is not None and trip > _MANY and dim[1] > _MANY:
            if index % 2:
                self._trips.again(trip)
                trip = None
            else:
                self._dims.again(dim)
                dim = None
        count = (
            trip if trip is not None else self._log(rng, 5 if dim and dim[1] > _MANY else 11 if index % 4 == 3 else 6)
        )
        if trip is not None and self._rate * trip > SECONDS:
            trip, count = None, self._log(rng, 6)
        key = dim[0] if dim else self._any_key()
        drawn = min(self._log(rng, 4 if count > _MANY else 11 if index % 4 == 2 else 6), self._largest)
        size = dim[1] if dim else self._likely(key, drawn, rng)
        style = self._style(rng, key, size)
        return Plan(
            number,
            "special" if free and index % 10 == 1 else kind,
            self._one(key, size, rng, style),
            self._counts(number, count, rng),
            bool(rng.random() < 0.85),
            override=bool(rng.random() < 0.4),
            free=free,
            style=style,
            dim=dim,
            trip=trip,
        )

    def _log(self, rng: np.random.Generator, most: float) -> int:
        """A count or size, in log scale, that takes no longer than the cases before allow."""
        drawn = int(2 ** rng.uniform(0, most))
        return drawn if self._rate * drawn <= SECONDS else min(drawn, 4)

    def _any_key(self) -> str:
        """Each in turn, of those that can change."""
        keys = [key for key in self._keys if self._groups[key]]
        self._turn += 1
        return keys[self._turn % len(keys)] if keys else ""

    def _likely(self, key: str, size: int, rng: np.random.Generator) -> int:
        """A size, or rather one with which the original ran, the more so the more others it failed with."""
        ran = sorted(self._sizes_ran.get(key, ()))
        failed = self._sizes_failed.get(key, set()).difference(ran)
        if size in ran or not ran or rng.random() * (len(failed) + len(ran) + 1) > len(failed):
            return size
        return int(rng.choice(ran))

    def _next_dim(self) -> tuple[str, int] | None:
        while self._dims.fresh:
            item = self._dims.next()
            if self._groups[item[0]] and item[1] <= self._largest:
                return item
        return None

    def _kind(self, kind: str) -> str:
        """The kind, or plain values if the original never ran with it."""
        name = f"kind {kind}"
        return "plain" if self._failed[name] >= 4 and not self._ran[name] and self._ran["kind plain"] else kind

    def _style(self, rng: np.random.Generator, key: str, size: int) -> str:
        """A style at random, rather one with which the original ran."""
        styles = [style for style in _STYLES if (self._good or style != "good") and (size <= _MANY or style != "same")]
        if self._tries[(key, size)]:  # the same size everywhere may be what it takes
            styles = ["same", *styles] if size > _MANY else styles
        weights = np.array([self._weight(style) for style in styles])
        return str(rng.choice(styles, p=weights / weights.sum()))

    def _weight(self, style: str) -> float:
        ran, failed = self._ran[f"style {style}"], self._failed[f"style {style}"]
        return float((ran + 1) / (ran + failed + 2)) ** 2

    def _one(self, key: str, size: int, rng: np.random.Generator, style: str) -> dict[str, int]:
        """A size for one dim, and for the others what the style says."""
        if style == "same":
            return dict.fromkeys(self._keys, size)
        if style == "good":
            others = {each: self._good.get(each, 2) for each in self._keys}
        elif style == "small":
            others = dict.fromkeys(self._keys, int(rng.integers(2, 4)))
        else:
            others = {each: int(rng.choice(SIZES, p=_SHARES)) for each in self._keys}
        return others | dict.fromkeys(self._groups.get(key, ()), size)

    def _counts(self, number: int, count: Number, rng: np.random.Generator) -> dict[str, Number]:
        """The same for all inputs that decide how often loops run, or one alone where that would take long."""
        names = self._counted
        if len(names) < 2 or (number < len(_CHOSEN) and count <= _MANY):
            return dict.fromkeys(names, count)
        if count > _MANY or rng.random() < 0.6:
            others: Sequence[Number] = (1, 1, 2, 0) if count > _MANY else (1, 1, 2, 0, count, 3, -1, 0.5, 0.25)
            counts = {name: _plain(rng.choice(others)) for name in names}
            return counts | {names[number % len(names)]: count}
        choices = (*COUNTS[:5], 0.5, 0.1, 0.25, -1.5, 1.1, count)
        return {name: _plain(rng.choice(choices)) for name in names}


def _linked(plan: Plan, runs: Callable[[Plan], bool]) -> dict[str, tuple[str, ...]]:
    """For each dim those that have to change with it, itself included; none if it can't change."""

    def may_change(keys: Sequence[str]) -> bool:
        other = 5 if plan.sizes[keys[0]] != 5 else 7
        return runs(dataclasses.replace(plan, sizes={**plan.sizes, **dict.fromkeys(keys, other)}))

    groups: dict[str, tuple[str, ...]] = {key: (key,) if may_change([key]) else () for key in plan.sizes}
    bound: dict[int, list[str]] = {}
    for key in (key for key, group in groups.items() if not group):
        bound.setdefault(plan.sizes[key], []).append(key)
    for keys in (keys for keys in bound.values() if len(keys) > 1):
        for together in (keys, *itertools.combinations(keys, 2)):
            if not any(groups[key] for key in together) and may_change(together):
                groups |= dict.fromkeys(together, tuple(together))
    return groups


def _plain(number: float) -> Number:
    return int(number) if number == int(number) else float(number)


def _dim_candidates(keys: Mapping[str, Sequence[str]], thresholds: Thresholds) -> Iterable[tuple[str, int]]:
    """For each rank of thresholds, each candidate for each dim of the inputs that it is about."""
    found: dict[tuple[str, int], None] = {}
    known = SIZES if len(keys) < 2 else ()
    for rank in range(4):
        each = [candidates([thresholds.dims[name][rank] for name in names]) for names in keys.values()]
        for level in itertools.zip_longest(*each):
            pairs = [(key, int(size)) for key, size in zip(keys, level, strict=True) if size is not None]
            found |= {(key, size): None for key, size in pairs if 0 <= size <= LARGEST_SIZE and size not in known}
    return found


def _chosen() -> list[tuple[str, int, int]]:
    plans = [("plain", SIZES[index % 2], count) for index, count in enumerate(COUNTS)]
    plans += [(kind, 3, count) for kind, count in itertools.product(KINDS[1:], (17, 2))]
    plans += [("plain", size, 3) for size in SIZES[2:]]
    return [*plans, ("lengths", LARGEST_SIZE, 3), ("plain", LARGEST_SIZE, 3)]


_CHOSEN = _chosen()
"""Kind of the values, size of unknown dims, trip count."""
