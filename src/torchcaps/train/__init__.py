"""Training with Lightning: keeps the best weights, and can be resumed after any interruption.

The order of examples depends only on the seed and the epoch, augmentation and all other random numbers on the seed and
the step, and the whole state is saved at the end of each epoch: a run that was killed and resumed ends with the same
weights as one that was not. Nothing outside this folder imports Lightning at module level.
"""

from torchcaps.train.engine import resume, train
from torchcaps.train.folds import train_folds
from torchcaps.train.prepare import fit_model
from torchcaps.train.rates import learning_rate_factor

__all__ = ["fit_model", "learning_rate_factor", "resume", "train", "train_folds"]
