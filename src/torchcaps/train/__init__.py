"""Training, on Lightning: one epoch after the other, the best weights kept, able to go on after any interruption.

The order of the images follows from the seed and the epoch alone, the augmentation and every other draw from
the seed and the step, and everything is written down at the end of each epoch: a run that was killed and resumed ends
with the same weights as one that was not. Nothing outside this folder imports Lightning.
"""

from torchcaps.train.engine import resume, train
from torchcaps.train.folds import train_folds
from torchcaps.train.module import learning_rate_factor
from torchcaps.train.prepare import fit_model

__all__ = ["fit_model", "learning_rate_factor", "resume", "train", "train_folds"]
