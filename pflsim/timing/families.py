"""How a quantity, such as a speed or a rate, is spread over the clients.

A family is a function of KINDS; its keyword-only parameters are its settings. All but `classes` and `trace` are scaled
by one typical value, in the quantity's own unit (`flops_per_second`, `mbps`); their docstrings say whether it is the
median, a mean or everybody's. Families with heavy tails are those of the *time* that a piece of work takes, which is
what stragglers are about: a client's value is the typical one divided by its slowness.

A family of one's own is such a function too, named in the place of a kind: it is given a `Population` and returns a
`Spread`, or a number for each client. The typical value is what the table says, or nan.

Every client also gets a class, under which a report sums it up: the classes' names, or the thirds "slow", "middle" and
"fast" of a family without classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pflsim.catalogue import OWN, made, near_match, outsider, settings_of, validated
from pflsim.errors import DescriptionError
from pflsim.timing.traces import read_rows_by_actor

LEAST_DRAW = 2.0**-53  # uniform draws are whole multiples of this; zero itself would be infinitely slow or fast


class Quantity(NamedTuple):
    """What is spread: the setting of its typical value, what checks a value, and a trace's column for it."""

    name: str
    checked: Callable[[str, object], float]
    column: str


class Spread(NamedTuple):
    """A value and a class for each client."""

    values: list[float]
    classes: list[str]


@dataclass(frozen=True)
class Population:
    """Whom a family draws for: the clients' names, where the description says so, and the typical value."""

    names: Sequence[str]
    rng: np.random.Generator
    key: str
    quantity: Quantity
    typical: float

    def uniform(self) -> list[float]:
        """A number above 0 and at most 1 for each client."""
        drawn: list[float] = (1.0 - self.rng.random(len(self.names))).tolist()
        return drawn

    def refuse(self, setting: str, value: object, expected: str) -> DescriptionError:
        return DescriptionError(f"{self.key}.{setting}", value, expected)


def _constant(of: Population) -> Spread:
    """All clients are alike."""
    return Spread([of.typical] * len(of.names), ["all"] * len(of.names))


def _bimodal(of: Population, *, stragglers: int | float, slowdown: float) -> Spread:
    """`stragglers` of the clients (a count or a share) are `slowdown` times slower than the others, the typical."""
    clients = len(of.names)
    if not 1 <= slowdown < math.inf:
        raise of.refuse("slowdown", slowdown, "must be a number from 1")
    if not 0 <= stragglers <= (clients if isinstance(stragglers, int) else 1.0):
        raise of.refuse("stragglers", stragglers, f"must be a count up to {clients} or a share up to 1.0")
    count = stragglers if isinstance(stragglers, int) else math.floor(stragglers * clients + 0.5)
    slow = frozenset(of.rng.choice(clients, size=count, replace=False).tolist())
    values = [of.typical / slowdown if client in slow else of.typical for client in range(clients)]
    return Spread(values, ["slow" if client in slow else "fast" for client in range(clients)])


def _uniform(of: Population, *, spread: float) -> Spread:
    """Uniform from (1 - spread) to (1 + spread) times the typical value, the mean; spread is below 1."""
    if not 0 <= spread < 1:
        raise of.refuse("spread", spread, "must be from 0 and below 1, a share of the mean")
    return _by_thirds([of.typical * (1 + spread * (2 * draw - 1)) for draw in of.uniform()])


def _lognormal(of: Population, *, spread: float) -> Spread:
    """Log-normal about the typical value, the median; spread is the standard deviation of the natural logarithm."""
    if not 0 <= spread <= 10:
        raise of.refuse("spread", spread, "must be from 0 to 10, the standard deviation of the natural logarithm")
    return _by_thirds([of.typical * math.exp(spread * z) for z in of.rng.standard_normal(len(of.names)).tolist()])


def _exponential(of: Population) -> Spread:
    """The time of a piece of work is exponential over the clients; its mean is the time at the typical value."""
    return _by_thirds([of.typical / max(-math.log(draw), LEAST_DRAW) for draw in of.uniform()])


def _pareto(of: Population, *, shape: float) -> Spread:
    """The time of a piece of work is Pareto over the clients: P(time > k x the least) = k^-shape; typical: median."""
    if not 0.1 <= shape < math.inf:
        raise of.refuse("shape", shape, "must be a number from 0.1; the tail is heavier the smaller it is")
    return _by_thirds([of.typical * (2 * draw) ** (1 / shape) for draw in of.uniform()])


def _classes(of: Population, *, classes: list[dict[str, Any]]) -> Spread:
    """Named classes of clients that are alike: each with a name, a value, and a count or a share of the clients."""
    clients = len(of.names)
    if not classes:
        raise of.refuse("classes", classes, "must be a list of at least one class")
    values: list[float] = []
    names: list[str] = []
    sizes: list[int | float] = []
    for number, given in enumerate(classes):
        at = f"{of.key}.classes.{number}"
        known = {"name", "count", "share", of.quantity.name}
        for name in sorted(set(given) - known):
            raise DescriptionError(f"{at}.{name}", given[name], f"unknown key; {near_match(name, sorted(known))}")
        values.append(of.quantity.checked(f"{at}.{of.quantity.name}", given.get(of.quantity.name)))
        names.append(_class_name(f"{at}.name", given.get("name"), names))
        sizes.append(_class_size(at, given))
    members = np.repeat(np.arange(len(classes)), _counts(of, classes, sizes))
    member_of = of.rng.permutation(members).tolist()
    return Spread([values[member_of[client]] for client in range(clients)], [names[one] for one in member_of])


def _trace(of: Population, *, file: str) -> Spread:
    """A CSV file with the columns client (a name or a number), the quantity's and, if there are classes, class."""
    column = of.quantity.column
    rows = read_rows_by_actor(f"{of.key}.file", file, of.names, "client", [column], ["class"])
    values = [row.number(column, above=True) for row in rows]
    for row, value in zip(rows, values, strict=True):
        try:
            of.quantity.checked(column, value)
        except DescriptionError as problem:
            raise row.wrong(f"{column} = {value:g} {problem.expected}") from problem
    classes = [row.values["class"] for row in rows]
    return Spread(values, classes) if all(classes) else _by_thirds(values)


KINDS: dict[str, Callable[..., Spread]] = {
    "bimodal": _bimodal,
    "classes": _classes,
    "constant": _constant,
    "exponential": _exponential,
    "lognormal": _lognormal,
    "pareto": _pareto,
    "trace": _trace,
    "uniform": _uniform,
}
WITHOUT_TYPICAL = ("classes", "trace")


def spread_over(
    names: Sequence[str], table: Mapping[str, Any], quantity: Quantity, rng: np.random.Generator, key: str
) -> Spread:
    """What the family that `table`, found at `key`, describes gives the clients `names`; raises DescriptionError."""
    kind = check_kind(table, key)
    family = KINDS[kind] if kind in KINDS else outsider(kind, f"{key}.kind", ("of",))
    given = {name: value for name, value in table.items() if name != "kind"}
    typical_wanted = kind not in WITHOUT_TYPICAL and (kind in KINDS or quantity.name in given)
    known = sorted([*settings_of(family), *([quantity.name] if typical_wanted else [])])
    for name in given:
        if name not in known:
            expected = f"unknown key; {near_match(name, known)}" if known else "takes no setting"
            raise DescriptionError(f"{key}.{name}", given[name], expected)
    typical = math.nan
    if typical_wanted:
        typical = quantity.checked(f"{key}.{quantity.name}", given.pop(quantity.name, None))
    settings = validated(family, given, key)
    population = Population(names, rng, key, quantity, typical)
    return family(population, **settings) if kind in KINDS else _own(population, family, kind, settings)


def _own(of: Population, family: Callable[..., Any], kind: str, settings: Mapping[str, Any]) -> Spread:
    """What a user's own family gives: a `Spread`, or one number for each client."""
    key = f"{of.key}.kind"
    drawn = made(family, key, kind, (list, tuple, np.ndarray), of, **settings)
    spread = drawn if isinstance(drawn, Spread) else None
    values = [*map(float, drawn if spread is None else spread.values)]
    classes = None if spread is None else [*map(str, spread.classes)]
    if len(values) != len(of.names) or (classes is not None and len(classes) != len(values)):
        raise DescriptionError(key, kind, f"must give {len(of.names)} clients a value each, and a class if any")
    for value in values:
        of.quantity.checked(key, value)
    return _by_thirds(values) if classes is None else Spread(values, classes)


def check_kind(table: Mapping[str, Any], key: str) -> str:
    """The family that `table` names; raises DescriptionError."""
    if "kind" not in table:
        raise DescriptionError(f"{key}.kind", None, "is required")
    kind = table["kind"]
    if isinstance(kind, str) and ":" in kind:
        outsider(kind, f"{key}.kind", ("of",))
    elif not isinstance(kind, str) or kind not in KINDS:
        raise DescriptionError(f"{key}.kind", kind, f"{near_match(str(kind), sorted(KINDS))} ({OWN})")
    return str(kind)


def _by_thirds(values: list[float]) -> Spread:
    """The slowest third (rounded), the middle and the fastest; equal values are told apart by the client's number."""
    ranked = sorted(range(len(values)), key=lambda client: (values[client], client))
    classes = [""] * len(values)
    for rank, client in enumerate(ranked):
        classes[client] = ("slow", "middle", "fast")[3 * rank // len(values)]
    return Spread(values, classes)


def _class_name(key: str, given: object, taken: Sequence[str]) -> str:
    if not isinstance(given, str) or not given:
        raise DescriptionError(key, given, "is required, a text" if given is None else "must be a text")
    if given in taken:
        raise DescriptionError(key, given, "is the name of an earlier class")
    return given


def _class_size(at: str, given: Mapping[str, Any]) -> int | float:
    if ("count" in given) == ("share" in given):
        raise DescriptionError(f"{at}.count, {at}.share", None, "give one of the two")
    if "count" in given:
        count = given["count"]
        if type(count) is not int or count < 0:
            raise DescriptionError(f"{at}.count", count, "must be a whole number from 0")
        return count
    share = given["share"]
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise DescriptionError(f"{at}.share", share, "must be from 0 to 1")
    return float(share)


def _counts(of: Population, classes: object, sizes: Sequence[int | float]) -> list[int]:
    """How many clients each class has; what rounding shares down leaves over goes to the largest remainders."""
    clients = len(of.names)
    if all(isinstance(size, int) for size in sizes):
        counts = [int(size) for size in sizes]
        if sum(counts) != clients:
            raise of.refuse("classes", classes, f"the counts add up to {sum(counts)}, not to {clients} clients")
        return counts
    if not all(isinstance(size, float) for size in sizes) or abs(sum(sizes) - 1) > 1e-9:
        raise of.refuse("classes", classes, "give each class a count, or each a share, and the shares add up to 1")
    exact = [size * clients for size in sizes]
    counts = [math.floor(size + 1e-9) for size in exact]
    by_remainder = sorted(range(len(exact)), key=lambda number: (counts[number] - exact[number], number))
    for number in by_remainder[: clients - sum(counts)]:
        counts[number] += 1
    return counts
