"""Google's own Pub/Sub client library: its system tests and samples against the local bus."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.clients.programs.frame import ClientCheck, ClientProgram, ClientSetup, pytest_checks

PROJECT = "zen-local"
PACKAGES = (
    *("google-cloud-pubsub", "google-cloud-testutils", "google-cloud-bigquery"),
    *("google-cloud-storage", "pytest", "pytest-xdist", "mock", "flaky", "backoff", "avro"),
    *("psutil", "opentelemetry-exporter-gcp-trace", "cryptography"),
)
# The library speaks REST to https only; the bus has no certificate.
PLUGIN = """
import os
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1.services.publisher.transports import rest as publisher
from google.pubsub_v1.services.subscriber.transports import rest as subscriber

for transport in (publisher.PublisherRestTransport, subscriber.SubscriberRestTransport):
    def begin(self, *, _begin=transport.__init__, **words):
        words |= {"host": os.environ["BUS_REST"], "url_scheme": "http"}
        words |= {"credentials": AnonymousCredentials()}
        words.pop("channel", None)
        _begin(self, **words)
    transport.__init__ = begin
"""
NOT_RUN: Mapping[str, str] = {
    "ingestion": "topics that import from other systems are not served",
    "test_update_topic_type": "topics that import from other systems are not served",
    "smt": "message transforms are not served",
    "push": "pull only: push endpoints are not served",
    "bigquery": "exports to BigQuery are not served",
    "cloudstorage": "exports to Cloud Storage are not served",
}
NEEDS_GOOGLE: Mapping[str, str] = {
    "permissions_sufficient": "needs an account of Google's whose role is enforced",
    "role_can": "needs an account of Google's whose role is enforced",
}
DIFFERENCES = (
    "Refused by name: schemas, push, message transforms, snapshots, imports into topics, exports.",
    "IAM policies are kept and given back, not enforced: callers have no identity.",
    "No TLS: the library speaks gRPC to it through `PUBSUB_EMULATOR_HOST`.",
)


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """System tests over both transports, then the samples' tests."""
    python = setup.python(*PACKAGES)
    (setup.scratch / "rest_over_http.py").write_text(PLUGIN, encoding="utf-8")
    environ = {
        "PUBSUB_EMULATOR_HOST": str(setup.stack["bus"]),
        "BUS_REST": str(setup.stack["bus_rest"]).removeprefix("http://"),
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "GOOGLE_APPLICATION_CREDENTIALS": str(_key(setup, python)),
        "PYTHONPATH": str(setup.scratch),
    }
    # The installed library is tried, not the sources beside its tests.
    (setup.checkout / "google").rename(setup.scratch / "google-sources")
    words = ("-p", "rest_over_http", "-p", "no:cacheprovider", "-n", "4", "--no-flaky-report")
    yield from pytest_checks(
        setup,
        python,
        (*words, "tests/system.py"),
        prefix="system: ",
        not_run=NEEDS_GOOGLE,
        environ=environ,
        timeout_s=900,
    )
    # The samples' tests use the topics of those before them in the same file.
    words = (*words[:-1], "--dist=loadfile")
    snippets = setup.checkout / "samples" / "snippets"
    names = ("iam_test.py", "publisher_test.py", "subscriber_test.py", "quickstart")
    yield ClientCheck("samples: schema_test", "not run", "schemas are not served")
    yield from pytest_checks(
        setup,
        python,
        (*words, "--rootdir", str(snippets), *(str(snippets / name) for name in names)),
        prefix="samples: ",
        not_run=NOT_RUN,
        environ=environ,
        timeout_s=900,
    )


def _key(setup: ClientSetup, python: str) -> Path:
    """A key file that opens nothing: the tests read their project from one."""
    made = setup.call(
        python,
        "-c",
        "from cryptography.hazmat.primitives.asymmetric import rsa\n"
        "from cryptography.hazmat.primitives import serialization as s\n"
        "key = rsa.generate_private_key(public_exponent=65537, key_size=2048)\n"
        "forms = (s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())\n"
        "print(key.private_bytes(*forms).decode())",
    )
    target = setup.scratch / "key.json"
    told = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "none",
        "private_key": made.output,
        "client_email": f"nobody@{PROJECT}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "http://127.0.0.1:9/token",
    }
    target.write_text(json.dumps(told), encoding="utf-8")
    return target


PROGRAM = ClientProgram(
    name="googleapis/python-pubsub",
    marks=("tests/system.py", "samples/snippets/subscriber_test.py"),
    checks=checks,
    differences=DIFFERENCES,
)
