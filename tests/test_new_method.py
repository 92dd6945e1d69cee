"""A method that `pflsim new` begins keeps all rules and runs, and `pflsim check-method` tells which rule one breaks."""

from pathlib import Path

import pytest

from launch.new import check_method, new_method
from nodes.sequential import run_sequentially
from pflsim.conformance.checks import CHECKS
from pflsim.errors import DescriptionError
from pflsim.spec import override_value, read, validate
from pflsim.study import Study


def test_a_new_method_keeps_all_rules_and_its_description_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_method("pull-me", tmp_path)
    assert f"pflsim check-method {tmp_path}/pull_me.py:PullMe" in capsys.readouterr().out
    assert check_method(f"{tmp_path}/pull_me.py:PullMe", ["lam=0.1"])
    assert capsys.readouterr().out.count("kept ") == len(CHECKS)
    tables = override_value(read(tmp_path / "pull_me.toml"), "run.rounds", 2)
    assert run_sequentially(Study(validate(tables | {"beside": []}), b"tried")).finished()["rounds"] == 2
    with pytest.raises(DescriptionError, match=r"pull_me\.py is there already"):
        new_method("pull_me", tmp_path)
    with pytest.raises(DescriptionError, match="must begin with a letter"):
        new_method("3d", tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            ('return {"v": personal}, {"u": common}', 'you["v"].add_(1.0)\n        return you, {"u": common}'),
            "changed an",
        ),
        (("passes=2", "passes=3"), "PullMe declared Work(forward_samples="),
        (("all if mean is None else", 'dict(all, x=all["x"] + 1) if mean is None else'), "there were no answers"),
        (("common = task.sgd(x)", "common = task.sgd(x.view(2, -1))"), "in line 41 of pull_me.py"),
        (
            ("def server_init", "def server_arival(self):\n        pass\n\n    def server_init"),
            "nobody would call server_arival",
        ),
    ],
)
def test_a_method_that_breaks_a_rule_is_told_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], complaint: str
) -> None:
    new_method("pull-me", tmp_path)
    source = (tmp_path / "pull_me.py").read_text()
    assert change[0] in source
    (tmp_path / "pull_me.py").write_text(source.replace(*change))
    assert not check_method(f"{tmp_path}/pull_me.py:PullMe", [])
    assert "BROKEN" in (told := " ".join(capsys.readouterr().out.split())) and complaint in told
