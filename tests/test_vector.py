"""Networks as flat vectors: layout, gradients, the rules for buffers and dropout, and averages."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from pflsim.errors import DescriptionError
from pflsim.learning.fully_connected import FullyConnected
from pflsim.learning.loss import cross_entropy, squared_error
from pflsim.learning.vector import Layout, Network, average, network
from pflsim.rng import stream


def a_dnn(dtype=torch.float64, hidden=(7, 5)):
    widths = (12, *hidden, 3)
    layers = [nn.Flatten()]
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(dtype)


def a_batch(samples=6, dtype=torch.float64):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(samples, 3, 4))).to(dtype)
    return x, torch.from_numpy(rng.integers(3, size=samples))


def smooth_loss(logits, labels):
    return -(0.9 * torch.softmax(logits, 1) + 0.1 / 3).gather(1, labels.unsqueeze(1)).log().mean()


def test_a_layout_says_where_each_parameter_lies():
    layout = network(a_dnn(hidden=(7,)), (3, 4)).layout
    assert layout.names == ("1.weight", "1.bias", "3.weight", "3.bias")
    assert layout.offsets == (0, 84, 91, 112)
    assert layout.dimension == 115
    assert layout.span("3.weight") == slice(91, 112)


def test_a_view_shares_memory_with_its_vector():
    layout = Layout(("a", "b"), ((2, 3), (4,)))
    w = torch.zeros(10)
    layout.view(w, "b").fill_(1.0)
    layout.views(w)["a"][1, 2] = 5.0
    assert w.tolist() == [0, 0, 0, 0, 0, 5, 1, 1, 1, 1]


def test_flatten_linear_relu_gets_the_hand_derived_form_and_other_modules_do_not():
    assert type(network(a_dnn(), (3, 4))) is FullyConnected
    assert type(network(nn.Sequential(nn.Linear(4, 3)), (4,))) is FullyConnected
    assert type(network(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)), (4,))) is Network
    assert type(network(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2)), (4,))) is Network
    shared = nn.Linear(4, 4)
    assert type(network(nn.Sequential(shared, nn.ReLU(), shared), (4,))) is Network


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("loss", [None, cross_entropy, smooth_loss])
@pytest.mark.parametrize("hidden", [(), (7,), (7, 5)])
def test_the_hand_derived_gradient_is_autograds(dtype, tolerance, loss, hidden):
    by_hand, by_autograd = network(a_dnn(dtype, hidden), (3, 4)), Network(a_dnn(dtype, hidden), (3, 4))
    assert type(by_hand) is FullyConnected
    w = by_hand.initial(stream(1, "w"))
    x, y = a_batch(dtype=dtype)
    torch.testing.assert_close(by_hand.logits(w, x), by_autograd.logits(w, x), rtol=0, atol=tolerance)
    expected = by_autograd.gradient(w, x, y, loss)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(by_hand.gradient(w, x, y, loss), expected, rtol=0, atol=tolerance)


def test_autograd_on_flat_buffers_gives_the_gradient_of_the_plain_module():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    flat = network(nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 3)).double(), (3, 4))
    w = torch.cat([p.detach().reshape(-1) for p in plain.parameters()])
    x, y = a_batch()
    nn.functional.cross_entropy(plain(x), y).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])
    torch.testing.assert_close(flat.gradient(w, x, y), expected, rtol=0, atol=1e-14)


def test_least_squares_has_the_gradient_of_half_the_mean_squared_error():
    net = network(nn.Sequential(nn.Flatten(), nn.Linear(12, 1, bias=False)).double(), (3, 4))
    x, _ = a_batch()
    y, w = torch.arange(6.0, dtype=torch.float64), torch.linspace(-1, 1, 12, dtype=torch.float64)
    design = x.reshape(6, 12)
    torch.testing.assert_close(net.gradient(w, x, y), design.T @ (design @ w - y) / 6, rtol=0, atol=1e-12)
    by_autograd = Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 1, bias=False)).double(), (3, 4))
    torch.testing.assert_close(net.gradient(w, x, y), by_autograd.gradient(w, x, y, squared_error), rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", [network, Network])
def test_inputs_are_never_changed_and_results_are_new_or_the_one_given(form):
    net = form(a_dnn(), (3, 4))
    w = net.initial(stream(1, "w"))
    x, y = a_batch()
    before = w.clone(), x.clone(), y.clone()
    out = torch.full_like(w, float("nan"))
    assert net.gradient(w, x, y, out=out) is out
    first = net.gradient(w, x, y)
    second = net.gradient(w + 1, x, y)
    net.logits(w, x).fill_(0)
    net.descend(w, [(x, y)], 0.1)
    assert torch.equal(first, out)
    assert not torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(before, (w, x, y), strict=True))
    assert not first.is_inference()
    assert not first.requires_grad


@pytest.mark.parametrize("form", [network, Network])
def test_descending_has_the_bits_of_gradients_and_updates(form):
    net = form(a_dnn(torch.float32), (3, 4))
    w = net.initial(stream(1, "w"))
    batches = [a_batch(samples, torch.float32) for samples in (6, 4, 6, 1)]
    expected = w
    for x, y in batches:
        expected = expected.add(net.gradient(expected, x, y), alpha=-0.3)
    assert torch.equal(net.descend(w, batches, 0.3), expected)


@pytest.mark.parametrize("form", [network, Network])
def test_a_vector_that_lies_anywhere_in_memory_gives_the_same_bits(form):
    net = form(a_dnn(torch.float32), (3, 4))
    w = net.initial(stream(1, "w"))
    x, y = a_batch(dtype=torch.float32)
    shifted = torch.zeros(len(w) + 1)[1:].copy_(w)
    assert torch.equal(net.logits(w, x), net.logits(shifted, x))
    assert torch.equal(net.gradient(w, x, y), net.gradient(shifted, x, y))


@pytest.mark.parametrize("form", [network, Network])
def test_a_loss_may_ask_for_logits_of_another_vector_but_not_for_a_gradient(form):
    net = form(a_dnn(), (3, 4))
    w, other = net.initial(stream(1, "w")), net.initial(stream(2, "w"))
    x, y = a_batch()
    fixed = net.logits(other, x)

    def mixed(z, labels):
        return nn.functional.cross_entropy(0.5 * z + 0.5 * fixed, labels)

    def mixed_within(z, labels):
        return nn.functional.cross_entropy(0.5 * z + 0.5 * net.logits(other, x), labels)

    assert torch.equal(net.gradient(w, x, y, mixed_within), net.gradient(w, x, y, mixed))
    with pytest.raises(RuntimeError, match="must not ask its own network for a gradient"):
        net.gradient(w, x, y, lambda z, labels: net.gradient(other, x, labels).sum())
    assert torch.equal(net.gradient(w, x, y, mixed), net.gradient(w, x, y, mixed))


def test_weights_and_biases_start_uniform_within_one_over_the_root_of_the_fan_in():
    module = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 3, 5), nn.Flatten(), nn.Linear(48, 500))
    net = network(module, (8, 8))
    w = net.initial(stream(3, "w"))
    assert torch.equal(w, net.initial(stream(3, "w")))
    for name, bound in (("1", 1 / 5), ("3", 1 / 48**0.5)):
        values = torch.cat([net.layout.view(w, f"{name}.{part}").flatten() for part in ("weight", "bias")])
        assert 0.8 * bound < values.abs().max() <= bound
    assert abs(net.layout.view(w, "3.weight").mean()) < 0.01 / 48**0.5


def test_a_network_may_start_at_zero_or_where_its_constructor_left_it():
    module = a_dnn()
    constructed = torch.cat([p.detach().reshape(-1).clone() for p in module.parameters()])
    assert torch.equal(network(module, (3, 4), "module").initial(stream(0, "w")), constructed)
    assert not network(a_dnn(), (3, 4), "zero").initial(stream(0, "w")).any()


def test_a_shared_parameter_is_one_part_of_the_vector():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    net = network(Tied().double(), (4,))
    assert net.layout.names == ("first.weight", "first.bias", "second.bias")
    w = net.initial(stream(1, "w"))
    x, y = torch.eye(4, dtype=torch.float64), torch.arange(4)
    bump = torch.zeros_like(w)
    bump[5] = 1e-6
    slope = (cross_entropy(net.logits(w + bump, x), y) - cross_entropy(net.logits(w - bump, x), y)) / 2e-6
    assert net.gradient(w, x, y)[5].item() == pytest.approx(slope.item(), abs=1e-8)


def test_normalisation_uses_the_batch_at_hand_and_remembers_nothing():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    net = network(module.double(), (3, 4))
    assert not list(module.buffers())
    assert net.layout.names[2:4] == ("2.weight", "2.bias")
    w = net.initial(stream(1, "w"))
    assert net.layout.view(w, "2.weight").tolist() == [1.0] * 5
    assert net.layout.view(w, "2.bias").tolist() == [0.0] * 5
    x, y = a_batch()
    before = net.logits(w, x)
    net.gradient(w, 100 * x, y)
    assert torch.equal(net.logits(w, x), before)
    alone = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5)).double().train()
    alone.load_state_dict({name: net.layout.view(w, name) for name in net.layout.names[:4]}, strict=False)
    assert torch.equal(alone(x).relu() @ net.layout.view(w, "4.weight").T + net.layout.view(w, "4.bias"), before)


def test_constant_buffers_and_frozen_parameters_stay_and_are_not_in_the_vector():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(3.0))
            self.frozen = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x * self.scale * self.frozen)

    module = Scaled()
    net = network(module, (4,))
    assert net.layout.names == ("linear.weight", "linear.bias")
    w = net.initial(stream(1, "w"))
    net.descend(w, [(torch.ones(2, 4), torch.tensor([0, 1]))] * 3, 0.5)
    assert module.scale.item() == 3.0
    assert module.frozen.tolist() == [2.0] * 4


def test_a_module_that_changes_a_buffer_is_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            self.calls += 1
            return self.linear(x)

    with pytest.raises(DescriptionError, match="its forward pass changes the buffers calls"):
        network(Counting(), (4,))


def test_a_module_that_cannot_take_the_samples_or_gives_no_logits_is_refused():
    with pytest.raises(DescriptionError, match=r"model.name = 'Sequential': it cannot take samples of shape \[5\]"):
        network(nn.Sequential(nn.Linear(4, 3)), (5,))
    with pytest.raises(DescriptionError, match="must turn samples"):
        network(nn.Linear(4, 3), (2, 4))
    with pytest.raises(DescriptionError, match="must have parameters to train"):
        network(nn.Flatten(), (2, 4))


def test_dropout_follows_the_rng_in_training_and_is_off_in_evaluation():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 3))
    state = torch.random.get_rng_state()
    net = network(module.double(), (3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert net.is_random
    assert not network(a_dnn(), (3, 4)).is_random
    w = net.initial(stream(1, "w"))
    x, y = a_batch()
    assert torch.equal(net.logits(w, x), net.logits(w, x))
    first = net.gradient(w, x, y, rng=stream(1, "dropout"))
    assert torch.equal(first, net.gradient(w, x, y, rng=stream(1, "dropout")))
    assert not torch.equal(first, net.gradient(w, x, y, rng=stream(2, "dropout")))
    with pytest.raises(ValueError, match="needs an rng"):
        net.gradient(w, x, y)


def test_a_module_that_is_random_in_evaluation_is_refused():
    class AlwaysNoisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(nn.functional.dropout(x, 0.5, training=True))

    with pytest.raises(DescriptionError, match="draws random numbers in evaluation"):
        network(AlwaysNoisy(), (4,))


def test_flops_count_two_per_multiply_add_of_linear_and_convolution_layers():
    assert network(a_dnn(hidden=(7,)), (3, 4)).forward_flops == 2 * (12 * 7 + 7 * 3)
    convolution = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, groups=2), nn.MaxPool2d(2), nn.Flatten())
    net = network(nn.Sequential(*convolution, nn.Linear(6 * 4 * 4, 10)), (2, 8, 8))
    assert net.forward_flops == 2 * (6 * 64 * 9 * 1 + 96 * 10)


def test_an_average_is_weighted_and_none_where_nothing_counts():
    u, v = torch.tensor([1.0, 2.0]), torch.tensor([4.0, -4.0])
    assert average([u, v], [2, 1]).tolist() == [2.0, 0.0]
    assert average([u, v], [0, 0]) is None
    assert average([], []) is None
    assert average([u, v], [1, 0]).tolist() == [1.0, 2.0]
    assert average([u], [3]).dtype == torch.float32
    assert u.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="2 vectors but 1 weights"):
        average([u, v], [1])


def test_an_average_is_summed_in_float64_in_the_order_given_and_cast_once():
    tiny, big = torch.tensor([1.0]), torch.tensor([1e8])
    assert average([big, tiny, -big], [1, 1, 1]).item() == pytest.approx(1 / 3, rel=1e-6)


@pytest.mark.parametrize("dimension", [1, 1000, 7850, 65_537])
def test_an_average_has_the_same_bits_whatever_the_chunks(dimension, monkeypatch):
    vectors = [torch.randn(dimension, generator=torch.Generator().manual_seed(k)) for k in range(5)]
    weights = [600.0, 17.0, 3.3, 250.0, 1e-3]
    once = average(vectors, weights)
    for chunk in (1, 7, 64, 1000):
        if dimension / chunk < 10_000:
            monkeypatch.setattr("pflsim.learning.vector._AVERAGE_CHUNK", chunk)
            assert torch.equal(average(vectors, weights), once)
    plain = sum(u.double() * a for u, a in zip(vectors, weights, strict=True)) / sum(weights)
    torch.testing.assert_close(once, plain.float(), rtol=1e-6, atol=1e-7)


def test_a_state_holds_shared_parameters_and_constants_as_a_plain_module_has_them():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
            self.second.weight = self.first.weight
            self.register_buffer("shift", torch.tensor([1.0, 2.0, 3.0]))

        def forward(self, x):
            return self.second(torch.tanh(self.first(x))) + self.shift

    w = torch.linspace(-1, 1, 12)
    tied = network(Tied(), (3,))
    plain = Tied()
    plain.load_state_dict(tied.state(w))
    x = torch.eye(3)
    assert torch.equal(plain(x), tied.logits(w, x))
