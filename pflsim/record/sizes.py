"""How numbers of bytes are told: three digits and a unit of ten."""

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(count: float) -> str:
    """Bytes as text: 3.12 MB, 41.2 kB, 812 B; a unit from the first number that has three digits with it."""
    for unit, name in _UNITS:
        if abs(count) >= 0.9995 * unit:
            value = count / unit
            return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f} {name}"
    return f"{count:.0f} B"


def unit_of(most: float) -> tuple[str, float]:
    """The unit for an axis that goes up to `most` bytes, and how many bytes it is."""
    return ("GB", 1e9) if most >= 2e9 else ("MB", 1e6) if most >= 2e5 else ("kB", 1e3)
