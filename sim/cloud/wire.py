"""The JSON that Google's Compute API speaks: int64 as text, times in RFC 3339, URLs as links."""

from datetime import UTC, datetime

from sim.cloud.faults import GLOBAL_METRIC
from sim.cloud.model import (
    Action,
    ApiError,
    CreateFailure,
    ErrorRecord,
    InstanceStatus,
    Mig,
    Operation,
    PretendInstance,
    PretendVm,
    RequestState,
    ResizeRequest,
)

Json = dict[str, object]

_ACTION_KEYS = (
    "none",
    "creating",
    "creatingWithoutRetries",
    "verifying",
    "recreating",
    "refreshing",
    "restarting",
    "deleting",
    "abandoning",
    "starting",
    "stopping",
    "resuming",
    "suspending",
)


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


class Wire:
    """Renders the model under one base URL, e.g. ``http://127.0.0.1:8090/compute/v1``."""

    def __init__(self, base: str, project: str) -> None:
        self._root = f"{base}/projects/{project}"

    def link(self, path: str) -> str:
        return f"{self._root}/{path}"

    def mig(self, mig: Mig) -> Json:
        spec = mig.spec
        counts = {action.value.lower(): n for action, n in mig.counts().items()}
        path = f"regions/{spec.region}/instanceGroupManagers/{spec.name}"
        template = self.link(f"global/instanceTemplates/{spec.name}-tpl")
        return {
            "kind": "compute#instanceGroupManager",
            "id": str(mig.id),
            "name": spec.name,
            "creationTimestamp": timestamp(mig.created_at),
            "region": self.link(f"regions/{spec.region}"),
            "selfLink": self.link(path),
            "instanceGroup": self.link(f"regions/{spec.region}/instanceGroups/{spec.name}"),
            "instanceTemplate": template,
            "versions": [
                {"instanceTemplate": template, "targetSize": {"calculated": mig.target_size}}
            ],
            "baseInstanceName": spec.base_instance_name,
            "targetSize": mig.target_size,
            "currentActions": {key: counts.get(key, 0) for key in _ACTION_KEYS},
            "status": {
                "isStable": mig.is_stable,
                "versionTarget": {"isReached": True},
                "stateful": {"hasStatefulConfig": False},
            },
            "distributionPolicy": {
                "zones": [{"zone": self.link(f"zones/{zone}")} for zone in spec.zones],
                "targetShape": spec.target_shape,
            },
            "instanceLifecyclePolicy": {
                "defaultActionOnFailure": spec.default_action_on_failure,
                "forceUpdateOnRepair": "NO",
            },
            "listManagedInstancesResults": spec.list_mode,
            "fingerprint": "c2ltLWZpbmdlcnByaW50",
        }

    def managed_instance(self, member: PretendInstance) -> Json:
        zone = member.vm.info.zone if member.vm else member.zone
        shown: Json = {
            "name": member.name,
            "instance": self.link(f"zones/{zone}/instances/{member.name}"),
            "currentAction": member.action.value,
            "targetStatus": _target_status(member.action),
            "version": {
                "instanceTemplate": self.link(
                    f"global/instanceTemplates/{member.mig.spec.name}-tpl"
                )
            },
        }
        if member.vm is not None:
            shown |= {"id": str(member.vm.info.id), "instanceStatus": member.vm.status.value}
        if member.ends_at is not None:
            shown["scheduling"] = {"terminationTimestamp": timestamp(member.ends_at)}
        if member.failure is not None:
            shown["lastAttempt"] = {"errors": {"errors": [failure(member.failure)]}}
        return shown

    def resize_request(self, mig: Mig, request: ResizeRequest) -> Json:
        """Names that the caller gave are shown again; a count is shown as a count."""
        path = f"regions/{mig.spec.region}/instanceGroupManagers/{mig.spec.name}/resizeRequests"
        shown: Json = {
            "kind": "compute#instanceGroupManagerResizeRequest",
            "id": str(request.id),
            "name": request.name,
            "creationTimestamp": timestamp(request.created_at),
            "region": self.link(f"regions/{mig.spec.region}"),
            "selfLink": self.link(f"{path}/{request.name}"),
            "state": request.state.value,
            "requestedRunDuration": {"seconds": str(int(request.run_s))},
        }
        if request.by_count:
            shown["resizeBy"] = len(request.members)
        else:
            shown["instances"] = [{"name": member.name} for member in request.members]
        if request.failure is not None:
            error = {"errors": [failure(request.failure)]}
            failed = request.state is RequestState.FAILED
            shown["status"] = {"error": error} if failed else {"lastAttempt": {"error": error}}
        return shown

    def error_record(self, mig: Mig, record: ErrorRecord) -> Json:
        name = record.name
        return {
            "timestamp": timestamp(record.at),
            "error": {"code": record.failure.code, "message": record.failure.message},
            "instanceActionDetails": {
                "action": record.action.value,
                "instance": self.link(f"zones/{record.failure.zone}/instances/{name}"),
                "version": {
                    "instanceTemplate": self.link(f"global/instanceTemplates/{mig.spec.name}-tpl")
                },
            },
        }

    def instance(self, vm: PretendVm) -> Json:
        info = vm.info
        zone = f"zones/{info.zone}"
        return {
            "kind": "compute#instance",
            "id": str(info.id),
            "name": info.name,
            "creationTimestamp": timestamp(vm.created_at),
            "zone": self.link(zone),
            "selfLink": self.link(f"{zone}/instances/{info.name}"),
            "machineType": self.link(f"{zone}/machineTypes/{info.machine_type}"),
            "status": vm.status.value,
            "labels": dict(info.labels),
            "metadata": {
                "kind": "compute#metadata",
                "items": [{"key": key, "value": value} for key, value in info.metadata],
            },
            "scheduling": {
                "provisioningModel": "SPOT" if info.spot else "STANDARD",
                "preemptible": info.spot,
                "automaticRestart": False,
                "onHostMaintenance": "TERMINATE",
                **({"instanceTerminationAction": "STOP"} if info.spot else {}),
            },
        }

    def operation(self, op: Operation, now: float) -> Json:
        done = now >= op.done_at
        kind, _, place = op.scope.partition("/")
        shown: Json = {
            "kind": "compute#operation",
            "id": str(op.id),
            "name": op.name,
            "operationType": op.type,
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
            "insertTime": timestamp(op.at),
            "startTime": timestamp(op.at),
            "targetLink": self.link(op.target),
            "selfLink": self.link(f"{op.scope}/operations/{op.name}"),
            kind.removesuffix("s"): self.link(f"{kind}/{place}"),
            "user": "anonymous",
        }
        if done:
            shown["endTime"] = timestamp(op.done_at)
            if op.error is not None:
                shown["error"] = {"errors": [failure(op.error)]}
                shown["httpErrorStatusCode"] = 400
                shown["httpErrorMessage"] = "BAD REQUEST"
        if op.client_operation_id is not None:
            shown["clientOperationId"] = op.client_operation_id
        return shown


def failure(failure: CreateFailure) -> Json:
    """An entry of lastAttempt.errors.errors, with the details where Google gives them."""
    details: list[Json] = []
    if failure.localized:
        details.append({"localizedMessage": {"locale": "en-US", "message": failure.localized}})
    if failure.reason:
        info = {
            "domain": "compute.googleapis.com",
            "reason": failure.reason,
            "metadatas": dict(failure.metadatas),
        }
        details.append({"errorInfo": info})
    if failure.quota is not None:
        metric, limit = failure.quota
        everywhere = metric == GLOBAL_METRIC
        quota = {
            "metricName": f"compute.googleapis.com/{metric.lower()}",
            "limitName": metric.replace("_", "-")
            + ("-per-project" if everywhere else "-per-project-region"),
            "limit": limit,
            "dimensions": {} if everywhere else {"region": failure.zone.rpartition("-")[0]},
        }
        details.append({"quotaInfo": quota})
    shown: Json = {"code": failure.code, "message": failure.message}
    if details:
        shown["errorDetails"] = details
    return shown


def error_body(error: ApiError) -> Json:
    domain = "usageLimits" if error.reason == "rateLimitExceeded" else "global"
    entry = {"message": error.message, "domain": domain, "reason": error.reason}
    return {"error": {"code": error.status, "message": error.message, "errors": [entry]}}


def _target_status(action: Action) -> str:
    return {Action.DELETING: "DELETED", Action.ABANDONING: "ABANDONED"}.get(
        action, InstanceStatus.RUNNING.value
    )
