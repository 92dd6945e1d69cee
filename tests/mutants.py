"""Mutants: copies of the sources with one line changed, in each of which a named test must fail by an assertion.

They are stored as data, in `mutations.toml` and in any `mutations-*.toml` beside it:

    [[mutation]]
    file = "pflsim/algorithms/fedprox.py"    # what is changed
    old = "self.mu * (w - x)"                # occurs exactly once in it
    new = "self.mu * (x - w)"
    test = "tests/test_methods_by_hand.py::test_fedprox_is_held_back_from_the_second_step_on"

No mutant touches the tree: each is a copy in a temporary folder. Run as a program, this file tries the mutants that it
reads from its standard input, one a line: it imports torch and the like, which takes most of a test's time, once, and
forks for each mutant, so that they share nothing of pflsim.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

import hypothesis.strategies  # noqa: F401
import pydantic  # noqa: F401
import pytest
import sklearn.cluster  # noqa: F401
import torch  # noqa: F401
import zmq  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pflsim", "nodes", "launch", "tests")
OPTIONS = ("-p", "no:cacheprovider", "-p", "pytest_timeout")
KILLED = "killed"


@dataclass(frozen=True)
class Mutation:
    """In `file`, `old` becomes `new`, and `test` must notice."""

    file: str
    old: str
    new: str
    test: str

    def __str__(self) -> str:
        return f"{Path(self.file).stem}: {self.old} -> {self.new}"


def stored(folder: Path = ROOT / "tests") -> list[Mutation]:
    """All stored mutations."""
    files = [folder / "mutations.toml", *sorted(folder.glob("mutations-*.toml"))]
    return [Mutation(**entry) for file in files for entry in tomllib.loads(file.read_text()).get("mutation", [])]


class Mutants:
    """Tries one mutant after another, in a process of its own and on copies in `folder`."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # that of hypothesis takes a second
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, str(folder / "mutant")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def verdict(self, mutation: Mutation) -> str:
        """What became of it: KILLED, or a sentence."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asdict(mutation)), file=self._process.stdin, flush=True)
        told: str = json.loads(self._process.stdout.readline())
        return told

    def close(self) -> None:
        """No more will come."""
        self._process.communicate()


class Witness:
    """A plugin of pytest that remembers what the tests raised."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []

    def pytest_runtest_makereport(self, call: pytest.CallInfo) -> None:
        if call.excinfo is not None:
            self.raised.append(call.excinfo.value)

    def verdict(self, exit_code: int) -> str:
        """KILLED if tests failed, and by nothing but assertions."""
        if exit_code == pytest.ExitCode.OK:
            return "survived: the test passed"
        others = [problem for problem in self.raised if not _is_assertion(problem)]
        if others or not self.raised:
            return f"not killed by an assertion: {others[0]!r}" if others else "no test ran"
        return KILLED


def _is_assertion(problem: BaseException) -> bool:
    """Whether it is a failed `assert`, or an error that `pytest.raises` missed; running out of time is neither."""
    kinds = (AssertionError, pytest.fail.Exception)
    return isinstance(problem, kinds) and not str(problem).startswith("Timeout")


def _tried(mutation: Mutation, folder: Path) -> str:
    """Make the mutant in `folder`, run its test in a process of its own, and say what became of it."""
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source)  # with its bytecode, which is valid by times and sizes
    shutil.copy(ROOT / "pyproject.toml", folder)
    changed = folder / mutation.file
    for bytecode in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
        bytecode.unlink()
    changed.write_text(changed.read_text().replace(mutation.old, mutation.new))
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        os.write(sending, _run_test(mutation, folder).encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        verdict = pipe.read()
    os.waitpid(child, 0)
    shutil.rmtree(folder)
    return verdict or "the process of the test ended"


def _run_test(mutation: Mutation, folder: Path) -> str:
    os.chdir(folder)
    sys.path[0] = str(folder)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    witness = Witness()
    exit_code = pytest.main([mutation.test, "-x", *OPTIONS], plugins=[witness])
    verdict = witness.verdict(exit_code)
    module = sys.modules.get(mutation.file.removesuffix(".py").replace("/", "."))
    if verdict == KILLED and (module is None or not str(module.__file__).startswith(str(folder))):
        return "the test failed, but did not import the mutant"
    return verdict


if __name__ == "__main__":
    gc.freeze()  # nothing that was imported here need be looked at again in each process
    for line in sys.stdin:
        print(json.dumps(_tried(Mutation(**json.loads(line)), Path(sys.argv[1]))), flush=True)
