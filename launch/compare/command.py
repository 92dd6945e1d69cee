"""The command `pflsim compare`."""

from collections.abc import Sequence
from pathlib import Path

from launch.compare import forms
from launch.compare.comparing import compare
from launch.compare.gather import gather
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
    written = {"csv": forms.as_csv, "markdown": forms.markdown, "latex": forms.latex}
    if form == "text":
        console = Screen()
        forms.print_text(comparison, console)
        for said in forms.remarks(comparison):
            console.print(fitted(said, 4, console.width), markup=False)
    else:
        print(written[form](comparison), end="")
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DescriptionError("--out", str(out), f"cannot be made: {problem.strerror}") from problem
    for name, kind in (("compare.csv", "csv"), ("compare.md", "markdown"), ("compare.tex", "latex")):
        (out / name).write_text(written[kind](comparison), encoding="utf-8")
    (out / "seeds.csv").write_text(forms.seeds_as_csv(comparison), encoding="utf-8")
    save_picture(comparison, out / "compare")
    if form == "text":
        print(f"results: {out}")
