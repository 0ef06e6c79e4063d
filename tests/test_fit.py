"""fit, evaluate and predict: a user's own network on a user's own data, as `torchcaps train` does with ours."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

import torchcaps as tc
from tests.support.commands import run as run_command
from torchcaps._core.errors import InputError
from torchcaps.apps.report import write_report
from torchcaps.data import DatasetExamples, TextSet, Vocabulary, as_examples
from torchcaps.runs.run import Run

KINDS = ("bars", "dots", "plain")


class Net(nn.Module):
    """A network of a user: not one of ours, but built from our layers."""

    def __init__(self, classes=3, routing="dynamic"):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU())
        self.primary = tc.PrimaryCapsules(8, 4, 8)
        self.inner = tc.DenseCapsules(36, 6, 8, 8, routing=routing)
        self.outer = tc.DenseCapsules(6, classes, 8, 8, routing=routing)

    def forward(self, images):
        return self.outer(self.inner(self.primary(self.encoder(images)).flatten()))


class Points(nn.Module):
    """A network of vectors: nothing in it is an image."""

    def __init__(self):
        super().__init__()
        self.layer = tc.DenseCapsules(5, 2, 4, 4)

    def forward(self, points):
        poses = points.view(len(points), 5, 4)
        return self.layer(tc.Capsules(poses, tc.length(poses)))


def pictures(count, seed=0):
    """Pictures of bars, dots and plain ones, as bytes [n 8 8], and their labels."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    images = draw.integers(0, 60, (count, 8, 8), dtype=np.uint8)
    images[labels == 0, 2:6:3] = 220
    images[labels == 1, 1::3, 1::3] = 220
    return images, labels


class Folder(Dataset):
    """A Dataset as users write them, of floats and numbers."""

    classes = KINDS

    def __init__(self, count, seed=0):
        self.images, self.labels = pictures(count, seed)
        self.asked = 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        self.asked += 1
        return torch.from_numpy(self.images[row : row + 1]).float() / 255, int(self.labels[row])


def new_net(**options):
    torch.manual_seed(1)
    return Net(**options)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A network of a user's own after three epochs on arrays, its run, and the data."""
    data, test = pictures(240), pictures(90, seed=9)
    model = new_net()
    out = tmp_path_factory.mktemp("fit") / "run"
    run = tc.fit(model, data, test_data=test, classes=KINDS, epochs=3, batch_size=20, out=out)
    return run, model, data, test


def test_own_network_learns_and_ends_with_the_best_weights(fitted):
    run, model, _, test = fitted
    found = tc.evaluate(model, test, classes=KINDS)
    assert found.accuracy > 0.9
    assert f"90 examples, accuracy {found.accuracy:.2%}, error" in repr(found)
    assert found.classes == KINDS
    state = load_file(run.weights)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert not model.training


def test_own_network_has_a_whole_run_folder(fitted):
    run = fitted[0]
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "config.json", "metadata.json", "split.json", "metrics.csv", "layers.csv", "model.safetensors", "last.ckpt",
        "README.md", "train.log", ".torchcaps.lock",
    }  # fmt: skip
    assert json.loads((run.folder / "metadata.json").read_text())["network"] == f"{__name__}.Net"
    layers = (run.folder / "layers.csv").read_text()
    assert "layer 1" in layers
    assert "classes" in layers
    card = (run.folder / "README.md").read_text()
    assert "Made in Python by `torchcaps.fit`" in card
    assert "model=YOURS" in card


def test_evaluate_takes_the_parts_of_the_run(fitted):
    run, model, _, test = fitted
    assert tc.evaluate(run).accuracy == tc.evaluate(model, test).accuracy
    assert tc.evaluate(run, part="validation").count == 24
    with pytest.raises(InputError, match="part"):
        tc.evaluate(run, part="tests")


def test_a_run_is_opened_again_with_a_network(fitted):
    run, model, _, test = fitted
    with pytest.raises(InputError, match=r"its network, tests\.test_fit\.Net, which was made in Python"):
        tc.load(run.folder)
    again = tc.load(run.folder, model=new_net())
    inputs = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(again(inputs).activations, model(inputs).activations)
    opened = Run.open(run.folder, network=new_net())
    assert tc.evaluate(opened, test).accuracy == tc.evaluate(run).accuracy
    with pytest.raises(InputError, match="its data, which were given in Python"):
        tc.evaluate(opened)
    with pytest.raises(InputError, match="the weights of this run"):
        tc.load(run.folder, model=Net(classes=4))


def test_commands_tell_what_is_missing(fitted, capsys):
    run = fitted[0]
    for command in ("evaluate", "health", "report", "export", "predict"):
        more = [str(__file__)] if command == "predict" else []
        assert run_command(command, run.folder, *more) == 2
        told = capsys.readouterr().err
        assert "in Python" in told
        assert told.count("\n") == 1
    assert run_command("list", "runs", "--folder", run.folder.parent) == 0
    assert "tests.test_fit.Net" in capsys.readouterr().out


def test_report_and_health_of_an_own_network(fitted, tmp_path):
    page = write_report(fitted[0], tmp_path / "report.html", count=40).read_text()
    assert "Health of the routing" in page
    assert "layer 1" in page
    assert "tests.test_fit.Net" in page


def test_predict_takes_arrays_and_files(fitted, tmp_path):
    run, model, _, (images, labels) = fitted
    found = tc.predict(run, images[:10])
    assert [each.source for each in found] == [str(row) for row in range(10)]
    right = sum(each.labels[0] == KINDS[label] for each, label in zip(found, labels[:10], strict=True))
    assert right >= 9
    floats = tc.predict(run, images[:10].astype(np.float64) / 255)
    assert [each.labels for each in floats] == [each.labels for each in found]
    Image.fromarray(images[0]).save(tmp_path / "one.png")
    for given in (tmp_path / "one.png", str(tmp_path / "one.png"), [tmp_path / "one.png"]):
        assert tc.predict(run, given)[0].labels == found[0].labels
    assert tc.predict(model, torch.from_numpy(images[:1, None]).float() / 255)[0].labels == (str(labels[0]),)
    with pytest.raises(InputError, match="floats from 0 to 1"):
        tc.predict(run, images[:2].astype(np.float32))


def test_a_killed_fit_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    data = Folder(120)
    options = {"epochs": 3, "batch_size": 20, "seed": 3}
    whole = tc.fit(new_net(), data, out=tmp_path / "whole", **options)

    from torchcaps.train.progress import Progress

    usual = Progress.on_train_epoch_end

    def killed(self, trainer, module):
        usual(self, trainer, module)
        if trainer.current_epoch == 1:
            raise RuntimeError("killed")

    monkeypatch.setattr(Progress, "on_train_epoch_end", killed)
    with pytest.raises(RuntimeError, match="killed"):
        tc.fit(new_net(), data, out=tmp_path / "cut", **options)
    monkeypatch.undo()
    with pytest.raises(InputError, match="no option beside resume"):
        tc.fit(new_net(), data, resume=tmp_path / "cut", epochs=5)
    model = Net()  # other weights: those of the run are loaded
    run = tc.fit(model, data, resume=tmp_path / "cut")
    one, two = load_file(whole.weights), load_file(run.weights)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert len(run.rows()) == 3


def test_resume_refuses_other_data(fitted):
    run = fitted[0]
    with pytest.raises(InputError, match="other pixels or labels in the train part"):
        tc.fit(new_net(), pictures(240, seed=5), test_data=fitted[3], resume=run.folder)


def test_any_dataset_and_vectors(tmp_path):
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (200,), generator=draw)
    points = torch.randn(200, 20, generator=draw) + 2 * torch.randn(2, 20, generator=draw)[labels]
    data = TensorDataset(points, labels)
    run = tc.fit(Points(), Subset(data, range(150)), epochs=4, batch_size=10, lr=0.02, out=tmp_path / "run")
    assert run.metadata.kind == "arrays"
    assert run.metadata.classes == ("0", "1")
    assert tc.evaluate(run, Subset(data, range(150, 200))).accuracy > 0.8
    assert tc.predict(run, points[:3])[0].labels[0] in ("0", "1")
    assert len(run.parts.validation) == 15
    assert "has died" not in run.log.read_text()  # its children are inputs, to which no gradient goes
    with pytest.raises(InputError, match="a run on images for pictures"):
        tc.predict(run, tmp_path / "one.png")


def test_names_of_classes_come_from_the_data(tmp_path):
    images, labels = pictures(60)
    named = as_examples("fit", (images, np.array(KINDS)[labels]))
    assert named.classes == KINDS
    assert named.labels.tolist() == labels.tolist()
    assert as_examples("fit", Folder(10)).classes == KINDS
    assert as_examples("fit", Subset(Folder(10), [1, 2])).classes == KINDS
    run = tc.fit(new_net(), (images, np.array(KINDS)[labels]), epochs=1, out=tmp_path / "run")
    assert run.metadata.classes == KINDS


def test_datasets_are_asked_for_what_a_batch_needs():
    data = Folder(50)
    batch = DatasetExamples(data, KINDS).batch(torch.tensor([3, 1]))
    assert batch.inputs.shape == (2, 1, 8, 8)
    assert batch.labels.tolist() == data.labels[[3, 1]].tolist()
    assert data.asked == 2


def test_ready_made_models_are_known_by_name(tmp_path, capsys):
    """A run of one of ours is as one of the command line: loaded, evaluated and exported by its folder alone."""
    images, labels = pictures(90)
    model = tc.create_model("efficient", image_shape=(1, 8, 8), classes=3, capsules=4, routing="dynamic", iterations=2)
    run = tc.fit(model, (images, labels), classes=KINDS, epochs=1, out=tmp_path / "run")
    assert (run.config.model, run.config.routing, run.config.iterations) == ("efficient", "dynamic", 2)
    again = tc.load(run.folder)
    inputs = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(again(inputs).activations, model(inputs).activations)
    Image.fromarray(images[0]).save(tmp_path / "one.png")
    capsys.readouterr()
    assert run_command("predict", run.folder, tmp_path / "one.png", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["labels"]
    own = tc.create_model("efficient", image_shape=(1, 8, 8), classes=3, encoder=nn.Conv2d(1, 16, 3))
    run = tc.fit(own, (images, labels), epochs=1, out=tmp_path / "own")
    assert run.config.model is None
    assert run.metadata.network.endswith("EfficientCapsNet")


def test_folder_of_pictures_in_python(tmp_path):
    images, labels = pictures(60)
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "pictures" / KINDS[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{row}.png")
    run = tc.fit(new_net(), tmp_path / "pictures", epochs=1, out=tmp_path / "run")
    assert run.metadata.classes == KINDS
    assert len(run.parts.test) == 12
    assert tc.evaluate(run).count == 12
    opened = Run.open(run.folder, network=new_net())  # data in files are found again
    assert tc.evaluate(opened).accuracy == tc.evaluate(run).accuracy


def test_texts_with_their_vocabulary(tmp_path):
    texts = [f"{'good' if row % 2 else 'bad'} film number {row}" for row in range(60)]
    vocabulary = Vocabulary.build(texts)
    data = TextSet(tuple(texts), torch.arange(60) % 2, ("no", "yes"), vocabulary=vocabulary)
    model = tc.create_model("text", vocabulary=len(vocabulary), classes=2)
    run = tc.fit(model, data, epochs=2, batch_size=10, out=tmp_path / "run")
    assert run.config.model == "text"
    assert tc.predict(run.folder, ["a good film"])[0].labels == ("yes",)
    assert tc.evaluate(run.folder, data).accuracy > 0.9


def test_several_labels_at_once(tmp_path):
    draw = torch.Generator().manual_seed(0)
    points = torch.randn(120, 20, generator=draw)
    truth = torch.stack([points[:, 0] > 0, points[:, 5] > 0], 1)
    run = tc.fit(Points(), (points, truth), epochs=2, batch_size=10, out=tmp_path / "run")
    assert tc.evaluate(run, (points, truth)).many


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_data": 3}, r"expected \(inputs, labels\)"),
        ({"train_data": (np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1])}, "channels last"),
        ({"train_data": (np.zeros((4, 8, 8), np.uint8), [0, 1, 0])}, "4 labels"),
        ({"train_data": (np.zeros((4, 8, 8), np.uint8), [0.5] * 4)}, "class indices or names"),
        ({"train_data": (["a", "b"], [0, 1])}, "TextSet"),
        ({"train_data": pictures(20), "classes": ("a", "b")}, "labels from 0 to 1"),
        ({"classes": ("a", "b", "c", "d")}, "3 classes, as the network has"),
        ({"classes": ("a", "a", "b")}, "a name of its own"),
        ({"model": nn.Flatten()}, "Capsules"),
        ({"loss": "least"}, "loss"),
        ({"schedule": "quick"}, "schedule"),
        ({"augment": "much"}, "augment"),
        ({"model": Points(), "train_data": (np.zeros((9, 20)), [0, 1, 0] * 3), "augment": "shift"}, "for augment"),
        ({"epochs": 0}, "epochs"),
        ({"reconstruction": 0.1}, "decoder"),
        ({"train_data": Folder(0)}, "empty"),
        ({"train_data": [(1, 2, 3)] * 9}, "pairs"),
    ],
)
def test_what_cannot_be_right_is_refused_in_a_sentence(tmp_path, change, message):
    given = {"model": new_net(), "train_data": pictures(30), "out": tmp_path / "run", "epochs": 1, **change}
    with pytest.raises(InputError, match=message) as caught:
        tc.fit(**given)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_network_that_has_learned_is_not_calibrated_anew(fitted, tmp_path):
    _, model, data, _ = fitted
    again = new_net()
    again.load_state_dict(model.state_dict())
    tc.fit(again, data, classes=KINDS, epochs=1, lr=1e-9, weight_decay=0.0, calibrate=False, out=tmp_path / "run")
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, atol=1e-5, rtol=1e-4)
