"""Kafka's numbers of errors, and the fields of an answer that refuses."""

from __future__ import annotations

import pickle

import pytest
from kio.schema.errors import ErrorCode as ErrorOfKio

from kts.broker.codes import ApiError, ErrorCode, failed, refusal
from kts.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError


def test_errors_have_kafkas_numbers_and_names() -> None:
    """The package kio has them from Kafka's own definitions."""
    assert {code.name.lower(): int(code) for code in ErrorCode}.items() <= {
        code.name: code.value for code in ErrorOfKio
    }.items()


def test_an_error_keeps_its_code_and_what_is_known_over_pickling() -> None:
    error = ApiError(ErrorCode.FENCED_LEADER_EPOCH, "expected leader epoch 3, found 2", offset=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ApiError
    assert (again.error, again.code, again.offset, str(again)) == (ErrorCode.FENCED_LEADER_EPOCH, 74, 7, str(error))
    assert ApiError(ErrorCode.NOT_CONTROLLER).message == "NOT_CONTROLLER"


def test_a_refusal_has_the_words_of_the_error_or_where_clients_show_them_kafkas() -> None:
    assert failed(OffsetOutOfRangeError("expected 5, found 6")) == {
        "error_code": 1,
        "error_message": "expected 5, found 6",
    }
    assert failed(UnknownTopicOrPartitionError("no topic 't'")) == refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == {
        "error_code": 3,
        "error_message": "This server does not host this topic-partition.",
    }
    assert refusal(ErrorCode.INVALID_REQUEST) == {"error_code": 42, "error_message": None}
    with pytest.raises(ValueError, match="-2"):
        ErrorCode(-2)
