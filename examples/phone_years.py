"""A device model of one's own: a function that says how fast each client is.

    pflsim run launch/runs/start-here.toml \\
        --set 'devices={kind="examples/phone_years.py:phone_years",newest=20e6,server_flops_per_second="workstation"}'
"""

from pflsim.timing.families import Population, Spread


def phone_years(of: Population, *, newest: float, per_year: float = 0.8, mean_years: float = 2.5) -> Spread:
    """A new phone computes `newest` FLOP/s; each year of age leaves `per_year` of it, and ages are geometric.

    It may also return a list with a number for each client; with a `Spread` reports sum up by its classes.
    `of.names` are the clients, `of.rng` is the only source of randomness.
    """
    years = of.rng.geometric(1 / (1 + mean_years), len(of.names)) - 1
    classes = ["new" if age == 0 else "middle" if age < 4 else "old" for age in years]
    return Spread([newest * per_year ** float(age) for age in years], classes)
