"""What the official conformance suite starts: Latch's public names, driven as a scenario asks.

The address of the suite's server is the last argument, the scenario and its data come in the environment.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Mapping

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import latch  # noqa: E402

SAMPLES = {"string": "words", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


def calls(scenario: str, context: Mapping[str, Any], client: latch.McpClient) -> list[tuple[str, Any]]:
    """Return the tools to call and their arguments."""
    schemas = {tool.name: tool.input_schema for tool in client.tools}
    if "toolCalls" in context:
        # It gives null for "left out", which the schema it comes with does not allow.
        given = [(call["name"], call["arguments"]) for call in context["toolCalls"]]
        return [
            (name, {key: value for key, value in words.items() if value is not None}) for name, words in given
        ]
    if scenario in ("initialize", "json-schema-ref-no-deref"):
        return []
    if scenario == "tools_call":
        return [("add_numbers", {"a": 5, "b": 3})]
    if scenario == "json-schema-2020-12-preservation":
        return [("json_schema_echo", {"schema": dict(schemas["json_schema_2020_12_tool"])})]
    return [(name, sample(schema)) for name, schema in schemas.items()]


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with a value of the right type for whatever *schema* requires."""
    properties = schema.get("properties", {})
    return {name: SAMPLES[properties[name].get("type", "string")] for name in schema.get("required", ())}


def main() -> None:
    """Connect, list, call what the scenario asks for, and close."""
    scope = latch.Scope.root(seconds=50)
    with tempfile.TemporaryDirectory() as place:
        entry = latch.McpServerSettings(name="suite", transport="streamable_http", url=sys.argv[-1])
        client = latch.McpClient.open(entry, workspace=Path(place), scope=scope)
        context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
        for name, arguments in calls(os.environ["MCP_CONFORMANCE_SCENARIO"], context, client):
            print(name, json.dumps(dict(client.call_tool(name, arguments, scope).raw))[:2000])
        client.close()


if __name__ == "__main__":
    main()
