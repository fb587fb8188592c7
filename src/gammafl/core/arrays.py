"""The types of arrays that all packages use."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""A model, an update or a residual, flat."""

Positions = NDArray[np.uint32]
"""Increasing positions in a vector."""
