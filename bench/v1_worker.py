#!/usr/bin/env python3
"""A worker as pipeline-zen's are, for tests and measurements: a script that a VM runs at boot.

It waits, takes one start message with auto-ack (none: it deletes its VM), says FOUND_VM, waits,
runs the workflow, says RUNNING and looks for stop messages now and then, says how it ended, and
deletes its VM unless it is to be kept. It speaks with the bus by `gcloud pubsub`
(V1_SPEAK=gcloud), with google-cloud-pubsub (V1_SPEAK=library), or by bare REST (V1_SPEAK=rest),
which costs least where hundreds of them share one machine. It knows nothing of who is behind it.

The only workflow is `ticks`: args.ticks lines in the file args.ledger, one every tenth of a second,
then exit code args.exit. args.leave is how it deletes its VM: `group` (the group's
deleteInstances), `instance` (the instance alone: the group does not know), `stay` (not at all).

Environment: V1_BOOT_WAIT_S (30), V1_FOUND_WAIT_S (30), V1_BEAT_S (10), V1_SPEAK (gcloud; or by
cluster, as in 1xl4=rest,1xt4=library).
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CALL_S = 30
STOPS_MAX = 10
Json = dict[str, Any]


def number(name: str, default: float) -> float:
    return float(os.environ.get(name, default))


def call(url: str, method: str, body: Json | None = None, headers: Json | None = None) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=CALL_S)
    try:
        text = json.dumps(body) if body is not None else None
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, path, text, {**(headers or {})})
        answer = connection.getresponse()
        words = answer.read().decode()
    finally:
        connection.close()
    if answer.status >= 400:
        raise OSError(f"{method} {url}: {answer.status} {words}")
    return words


class Me:
    """Who this VM is, from its metadata."""

    def __init__(self) -> None:
        self.name = self._ask("name")
        self.zone = self._ask("zone").rpartition("/")[2]
        self.cluster = self._ask("attributes/zen-cluster")
        self.project = self._ask("attributes/zen-project")
        self.prefix = self._ask("attributes/zen-prefix")

    def _ask(self, what: str) -> str:
        host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        url = f"http://{host}/computeMetadata/v1/instance/{what}"
        return call(url, "GET", headers={"Metadata-Flavor": "Google"})

    def delete_vm(self, how: str) -> None:
        base = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"]
        base = f"{base}projects/{self.project}"
        if how == "instance":
            call(f"{base}/zones/{self.zone}/instances/{self.name}", "DELETE")
        elif how == "group":
            region = self.zone.rpartition("-")[0]
            group = f"{self.prefix}-{self.cluster}-{region}-mig"
            url = f"{base}/regions/{region}/instanceGroupManagers/{group}/deleteInstances"
            call(url, "POST", {"instances": [f"zones/{self.zone}/instances/{self.name}"]})


Received = tuple[str, Json]
"""Ack id and body."""


class Rest:
    """Pub/Sub's REST, as gcloud speaks it."""

    def __init__(self, me: Me) -> None:
        base = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB"]
        self._base = f"{base}v1/projects/{me.project}"

    def publish(self, topic: str, body: Json) -> None:
        data = base64.b64encode(json.dumps(body).encode()).decode()
        call(f"{self._base}/topics/{topic}:publish", "POST", {"messages": [{"data": data}]})

    def pull(self, subscription: str, most: int) -> list[Received]:
        request = {"maxMessages": most, "returnImmediately": True}
        answer = call(f"{self._base}/subscriptions/{subscription}:pull", "POST", request)
        return [decoded(item) for item in json.loads(answer).get("receivedMessages", ())]

    def ack(self, subscription: str, ack_id: str) -> None:
        url = f"{self._base}/subscriptions/{subscription}:acknowledge"
        call(url, "POST", {"ackIds": [ack_id]})

    def give_back(self, subscription: str, ack_id: str) -> None:
        request = {"ackIds": [ack_id], "ackDeadlineSeconds": 0}
        call(f"{self._base}/subscriptions/{subscription}:modifyAckDeadline", "POST", request)


class Gcloud:
    """The `gcloud pubsub` command line."""

    def publish(self, topic: str, body: Json) -> None:
        self._run("topics", "publish", topic, f"--message={json.dumps(body)}")

    def pull(self, subscription: str, most: int) -> list[Received]:
        auto = ["--auto-ack"] if most == 1 else []
        answer = self._run("subscriptions", "pull", subscription, f"--limit={most}", *auto)
        return [decoded(item) for item in answer or ()]

    def ack(self, subscription: str, ack_id: str) -> None:
        if ack_id:
            self._run("subscriptions", "ack", subscription, f"--ack-ids={ack_id}")

    def give_back(self, subscription: str, ack_id: str) -> None:
        words = ("modify-message-ack-deadline", subscription, f"--ack-ids={ack_id}")
        self._run("subscriptions", *words, "--ack-deadline=0")

    def _run(self, *words: str) -> Any:
        done = subprocess.run(
            ["gcloud", "pubsub", *words, "--format=json"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise OSError(f"gcloud pubsub {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout or "null")


class PubSubLibrary:
    """google-cloud-pubsub, call by call."""

    def __init__(self, me: Me) -> None:
        import google.cloud.pubsub_v1 as pubsub_v1  # noqa: PLC0415  # most do without

        self._publisher, self._subscriber = (
            pubsub_v1.PublisherClient(),
            pubsub_v1.SubscriberClient(),
        )
        self._project = me.project

    def publish(self, topic: str, body: Json) -> None:
        path = self._publisher.topic_path(self._project, topic)
        self._publisher.publish(path, json.dumps(body).encode()).result(CALL_S)

    def pull(self, subscription: str, most: int) -> list[Received]:
        answer = self._subscriber.pull(
            subscription=self._path(subscription), max_messages=most, return_immediately=True
        )
        return [(item.ack_id, json.loads(item.message.data)) for item in answer.received_messages]

    def ack(self, subscription: str, ack_id: str) -> None:
        self._subscriber.acknowledge(subscription=self._path(subscription), ack_ids=[ack_id])

    def give_back(self, subscription: str, ack_id: str) -> None:
        self._subscriber.modify_ack_deadline(
            subscription=self._path(subscription), ack_ids=[ack_id], ack_deadline_seconds=0
        )

    def _path(self, subscription: str) -> str:
        return str(self._subscriber.subscription_path(self._project, subscription))


def decoded(item: Json) -> Received:
    return item.get("ackId", ""), json.loads(base64.b64decode(item["message"]["data"]))


def speaker(kind: str, me: Me) -> Rest | Gcloud | PubSubLibrary:
    if "=" in kind:
        kind = dict(item.split("=") for item in kind.split(","))[me.cluster]
    if kind == "gcloud":
        return Gcloud()
    return PubSubLibrary(me) if kind == "library" else Rest(me)


class V1WorkerProcess:
    """One VM's life."""

    def __init__(self) -> None:
        self.me = me = Me()
        self.bus = speaker(os.environ.get("V1_SPEAK", "gcloud"), me)
        self.heartbeat_s = number("V1_BEAT_S", 10)

    def run(self) -> None:
        time.sleep(number("V1_BOOT_WAIT_S", 30))
        start = self._take()
        if start is None:
            self.me.delete_vm("group")
            return
        self._say(start, "FOUND_VM")
        time.sleep(number("V1_FOUND_WAIT_S", 30))
        self._say(start, "RUNNING")
        self._say(start, f"wf-{start['workflow']}-all-start", timestamp=str(time.time()))
        ended = self._work(start)
        self._say(start, f"wf-{start['workflow']}-all-finish", elapsed_time_s="1.0")
        self._say(start, ended)
        if not start.get("keep_alive"):
            self.me.delete_vm(start["args"].get("leave", "group"))

    def _take(self) -> Json | None:
        subscription = f"{self.me.prefix}-start-runner-{self.me.cluster}"
        for ack_id, body in self.bus.pull(subscription, 1):
            self.bus.ack(subscription, ack_id)
            return body
        return None

    def _say(self, start: Json, status: str, **more: str) -> None:
        who = {"job_id": start["job_id"], "user_id": start["user_id"], "vm_name": self.me.name}
        self.bus.publish(f"{self.me.prefix}-heartbeats", {**who, "status": status, **more})

    def _work(self, start: Json) -> str:
        args, said = start["args"], time.monotonic()
        for _ in range(int(args["ticks"])):
            self._tick(start)
            time.sleep(0.1)
            if time.monotonic() - said >= self.heartbeat_s:
                said = time.monotonic()
                if self._is_stopped(start["job_id"]):
                    return "STOPPED"
                self._say(start, "RUNNING")
        return "FAILED" if int(args.get("exit", 0)) else "COMPLETED"

    def _tick(self, start: Json) -> None:
        user, job = start["user_id"], start["job_id"]
        line = (
            f"{user}/{job} {start.get('attempt', 0)} {self.me.name} {os.getpid()} {time.time()}\n"
        )
        with Path(start["args"]["ledger"]).open("a", encoding="utf-8") as ledger:
            ledger.write(line)

    def _is_stopped(self, job_id: str) -> bool:
        """Acknowledges its own stop, gives back those of others."""
        subscription, mine = f"{self.me.prefix}-stop-runner", False
        for ack_id, body in self.bus.pull(subscription, STOPS_MAX):
            if body.get("action") == "stop" and body.get("job_id") == job_id:
                self.bus.ack(subscription, ack_id)
                mine = True
            else:
                self.bus.give_back(subscription, ack_id)
        return mine


if __name__ == "__main__":
    V1WorkerProcess().run()
    time.sleep(3600)  # the VM goes on until it is deleted
    sys.exit(0)
