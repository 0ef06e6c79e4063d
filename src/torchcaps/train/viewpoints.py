"""New viewpoints: two networks trained on some viewpoints and tested on others, matched on those they know.

Hinton et al. 2018 compare a capsule network with a convolutional one that was stopped when it did as well on familiar
viewpoints; the one that errs less on novel ones generalizes better. Here both are trained to the end first. Where they
then differ on familiar viewpoints by more than the noise, the better one is trained again, until it has reached the
validation accuracy of the other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from torchcaps._core.errors import input_error
from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write, inside
from torchcaps.analysis.evaluate import wilson_interval
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.runfolders import next_folder
from torchcaps.train.log import say
from torchcaps.train.trials import Outcome, begin_trials, refuse_folds, run_trial


@dataclass(frozen=True)
class ViewpointTest:
    """The outcomes of both networks, and of the better one also when stopped early (matched)."""

    outcomes: dict[str, Outcome]
    matched: tuple[str, str]

    def verdict(self) -> str:
        """A sentence on which of the matched networks has fewer errors on novel viewpoints."""
        novel = {name: self.outcomes[name].novel or 0.0 for name in self.matched}
        worse, better = sorted(novel, key=novel.__getitem__)
        count = self.outcomes[worse].novel_count
        (_, top), (bottom, _) = (wilson_interval(round(novel[name] * count), count) for name in (worse, better))
        fewer = (novel[better] - novel[worse]) / (1 - novel[worse]) if novel[worse] < 1 else 0.0
        familiar = {name: self.outcomes[name].score for name in self.matched}
        how = f"{familiar[better]:.1%} and {familiar[worse]:.1%} on familiar viewpoints"
        equal = alike(self.outcomes[better], self.outcomes[worse])
        start = f"Matched ({how})" if equal else f"Not matched ({how})"
        words = f"{start}, {better} makes {fewer:.0%} fewer errors on novel ones than {worse}"
        return f"{words}{'' if bottom > top else ', which is within the noise'}."


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether two networks have the same accuracy on familiar viewpoints, within the uncertainty of the test part."""
    intervals = [wilson_interval(round(each.score * each.count), each.count) for each in (one, other)]
    return max(low for low, _ in intervals) <= min(high for _, high in intervals)


def compare_viewpoints(config: TrainConfig, beside: str) -> tuple[ViewpointTest, Path]:
    """Train the config's model and the other one, match them, and test both. Finished runs are not trained again."""
    if config.viewpoint is None:
        raise input_error("viewpoint", "azimuth or elevation", "none", "Give --viewpoint azimuth.")
    model = config.model or "efficient"
    if not config.validation:
        raise input_error("viewpoint", "a validation part, to match the networks", "none", "Drop --validation 0.")
    if model == beside:
        raise input_error("--beside", "another model than --model", beside, "Choose another one.")
    config = dataclasses.replace(config, model=model)
    configs = {
        model: config,
        beside: dataclasses.replace(config, model=beside, routing=None, iterations=None, option=()),
    }
    refuse_folds("viewpoint", config)
    folder = config.out or next_folder(dataclasses.replace(config, model="viewpoint", routing=None))
    outcomes: dict[str, Outcome] = {}

    def trial(name: str, config: TrainConfig) -> None:
        say(f"\n{name}: {folder / name}")
        outcomes[name] = run_trial(config, inside(folder, name))

    with begin_trials(folder, config, {"beside": beside}, "viewpoint", configs.values()):
        for name, each in configs.items():
            trial(name, each)
        one, other = configs
        if not alike(outcomes[one], outcomes[other]):
            better, worse = sorted(configs, key=lambda name: outcomes[name].validation or 0.0, reverse=True)
            stopped = f"{better}-matched"
            trial(stopped, dataclasses.replace(configs[better], stop_at=outcomes[worse].validation))
            one, other = (stopped if name == better else name for name in configs)
        found = ViewpointTest(outcomes, (one, other))
        summary = {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()} | {"matched": found.matched}
        atomic_write(inside(folder, "results.json"), as_json(summary))
    return found, folder
