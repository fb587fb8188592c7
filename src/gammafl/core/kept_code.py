"""Compiled code on disk: numba's cache, but its errors only cost time and never stop a call.

numba's own cache passes on the errors of pickle and of the disk. So a truncated file or a full disk would stop every
call. Here, a file that can't be used counts as missing: the code is compiled and written again. If it can't be written,
it is not stored.
"""

import hashlib
import logging
import pickle
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

LOG = logging.getLogger("gammafl")
DIGEST_BYTES = hashlib.sha256().digest_size

_said = False


def say_once(trouble: str) -> None:
    """Warns once per process, even if many functions have the same trouble."""
    global _said
    if not _said:
        _said = True
        LOG.warning("gammafl: %s", trouble)


def say_unusable(directory: str, error: Exception) -> None:
    say_once(
        f"compiled code kept in {directory} can't be used ({type(error).__name__}: {error}); it is compiled again, "
        "which takes some seconds"
    )


class KeptCode(FunctionCache):
    """The cache of one function. A `RuntimeError` if there is no writable directory.

    It is valid for the function's file as it is now, and for `parts`, a digest of other sources in the code.
    """

    def __init__(self, function: Any, parts: str = "") -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        stamp = (stamp, parts) if parts else stamp
        self._parts = parts
        self._cache_file = CheckedFiles(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # pickle may raise any error for a damaged file
            say_unusable(self.cache_path, error)
        if found is None and self._parts:
            say_once(
                "loops are compiled for this processor, which takes 10 to 30 seconds; they are kept for the next start"
            )
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            say_once(
                f"compiled code can't be kept in {self.cache_path} ({error}); until it can, every start takes some "
                "seconds longer"
            )


class CheckedFiles(IndexDataCacheFile):
    """A function's files: an index of signatures, and one file of code per signature, which names its owner.

    Processes that start together write the same file names. An index may then point to the code of another signature,
    or of an older source. Each file is replaced atomically, so it is always complete; a file of another owner is not
    used.
    """

    def __init__(self, cache_path: str, filename_base: str, source_stamp: Any) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._version = f"{self._version}, checked"  # files without these checks belong to another version

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is None or found[0] != (self._source_stamp, key):
            return None
        return found[1]

    def save(self, key: Any, data: Any) -> None:
        super().save(key, ((self._source_stamp, key), data))

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception as error:
            say_unusable(self._cache_path, error)
            return {}  # a new index is written with the next code

    def _save_data(self, name: str, data: Any) -> None:
        code = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(code).digest() + code)

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            digest, code = file.read(DIGEST_BYTES), file.read()
        if hashlib.sha256(code).digest() != digest:
            raise ValueError(f"{name} has another checksum")
        return pickle.loads(code)
