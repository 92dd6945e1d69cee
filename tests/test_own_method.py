"""A method of one's own that raises, or returns what it must not: which part it was, what it did, and where."""

import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from launch.new import new_method
from nodes.sequential import run_sequentially
from pflsim.errors import DescriptionError
from pflsim.spec import override_value, read, validate
from pflsim.study import Study
from tests.launching import ROOT
from tests.test_own_parts import DIGITS

STEP, WORK, DOWN, FOLD = (
    'return {"v": personal}, {"u": common}',
    "task.work(passes=2)",
    '{"x": all["x"]}',
    "all if mean",
)
WRONG = {
    "raise KeyError('z')": (STEP, "client_step raised KeyError: 'z', in line 43 of mine.py"),
    "raise ValueError": (STEP, "client_step raised ValueError, in line 43 of mine.py"),
    "import sys; sys.exit(3)": (STEP, "client_step raised SystemExit: 3, in line 43 of mine.py"),
    "return None": (STEP, "client_step must return two dictionaries of tensors, the private state and what travels up, "
                          "not None"),
    'return {"v": personal}, {"u": 3}': (STEP, "client_step must return a dictionary of tensors; 'u' is an int"),
    "return 5": (f"return {WORK}", "client_work must return a Work, such as task.work(), not an int"),
    "return [all]": (f"return {DOWN}", "server_down must return a dictionary of tensors, not a list"),
    "return 1 / 0": (f"return {DOWN}", "server_down raised ZeroDivisionError: division by zero, in line 51 of mine.py"),
    "return None  #": (f"return {FOLD}", "server_step must return a dictionary of tensors, not None"),
    "return {}  #": ('return {"personalised"', "client_model must return the models to evaluate by name, headline "
                                               "first, not {}"),
    'return {"a": you["v"][:9]}  #': ('return {"personalised"', "client_model must return models; 'a' has [9] numbers "
                                      "of float32, where the model of this run has [650] of float32"),
    'return {"a": 3}  #': ('return {"personalised"', "client_model must return models; 'a' is an int, neither a vector "
                           "nor a function of inputs"),
}  # fmt: skip


def method_with(folder: Path, before: str, after: str) -> str:
    """A new method in which one line is another; its name."""
    new_method("mine", folder)
    source = (folder / "mine.py").read_text()
    assert source.count(before) == 1
    (folder / "mine.py").write_text(source.replace(before, after))
    return f"{folder}/mine.py:Mine"


@pytest.mark.parametrize("after", WRONG)
def test_a_part_that_does_what_it_must_not_is_named_with_what_it_did(after: str, tmp_path: Path) -> None:
    before, said = WRONG[after]
    tables = override_value(DIGITS, "algorithm.name", method_with(tmp_path, before, after))
    with pytest.raises(DescriptionError) as refused:
        run_sequentially(Study(validate(tables), b"tried"))
    assert str(refused.value) == f"algorithm.name = 'mine.py:Mine': {said}"


def test_a_guarded_method_gives_the_bits_of_the_same_method_in_pflsim(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "pflsim" / "algorithms" / "ditto.py").read_text())
    digests = [
        run_sequentially(Study(validate(override_value(DIGITS, "algorithm", {"name": name})), b"tried")).finished()
        for name in ("ditto", f"{tmp_path}/mine.py:Ditto")
    ]
    assert digests[0]["digest"] == digests[1]["digest"] and digests[0]["trace_digest"] == digests[1]["trace_digest"]


@pytest.mark.slow
def test_a_run_that_fails_so_tells_the_kind_and_the_line_and_so_does_explain(tmp_path: Path) -> None:
    name = method_with(tmp_path, STEP, "raise KeyError('z')")
    (tmp_path / "run.toml").write_text(tomli_w.dumps(override_value(DIGITS, "algorithm.name", name)))
    said = "algorithm.name = 'mine.py:Mine': client_step raised KeyError: 'z', in line 43 of mine.py"
    out = str(tmp_path / "out")
    run, explain = (
        subprocess.run(
            [sys.executable, "-m", "launch.cli", *words], cwd=ROOT, capture_output=True, text=True, timeout=50
        )
        for words in (["run", str(tmp_path / "run.toml"), "--out", out, "--quiet"], ["explain", out])
    )
    assert run.returncode == 1 and said in run.stderr and str(ROOT / "nodes") not in run.stderr
    assert said in " ".join(explain.stdout.split())


def test_a_description_of_a_new_method_still_runs(tmp_path: Path) -> None:
    new_method("mine", tmp_path)
    tables = override_value(read(tmp_path / "mine.toml"), "run.rounds", 1) | {"beside": []}
    assert run_sequentially(Study(validate(tables), b"tried")).finished()["rounds"] == 1
