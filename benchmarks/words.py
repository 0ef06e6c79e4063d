"""Whether explanations of texts rank words as leaving them out does.

For texts of the test part: the rank correlation of the evidence of words, and of the mean strength of their n-grams,
with the fall of the logit of the class where a word is left out.

    torchcaps train sst2 --epochs 2 --out runs/sst2
    python benchmarks/words.py runs/sst2
"""

from __future__ import annotations

import sys
from statistics import mean

import torch
from scipy.stats import spearmanr

from torchcaps.analysis.explain import explain_texts
from torchcaps.runs.run import Run

TEXTS = 100


@torch.no_grad()
def main(folder: str) -> None:
    run = Run.open(folder)
    model, vocabulary = run.load_model(), run.words()
    test = run.load_parts().test
    found: dict[str, list[float]] = {"evidence": [], "strength": [], "confidence": [], "removed": [], "elsewhere": []}
    for row in torch.randperm(len(test), generator=torch.Generator().manual_seed(0)).tolist():
        (one,) = explain_texts(run, [test.texts[row]])[0]
        words = vocabulary.read([one.text], run.config.max_length)[0]
        if len(words) < 3 or one.check is None:
            continue
        shorter = torch.stack([torch.cat([words[:gone], words[gone + 1 :]]) for gone in range(len(words))])
        label = run.metadata.classes.index(one.label)
        whole, rest = (model(rows).activations[:, label].logit(eps=1e-6) for rows in (words[None], shorter))
        for name in ("evidence", "strength"):
            found[name].append(spearmanr([getattr(word, name) for word in one.words], whole - rest).statistic)
        found["confidence"].append(one.confidence)
        found["removed"].append(one.check.removed)
        found["elsewhere"].append(one.check.elsewhere)
        if len(found["evidence"]) == TEXTS:
            break
    for name, values in found.items():
        print(f"{name:<11} {mean(values):.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
