"""Claims about capsules that papers make, and what was measured here. `ledger.py` runs and renders them."""

from __future__ import annotations

from dataclasses import dataclass

VERDICTS = ("holds", "in part", "does not hold", "not tested yet", "cannot be tested here")


@dataclass(frozen=True)
class Claim:
    """A published claim.

    name: of its result in ledger.json. says: the claim. where: in the papers. commands: ours, run one after another.
    figure: a regular expression with one group, of the output of the last command; empty for a result that was
    measured before and is cited from a page of docs/. verdict: one of `VERDICTS`. why: the reason, if it needs one.
    """

    name: str
    says: str
    where: str
    commands: tuple[str, ...]
    verdict: str
    why: str = ""
    figure: str = ""


COUNT = "import torchcaps as tc; count = lambda name: sum(p.numel() for p in tc.create_model(name, {}).parameters())"
COMPARE = "torchcaps compare mnist --reconstruction 0 --seeds 3"
DEPTH = "--option depth=3 --option capsules=4 --option channels=18"
NORB = "image_shape=(2, 32, 32), classes=5"

CLAIMS = (
    Claim(
        "mnist-error",
        "CapsNet with routing and reconstruction reaches 0.25 % test error on MNIST.",
        "Sabour 2017, table 1",
        ("torchcaps train mnist --preset best --out runs/mnist-best", "torchcaps evaluate runs/mnist-best"),
        "in part",
        "by `efficient`, one seed; the paper's network was trained for two epochs only",
    ),
    Claim(
        "overlapping-digits",
        "Overlapping digits are told apart, 5.2 % error with both digits right.",
        "Sabour 2017, table 1",
        ("torchcaps train multimnist --limit 60000 --epochs 8 --out runs/pairs", "torchcaps evaluate runs/pairs"),
        "in part",
        "60,000 pairs here, 60 million in the paper",
    ),
    Claim(
        "cnn-size",
        "Matrix capsules have 310K parameters, the convolutional baseline 4.2M.",
        "Hinton 2018, section 4",
        (f'python -c \'{COUNT.format(NORB)}; print("counts", count("matrix"), count("cnn-norb"))\'',),
        "holds",
        "317,056 without the betas, for two channels",
        r"counts (\d+ \d+)",
    ),
    Claim(
        "smallnorb",
        "EM routing has 45 % fewer errors than the best network before on smallNORB (1.8 %).",
        "Hinton 2018, table 1",
        ("torchcaps train smallnorb --model matrix --preset paper --out runs/norb",),
        "not tested yet",
        "the data must be fetched, and 114,000 steps of 0.8 s take about a day of two cores",
    ),
    Claim(
        "viewpoints",
        "Matched on familiar viewpoints, capsules make fewer errors on novel ones.",
        "Hinton 2018, table 2",
        (
            "torchcaps viewpoint toys --model matrix-small --iterations 3 --viewpoint elevation",
            "torchcaps viewpoint toys --model matrix-small --iterations 3",
        ),
        "in part",
        "on elevations, not on azimuths, and not for `efficient`",
    ),
    Claim(
        "attacks",
        "Capsules resist white-box attacks better than convolutional networks.",
        "Hinton 2018, figure 3",
        ("torchcaps attack runs/mnist --beside runs/cnn --methods fgsm bim --epsilons 0.05 0.1 0.2 0.3 --count 500",),
        "in part",
        "they fail later, but they fail; accuracy under FGSM with epsilon 0.1",
    ),
    Claim(
        "jumbled",
        "A capsule network is uncertain about jumbled parts.",
        "notes on EM routing",
        ("torchcaps jumble runs/mnist --beside runs/capsnet runs/cnn --count 500",),
        "in part",
        "confidence kept when parts are shuffled; it falls, but stays at a half",
    ),
    Claim(
        "jumbled-by-hand",
        "Parts that do not agree make no face, however sure each is.",
        "notes on EM routing",
        ("python examples/jumbled_face.py --out out/jumbled_face.png",),
        "holds",
        "with transforms made by hand: activation of the face",
        r"jumbled .* face: ([\d.]+)",
    ),
    Claim(
        "two-side-by-side",
        "Trained on single digits, capsules find both of two side by side (90 %).",
        "Su 4819",
        ("torchcaps jumble runs/mnist --beside runs/capsnet runs/cnn --count 500",),
        "does not hold",
        "both named; here the image keeps its size",
    ),
    Claim(
        "less-data",
        "Capsules need less data.",
        "introductions to capsules",
        (f"{COMPARE} --limit 100 --epochs 300 --vary model=efficient,cnn-small",),
        "holds",
        "for these two networks; with uniform couplings too, so routing is not the cause",
    ),
    Claim(
        "training-time",
        "Capsules take longer to train than a convolutional network.",
        "introductions to capsules",
        (
            "torchcaps train eth-80 --size 32 --seed 0 --out runs/eth",
            "python benchmarks/plain_cnn.py eth-80 --size 32 --epochs 48",
        ),
        "holds",
        "CPU seconds for as many epochs at the same number of parameters",
    ),
    Claim(
        "uniform-as-good",
        "Routing is often not better than uniform couplings.",
        "Paik 2019",
        (f"{COMPARE} --limit 10000 --epochs 4 --vary routing=dynamic,entropy,kmeans,em,uniform,attention",),
        "holds",
        "for vector capsules on digits; `uniform` against `dynamic`, points",
    ),
    Claim(
        "more-iterations",
        "Three iterations are better than one (1.8 against 9.7 % on smallNORB).",
        "Hinton 2018, table 1",
        (
            "torchcaps train toys --model matrix-small --seed 0 --out runs/toys-em",
            "torchcaps train toys --model matrix-small --iterations 1 --seed 0 --out runs/toys-em1",
        ),
        "in part",
        "on toys, where the difference is within the noise",
    ),
    Claim(
        "three-to-five-iterations",
        "Three to five iterations are enough.",
        "Sabour 2017, section 3; notes on dynamic routing",
        (f"torchcaps train toys --model deep --routing dynamic --iterations 5 --epochs 8 {DEPTH} --out runs/deep-5",),
        "in part",
        "five in three routed layers of `deep`, validation part: one does as well, within the noise",
    ),
    Claim(
        "shared-weights",
        "Vote matrices that all children of a type share are about as good as one for each.",
        "Su 4819; Zhao 2018",
        (
            "torchcaps train trec --epochs 10 --out runs/trec-shared",
            "torchcaps train trec --epochs 10 --option votes=full --out runs/trec-full",
        ),
        "holds",
        "on TREC, the only data where both were trained",
    ),
    Claim(
        "algorithm-2",
        "Clustering with an entropy term (Algorithm 2) is better than Algorithm 1.",
        "Wang and Liu 2018",
        (f"{COMPARE} --limit 10000 --epochs 4 --vary routing=dynamic,entropy,kmeans,em,uniform,attention",),
        "does not hold",
        "`entropy` against `dynamic`, points",
    ),
    Claim(
        "text-sets",
        "Text capsules are the best on 4 of 6 sets.",
        "Zhao 2018, table 2",
        (
            "torchcaps train sst2 --out runs/sst2-b",
            "torchcaps train sst2 --model textcnn --out runs/sst2-cnn",
            "torchcaps evaluate runs/sst2-b --baseline",
        ),
        "in part",
        "on MR, SST-2, Subj and AG's News better than `textcnn` and words alone, by about a point, which is within the "
        "noise; not on TREC and CR; recurrent networks were not run",
    ),
    Claim(
        "reuters",
        "Trained on single topics, capsules find several far better than a CNN (60.3 against 27.1 %).",
        "Zhao 2018, table 4",
        (
            "torchcaps train reuters --model textcnn --out runs/reuters-cnn",
            "torchcaps train reuters --down-weight 0.25 --out runs/reuters-b",
        ),
        "does not hold",
        "exact match, `text` and `textcnn`; the paper's test part is another",
    ),
    Claim(
        "affnist",
        "Trained on translated digits, CapsNet has 79 % on affNIST, a CNN 66 %.",
        "Sabour 2017, section 5.2",
        ("torchcaps train translated --model capsnet --preset paper --out runs/translated",),
        "not tested yet",
        "images of 40 pixels have four times the capsules of MNIST, and take hours",
    ),
    Claim(
        "large-images",
        "Capsules have yet to be tested on images as many and as large as ImageNet's.",
        "notes on EM routing",
        (),
        "cannot be tested here",
        "there is no GPU on this machine",
    ),
)
