"""What CI does not run of `--help` and of the comments in examples/, and why; and what it puts in
the place of names that exist in nobody's installation."""

from __future__ import annotations

from collections.abc import Mapping

SHOWN: Mapping[str, str] = {
    "zen check": "CI runs it by itself",
    "zen check --no-tests && zen test": "CI runs it by itself",
    "zen test": "CI runs it by itself",
    "zen test tests/core -q": "CI runs these tests by themselves",
    "zen test -k stockout": "CI runs these tests by themselves",
    "zen docs": "writes into the checkout; the line with --check is run",
    "zen demo": "tests/cli/commands/test_demo_run.py runs it",
    "zen demo --json": "tests/cli/commands/test_demo_run.py runs it",
    "zen chaos --minutes 2": "tests/e2e/test_chaos.py runs it for seconds",
    "zen chaos --scenario leader-deaths --jobs 2000": "takes half an hour",
    "zen chaos --scenario no-bus --minutes 30 --json": "takes half an hour",
    "zen simulate": "takes minutes; tests/sim/virtual/test_run.py runs it",
    "zen simulate --seed 7 --verbose": "takes minutes; tests/sim/virtual/test_run.py runs it",
    "zen simulate --seeds 200": "takes a quarter of an hour",
    "zen simulate --seeds 50 --jobs 60 --forged 20000": "takes a quarter of an hour",
    "zen audit verify --anchors": "needs audit.anchor_url; tests/scheduler/operations has it",
    "zen simulate --jobs 10000": "takes half an hour",
    "zen simulate --crash-points": "takes minutes; tests/sim runs parts of it",
    "zen clients verify ../lumino-api ../jobscheduler": "needs checkouts of other projects",
    "zen clients verify --write ../*": "needs checkouts of other projects",
    "zen submit --image python:3.12 --memory 16 -- python3 -c 'print(42)'": "pulls an image",
    "zen login": "needs an issuer and a browser; tests/cli/commands/test_login.py runs it",
    "zen login --device": "needs an issuer; tests/cli/commands/test_login.py runs it",
    "zen sessions revoke SESSION": "needs a browser; tests/e2e/test_revocation.py runs it",
    "zen proxy --listen 127.0.0.1:8081 --key nightly.key": (
        "runs until it is stopped; tests/cli/test_key_proxy.py runs it"
    ),
    "zen node": "needs GPUs; the line with --gpus is run",
    "zen submit --gpus 1 -- python3 examples/train.py": (
        "on zen node it runs in your directory; tests/clients/test_tgpu.py runs such a job"
    ),
    "zen submit -f examples/container.yaml --id fit --wait": "pulls an image",
    "zen artifacts fit": "the outputs of a job that pulls an image",
    "zen fetch fit --to results": "the outputs of a job that pulls an image",
}
"""Line → why it is not run."""

NAMES: Mapping[str, str] = {
    "http://127.0.0.1:…/": "{bus_rest}/",
    "/etc/zen/zen.yaml": "{config}",
    "rollback 6": "rollback 1",
}
"""What a document writes for an address → a form that run.json fills."""
