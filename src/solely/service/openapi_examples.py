"""Examples for the OpenAPI document: made from the schemas, so that each is valid, with values that a reader knows.

A field gets the first value of its name in VALUES that its schema allows; other fields get a value of their type. A
request has the required fields and those of SHOWN; a response has all fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

# One moment, one holder and one task in all examples.
_AT, _TEXT_AT = 1_794_918_600.0, "2026-11-17T09:10:00Z"
_FENCE = 1_794_918_600_123_456
_TOKEN = "ZmVmNDEzOTQ3YjE0NGE5Yjk0"
_PAYLOAD = {"order": "order-7"}

# The name of a key, by the tag of its operation.
KEYS = {
    "locks": "deploy:web",
    "marks": "invoice:2026-11:customer-7",
    "claims": "charge:order-7",
    "reservations": "cpu-high:critical",
    "limits": "api:tenant-7",
    "watermarks": "gitlab:events",
    "schedules": "nightly-report",
    "entries": "deploy:web",
    "ops": "lock/deploy:web",
    "events": "lock/deploy:web",
    "audit": "lock/deploy:web",
    "triggers": "order-7",
    "repos": "review:shop/web:42",
}
KEY = "deploy:web"

# Values by the name of the field, or by its tag and name: the first that its schema allows is shown.
VALUES: dict[str, tuple[Any, ...]] = {
    "action": ("locks.clear",),
    "annotations": ({"summary": "the disk of db-3 is 96 % full"},),
    "attempt": (1,),
    "attempts": (1,),
    "author": ("ann",),
    "by": ("ann",),
    "client": ("web-1",),
    "comment": ("the disk is being replaced",),
    "createdBy": ("ann",),
    "dedup_key": ("db-3:disk",),
    "detail": ("'deploy:web' is held by web-1, pid 4711, for another 29.6 s",),
    "details": ({"message": "msg_1"},),
    "duration": ("2h", 7_200),
    "endsAt": ("2026-11-17T11:10:00Z",),
    "ends": (_AT + 7_200, "2026-11-17T11:10:00Z"),
    "error": ("ConnectTimeout: payments.example.org did not answer within 5 s",),
    "event": ("acquired",),
    "event_action": ("trigger",),
    "every": (300.0,),
    "externalURL": ("https://alertmanager.example.org",),
    "fence": (_FENCE,),
    "fingerprint": ("9f86d081884c7d65",),
    "finishedAt": (_TEXT_AT,),
    "first_error": ("ConnectTimeout: payments.example.org did not answer within 5 s",),
    "for": ("2h", 7_200),
    "forge": ("gitlab",),
    "game": ("roulette",),
    "generatorURL": ("https://prometheus.example.org/graph",),
    "group": ("mail",),
    "group_name": ("mail",),
    "hold": (30.0,),
    "holder": ("web-1, pid 4711",),
    "host": ("db-3",),
    "house": ("north",),
    "id": ("order-7", 7),
    "idempotencyKey": ("order-7",),
    "info": ("web-1, pid 4711",),
    "interval": (60.0,),
    "issue_key": ("SHOP-42",),
    "keep": (86_400.0,),
    "kind": ("lock", "review"),
    "labels": ({"host": "db-3"},),
    "last_error": ("ConnectTimeout: payments.example.org did not answer within 5 s",),
    "lasts": ("2h", 7_200),
    "lease": (30.0, "9f86d081884c7d65"),
    "left": (29.6,),
    "limit": (100, 20),
    "max_attempts": (5,),
    "message": ("the disk of db-3 is 96 % full",),
    "metadata": ({"progress": 50},),
    "method": ("GET",),
    "name": ("disk-full", "web"),
    "next": (None,),
    "op": ("acquire",),
    "origin": ("checkout",),
    "outcome": ("released", "done", "published"),
    "output": ({"sent": True},),
    "owner": ("b5e49a7c1f0d4e2e8a6c3d5b7f901234",),
    "payload": (_PAYLOAD, "eyJvcmRlciI6ICJvcmRlci03In0="),
    "per": (60.0,),
    "prefix": ("deploy:",),
    "priority": (0,),
    "project": ("shop/web",),
    "purpose": ("release 1.2",),
    "queue": ("mail",),
    "quiet": (300.0,),
    "reason": ("the holder's host was replaced", "quiet"),
    "receiver": ("team-shop",),
    "repository": ("shop/web",),
    "retry_after": (30, 29.6),
    "schedule": ("*/5 * * * *",),
    "severity": ("critical",),
    "signal": ({"username": "ann", "priority": 2},),
    "size": (21,),
    "source": ("db-3", "gitlab:shop/web"),
    "startsAt": (_TEXT_AT,),
    "starts": (_AT, _TEXT_AT),
    "state": ("held", "active", "UP", "QUEUED"),
    "status": ("firing", "success", 200, "ok"),
    "subject": ("lock/deploy:web",),
    "summary": ("the disk of db-3 is 96 % full",),
    "task": ("send-mail",),
    "taskIdentifier": ("send-mail",),
    "target": ("web",),
    "text": ("'deploy:web' is held by web-1, pid 4711, for another 29.6 s",),
    "timeout": (5.0,),
    "title": ("Busy",),
    "to": (41, _TEXT_AT),
    "token": (_TOKEN,),
    "tokens": ([_TOKEN],),
    "ttl": (30.0,),
    "tz": ("Europe/Berlin",),
    "unreadable": ("",),
    "url": ("https://shop.example.org/health",),
    "user_key": ("order-7",),
    "username": ("probe",),
    "value": (42, _TEXT_AT, {"charged": "order-7"}, "eyJvcmRlciI6ICJvcmRlci03In0="),
    "version": ("4",),
    "wait": (10.0,),
    "when": ("0 3 * * *",),
    "who": ("ann",),
    "why": ("the holder's host was replaced",),
    "worker": ("worker-1",),
    "alerts.reason": ("the disk is being replaced",),
    "alerts.id": ("c0ffee00-1794-4918-8600-000000000007",),
    "alerts.key": ("db-3:disk-full:critical",),
    "alerts.matchers": (['name="disk-full"'],),
    "alerts.value": ("disk-full",),
    "alerts.matcher": ('name="disk-full"',),
    "alerts.name": ("disk-full", "alertname"),
    "alerts.isRegex": (False,),
    "alerts.receivers": ([{"name": "team-shop"}],),
    "alerts.status": ("firing", "success", "ok"),
    "alerts.summary": ("the disk of db-3 is 96 % full",),
    "alerts.kind": ("published",),
    "active_probe_keys": (["web"],),
    "checks": ({"store": "ok", "granting": "ok"},),
    "dead-letters.id": ("3f2a9c",),
    "dead-letters.key": ("order-7",),
    "dead-letters.outcome": ("done",),
    "environment": ("production",),
    "entries.why": ("it is held by web-1, pid 4711",),
    "entries.value": ("",),
    "headers": ({"accept": "application/json"},),
    "made_by": ("ann",),
    "ended_by": ("",),
    "ended_why": ("",),
    "phases": ({"connect": 0.012, "tls": 0.03, "response": 0.08},),
    "probes.name": ("web",),
    "probes.title": ("The shop",),
    "probes.id": ("m-7",),
    "probes.error": ("",),
    "probes.skipped": ("",),
    "probes.reason": ("the certificate is being replaced",),
    "public_base_url": ("https://solely.example.org",),
    "received_by": ("webhook",),
    "repos.event": ("merge_request",),
    "repos.ignored": ("",),
    "repos.kind": ("review",),
    "repos.outcome": ("queued", "done"),
    "repos.reason": ("the review was lost",),
    "repos.source": ("gitlab:shop/web",),
    "repos.state": ("done",),
    "repos.title": ("Add the checkout",),
    "reservations.id": ("Y3B1LWhpZ2g6Y3JpdGljYWw6MTc5NDkxODYwMA",),
    "reservations.purpose": ("page the admin",),
    "reservations.reason": ("quiet", "the sender hangs"),
    "claims.purpose": ("checkout",),
    "claims.outcome": ("running", "released"),
    "claims.value": ({"charged": "order-7"},),
    "running": (None,),
    "schedules.last": (_TEXT_AT,),
    "schedules.outcome": ("done",),
    "schedules.state": ("free",),
    "service.status": ("ok",),
    "service.version": ("0.1.0",),
    "service.up": (86_400.0,),
    "signals.id": ("sig-7",),
    "signals.outcome": ("stored",),
    "signals.reason": ("the generator was corrected",),
    "signals.username": ("ann",),
    "tags": (["order-7"], "order-7"),
    "triggers.id": ("run_" + "abcdefghijklmnopqrstuvwxyz234567abcdefg",),
    "triggers.message": ("canceled",),
    "triggers.state": ("EXECUTING",),
    "triggers.status": ("EXECUTING",),
    "triggers.error": ("ConnectTimeout: payments.example.org did not answer within 5 s",),
}

# What would contradict the rest of an example, or no schema says that it must be given; by the name of the schema.
FIELDS: dict[str, dict[str, Any]] = {
    "ClaimAnswer": {"result": None, "waited": 0.0},
    "PublishedClaim": {"superseded": False, "pending": False},
    "ReservationAnswer": {"reason": "", "retry_after": 0.0, "suppressed": 0},
    "TakenQueueItem": {"raw": None},
    "FullItem": {"state": "free", "left": 0.0, "raw": None},
    "FullLetter": {"raw": None},
    "TriggerAnswer": {"isCached": False, "buffered": False, "payloadMismatch": False, "error": ""},
    "RunAnswer": {"error": None},
    "MetadataBody": {"metadata": {"progress": 50}},
    "PurgeLetters": {"id": "3f2a9c"},
    "ReplayLetters": {"id": "3f2a9c"},
}

# Optional fields that a request shows as well.
SHOWN = frozenset(
    ("duration", "keep", "labels", "lasts", "limit", "payload", "per", "prefix", "purpose", "quiet", "ttl", "wait")
)
_TIMES = re.compile(r"(^|_)(at|since|until|began|last|first|made|received|started|due|from)$|At$|^last_")

# Responses that are not JSON, by their media type.
TEXTS = {
    "text/event-stream": "event: acquired\n"
    f'data: {{"id":1,"at":{_AT},"event":"acquired","key":"lock/deploy:web","fence":{_FENCE}}}\n\n',
    "text/plain": 'solely_acquired_total{kind="lock"} 42.0\n',
    "text/html": "<!doctype html>\n<title>Idempotency policy</title>\n",
    "image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="20" role="img"></svg>\n',
}


class Examples:
    """Makes examples of schemas that may refer to `components`."""

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = components

    def request(self, schema: Schema, tag: str) -> Any:
        """A request body: what must be sent, and what most callers send."""
        return _Maker(self._components, tag, lambda name, required: name in required or name in SHOWN).make(schema)

    def response(self, schema: Schema, tag: str) -> Any:
        """A response with all its fields."""
        return _Maker(self._components, tag, lambda name, required: True).make(schema)

    def parameter(self, schema: Schema, name: str, tag: str) -> Any:
        """The value of a path or query parameter."""
        return _Maker(self._components, tag, lambda name, required: True).make(schema, name)


class _Maker:
    def __init__(self, components: Mapping[str, Any], tag: str, shows: Callable[[str, tuple[str, ...]], bool]) -> None:
        self._components = components
        self._tag = tag
        self._shows = shows
        self._within: list[str] = []  # components that are being made: one that contains itself ends there

    def make(self, schema: Schema, name: str = "") -> Any:
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2], name)
        for value in self._known(name):
            if allows(schema, value):
                return value
        if "enum" in schema:
            return schema["enum"][0]
        if alternatives := [each for each in _alternatives(schema) if each.get("type") != "null"]:
            return self.make(alternatives[0], name)
        return getattr(self, f"_{schema.get('type', 'anything')}")(schema, name)

    def _named(self, component: str, name: str) -> Any:
        if component in self._within:
            return {}
        self._within.append(component)
        made = self.make(self._components[component], name)
        self._within.pop()
        if isinstance(made, dict):
            made.update(FIELDS.get(component, {}))
        return made

    def _known(self, name: str) -> tuple[Any, ...]:
        if name in ("key", "keys", "subject"):
            key = KEYS.get(self._tag, KEY)
            return (*VALUES.get(f"{self._tag}.{name}", ()), key, [key])
        scoped = (*VALUES.get(f"{self._tag}.{name}", ()), *VALUES.get(name, ()))
        return scoped or ((_AT, _TEXT_AT) if _TIMES.search(name) else ())

    def _object(self, schema: Schema, name: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        if not properties:
            values = schema.get("additionalProperties")
            return {"name": self.make(values, "text")} if isinstance(values, dict) else {}
        required = tuple(schema.get("required", ()))
        either = [each["required"][0] for each in schema.get("oneOf", ()) if "required" in each]
        without, required = set(either[1:]), (*required, *either[:1])
        shown = [each for each in properties if each not in without and self._shows(each, required)]
        return {each: self.make(properties[each], each) for each in shown}

    def _array(self, schema: Schema, name: str) -> list[Any]:
        return [self.make(schema.get("items", {}), name.removesuffix("s"))]

    def _string(self, schema: Schema, name: str) -> str:
        if schema.get("format") == "date-time":
            return _TEXT_AT
        if schema.get("contentEncoding") == "base64":
            return "eyJvcmRlciI6ICJvcmRlci03In0="
        candidates = (name.replace("_", "-") or "text", "web", "A", "0" * 32)
        return next((each for each in candidates if allows(schema, each)), "text")

    def _number(self, schema: Schema, name: str) -> float:
        return float(max(schema.get("minimum", 1.5), min(1.5, schema.get("maximum", 1.5))))

    def _integer(self, schema: Schema, name: str) -> int:
        return int(max(schema.get("minimum", 1), min(1, schema.get("maximum", 1))))

    def _boolean(self, schema: Schema, name: str) -> bool:
        return True

    def _null(self, schema: Schema, name: str) -> None:
        return None

    def _anything(self, schema: Schema, name: str) -> Any:
        return _PAYLOAD


def _alternatives(schema: Schema) -> list[Schema]:
    """The members of a union; none for an object of which one of several fields is required."""
    if schema.get("type") == "object":
        return []
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip


def allows(schema: Schema, value: Any) -> bool:
    """True if the schema allows this plain value: its type, its bounds, its pattern. A reference is not followed."""
    if "$ref" in schema:
        return False
    if "enum" in schema:
        return value in schema["enum"]
    if alternatives := _alternatives(schema):
        return any(allows(each, value) for each in alternatives)
    kind = schema.get("type")
    if kind is None:
        return True
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if isinstance(value, str):
        return _allows_text(schema, value)
    if isinstance(value, list):
        return all(allows(schema.get("items", {}), each) for each in value)
    if isinstance(value, dict):
        values = schema.get("additionalProperties", {})
        checked = value.values() if isinstance(values, dict) else ()
        return "properties" not in schema and all(allows(values, each) for each in checked)
    return value is None or (schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _allows_text(schema: Schema, value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return False
    if schema.get("contentEncoding") == "base64" and not value.endswith("="):
        return False
    if schema.get("format") == "date-time" and value != _TEXT_AT and not value.endswith("Z"):
        return False
    pattern = schema.get("pattern")
    return pattern is None or re.search(pattern, value) is not None
