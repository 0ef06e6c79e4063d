"""Callbacks of training: a progress bar, the table of metrics, checkpoints and best weights."""

from __future__ import annotations

import csv
import io
import math
import os
import statistics
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from tqdm.auto import tqdm

from torchcaps._core.errors import InputError
from torchcaps._core.files import atomic_write, open_regular
from torchcaps._core.memory import is_out_of_memory
from torchcaps._core.neutral import terminal
from torchcaps._core.progress import is_watched
from torchcaps.analysis.vitals import Vitals
from torchcaps.runs.metadata import METRICS
from torchcaps.runs.run import Run
from torchcaps.runs.weights import first_not_finite
from torchcaps.train.distributed import leave_when_told
from torchcaps.train.log import Lenient, say

HEARTBEAT = 10.0  # seconds without a line, where no progress bar is shown
MEASURED = 3  # batches after the first that tell how long training will take
BRIEF = 30.0  # seconds of training of which nothing is foretold


def duration(seconds: float) -> str:
    """A time in words: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints atomically. Lightning's own plugin leaves temporary files behind if a run is killed."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        atomic_write(Path(path), content.getvalue())

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a checkpoint after checking the checksums of the file, because torch does not detect changed numbers."""
        with open_regular(Path(path)) as file, zipfile.ZipFile(file) as archive:
            stored = sum(entry.file_size for entry in archive.infolist())
            if any(entry.compress_type for entry in archive.infolist()) or stored > os.path.getsize(path):
                raise zipfile.BadZipFile("packed numbers, which torch never writes")
            if archive.testzip() is not None:
                raise zipfile.BadZipFile("numbers that have changed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what else might have been in it
            return super().load_checkpoint(path, map_location, weights_only=True)


class Progress(pl.Callback):
    """Shows the progress of training, and writes best weights, last checkpoint and metrics.

    look: a function that returns the vitals of routed layers, called after every epoch.
    """

    def __init__(self, run: Run, look: Callable[[Any], dict[str, Vitals]] | None = None) -> None:
        self.run = run
        self.look = look or (lambda model: {})
        self.layers: list[dict[str, Any]] = []
        self.began = False
        self.highest = -math.inf
        self.waited = 0
        self.rows: list[dict[str, Any]] = []
        self.bar: tqdm[Any] | None = None
        self.started = 0.0
        self.trained = 0.0  # when the last batch was done
        self.told = 0.0  # when a line was last printed
        self.warm: float | None = None  # when the first batch of all was done
        self.first_epoch = 0  # of this process
        self.stopped = False
        self.silent: set[str] = set()  # layers that were reported

    def state_dict(self) -> dict[str, Any]:
        return {"highest": self.highest, "waited": self.waited, "rows": self.rows, "layers": self.layers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.highest, self.waited, self.rows = (state[word] for word in ("highest", "waited", "rows"))
        self.layers = state.get("layers", [])

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        self.began = True
        leave_when_told(self.run.folder)
        if self.rows and self._enough(self.rows[-1]["validation_accuracy"]):  # killed before the end
            trainer.should_stop = self.stopped = True

    def on_train_epoch_start(self, trainer: pl.Trainer, module: Any) -> None:
        self.started = self.trained = self.told = time.perf_counter()
        total = int(trainer.num_training_batches)
        name = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        stream = terminal(sys.stderr)
        hidden = not (trainer.is_global_zero and is_watched(stream))
        self.bar = tqdm(total=total, desc=name, unit="batch", leave=False, disable=hidden, file=Lenient(stream))

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.bar is not None
        loss, accuracy = module.means("train")  # of several processes, those of the first
        self.trained = time.perf_counter()
        self.bar.update()
        if self.warm is None:
            self.warm, self.first_epoch = self.trained, trainer.current_epoch
        if batch_idx == MEASURED and trainer.current_epoch == self.first_epoch and trainer.is_global_zero:
            self._foretell(trainer, (self.trained - self.warm) / MEASURED)
        speed = self._speed(module) * trainer.world_size
        self.bar.set_postfix_str(f"loss {loss:.4f}, accuracy {accuracy:.2%}, {speed:,.0f} examples/s")
        if self.bar.disable and trainer.is_global_zero and self.trained - self.told > HEARTBEAT:
            self._tell_of_batches(trainer, batch_idx + 1, loss)

    def _foretell(self, trainer: pl.Trainer, seconds: float) -> None:
        """A line on how long training will take, without validation, by the seconds of each of the first batches."""
        total, epochs = int(trainer.num_training_batches), (trainer.max_epochs or 0) - trainer.current_epoch
        if seconds * total * epochs < BRIEF:
            return
        assert self.bar is not None
        self.bar.clear()
        what = f"{epochs:,} epochs of {total:,} batches" if epochs > 1 else f"{total:,} batches"
        say(f"about {duration(seconds * total * epochs)} by the first batches: {what}", self.run.log, error=True)
        self.bar.refresh()

    def _tell_of_batches(self, trainer: pl.Trainer, done: int, loss: float) -> None:
        """A line within an epoch, for whoever sees no progress bar; not in the log."""
        self.told = self.trained
        total = int(trainer.num_training_batches)
        epochs = (trainer.max_epochs or 0) - trainer.current_epoch - done / total
        left = duration(epochs * total / done * (self.trained - self.started))
        say(f"  {done:,} of {total:,} batches, loss {loss:.4f}, about {left} left", error=True)

    def _speed(self, module: Any) -> float:
        """Training examples per second, without validation."""
        return float(module.sums["train"][2]) / (self.trained - self.started)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        if self.bar is not None:
            self.bar.close()
        module.gather()
        loss, accuracy = module.means("train")
        validation_loss, validation_accuracy = module.means("validation")
        rate = trainer.optimizers[0].param_groups[-1]["lr"]
        numbers = [
            loss,
            accuracy,
            validation_loss,
            validation_accuracy,
            rate,
            self._speed(module),
            time.perf_counter() - self.started,
        ]
        row = dict(zip(METRICS, [trainer.current_epoch + 1, *numbers], strict=True))
        self.rows.append(row)
        better = self._better(validation_accuracy, float(module.sums["validation"][2]))
        first = trainer.is_global_zero  # all decide, and one of them writes
        if better and first:
            self.run.save_weights(module.model)
        self.waited = 0 if validation_accuracy > self.highest else self.waited + 1
        self.highest = max(self.highest, validation_accuracy)
        if self._enough(validation_accuracy):
            trainer.should_stop = self.stopped = True
        found = self.look(module.model) if first else {}
        if first:
            self._save(self.run.metrics, METRICS, self.rows)
            self._keep_vitals(row["epoch"], found)
        trainer.save_checkpoint(self.run.checkpoint)
        if not first:
            return
        if trainer.logger is not None:
            trainer.logger.log_metrics(row, step=row["epoch"])
        active = "/".join(f"{each.activation:.2f}" for each in found.values())
        left = 0 if trainer.should_stop else (trainer.max_epochs or 0) - int(row["epoch"])
        more = (f"   active {active}" if found else "") + (f"   {self._left(left)} left" if left else "")
        say(self._line(row, better, trainer.max_epochs) + more, self.run.log)
        self._tell_of_silence(found)

    def _left(self, epochs: int) -> str:
        """The time that so many epochs will take, by the median of the last ones."""
        return duration(epochs * statistics.median(float(row["seconds"]) for row in self.rows[-5:]))

    def _enough(self, accuracy: float) -> bool:
        """Whether the run ends early, by patience or by stop_at."""
        patience, goal = self.run.config.patience, self.run.config.stop_at
        if math.isnan(accuracy):
            return False
        return (patience is not None and self.waited >= patience) or (goal is not None and accuracy >= goal)

    def _better(self, accuracy: float, count: float) -> bool:
        """Whether to keep this epoch: the last one within a standard error of the highest accuracy is kept.

        On few validation examples accuracies differ by luck, and the luckiest epoch is not the best; towards the end of
        a schedule, where learning rates fall, the later is the better.
        """
        if math.isnan(accuracy):  # no validation part: the last epoch is kept
            return True
        highest = max(self.highest, accuracy)
        return accuracy >= highest - math.sqrt(highest * (1 - highest) / count)

    def _line(self, row: dict[str, Any], better: bool, epochs: int | None) -> str:
        seen = row["validation_accuracy"]
        validation = "" if math.isnan(seen) else f"   validation {seen:.2%}{' *' if better else '  '}"
        return (
            f"epoch {row['epoch']:>3}/{epochs}   loss {row['train_loss']:.4f}   accuracy {row['train_accuracy']:.2%}"
            f"{validation}   {row['examples_per_second']:,.0f} examples/s   {row['seconds']:.0f} s"
        )

    def _save(self, path: Path, columns: Sequence[str], rows: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()} for row in rows
        )
        atomic_write(path, text.getvalue())

    def _keep_vitals(self, epoch: int, found: dict[str, Vitals]) -> None:
        self.layers += [{"epoch": epoch, "layer": name, **each._asdict()} for name, each in found.items()]
        if self.layers:
            self._save(self.run.path("layers.csv"), ("epoch", "layer", *Vitals._fields), self.layers)

    def _tell_of_silence(self, found: dict[str, Vitals]) -> None:
        """Report, once for each layer, that it has died, and what to try."""
        for name, each in found.items():
            if not each.silent or name in self.silent:
                continue
            self.silent.add(name)
            what = "none of its capsules is active" if each.dead == each.parents else "no gradient reaches it"
            given = "normalize_poses=true" in self.run.config.option
            remedy = "" if given else " --option normalize_poses=true, or"
            say(
                f"{name} has died: {what}. Try{remedy} a lower --lr than {self.run.config.lr:g}.",
                self.run.log,
                error=True,
            )

    def on_exception(self, trainer: pl.Trainer, module: Any, exception: BaseException) -> None:
        """Save the weights if training ends (as by Ctrl-C) before the first epoch does, unless they are not finite."""
        if self.bar is not None:
            self.bar.close()
        if not trainer.is_global_zero:
            return
        finite = first_not_finite(module.model.state_dict()) is None
        hopeless = isinstance(exception, InputError) or is_out_of_memory(exception)  # to write takes memory, too
        if self.began and finite and not self.run.weights.exists() and not hopeless:
            self.run.save_weights(module.model)
