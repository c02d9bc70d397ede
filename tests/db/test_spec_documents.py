"""Stored submissions leave out what is as by default, and are read as they were."""

from __future__ import annotations

import json
from dataclasses import replace

from core.job_fields import JobSpec
from db.rows import spec_of, to_json
from db.spec_documents import DEFAULTS, spec_document

STORED = """
{"job_id":"","user_id":"0","workflow":"","workflow_args":{},"gpu_type":null,"gpu_count":1,
"keep_alive":false,"environment":{},"secrets":{},"command":[],"shell":false,"tenant_id":"default",
"stop_grace_s":60.0,"max_runtime_s":604800.0,"name":"","image":null,"working_dir":"",
"keep_entrypoint":false,"cpu_cores":0,"memory_mb":0,"resize_signal":"USR1","gpu_types":[],
"cluster":null,"gpu_memory_mb":0,"priority":500,"regions":[],"regions_denied":[],
"max_usd_per_hour":null,"spot":null,"allow_larger":null,"agreed_usd_per_hour":null,"deadline":null,
"queue_timeout_s":2592000.0,"retries":0,"labels":{},"group":null,"after":[],"array":null,
"replicas":1,"replicas_min":null,"reschedulable":true,"same_zone":false,"replace_members":false,
"google_token":false,"code":""}
"""
"""Rows that leave a field out mean this. New fields are added; nothing else changes here."""


def test_defaults_are_those_that_stored_rows_mean() -> None:
    """Another default would change jobs that are stored: write the old one into them first."""
    assert json.loads(to_json(DEFAULTS)) == json.loads(STORED)


def test_a_document_has_what_differs() -> None:
    """And is the same submission again; what was stored before is still read."""
    spec = JobSpec(job_id="j", command=("true",), labels={"a": "b"}, gpu_count=0, spot=False)
    kept = {"job_id": "j", "command": ["true"], "labels": {"a": "b"}, "gpu_count": 0, "spot": False}
    assert json.loads(spec_document(spec)) == kept
    for one in (spec, replace(spec, spot=None), JobSpec(job_id="k")):
        assert spec_of(spec_document(one)) == one
        assert spec_of(to_json(one)) == one
