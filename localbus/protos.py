"""Google's Pub/Sub message classes, without Google's Pub/Sub clients.

The package google.pubsub_v1 imports its clients (0.4 s, 25 MB) when any part of it is touched. The
server needs the message classes alone, so a bare package stands in while they are imported, and
is taken away again: whoever imports the real one later gets it whole, with the same classes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PACKAGE = "google.pubsub_v1"


def _load_types() -> ModuleType:
    if _PACKAGE in sys.modules:
        return importlib.import_module(f"{_PACKAGE}.types")
    found = importlib.util.find_spec(_PACKAGE)
    assert found is not None
    assert found.submodule_search_locations is not None
    bare = ModuleType(_PACKAGE)
    bare.__path__ = list(found.submodule_search_locations)
    sys.modules[_PACKAGE] = bare
    try:
        return importlib.import_module(f"{_PACKAGE}.types")
    finally:
        del sys.modules[_PACKAGE]


_types = _load_types()


def _raw(name: str) -> Any:
    """The plain protobuf class behind proto-plus's wrapper; field access is ten times faster."""
    return getattr(_types, name).pb()


Topic = _raw("Topic")
Subscription = _raw("Subscription")
PubsubMessage = _raw("PubsubMessage")
GetTopicRequest = _raw("GetTopicRequest")
UpdateTopicRequest = _raw("UpdateTopicRequest")
DeleteTopicRequest = _raw("DeleteTopicRequest")
ListTopicsRequest = _raw("ListTopicsRequest")
ListTopicsResponse = _raw("ListTopicsResponse")
ListTopicSubscriptionsRequest = _raw("ListTopicSubscriptionsRequest")
ListTopicSubscriptionsResponse = _raw("ListTopicSubscriptionsResponse")
PublishRequest = _raw("PublishRequest")
PublishResponse = _raw("PublishResponse")
GetSubscriptionRequest = _raw("GetSubscriptionRequest")
UpdateSubscriptionRequest = _raw("UpdateSubscriptionRequest")
DeleteSubscriptionRequest = _raw("DeleteSubscriptionRequest")
ListSubscriptionsRequest = _raw("ListSubscriptionsRequest")
ListSubscriptionsResponse = _raw("ListSubscriptionsResponse")
PullRequest = _raw("PullRequest")
PullResponse = _raw("PullResponse")
AcknowledgeRequest = _raw("AcknowledgeRequest")
ModifyAckDeadlineRequest = _raw("ModifyAckDeadlineRequest")
SeekRequest = _raw("SeekRequest")
SeekResponse = _raw("SeekResponse")
StreamingPullRequest = _raw("StreamingPullRequest")
StreamingPullResponse = _raw("StreamingPullResponse")
