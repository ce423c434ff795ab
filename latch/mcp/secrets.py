"""The secrets of one entry: read from the variables that it names, handed to its server and to nobody else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from ..errors import CredentialError, WireError
from ..settings import McpServerSettings
from ..wire.httpfields import check_field_value

__all__ = ["Secrets", "read_secrets"]


@dataclass(frozen=True, repr=False)
class Secrets:
    """``environment`` is what a server on stdio is handed, ``fields`` the header fields (name, value) of one
    over HTTP, ``values`` every secret as it stands, to be taken out of what the server says."""

    environment: Mapping[str, str]
    fields: tuple[tuple[str, str], ...]
    values: tuple[str, ...]


def read_secrets(entry: McpServerSettings, known: Mapping[str, str]) -> Secrets:
    """Return the secrets of *entry* from the variables *known*.

    Raises :class:`CredentialError` that names the key and the variables that are not set, or empty, and for
    a value that no header field can have, which is not quoted.
    """
    environment = _values(entry, "env_from", {name: name for name in entry.env_from}, known)
    fields = _values(entry, "headers_from_env", entry.headers_from_env, known)
    values = [*environment.values(), *fields.values()]
    if entry.bearer_token_env is not None:
        (token,) = _values(entry, "bearer_token_env", {"": entry.bearer_token_env}, known).values()
        fields["Authorization"] = f"Bearer {token}"
        values.append(token)
    for name, value in fields.items():
        _check_field(entry, name, value)
    return Secrets(environment, tuple(fields.items()), tuple(values))


def _values(
    entry: McpServerSettings, key: str, wanted: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    unset = [f'"{variable}"' for variable in dict.fromkeys(wanted.values()) if not known.get(variable)]
    if unset:
        raise CredentialError(
            f"{key}: {', '.join(unset)} is not set in the environment of this process",
            hint=f"set it, or change {key} of the entry",
            peer=_peer(entry),
            stage="start",
        )
    return {name: known[variable] for name, variable in wanted.items()}


def _check_field(entry: McpServerSettings, name: str, value: str) -> None:
    key = "headers_from_env" if name in entry.headers_from_env else "bearer_token_env"
    try:
        check_field_value(value, name=name)
    except WireError as error:
        # NOTE: counted from the beginning of the field, "Bearer " included.
        raise CredentialError(f"{key}: {error.reason}", peer=_peer(entry), stage="start") from None


def _peer(entry: McpServerSettings) -> str:
    return f'MCP server "{entry.name}"'
