"""Operations: what Google answers to a call that changes something, kept for a limited time."""

import uuid
from collections import OrderedDict

from sim.cloud.model import ApiError, Operation

OPERATIONS_KEPT = 10_000


class OperationBook:
    """Remembers operations by name and by the caller's request id."""

    def __init__(self) -> None:
        self._by_name: OrderedDict[tuple[str, str], Operation] = OrderedDict()
        self._by_request: dict[tuple[str, str], Operation] = {}

    def find(self, scope: str, name: str) -> Operation | None:
        return self._by_name.get((scope, name))

    def repeated(self, scope: str, request_id: str | None) -> Operation | None:
        """The operation that this request id already made. A request is done once, however often
        it is sent."""
        if request_id is None:
            return None
        try:
            valid = uuid.UUID(request_id).int != 0
        except ValueError:
            valid = False
        if not valid:
            raise invalid("requestId", request_id, "a UUID that is not zero")
        return self._by_request.get((scope, request_id))

    def add(self, operation: Operation) -> Operation:
        self._by_name[operation.scope, operation.name] = operation
        if operation.client_operation_id is not None:
            self._by_request[operation.scope, operation.client_operation_id] = operation
        if len(self._by_name) > OPERATIONS_KEPT:
            _, oldest = self._by_name.popitem(last=False)
            if oldest.client_operation_id is not None:
                self._by_request.pop((oldest.scope, oldest.client_operation_id), None)
        return operation


def invalid(field: str, value: object, expected: str) -> ApiError:
    message = f"Invalid value for field '{field}': '{value}'. Expected {expected}."
    return ApiError(400, "invalid", message)
