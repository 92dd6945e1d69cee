"""The command `pflsim compare`."""

from collections.abc import Sequence
from pathlib import Path

from launch.compare import forms
from launch.compare.comparing import Comparison, compare
from launch.compare.gather import gather
from launch.compare.page import comparison_page
from launch.compare.picture import save_picture
from launch.screen import fitted
from launch.show import Screen
from pflsim.errors import DescriptionError


def compare_places(
    places: Sequence[Path],
    baseline: str | None,
    target: float | None,
    seeds: Sequence[int],
    form: str,
    out: Path | None,
) -> None:
    """Print the comparison of what lies in `places`; with `out`, write all of its forms and its picture there."""
    if target is not None and not 0 < target <= 1:
        raise DescriptionError("--target", target, "must be above 0 and at most 1: a fraction, not per cent")
    found = gather(places, seeds)
    comparison = compare(found.runs, baseline, target, found.left_out)
    if out is not None:  # first, as whoever reads what is printed may not read to its end
        _write(comparison, out)
    if form != "text":
        print(_WRITTEN[form](comparison), end="")
        return
    console = Screen()
    forms.print_text(comparison, console)
    for said in forms.remarks(comparison):
        console.print(fitted(said, 4, console.width), markup=False)
    if out is not None:
        print(f"results: {out}")


_WRITTEN = {"csv": forms.as_csv, "markdown": forms.markdown, "latex": forms.latex}


def _write(comparison: Comparison, out: Path) -> None:
    """All forms of it, its page and its picture."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DescriptionError("--out", str(out), f"cannot be made: {problem.strerror}") from problem
    for name, kind in (("compare.csv", "csv"), ("compare.md", "markdown"), ("compare.tex", "latex")):
        (out / name).write_text(_WRITTEN[kind](comparison), encoding="utf-8")
    (out / "seeds.csv").write_text(forms.seeds_as_csv(comparison), encoding="utf-8")
    (out / "compare.html").write_text(comparison_page(comparison), encoding="utf-8")
    save_picture(comparison, out / "compare")
