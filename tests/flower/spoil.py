"""What a bad client does to its reply."""

from collections.abc import Callable
from typing import Any

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from gammafl.flower.messages import message_record

BAD_NODE = 102


def with_payload(payload: bytes) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["arrays"] = message_record("update", payload)

    return spoil


def with_metrics(**metrics: Any) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["metrics"] = MetricRecord({"num-examples": 30, "train-loss": 0.1} | metrics)

    return spoil


def with_terms(**terms: Any) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["gammafl"] = ConfigRecord({**content.config_records["gammafl"], **terms})

    return spoil


def without(key: str) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        del content[key]

    return spoil
