"""Every routing once more, in plain loops and the papers' symbols, for one example and in float64.

An oracle takes votes u[i][j] (a tensor [i j d]), child activations a[i], and the routing's own learned numbers. It
gives poses [j d], activations [j] and couplings [i j]. Nothing here is shared with the code under test.
"""

from tests.oracles.attention import attention
from tests.oracles.dynamic import dynamic, uniform
from tests.oracles.em import em, em_official
from tests.oracles.entropy import entropy
from tests.oracles.gaussian import gaussian
from tests.oracles.heinsen import heinsen
from tests.oracles.inverted import inverted
from tests.oracles.kde import kde
from tests.oracles.kmeans import kmeans
from tests.oracles.variational import variational

__all__ = [
    "attention",
    "dynamic",
    "em",
    "em_official",
    "entropy",
    "gaussian",
    "heinsen",
    "inverted",
    "kde",
    "kmeans",
    "uniform",
    "variational",
]
