"""The models have exactly the parameter counts that they state."""

import numpy as np
import pytest
import torch
from torch import nn

from pflsim import catalogue
from pflsim.errors import DescriptionError
from pflsim.learning import model
from pflsim.learning.vector import Network, network
from pflsim.rng import stream


def a_network(shape, classes, **table):
    return model.load(table, shape, classes, stream(0, "model"))


@pytest.mark.parametrize(
    ("count", "shape", "classes", "table"),
    [
        (7_850, (28, 28), 10, {"name": "mlr"}),
        (3_372, (561,), 6, {"name": "mlr"}),
        (202, (100,), 2, {"name": "mlr"}),
        (48_670, (28, 28), 62, {"name": "mlr"}),
        (101_770, (28, 28), 10, {"name": "dnn"}),
        (56_806, (561,), 6, {"name": "dnn", "hidden": [100]}),
        (2_062, (100,), 2, {"name": "dnn", "hidden": [20]}),
        (89_610, (28, 28), 10, {"name": "dnn", "hidden": [100, 100]}),
        (79_510, (28, 28), 10, {"name": "dnn", "hidden": [100]}),
        (30, (30,), 0, {"name": "linear"}),
        (878_538, (3, 32, 32), 10, {"name": "cnn-cgpfl"}),
        (52_202, (3, 32, 32), 10, {"name": "cnn-cgpfl-small"}),
        (157_742, (28, 28), 62, {"name": "cnn-stratified"}),
        (2_369_582, (28, 28), 62, {"name": "cnn-stratified-ref"}),
        (2_369_582, (28, 28), 62, {"name": "cnn-stratified-ref", "dropout": True}),
        (1_663_370, (28, 28), 10, {"name": "cnn-mcmahan"}),
        (1_756_426, (3, 32, 32), 10, {"name": "cnn-mcmahan"}),
        (1_068_298, (3, 24, 24), 10, {"name": "cnn-mcmahan"}),
        (64_102, (3, 32, 32), 10, {"name": "cnn-fedu"}),
    ],
)
def test_a_model_has_exactly_the_parameters_that_it_states(count, shape, classes, table):
    net = a_network(shape, classes, **table)
    assert net.layout.dimension == count
    w = net.initial(stream(1, "initial"))
    assert net.logits(w, torch.zeros(3, *shape)).shape == (3, classes or 1)


@pytest.mark.parametrize("name", [n for n in catalogue.names("models") if n.startswith("cnn")])
@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28), (3, 32, 32), (3, 30, 26)])
def test_every_cnn_takes_grey_and_colour_images_and_has_a_gradient(name, shape):
    net = a_network(shape, 10, name=name)
    w = net.initial(stream(1, "initial"))
    x = torch.from_numpy(np.random.default_rng(0).random((2, *shape), dtype=np.float32))
    gradient = net.gradient(w, x, torch.tensor([3, 7]))
    assert gradient.isfinite().all()
    assert net.layout.view(gradient, net.layout.names[0]).any()


@pytest.mark.parametrize("name", [n for n in catalogue.names("models") if n.startswith("cnn")])
@pytest.mark.parametrize(
    ("shape", "reason"),
    [((561,), "wants images"), ((32, 32, 3), "channels first"), ((3, 4, 4), "wants images of at least")],
)
def test_a_cnn_refuses_samples_that_it_cannot_take(name, shape, reason):
    with pytest.raises(DescriptionError, match=reason) as refusal:
        a_network(shape, 10, name=name)
    assert refusal.value.key == "model.name"
    assert refusal.value.value == name


@pytest.mark.parametrize(("name", "smallest"), [("cnn-cgpfl", 16), ("cnn-stratified", 7), ("cnn-mcmahan", 8)])
def test_the_smallest_image_that_a_cnn_says_it_takes_is_one_that_it_takes(name, smallest):
    assert a_network((3, smallest, smallest), 10, name=name).layout.dimension > 0


def test_grey_images_with_and_without_a_channel_axis_give_the_same_logits():
    plain, with_channel = (
        a_network((28, 28), 10, name="cnn-fedu"),
        a_network((1, 28, 28), 10, name="cnn-fedu"),
    )
    w = plain.initial(stream(1, "initial"))
    x = torch.ones(2, 28, 28)
    assert torch.equal(plain.logits(w, x), with_channel.logits(w, x.unsqueeze(1)))


def test_the_reference_form_of_the_stratified_cnn_has_dropout_only_when_asked():
    assert not a_network((28, 28), 62, name="cnn-stratified-ref").is_random
    assert a_network((28, 28), 62, name="cnn-stratified-ref", dropout=True).is_random


def test_classifiers_refuse_real_valued_targets_and_least_squares_refuses_labels():
    with pytest.raises(DescriptionError, match="at least 2 classes"):
        a_network((28, 28), 0, name="mlr")
    with pytest.raises(DescriptionError, match="real-valued targets"):
        a_network((28, 28), 10, name="linear")


def test_wrong_settings_of_a_model_are_refused_by_name():
    with pytest.raises(DescriptionError, match=r"model.hiden = \[3\]: unknown key; .*did you mean 'hidden'"):
        a_network((28, 28), 10, name="dnn", hiden=[3])
    with pytest.raises(DescriptionError, match=r"model\.hidden"):
        a_network((28, 28), 10, name="dnn", hidden=[])
    with pytest.raises(DescriptionError, match=r"model.start = 'zeros': .*did you mean 'zero'"):
        a_network((28, 28), 10, name="mlr", start="zeros")


def a_users_model(shape: tuple[int, ...], classes: int, *, width: int = 6) -> nn.Module:
    """A model from outside the project, with weights that its constructor draws and never trains."""
    hidden = nn.Linear(shape[0], width)
    hidden.requires_grad_(False)
    return nn.Sequential(hidden, nn.Tanh(), nn.Linear(width, classes))


def test_a_model_of_the_users_own_works_and_its_random_constants_follow_the_seed():
    table = {"name": f"{__name__}:a_users_model", "width": 5}
    first = model.load(table, (4,), 3, stream(0, "model"))
    torch.manual_seed(99)
    second, third = (model.load(table, (4,), 3, stream(seed, "model")) for seed in (0, 1))
    assert type(first) is Network
    assert first.layout.dimension == 18
    w, x = torch.ones(18), torch.eye(4)
    assert torch.equal(first.logits(w, x), second.logits(w, x))
    assert not torch.equal(first.logits(w, x), third.logits(w, x))
    with pytest.raises(DescriptionError, match=r"a_users_model': it cannot take samples of shape \[4, 5\]"):
        model.load(table | {"width": 7}, (4, 5), 3, stream(0, "model"))


def test_mcmahans_cifar_pools_halve_a_side():
    module = catalogue.find("models", "cnn-mcmahan", "model.name")((3, 24, 24), 10)
    network(module, (3, 24, 24))
    assert module[2](torch.zeros(1, 64, 24, 24)).shape == (1, 64, 12, 12)
