"""Who takes part in each round of a run: the schedule's sampling, at work on the run's population."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflsim import sampling
from pflsim.rng import stream
from pflsim.sampling import Population
from pflsim.schedule import Schedule
from pflsim.timing.devices import SERVER, Devices
from pflsim.timing.links import Links


class Cohorts:
    """Draws the cohorts of a run; equal seeds and candidates give equal cohorts, in whatever order they are asked for.

    A schedule without a `sampling` draws none: then all candidates are the cohort.
    """

    def __init__(self, schedule: Schedule, population: Population, seed: int) -> None:
        self._clients, self._seed = range(len(population.sizes)), seed
        self._count = schedule.size(len(self._clients))
        setting = getattr(schedule, "sampling", None)
        self._sampling = None if setting is None else sampling.load(setting)
        if (strata := getattr(self._sampling, "strata", None)) is not None:
            population = replace(population, strata=strata(population, stream(seed, "strata", SERVER, "set-up")))
        self.population = population

    @property
    def needs_losses(self) -> bool:
        """Whether clients report their losses for it."""
        return self._sampling is not None and self._sampling.needs_losses

    def asked_first(self, number: int, candidates: Sequence[int]) -> tuple[int, ...] | None:
        """Who is asked for its loss before the cohort of round `number` is drawn; None where nobody ever is."""
        if self._sampling is None:
            return None
        return self._sampling.asked_first(self.population, candidates, self._rng(number))

    def drawn(
        self, number: int, candidates: Sequence[int] | None = None, losses: Mapping[int, float] | None = None
    ) -> tuple[int, ...]:
        """The cohort of round `number` (from 0), ids ascending; `candidates`: who may be drawn now (None: all)."""
        may = self._clients if candidates is None else candidates
        if self._sampling is None:
            return tuple(may)
        return self._sampling.drawn(self.population, may, self._count, number, self._rng(number), losses or {})

    def _rng(self, number: int) -> np.random.Generator:
        return stream(self._seed, "sampler", SERVER, number)


def predicted_visit_s(
    clients: Sequence[str], flops: Sequence[float], size_bytes: int, devices: Devices, links: Links
) -> np.ndarray:
    """Simulated seconds [N] of a visit: a payload of `size_bytes` goes to the client, it works, as much comes back.

    Without jitter and losses, and with nobody else on the links.
    """
    seconds = np.empty(len(clients))
    for number, client in enumerate(clients):
        down = size_bytes / min(links.uplink_rate(SERVER), links.downlink_rate(client))
        up = size_bytes / min(links.uplink_rate(client), links.downlink_rate(SERVER))
        latency_ns = links.latency_ns(SERVER, client) + links.latency_ns(client, SERVER)
        seconds[number] = (down + up + latency_ns + devices.seconds_ns(client, flops[number])) / 1e9
    return seconds
