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
    folder.mkdir(parents=True, exist_ok=True)
    for template, path in files.items():
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        path.write_text(text.replace("my_method", stem).replace("MyMethod", title), encoding="utf-8")
    method, description = files.values()
    print(f"wrote {method} and {description}; then:")
    print(f"    pflsim check-method {method}:{title}")
    print(f"    pflsim run {description}")


def check_method(name: str, settings: Sequence[str]) -> bool:
    """Print every rule of a method and whether the method `name` keeps it; True if it keeps them all."""
    method = _built(name, settings)
    from pflsim.conformance.checks import CHECKS, broken
    from pflsim.conformance.peer_checks import PEER_CHECKS
    from pflsim.method import is_for_peers

    kept = True
    for rule, complaint in broken(method, PEER_CHECKS if is_for_peers(method) else CHECKS):
        print(f"{'BROKEN ' if complaint else 'kept   '}  {rule}", flush=True)
        kept &= not complaint
        if complaint:
            print(f"{_MARGIN}{fitted(complaint, len(_MARGIN))}", flush=True)
    return kept


def _built(name: str, settings: Sequence[str]) -> Any:
    from pflsim import catalogue
    from pflsim.method import misfits, missing

    found, given = catalogue.find("algorithms", name, "METHOD"), dict[str, Any]()
    for assignment in settings:
        given = override(given, assignment.removeprefix("algorithm."))
    if lacks := missing(found) or misfits(found):
        raise DescriptionError("METHOD", name, f"lacks {', '.join(lacks)}: pflsim/method.py tells what it must have")
    return catalogue.made(found, "METHOD", name, object, **catalogue.validated(found, given, "algorithm"))
