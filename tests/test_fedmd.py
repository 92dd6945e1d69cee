"""FedMD by hand, and clients with different models in real runs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nodes.sequential import run_sequentially
from pflsim.algorithms.fedmd import FedMD
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description, run_here
from tests.problems import classification, least_squares

SMALL = FedMD(align_samples=6, pretrain_epochs=2, digest_epochs=1, eta_digest=0.2)
TWO_KINDS = {"name": "mlr", "others": [{"name": "dnn", "hidden": [7]}]}


def test_a_first_visit_trains_alone_and_says_what_the_model_puts_out() -> None:
    problem = classification()
    ran = run(SMALL, problem, 1)
    for client, up in ran.ups[0].items():
        task: Any = problem.new_task(client, 0, 0)
        steps = 2 * -(-task.n_samples // 4)
        w = task.sgd(problem.federation.initial, steps=steps, purpose="pretraining")
        assert torch.equal(ran.you[client]["w"], w)
        chosen = task.public[SMALL._rows(task, 0)]
        assert chosen.shape == (6, 4)
        torch.testing.assert_close(up["logits"], task.network.logits(w, chosen))
        assert list(up) == ["logits"]


def test_the_public_samples_of_a_round_are_the_same_for_all_and_differ_from_round_to_round() -> None:
    problem = classification()
    rows = [[SMALL._rows(problem.new_task(k, visit, 0), t).tolist() for k, visit in ((0, 0), (3, 2))] for t in (0, 1)]
    assert rows[0][0] == rows[0][1] and rows[1][0] == rows[1][1]
    assert rows[0][0] != rows[1][0]
    assert len(FedMD(align_samples=99)._rows(problem.new_task(0, 0, 0), 0)) == 11


def test_the_consensus_is_the_plain_mean_of_what_came() -> None:
    ran = run(SMALL, classification(), 1)
    mean = torch.stack([up["logits"] for up in ran.ups[0].values()]).mean(0)
    torch.testing.assert_close(ran.all["consensus"], mean)


def test_a_later_visit_digests_the_consensus_and_then_revisits_its_own_data() -> None:
    """By hand: the gradient of mean |W x + b - z*| is sign(...) x^T / (samples classes)."""
    problem = classification()
    method = FedMD(align_samples=4, pretrain_epochs=1, eta_digest=0.2)  # a single batch of 4
    before = run(method, problem, 1)
    after = run(method, problem, 2)
    for client in problem.federation.clients:
        task: Any = problem.new_task(client, 1, 1)
        w = before.you[client]["w"]
        x = task.public[method._rows(task, 0)]
        sign = (task.network.logits(w, x) - before.all["consensus"]).sign() / (4 * 3)
        slope = torch.cat([(sign.T @ x).flatten(), sign.sum(0)])
        torch.testing.assert_close(after.you[client]["w"], task.sgd(w - 0.2 * slope), rtol=0, atol=1e-6)


def test_digesting_brings_what_the_clients_say_together() -> None:
    def spread(digest_epochs: int) -> float:
        method = FedMD(pretrain_epochs=20, digest_epochs=digest_epochs, eta_digest=0.05)
        ran = run(method, classification(step_size=0.1, local_steps=1), 6)
        return float(torch.stack([up["logits"] for up in ran.ups[-1].values()]).std(0).mean())

    assert spread(20) < 0.7 * spread(0)


def test_answers_of_one_round_are_averaged_as_they_come_and_older_ones_ignored() -> None:
    federation = classification().federation
    this = Round(5, (0, 1, 2), federation, 0.05)
    z = [torch.full((2, 3), float(value)) for value in (1, 2, 6, 100)]

    def answer(client: int, of_round: int) -> Answer:
        return Answer(client, {"logits": z[client]}, {"align": torch.tensor([of_round])}, 0, 9)

    state: Tensors = FedMD().server_init(federation)
    for client in range(3):
        state = FedMD().server_arrival(state, answer(client, 5), 0.3, this)
    assert torch.equal(state["consensus"], torch.full((2, 3), 3.0))
    assert torch.equal(FedMD().server_arrival(state, answer(3, 4), 0.3, this)["consensus"], state["consensus"])
    buffered = FedMD().server_buffer(state, [answer(3, 6), answer(0, 5)], [1.0, 1.0], this)
    assert torch.equal(buffered["consensus"], z[3])
    assert buffered["of"].tolist() == [6] and buffered["answers"].tolist() == [1]


def test_each_client_is_evaluated_with_its_own_model() -> None:
    problem = classification()
    ran = run(SMALL, problem, 2)
    offered = models(SMALL, problem, ran, 2)
    assert list(offered) == ["personalised"] and torch.equal(offered["personalised"], ran.you[2]["w"])


def test_without_public_samples_it_is_refused() -> None:
    with pytest.raises(DescriptionError, match=r"data.public_share = 0.0: fedmd needs public samples"):
        FedMD().check(least_squares().federation)


def study(method: str, **settings: Any) -> Study:
    return Study(validate(description(algorithm={"name": method}, **settings)), b"8 bytes.")


def test_a_tenth_is_set_aside_where_nothing_is_said_and_a_warning_tells() -> None:
    found = study("fedmd")
    assert found.federation.public == 20 and len(found.data.public) == 20
    assert "data.public_share is 0.1, as fedmd needs public data" in found.warnings[0]
    assert study("fedmd", data__public_share=0.25).federation.public == 50
    assert study("fedavg").federation.public == 0
    with pytest.raises(DescriptionError, match=r"data.public_share = 0.0"):
        study("fedmd", data__public_share=0.0)


def test_clients_take_the_models_in_turn_each_from_its_own_start_and_at_its_own_cost() -> None:
    found = study("fedmd", model=TWO_KINDS)
    mlr, dnn = (network.layout.dimension for network in found.networks)
    assert [len(found.client(number).initial) for number in range(4)] == [mlr, dnn, mlr, dnn]
    assert [found.task(number, 0, 0).network for number in range(4)] == found.networks * 2
    work = found.task(0, 0, 0).work()
    slow, slower = (found._flops(work, client) for client in (0, 1))
    assert slower / slow == found.networks[1].forward_flops / found.networks[0].forward_flops > 1
    plain = study("fedmd")
    assert torch.equal(plain.initial, found.initial)


@pytest.mark.parametrize("method", ["fedmd", "local"])
def test_methods_that_exchange_no_parameters_run_with_different_models(method: str, tmp_path: Path) -> None:
    tables = description(algorithm={"name": method}, model=TWO_KINDS, run__clients_per_process=2)
    result = run_here(tables, tmp_path / "out")
    expected = run_sequentially(Study(validate(tables), b"8 bytes.")).finished()
    assert result.summary["digest"] == expected["digest"]
    uploads = {row["sent_payload_bytes"] for row in result.rows("messages", channel="data", receiver="server")}
    assert uploads == ({20 * 4 * 4} if method == "fedmd" else {0})


def test_a_method_that_averages_models_is_refused_with_different_ones() -> None:
    with pytest.raises(DescriptionError, match=r"model.others = .*: the method needs the same model at every client"):
        study("fedavg", model=TWO_KINDS)
    with pytest.raises(DescriptionError, match=r"model.others = 'dnn': must be a list of tables"):
        study("local", model={"name": "mlr", "others": "dnn"})
    with pytest.raises(DescriptionError, match=r"model.name = 'mlrr'"):
        study("local", model={"name": "mlr", "others": [{"name": "mlrr"}]})
