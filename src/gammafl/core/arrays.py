"""The types of arrays that rooms hand to each other."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""A model, an update or a residual, flat."""

Positions = NDArray[np.uint32]
"""Places in a vector, increasing."""
