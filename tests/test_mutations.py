"""The tests bite: each stored change of one line in the sources makes the test that it names fail."""

import ast

import pytest

from pflsim import catalogue
from tests.mutants import KILLED, ROOT, Mutants, Mutation, stored

MUTATIONS = stored()
A_SIGN = Mutation(
    "pflsim/algorithms/fedprox.py",
    "self.mu * (w - x)",
    "self.mu * (x - w)",
    "tests/test_methods_by_hand.py::test_fedprox_is_held_back_from_the_second_step_on",
)


@pytest.mark.parametrize("name", catalogue.names("algorithms"))
def test_every_method_has_a_mutation(name):
    file = f"pflsim/algorithms/{name.replace('-', '_')}.py"
    assert any(mutation.file == file for mutation in MUTATIONS), f"tests/mutations*.toml have none of {file}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_changes_one_place_of_a_file_that_stays_python_and_names_a_test(mutation):
    source = (ROOT / mutation.file).read_text()
    assert source.count(mutation.old) == 1
    assert mutation.new != mutation.old
    ast.parse(source.replace(mutation.old, mutation.new))
    file, _, name = mutation.test.partition("::")
    assert f"\ndef {name.partition('[')[0]}(" in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def mutants(tmp_path_factory):
    mutants = Mutants(tmp_path_factory.mktemp("mutants"))
    yield mutants
    mutants.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_test_that_a_mutation_names_fails(mutation, mutants):
    assert mutants.verdict(mutation) == KILLED


def changed(**parts):
    return Mutation(**{**vars(A_SIGN), **parts})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "verdict"),
    [
        (A_SIGN, KILLED),
        (changed(new="self.mu * (w - x) * 1.0"), "survived"),
        (changed(new="self.mu * (w - nothing)"), "not killed by an assertion: NameError"),
        (changed(new="self.mu * (w - x"), "no test ran"),
        (changed(test="tests/test_methods_by_hand.py::test_that_is_not_there"), "no test ran"),
    ],
    ids=["killed", "survived", "another error", "no Python", "no test"],
)
def test_what_does_not_make_its_test_fail_by_an_assertion_is_told(mutation, verdict, mutants):
    assert mutants.verdict(mutation).startswith(verdict)
