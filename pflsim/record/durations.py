"""How durations are told: three digits and a unit that suits them."""

_UNITS = ((3600 * 10**9, "h"), (10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def duration(duration_ns: int) -> str:
    """Simulated ns as text: 41.2 s, 3.90 ms, 2.50 h (from two hours on), 13 ns."""
    for unit_ns, name in _UNITS:
        least_ns = 2 * unit_ns if name == "h" else unit_ns
        if abs(duration_ns) >= least_ns or unit_ns == 1:
            value = duration_ns / unit_ns
            digits = 0 if unit_ns == 1 else max(0, 2 - max(0, len(str(int(abs(value)))) - 1))
            return f"{value:.{digits}f} {name}"
    raise AssertionError("every duration has a unit")
