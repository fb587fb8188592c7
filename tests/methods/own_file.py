"""The text of a file of a user's own, as tests write it somewhere."""

OWN = """
import numpy as np
import gammafl as gf

class EveryNth(gf.Compressor):
    def __init__(self, n):
        self.n = n

    def take(self, vector, moment):
        indices = np.arange(moment.t % self.n, vector.size, self.n)
        values = vector[indices]
        vector[indices] = 0
        return gf.SparseUpdate(vector.size, indices, values)

def every_nth(n: int = 20):
    "Sends every n-th entry."
    return gf.Method(EveryNth(n))

def bare():
    return gf.TopK(3)

def wrong():
    return 3
"""
