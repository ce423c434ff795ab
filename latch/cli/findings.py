"""What doctor finds of entries of the configuration and of a machine's surroundings: sockets, a shared
network, certificates, proxies.

Looks without creating anything and contacts nobody; the one listener of the network's test is ours and gone
again.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, Mapping

from ..errors import CommandUnusable, LatchError, UsageError
from ..extensions.host import prepare_extension
from ..limits import FileLimits
from ..mcp.secrets import read_secrets
from ..settings import ExtensionSettings, McpServerSettings, subject_of
from ..system.bubblewrap import Bubblewrap
from ..system.command import run_prepared
from ..system.paths import lies_in, real_path
from ..system.peer import Entry, prepare_entry
from ..system.sandbox import Sandbox
from ..system.scope import Scope
from ..system.tls import SYSTEM_BUNDLES, find_authorities, tls_context
from ..wire.excerpts import quote_end
from ..wire.httpurl import parse_url
from .failures import exit_status

__all__ = [
    "Finding",
    "examine_entry",
    "find_certificates",
    "find_proxies",
    "find_sockets",
    "probe_network",
]

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")

_LOOPBACK = "127.0.0.1"
# Looks for the listener "$1" in the table of the network it runs in, and contacts nobody.
_NETWORK_SCRIPT = """
while read -r _ local _ state _; do
  if [ "$local $state" = "$1 0A" ]; then echo shared; exit; fi
done < /proc/net/tcp
echo apart
"""


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state`` is ok, note or fail; ``exit`` what a failure ends with."""

    subject: str
    state: str
    text: str
    hint: str | None = None
    exit: int = 0


def examine_entry(
    entry: Entry, sandbox: Sandbox, *, workspace: Path, features: frozenset[str]
) -> Iterator[Finding]:
    """Say what *entry* would start or where it is reached, and of a program where it may write.

    *features* are the options of the bubblewrap in use.
    """
    subject = subject_of(entry)
    if not entry.enabled:
        yield Finding(subject, "ok", "disabled")
        return
    try:
        if isinstance(entry, ExtensionSettings):
            prepared = prepare_extension(entry, sandbox, workspace=workspace, features=features)
            text = f"runs {prepared.program}"
        elif entry.transport == "stdio":
            text = _server_program(entry, sandbox, peer=subject, workspace=workspace, features=features)
        else:
            text = _server_address(entry, sandbox.machine.environment)
    except UsageError as error:
        yield Finding(subject, "note", f"not looked at: {error}", error.hint)
    except LatchError as error:
        # NOTE: the reason alone, as the subject stands before it already.
        yield Finding(subject, "fail", error.reason, error.hint, exit_status(error))
    else:
        yield Finding(subject, "ok", text)
        for path in entry.rw_paths:
            yield Finding(subject, "note", f"may write {path}")


def _server_program(
    entry: McpServerSettings, sandbox: Sandbox, *, peer: str, workspace: Path, features: frozenset[str]
) -> str:
    read_secrets(entry, sandbox.machine.environment)
    prepared = prepare_entry(
        entry,
        sandbox,
        peer=peer,
        table="mcp_servers",
        workspace=workspace,
        environment=entry.env,
        features=features,
    )
    return f"runs {prepared.program}"


def _server_address(entry: McpServerSettings, known: Mapping[str, str]) -> str:
    """Return where *entry* is reached, and with what of the environment; no value of it is shown."""
    url = parse_url(entry.url)
    bearer = () if entry.bearer_token_env is None else (entry.bearer_token_env,)
    fields = tuple(entry.headers_from_env.values())
    read_secrets(entry, known)
    if url.scheme == "https":
        tls_context(ca_bundle=entry.ca_bundle, environment=known)
    used = ", ".join(dict.fromkeys((*bearer, *fields)))
    text = f"to be reached at {url.scheme}://{url.authority}"
    text += f"; sent: {used} of the environment" if used else ""
    return text if entry.ca_bundle is None else f"{text}; certificates: {entry.ca_bundle}"


def find_certificates(
    environment: Mapping[str, str], *, system_bundles: tuple[str, ...] = SYSTEM_BUNDLES
) -> Finding:
    """Say which certificates an entry without ``ca_bundle`` trusts; *system_bundles* is a seam for tests.

    What cannot be used is a note here: it fails each entry that needs it.
    """
    try:
        found = find_authorities(ca_bundle=None, environment=environment, system_bundles=system_bundles)
        tls_context(ca_bundle=None, environment=environment, system_bundles=system_bundles)
    except LatchError as error:
        return Finding("certificates", "note", error.reason, error.hint)
    return Finding("certificates", "ok", f"{found.bundle} (from {found.source})")


def find_proxies(environment: Mapping[str, str]) -> Finding:
    """Say that no proxy is used, and which variables are ignored for that; a value may hold a password."""
    known = [name for plain in _PROXY_VARIABLES for name in (plain, plain.upper())]
    ignored = [name for name in known if environment.get(name)]
    if ignored:
        return Finding("proxy", "note", f"none: {', '.join(ignored)} of the environment is ignored")
    return Finding("proxy", "ok", "none")


def find_sockets(roots: list[Path], scope: Scope, limits: FileLimits) -> Iterator[Finding]:
    """Name the sockets below *roots*, which children are shown, and say where the search was cut short."""
    places = list(dict.fromkeys(map(real_path, roots)))
    for place in places:
        if not any(place != other and lies_in(place, other) for other in places):
            yield from _sockets_below(place, scope, limits.max_socket_search_entries)


def _sockets_below(root: str, scope: Scope, most: int) -> Iterator[Finding]:
    pending, looked_at = [root], 0
    if _is_socket(root):
        yield _socket(root)
    while pending:
        scope.check()
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                if looked_at == most:
                    text = f"only the first {most} entries below {root} were looked at: there may be more"
                    yield Finding("socket", "note", text)
                    return
                looked_at += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif _is_socket(entry.path):
                    yield _socket(entry.path)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _socket(path: str) -> Finding:
    return Finding("socket", "note", f"{path} can be connected to from inside", "move it elsewhere")


def probe_network(
    sandbox: Sandbox, bubblewrap: Bubblewrap, scope: Scope, *, workspace: Path
) -> Iterator[Finding]:
    """See from inside whether children reach a service of this machine, with and without network (T23).

    They are shown no *workspace*, but a bubblewrap that lies in it is not used.
    """
    try:
        listener = socket.create_server((_LOOPBACK, 0), backlog=1)
    except OSError as error:
        yield Finding("network", "note", f"not tested: cannot listen on {_LOOPBACK}: {error.strerror}")
        return
    with listener:
        name = _name_in_table(listener.getsockname()[1])
        for network in (True, False):
            try:
                is_shared = _sees(sandbox, bubblewrap, scope, name, network=network, workspace=workspace)
            except LatchError as error:
                # NOTE: the program is ours, so what cures one of the operator's cures nothing here.
                hint = None if isinstance(error, CommandUnusable) else error.hint
                yield Finding(_subject(network), "note", f"not tested: {error}", hint)
            else:
                yield _network_finding(network, is_shared)


def _sees(
    sandbox: Sandbox, bubblewrap: Bubblewrap, scope: Scope, name: str, *, network: bool, workspace: Path
) -> bool:
    within = scope.within(sandbox.limits.process.probe_seconds, peer="the probe", stage="network")
    prepared = sandbox.planner.prepare_probe(
        ("/bin/sh", "-c", _NETWORK_SCRIPT, "sh", name),
        wanted="the probe of the network",
        network=network,
        features=bubblewrap.features,
    )
    prepared = replace(prepared, workspace=str(workspace))
    said, errors = bytearray(), bytearray()
    run_prepared(sandbox, prepared, within, on_stdout=said.extend, on_stderr=errors.extend)
    if said not in (b"shared\n", b"apart\n"):
        most = sandbox.limits.extension.max_quoted_chars
        raise LatchError(
            f"the probe of the network could not look: {quote_end(errors.decode('utf-8', 'replace'), most)}"
        )
    return said == b"shared\n"


def _name_in_table(port: int) -> str:
    """Return our listener's name in ``/proc/net/tcp`` (proc(5)): the address as a number of the machine."""
    address = int.from_bytes(socket.inet_aton(_LOOPBACK), sys.byteorder)
    return f"{address:08X}:{port:04X}"


def _subject(network: bool) -> str:
    return "shared network" if network else "closed network"


def _network_finding(network: bool, is_shared: bool) -> Finding:
    if network:
        text = (
            f"a child with it reaches this machine's own services (seen: a listener on {_LOOPBACK}), and so "
            "metadata addresses and all else that this machine reaches"
            if is_shared
            else f"a child with it did not see a listener on {_LOOPBACK}: it has not this machine's network"
        )
        return Finding(_subject(network), "ok" if is_shared else "note", text)
    if is_shared:
        text = f"a child without network sees a listener on {_LOOPBACK} of this machine"
        return Finding(_subject(network), "fail", text, "report what latch doctor prints", 8)
    return Finding(_subject(network), "ok", "a child without it sees no service of this machine")
