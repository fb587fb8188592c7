"""The decoder under a fuzzer that sees which code an input reaches, and goes on from those that reach new code.

    python -m tests.campaigns.atheris_decoder -runs=200000     (libFuzzer's options)

The loops are interpreted here, since the fuzzer does not see into machine code: hundreds of times slower than
tests.campaigns.fuzz, but guided. Every input is tried as it is, and with its checksum made right; without that no
mutation would get past it. What reaches new code is kept in build/atheris, and a run starts from there. A failure ends
the fuzzer, with the input in a file build/crash-….
"""

import os
import sys
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"  # before numba is imported

import atheris

with atheris.instrument_imports(include=["gammafl.core"]):
    import gammafl as gf
    from gammafl.core import wire  # noqa: F401  # the package imports it when it is first asked for

import numpy as np

from tests.campaigns.fuzz import problem_with
from tests.campaigns.mutations import corpus, sealed


def try_one(data: bytes) -> None:
    for payload in (data, *sealed([data])):
        if problem := problem_with(payload):
            raise AssertionError(f"{problem}: {payload.hex()}")


def main() -> None:
    np.seterr(over="ignore")  # as in machine code, where numbers of fixed size wrap around
    known = Path("build/atheris")
    known.mkdir(parents=True, exist_ok=True)
    for number, payload in enumerate(corpus()):
        gf.decode(payload)
        (known / f"valid-{number}").write_bytes(payload)
    atheris.Setup([*sys.argv, "-artifact_prefix=build/", str(known)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
