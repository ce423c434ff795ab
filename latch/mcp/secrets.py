"""The secrets of one entry: read from the variables that it names, handed to its server and to nobody else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from ..errors import CredentialError, WireError
from ..settings import McpServerSettings, subject_of
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
    for name, variable in entry.headers_from_env.items():
        _check_field(entry, "headers_from_env", variable, fields[name])
    values = [*environment.values(), *fields.values()]
    # NOTE: a value such as "Bearer TOKEN" is recognised without its scheme as well.
    values += [value.partition(" ")[2] for value in fields.values() if " " in value]
    variable = entry.bearer_token_env
    if variable is not None:
        token = _values(entry, "bearer_token_env", {variable: variable}, known)[variable]
        _check_field(entry, "bearer_token_env", variable, token)
        if token.lower().startswith("bearer "):
            reason = f'"{variable}" begins with "Bearer", which is sent before it anyway'
            raise _refusal(entry, "bearer_token_env", reason, hint="let it hold the token alone")
        fields["Authorization"] = f"Bearer {token}"
        values.append(token)
    return Secrets(environment, tuple(fields.items()), tuple(values))


def _values(
    entry: McpServerSettings, key: str, wanted: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    for how, lacking in (
        ("not set", {variable for variable in wanted.values() if variable not in known}),
        ("empty", {variable for variable in wanted.values() if not known.get(variable)}),
    ):
        if lacking:
            names = ", ".join(f'"{variable}"' for variable in sorted(lacking))
            reason = f"{names} is {how} in the environment of this process"
            raise _refusal(entry, key, reason, hint=f"set it, or change {key} of the entry")
    return {name: known[variable] for name, variable in wanted.items()}


def _check_field(entry: McpServerSettings, key: str, variable: str, value: str) -> None:
    try:
        check_field_value(value, name=variable)
    except WireError:
        hint = "a line break at its end often comes from the file that it was read from"
        reason = f'"{variable}" holds a character that no header field can have'
        raise _refusal(entry, key, reason, hint=hint) from None


def _refusal(entry: McpServerSettings, key: str, reason: str, *, hint: str) -> CredentialError:
    return CredentialError(f"{key}: {reason}", hint=hint, peer=subject_of(entry), stage="start")
