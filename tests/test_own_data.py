"""Data of a user's own: Datasets that draw at random, classes in another order, and labels that cannot be right."""

import json
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import torchcaps as tc
from tests.support.commands import run as run_command
from torchcaps._core.errors import InputError
from torchcaps.apps.report import write_report
from torchcaps.data import TextSet, Vocabulary, as_examples
from torchcaps.data.own import with_classes
from torchcaps.runs.run import Run


class Points(nn.Module):
    """Vectors of twenty numbers in three classes."""

    def __init__(self):
        super().__init__()
        self.layer = tc.DenseCapsules(5, 3, 4, 4)

    def forward(self, points):
        poses = points.view(len(points), 5, 4)
        return self.layer(tc.Capsules(poses, tc.length(poses)))


class Rows(Dataset):
    """Vectors with their labels; noisy: each is varied at random, by all three generators that people use."""

    def __init__(self, count=24, classes=("a", "b", "c"), noisy=False, label=int):
        self.points = torch.randn(count, 20, generator=torch.Generator().manual_seed(0))
        self.classes, self.noisy, self.label = classes, noisy, label

    def __len__(self):
        return len(self.points)

    def __getitem__(self, row):
        noise = torch.randn(20) + np.random.rand() + random.random() if self.noisy else 0
        return self.points[row] + noise, self.label(row % len(self.classes))


def new_net():
    torch.manual_seed(1)
    return Points()


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def test_a_dataset_that_draws_at_random_trains_to_the_same_weights(tmp_path):
    for seed, name in enumerate(("one", "two")):
        net = new_net()
        torch.manual_seed(seed)
        tc.fit(net, Rows(noisy=True), epochs=2, batch_size=8, out=tmp_path / name)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


def test_a_dataset_draws_anew_in_every_epoch():
    examples, rows = as_examples("fit", Rows(noisy=True)), torch.arange(4)
    first, same, other = (examples.batch(rows, draw).inputs for draw in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_a_dataset_leaves_the_random_generators_alone():
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    as_examples("fit", Rows(noisy=True)).batch(torch.arange(4))
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]


def test_a_killed_fit_on_random_draws_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    tc.fit(new_net(), Rows(noisy=True), epochs=3, batch_size=8, out=tmp_path / "whole")
    from torchcaps.train.progress import Progress

    real = Progress.on_train_epoch_start

    def killed(self, trainer, module):
        if trainer.current_epoch == 2:
            raise RuntimeError("killed")
        real(self, trainer, module)

    monkeypatch.setattr(Progress, "on_train_epoch_start", killed)
    with pytest.raises(RuntimeError, match="killed"):
        tc.fit(new_net(), Rows(noisy=True), epochs=3, batch_size=8, out=tmp_path / "part")
    monkeypatch.undo()
    torch.manual_seed(5)
    tc.fit(Points(), Rows(noisy=True), resume=tmp_path / "part")
    assert weights(tmp_path / "part") == weights(tmp_path / "whole")


def test_a_dataset_with_classes_in_another_order_is_read_by_their_names(tmp_path):
    run = tc.fit(new_net(), Rows(), epochs=1, out=tmp_path / "run")
    assert tc.evaluate(run, Rows(classes=("c", "a"))).labels.flatten().tolist() == [2, 0] * 12
    with pytest.raises(InputError, match="classes among a, b, c, got z"):
        tc.evaluate(run, Rows(classes=("a", "z")))
    assert tc.evaluate(run, Rows(classes=("x", "y", "z")), classes=("a", "b", "c")).labels[:3].flatten().tolist() == [
        0, 1, 2,
    ]  # fmt: skip


def test_validation_data_in_another_order_are_read_by_their_names(tmp_path):
    run = tc.fit(new_net(), Rows(), Rows(12, classes=("b", "c", "a")), epochs=1, out=tmp_path / "run")
    assert tc.evaluate(run, part="validation").labels[:3].flatten().tolist() == [1, 2, 0]


def test_renamed_classes_go_on_without_their_names(tmp_path):
    run = tc.fit(new_net(), Rows(classes=("0", "1", "2")), classes=("a", "b", "c"), epochs=1, out=tmp_path / "run")
    assert run.metadata.classes == ("a", "b", "c")
    assert tc.fit(new_net(), Rows(classes=("0", "1", "2")), resume=tmp_path / "run").metadata == run.metadata


def test_truth_values_are_read_by_the_names_of_their_classes():
    examples = as_examples("fit", Rows(4, classes=("c", "a"), label=lambda label: torch.eye(2).bool()[label]))
    labels = with_classes("fit", examples, ("a", "b", "c")).batch(torch.arange(2)).labels
    assert labels.tolist() == [[False, False, True], [True, False, False]]


def test_a_dataset_may_give_names_as_labels():
    examples = as_examples("fit", Rows(label=lambda label: "abc"[label]))
    assert examples.batch(torch.arange(4)).labels.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Rows(label=lambda label: "xyz"[label]), "Rows: expected labels among a, b, c, got x"),
        (Rows(label=lambda label: {"is": label}), "Rows: expected labels as numbers or names, got a dict"),
        ((torch.rand(6, 20), np.array([["a"], ["b"], ["c"]] * 2)), r"\(6, 1\).*y\.ravel\(\)"),
        ((torch.rand(6, 20), np.eye(3)[[0, 1, 2] * 2]), r"\(6, 3\) of float64.*y\.argmax\(1\)"),
        ((torch.rand(6, 20), np.array(["a", None, "b"] * 2, dtype=object)), "a label for each input, got none"),
        ((torch.rand(6, 20), np.array([0.5, float("nan"), 1] * 2, dtype=object)), "a label for each input, got none"),
        ((torch.full((6, 20), float("nan")), [0, 1, 2] * 2), "inputs that are finite numbers"),
        ((torch.rand(6, 20), np.zeros((6, 4), dtype=bool)), "3 classes, as the network has, got 4"),
    ],
)
def test_labels_and_inputs_that_cannot_be_right_are_refused(tmp_path, data, message):
    with pytest.raises(InputError, match=message) as caught:
        tc.fit(new_net(), data, epochs=1, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_truth_values_have_a_column_for_each_name(tmp_path):
    truth = np.zeros((6, 4), dtype=bool)
    with pytest.raises(InputError, match=r"truth values \[n y\] = \(6, 3\), got \(6, 4\)"):
        tc.fit(new_net(), (torch.rand(6, 20), truth), classes=("a", "b", "c"), epochs=1, out=tmp_path / "run")


def test_resume_refuses_another_network_and_keeps_the_checkpoint(tmp_path):
    run = tc.fit(new_net(), Rows(), epochs=1, out=tmp_path / "run")

    class Other(Points):
        def __init__(self):
            super().__init__()
            self.more = nn.Linear(2, 2)

    for ask in (lambda: tc.fit(Other(), Rows(), resume=run.folder), lambda: tc.load(run.folder, model=Other())):
        with pytest.raises(InputError, match=r"got Missing key.*Give a network like the one that was trained"):
            ask()
    assert run.checkpoint.exists()


def test_resume_takes_calibrate(tmp_path, monkeypatch):
    from torchcaps.train import prepare

    run = tc.fit(new_net(), Rows(), epochs=1, calibrate=False, out=tmp_path / "run")
    run.checkpoint.unlink()  # as if it had been killed in its first epoch
    monkeypatch.setattr(prepare, "calibrate", lambda *given: pytest.fail("calibrated"))
    tc.fit(new_net(), Rows(), resume=run.folder, calibrate=False)


def test_the_command_line_says_how_a_run_of_python_goes_on(tmp_path, capsys):
    tc.fit(new_net(), Rows(), epochs=1, out=tmp_path / "run")
    assert run_command("train", "--resume", tmp_path / "run") == 2
    assert f"torchcaps.fit(model, data, resume='{tmp_path / 'run'}')" in capsys.readouterr().err


def test_a_network_may_use_a_layer_twice(tmp_path):
    class Twice(Points):
        def __init__(self):
            super().__init__()
            self.again = self.layer

    net = Twice()
    run = tc.fit(net, Rows(), epochs=1, out=tmp_path / "run")
    loaded = tc.load(run.folder, model=Twice())
    assert torch.equal(loaded.again.transform.weight, net.layer.transform.weight)


@pytest.mark.parametrize("inputs", ["arrays", "dataset"])
def test_images_as_floats_are_known_by_the_name_of_their_model(tmp_path, inputs):
    images, labels = torch.rand(24, 1, 8, 8), torch.arange(24) % 3
    model = tc.create_model("efficient", image_shape=(1, 8, 8), classes=3, capsules=4)
    data = (images, labels) if inputs == "arrays" else TensorDataset(images, labels)
    run = tc.fit(model, data, test_data=data, epochs=1, out=tmp_path / "run")
    assert (run.config.model, run.metadata.image_shape) == ("efficient", (1, 8, 8))
    torch.testing.assert_close(tc.load(run.folder)(images).activations, model(images).activations)
    assert tc.evaluate(run.folder, data).count == 24
    assert "efficient" in write_report(run, tmp_path / "report.html", count=8).read_text()


def test_arrays_that_are_no_images_from_0_to_1_stay_arrays(tmp_path):
    model = tc.create_model("efficient", image_shape=(1, 8, 8), classes=3, capsules=4)
    run = tc.fit(model, (torch.randn(24, 1, 8, 8), torch.arange(24) % 3), epochs=1, out=tmp_path / "run")
    assert run.metadata.kind == "arrays"
    assert run_command("attack", run.folder) == 2


def test_commands_for_images_name_what_a_run_is_on(tmp_path, capsys):
    run = tc.fit(new_net(), Rows(), epochs=1, out=tmp_path / "run")
    assert run_command("attack", run.folder) == 2
    assert "on arrays" in capsys.readouterr().err


def test_predict_takes_texts_from_any_iterable(tmp_path):
    texts = [f"a {word} film" for word in ("good", "bad") * 8]
    vocabulary = Vocabulary.build(texts)
    data = TextSet(tuple(texts), torch.arange(16) % 2, ("up", "down"), vocabulary=vocabulary)
    model = tc.create_model("text", vocabulary=len(vocabulary), classes=2, dim=8)
    run = tc.fit(model, data, epochs=1, out=tmp_path / "run")
    wanted = tc.predict(run, texts[:3])
    assert tc.predict(run, (text for text in texts[:3])) == wanted
    assert tc.predict(run, np.array(texts[:3])) == wanted


def test_a_network_that_does_not_take_the_inputs_is_told_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"Points: expected inputs that its forward takes, got \(2, 7\)") as caught:
        tc.fit(new_net(), (torch.rand(9, 7), [0, 1, 2] * 3), epochs=1, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


class Turned(nn.Module):
    """A network whose layer of classes is defined first."""

    def __init__(self):
        super().__init__()
        self.classes = tc.DenseCapsules(6, 3, 4, 4, routing="em")
        self.inner = tc.DenseCapsules(5, 6, 4, 4)

    def forward(self, points):
        poses = points.view(len(points), 5, 4)
        return self.classes(self.inner(tc.Capsules(poses, tc.length(poses))))


def test_the_layer_of_the_classes_is_not_guessed(tmp_path):
    with pytest.raises(InputError, match="set readout = 'logistic' in the network"):
        tc.fit(Turned(), Rows(), epochs=1, out=tmp_path / "run")
    net = Turned()
    net.readout = "logistic"
    tc.fit(net, Rows(), epochs=1, out=tmp_path / "run")


def test_a_network_without_weights_is_evaluated():
    class Plain(nn.Module):
        def forward(self, points):
            poses = points[:, :12].view(-1, 3, 4)
            return tc.Capsules(poses, tc.length(poses))

    points = torch.rand(6, 20)
    assert tc.evaluate(Plain(), (points, [0, 1, 2] * 2)).count == 6
    assert len(tc.predict(Plain(), points)) == 6


@pytest.mark.parametrize("network", ["", "`<img src=x>`", "a b", "a\n# heading"])
def test_a_stranger_names_no_network_but_a_class(tmp_path, network):
    run = tc.fit(new_net(), Rows(), epochs=1, out=tmp_path / "run")
    told = json.loads((run.folder / "metadata.json").read_text())
    (run.folder / "metadata.json").write_text(json.dumps({**told, "network": network}))
    with pytest.raises(InputError, match="the name of a class as its network"):
        Run.open(run.folder)
