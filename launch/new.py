"""`pflsim new algorithm NAME` and `pflsim check-method`: begin a method of one's own, and try its rules."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.screen import fitted
from pflsim.errors import DescriptionError
from pflsim.spec import override

TEMPLATES = Path(__file__).parent / "templates"
_MARGIN = " " * 9


def new_method(name: str, folder: Path) -> None:
    """Write a method and a run description into `folder`, and print what to do with them. Overwrites nothing."""
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise DescriptionError("NAME", name, "must begin with a letter and have only letters, digits, - and _")
    words = [word for word in re.split(r"[-_]", name) if word]
    stem, title = "_".join(words).lower(), "".join(word[0].upper() + word[1:] for word in words)
    files = {"method.py": folder / f"{stem}.py", "run.toml": folder / f"{stem}.toml"}
    for path in files.values():
        if path.exists():
            raise DescriptionError("NAME", name, f"{path} is there already; choose another name or folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for template, path in files.items():
            text = (TEMPLATES / template).read_text(encoding="utf-8")
            path.write_text(text.replace("my_method", stem).replace("MyMethod", title), encoding="utf-8")
    except OSError as problem:
        raise DescriptionError("--folder", str(folder), f"cannot be written to: {problem.strerror}") from problem
    method, description = files.values()
    print(f"wrote {method} and {description}; then:")
    print(f"    pflsim check-method {method}:{title}")
    print(f"    pflsim run {description}")


def check_method(name: str, settings: Sequence[str]) -> bool:
    """Print every rule of a method and whether the method `name` keeps it; True if it keeps them all."""
    method, tried = _built(name, settings)
    from pflsim.conformance.checks import CHECKS, broken
    from pflsim.conformance.peer_checks import PEER_CHECKS
    from pflsim.method import is_for_peers

    kept = True
    for rule, complaint in broken(method, tried, PEER_CHECKS if is_for_peers(method) else CHECKS):
        print(f"{'BROKEN ' if complaint else 'kept   '}  {rule}", flush=True)
        kept &= not complaint
        if complaint:
            print(f"{_MARGIN}{fitted(complaint, len(_MARGIN))}", flush=True)
    return kept


def _built(name: str, settings: Sequence[str]) -> tuple[Any, Any]:
    """The method, as it is and guarded."""
    from pflsim import catalogue
    from pflsim.method import misfits, missing
    from pflsim.own_method import guarded

    found, given = catalogue.find("algorithms", name, "METHOD"), dict[str, Any]()
    for assignment in settings:
        given = override(given, assignment.removeprefix("algorithm."))
    lacks = missing(found)
    if lacks or not isinstance(found, type):
        told = f"lacks {', '.join(lacks)}" if lacks else "is no class"
        raise DescriptionError("METHOD", name, f"{told}: pflsim/method.py tells what a method must have")
    if wrong := misfits(found):
        raise DescriptionError("METHOD", name, f"{'; '.join(wrong)}: see pflsim/method.py")
    given = catalogue.validated(found, given, "algorithm")
    own, tried = (catalogue.made(one, "METHOD", name, object, **given) for one in (found, guarded(found, name)))
    return own, tried
