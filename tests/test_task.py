"""A client's visit: batches, gradients, local descent, evaluation, and the account of work."""

import math
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
import torch
from torch import nn

from pflsim.errors import DescriptionError
from pflsim.learning.task import Evaluation, Task, Training, Work
from pflsim.learning.vector import Network, network
from pflsim.rng import stream

POOL = 60


@dataclass(frozen=True)
class Rows:
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def a_network(dtype=torch.float32):
    return network(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).to(dtype), (2, 3))


def a_task(net=None, *, train=range(10, 35), test=range(35, 60), client=3, visit=0, round=0, **training):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(POOL, 2, 3)), rng.integers(3, size=POOL)
    net = net or a_network()
    settings = {"step_size": 0.1, "batch": 10, "local_steps": 6} | training
    rows = Rows(*(np.array(part, dtype=np.int64) for part in (train, [], test)))
    for indices in (rows.train, rows.validation, rows.test):
        indices.setflags(write=False)
    w = net.initial(stream(0, "w"))
    pool = torch.from_numpy(x).to(w.dtype), torch.from_numpy(y)
    return Task(net, *pool, rows, Training(**settings), 7, client, visit, round), w


def rows_of(task, batch):
    return [(task.x == sample).flatten(1).all(1).nonzero().item() for sample in batch.x]


def test_each_pass_holds_every_training_sample_exactly_once_in_a_new_order():
    task, _ = a_task()
    batches = list(task.batches(6))
    assert [len(batch) for batch in batches] == [10, 10, 5, 10, 10, 5]
    rows = [rows_of(task, batch) for batch in batches]
    first, second = [*chain(*rows[:3])], [*chain(*rows[3:])]
    assert sorted(first) == sorted(second) == list(range(10, 35))
    assert first != second
    assert all(torch.equal(batch.y, task.y[found]) for batch, found in zip(batches, rows, strict=True))


def test_a_client_never_trains_on_a_test_sample():
    task, _ = a_task()
    assert not {row for batch in task.batches(9) for row in rows_of(task, batch)} & set(task.part.test)


def test_a_client_with_fewer_samples_than_a_batch_uses_them_all():
    task, _ = a_task(train=range(4))
    assert [sorted(rows_of(task, batch)) for batch in task.batches(2)] == [[0, 1, 2, 3]] * 2


def test_the_same_visit_draws_the_same_batches_whatever_else_was_drawn():
    task, w = a_task()
    first = [rows_of(task, batch) for batch in task.batches(4)]
    again, _ = a_task(round=9)
    again.rng("noise").random(100)
    again.sgd(w)
    interleaved = zip(again.batches(4), again.batches(4, "personal"), strict=True)
    assert [rows_of(task, batch) for batch, _ in interleaved] == first
    for other in (a_task(visit=1)[0], a_task(client=4)[0]):
        assert [rows_of(task, batch) for batch in other.batches(4)] != first
    assert [rows_of(task, batch) for batch in task.batches(4, "personal")] != first


def test_fewer_batches_are_the_first_of_more():
    task, _ = a_task()
    few, many = list(task.batches(2)), list(task.batches(7))
    assert all(torch.equal(a.x, b.x) for a, b in zip(few, many, strict=False))


def test_a_visit_has_local_steps_or_whole_epochs():
    assert a_task(local_steps=6)[0].steps == 6
    assert a_task(local_steps=None, local_epochs=2)[0].steps == 6
    assert a_task(local_steps=None, local_epochs=2, batch=1000)[0].steps == 2
    assert a_task(train=[], local_steps=6)[0].steps == 0


@pytest.mark.parametrize(("given"), [{"local_steps": None}, {"local_steps": 3, "local_epochs": 3}])
def test_steps_and_epochs_exclude_each_other(given):
    with pytest.raises(DescriptionError, match="exactly one of local_steps and local_epochs"):
        a_task(**given)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("training.batch", {"batch": 0}),
        ("training.local_steps", {"local_steps": 0}),
        ("training.momentum", {"momentum": 1.0}),
        ("training.step_size", {"step_size": math.nan}),
        ("training.weight_decay", {"weight_decay": -1.0}),
        ("training.decay", {"schedule": "inverse"}),
        ("training.decay", {"decay": 0.5}),
        ("training.schedule_rounds", {"schedule": "cosine"}),
        ("training.schedule_rounds", {"schedule": "exponential", "decay": 0.5, "schedule_rounds": 3}),
    ],
)
def test_training_that_makes_no_sense_is_refused_by_name(key, given):
    with pytest.raises(DescriptionError) as refusal:
        a_task(**given)
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"schedule": "constant"}, [0.4, 0.4, 0.4, 0.4, 0.4, 0.4]),
        ({"schedule": "step", "decay": 0.5, "schedule_rounds": 2}, [0.4, 0.4, 0.2, 0.2, 0.1, 0.1]),
        ({"schedule": "exponential", "decay": 0.5}, [0.4, 0.2, 0.1, 0.05, 0.025, 0.0125]),
        ({"schedule": "cosine", "schedule_rounds": 4}, [0.4, 0.341421356, 0.2, 0.058578644, 0.0, 0.0]),
        ({"schedule": "inverse", "decay": 1.0}, [0.4, 0.2, 0.4 / 3, 0.1, 0.08, 0.4 / 6]),
    ],
)
def test_the_step_size_depends_on_the_round_alone(schedule, expected):
    training = Training(step_size=0.4, local_steps=1, **schedule)
    assert [training.step_size_at(t) for t in range(6)] == pytest.approx(expected)
    assert a_task(round=3, **{"step_size": 0.4, **schedule})[0].step_size == training.step_size_at(3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_sgd_is_what_torch_does_with_the_same_batches(momentum, weight_decay, dtype, tolerance):
    settings = {"momentum": momentum, "weight_decay": weight_decay}
    task, w = a_task(a_network(dtype), **settings)
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).to(dtype)
    nn.utils.vector_to_parameters(w.clone(), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, **settings)
    for batch in task.batches(task.steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(batch.x), batch.y).backward()
        optimiser.step()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(task.sgd(w), expected, rtol=0, atol=tolerance)


def test_the_fast_path_and_a_written_out_loop_give_the_same_bits():
    task, w = a_task()
    fast = task.sgd(w)
    assert torch.equal(task.sgd(w, extra=lambda v: 0.0 * (v - w)), fast)
    v = w
    for batch in task.batches(task.steps):
        v = v.add(task.grad(v, batch), alpha=-task.step_size)
    assert torch.equal(v, fast)


def test_an_extra_term_is_added_to_the_gradient():
    task, w = a_task()
    anchor = torch.ones_like(w)
    v = w.clone()
    for batch in task.batches(4, "personal"):
        v = v - 0.05 * (task.grad(v, batch) + 2.0 * (v - anchor))
    result = task.sgd(w, steps=4, step_size=0.05, extra=lambda u: 2.0 * (u - anchor), purpose="personal")
    torch.testing.assert_close(result, v, rtol=0, atol=1e-6)


def test_an_extra_term_may_itself_ask_for_gradients():
    task, w = a_task()
    batch = next(task.batches(1, "anchor"))
    fixed = task.grad(w, batch)
    assert torch.equal(task.sgd(w, extra=lambda _: task.grad(w, batch)), task.sgd(w, extra=lambda _: fixed))


def test_sgd_takes_a_loss_of_ones_own():
    task, w = a_task()
    halved = task.sgd(w, loss=lambda z, y: 0.5 * nn.functional.cross_entropy(z, y), step_size=0.2)
    torch.testing.assert_close(halved, task.sgd(w, step_size=0.1), rtol=0, atol=1e-6)


def test_nothing_that_is_given_to_a_task_is_changed():
    task, w = a_task(momentum=0.5, weight_decay=0.1)
    before = [value.clone() for value in (w, task.x, task.y)]
    rows = task.part.train.copy()
    result = task.sgd(w, extra=lambda v: v * 0.1)
    batch = next(task.batches(1))
    task.grad(w, batch)
    task.logits(w, batch)
    task.loss(w)
    task.evaluate(w)
    assert all(torch.equal(a, b) for a, b in zip(before, (w, task.x, task.y), strict=True))
    assert np.array_equal(rows, task.part.train)
    assert result.data_ptr() != w.data_ptr()
    later = result.clone()
    task.sgd(w)
    assert torch.equal(result, later)


def test_work_declared_beforehand_is_the_work_that_is_done_short_batches_included():
    task, w = a_task()
    assert task.work() == Work(50, 50)
    task.sgd(w)
    assert task.spent == task.work()
    two, w = a_task(local_steps=7)
    assert two.work(passes=2, forwards=1) == Work(60 * 3, 60 * 2)
    for batch in two.batches(two.steps):
        two.grad(two.grad(w, batch), batch)
        two.logits(w, batch)
    assert two.spent == two.work(passes=2, forwards=1)
    slow, w = a_task(momentum=0.9)
    slow.sgd(w)
    assert slow.spent == slow.work()


def test_the_training_loss_costs_forward_passes_and_an_evaluation_costs_nothing():
    task, w = a_task()
    logits = task.network.logits(w, task.x[10:35])
    assert task.loss(w) == pytest.approx(nn.functional.cross_entropy(logits, task.y[10:35]).item(), rel=1e-6)
    assert task.spent == Work(25, 0)
    task.evaluate(w)
    assert task.spent == Work(25, 0)


def test_an_evaluation_counts_right_answers_over_the_whole_split():
    task, w = a_task(test=list(range(35, 60)) * 30)
    logits = task.network.logits(w, task.x[35:60])
    right = int((logits.argmax(1) == task.y[35:60]).sum()) * 30
    total_loss = nn.functional.cross_entropy(logits.double(), task.y[35:60], reduction="sum").item() * 30
    result = task.evaluate(w)
    assert (result.correct, result.total) == (right, 750)
    assert result.loss_sum == pytest.approx(total_loss, rel=1e-6)
    assert task.evaluate(lambda x: task.network.logits(w, x)) == result


def test_a_normalised_network_is_evaluated_in_pieces_that_are_never_a_single_sample():
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    task, w = a_task(network(module, (2, 3)), test=list(range(35, 60)) * 10 + [0] * 7)
    assert task.evaluate(w).total == 257


def test_a_client_without_samples_does_nothing():
    task, w = a_task(train=[], test=[])
    assert task.evaluate(w) == Evaluation(0, 0, 0.0)
    assert torch.equal(task.sgd(w), w)
    assert list(task.batches(3)) == []
    assert task.loss(w) == 0.0
    assert task.work(passes=3) == task.spent == Work(0, 0)


def test_real_valued_targets_are_fitted_by_least_squares():
    net = network(nn.Sequential(nn.Flatten(), nn.Linear(6, 1, bias=False)).double(), (2, 3), "zero")
    task, w = a_task(net, batch=1000, local_steps=3000)
    design = task.x.reshape(POOL, 6)
    task.y = design @ torch.arange(6, dtype=torch.float64)
    fitted = task.sgd(w)
    torch.testing.assert_close(fitted, torch.arange(6, dtype=torch.float64), rtol=0, atol=1e-8)
    assert task.evaluate(w).correct == 0
    residual = (task.y[35:60] ** 2).sum().item() / 2
    assert task.evaluate(w).loss_sum == pytest.approx(residual)


def test_gradients_on_one_batch_drop_the_same_units_and_runs_repeat():
    def dropping():
        layers = nn.Sequential(nn.Flatten(), nn.Linear(6, 40), nn.ReLU(), nn.Dropout(0.5), nn.Linear(40, 3))
        return network(layers, (2, 3))

    task, w = a_task(dropping())
    first, second = task.batches(2)
    gradient = task.grad(w, first)
    assert torch.equal(task.grad(w, first), gradient)
    assert not torch.equal(task.grad(w, second), gradient)
    result = task.sgd(w)
    torch.manual_seed(1)
    assert torch.equal(a_task(dropping())[0].sgd(w), result)
    assert not torch.equal(a_task(dropping(), visit=1)[0].sgd(w), result)


def test_a_network_by_autograd_trains_as_the_hand_derived_one_does():
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    task, w = a_task()
    other, _ = a_task(Network(module, (2, 3)))
    torch.testing.assert_close(task.sgd(w), other.sgd(w), rtol=0, atol=1e-6)
