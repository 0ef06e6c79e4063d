"""Progress in a notebook: a real Jupyter kernel runs `fit`, and its bar and its lines are in the cell's output."""

import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELL = """\
import tempfile
import numpy as np, torch, torchcaps as tc
torch.set_num_threads(1)
images = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
model = tc.create_model("efficient", image_shape=(1, 8, 8), classes=2, capsules=4)
run = tc.fit(model, (images, np.arange(60) % 2), epochs=2, batch_size=6, out=tempfile.mkdtemp() + "/run")
print(f"{len(run.rows())} epochs in {run.name}")
"""


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_fit_shows_its_progress_in_a_notebook():
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    said = "".join(each.text for each in outputs if each.output_type == "stream" and each.name == "stdout")
    assert "epoch   2/2" in said
    assert "2 epochs in run" in said
    shown = "".join(each.get("text", "") + str(each.get("data", "")) for each in outputs)
    assert "epoch 1/2:" in shown  # the bar, as text or as a widget
