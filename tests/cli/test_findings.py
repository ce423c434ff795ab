"""cli/findings.py: what doctor names of entries and surroundings; it creates nothing for that and contacts
nobody."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latch.cli.findings import (
    Finding,
    examine_entry,
    find_certificates,
    find_proxies,
    find_sockets,
    probe_network,
)
from latch.errors import Cancelled
from latch.limits import FileLimits
from latch.settings import ExtensionSettings, McpServerSettings
from latch.system.peer import Entry
from latch.system.scope import CancelToken, Scope
from tests.support.fake_bwrap import altered_bwrap, spoiling_bwrap
from tests.support.fake_bwrap import program as executable
from tests.support.sandboxes import Place, place_in
from tests.support.servers import CERTIFICATES

# -- entries

EXAMPLE = "https://example.com:8443/mcp?key=hunter2"
ABSENT = "/nonexistent/ca.pem"


def extension(**keys: Any) -> ExtensionSettings:
    return ExtensionSettings("x", **{"command": "/bin/sh", **keys})


def program(**keys: Any) -> McpServerSettings:
    return McpServerSettings("x", "stdio", **{"command": "/bin/sh", **keys})


def remote(**keys: Any) -> McpServerSettings:
    return McpServerSettings("x", "streamable_http", **{"url": EXAMPLE, **keys})


def examine(entry: Entry, place: Place) -> list[Finding]:
    """Return what is found of *entry*."""
    return list(examine_entry(entry, place.sandbox, workspace=place.workspace, features=frozenset()))


@pytest.mark.parametrize(
    ("entry", "subject"), [(extension(), 'extension "x"'), (program(), 'MCP server "x"')], ids=str
)
def test_t6_a_program_is_named_by_what_it_resolves_to_and_what_it_may_write(
    tmp_path: Path, entry: Entry, subject: str
) -> None:
    place = place_in(tmp_path)
    (place.workspace / "sh").symlink_to("/bin/true")
    (place.home / "cache").mkdir()
    entry = replace(entry, command="sh", rw_paths=(place.home / "cache",))
    shell = next(path for path in place.path.split(":") if os.path.exists(f"{path}/sh"))
    assert examine(entry, place.with_path(place.workspace)) == [
        Finding(subject, "ok", f"runs {shell}/sh"),
        Finding(subject, "note", f"may write {place.home / 'cache'}"),
    ]


@pytest.mark.parametrize("entry", [extension(command="absent"), program(command="absent"), remote(url="")])
def test_an_entry_that_is_disabled_is_not_looked_at(tmp_path: Path, entry: Entry) -> None:
    (found,) = examine(replace(entry, enabled=False), place_in(tmp_path))
    assert (found.state, found.text) == ("ok", "disabled")


def test_a_server_is_named_by_its_origin_alone(tmp_path: Path) -> None:
    assert examine(remote(), place_in(tmp_path)) == [
        Finding('MCP server "x"', "ok", "to be reached at https://example.com:8443")
    ]


def test_t27_what_a_server_is_sent_is_told_without_its_value(tmp_path: Path) -> None:
    place = replace(place_in(tmp_path), environment={"TOKEN": "hunter2", "KEY": "hunter2"})
    known = Path(bundle(tmp_path, "ca.pem"))
    entry = remote(bearer_token_env="TOKEN", headers_from_env={"X-A": "KEY", "X-B": "TOKEN"}, ca_bundle=known)
    (found,) = examine(entry, place)
    sent = "sent: TOKEN, KEY of the environment"
    assert found.text == f"to be reached at https://example.com:8443; {sent}; certificates: {known}"


UNSET = "is not set in the environment of this process"
UNUSABLE = "cannot be used: No such file or directory"


@pytest.mark.parametrize(
    ("entry", "text", "exit"),
    [
        (program(env_from=("A", "KEY", "B")), f'env_from: "A", "B" {UNSET}', 5),
        (remote(bearer_token_env="A"), f'bearer_token_env: "A" {UNSET}', 5),
        (
            remote(bearer_token_env="EMPTY"),
            f'bearer_token_env: "EMPTY" {UNSET.replace("not set", "empty")}',
            5,
        ),
        (remote(headers_from_env={"X": "KEY", "Y": "A"}), f'headers_from_env: "A" {UNSET}', 5),
        (remote(ca_bundle=Path(ABSENT)), f"{ABSENT}: the authorities of ca_bundle {UNUSABLE}", 2),
        (program(command="absent"), '"absent" was not found', 2),
        (extension(command="absent"), '"absent" was not found', 2),
    ],
)
def test_an_entry_that_could_not_start_fails(tmp_path: Path, entry: Entry, text: str, exit: int) -> None:
    (found,) = examine(entry, replace(place_in(tmp_path), environment={"KEY": "hunter2", "EMPTY": ""}))
    assert (found.state, found.exit) == ("fail", exit)
    assert found.text.startswith(text) and "hunter2" not in found.text


@pytest.mark.parametrize(
    ("url", "keys", "states"),
    [
        ("https://example.com/", {}, ["fail"]),
        ("https://example.com/", {"ca_bundle": CERTIFICATES / "authority.pem"}, ["ok"]),
        ("http://localhost/", {"ca_bundle": Path(ABSENT)}, ["ok"]),
    ],
)
def test_certificates_are_looked_at_where_a_connection_would(
    tmp_path: Path, url: str, keys: dict[str, Any], states: list[str]
) -> None:
    place = replace(place_in(tmp_path), environment={"LATCH_CA_BUNDLE": ABSENT})
    found = examine(remote(url=url, **keys), place)
    assert [one.state for one in found] == states
    assert ("the authorities of LATCH_CA_BUNDLE" in found[0].text) == (states == ["fail"])


def test_the_cure_of_a_variable_that_is_not_set_names_the_key(tmp_path: Path) -> None:
    (found,) = examine(remote(bearer_token_env="A"), place_in(tmp_path))
    assert found.hint == "set it, or change bearer_token_env of the entry"


@pytest.mark.parametrize("entry", [extension(), program()], ids=["extension", "server"])
def test_a_workspace_that_cannot_be_used_is_no_fault_of_an_entry(tmp_path: Path, entry: Entry) -> None:
    place = place_in(tmp_path)
    (found,) = examine(entry, place.at(tmp_path / "absent"))
    assert found.state == "note" and found.text.startswith("not looked at: ")


# -- certificates and proxies


def bundle(folder: Path, name: str) -> str:
    """Return a file of certificates below *folder*."""
    return str(shutil.copy(CERTIFICATES / "authority.pem", folder / name))


@pytest.mark.parametrize(
    ("named", "chosen"),
    [
        (("LATCH_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), "LATCH_CA_BUNDLE"),
        (("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), "REQUESTS_CA_BUNDLE"),
        (("SSL_CERT_FILE",), "SSL_CERT_FILE"),
        ((), "the system's store"),
    ],
)
def test_the_certificates_are_those_that_a_connection_takes(
    tmp_path: Path, named: tuple[str, ...], chosen: str
) -> None:
    environment = {"LATCH_CA_BUNDLE": "", **{name: bundle(tmp_path, name) for name in named}}
    stores = (str(tmp_path / "absent"), bundle(tmp_path, "the system's store"))
    expected = Finding("certificates", "ok", f"{tmp_path / chosen} (from {chosen})")
    assert find_certificates(environment, system_bundles=stores) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent", "No such file or directory"), ("empty", "it holds no certificate that can be read")],
)
def test_certificates_that_a_connection_would_refuse_are_noted_and_not_passed_over(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "empty").touch()
    found = find_certificates(
        {"SSL_CERT_FILE": str(tmp_path / name)}, system_bundles=(bundle(tmp_path, "store"),)
    )
    text = f"{tmp_path / name}: the authorities of SSL_CERT_FILE cannot be used: {reason}"
    hint = "name the authority's certificate in ca_bundle or LATCH_CA_BUNDLE"
    assert found == Finding("certificates", "note", text, hint)


def test_without_a_store_and_without_requests_both_cures_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    monkeypatch.setitem(sys.modules, "requests.certs", None)
    found = find_certificates({}, system_bundles=())
    assert found.state == "note" and found.text.startswith("requests is not installed, needed for https")
    assert found.hint == "install the distribution's ca-certificates, or install the Python package requests"


@pytest.mark.parametrize(
    ("environment", "finding"),
    [
        ({}, Finding("proxy", "ok", "none")),
        ({"HTTPS_PROXY": ""}, Finding("proxy", "ok", "none")),
        ({"NO_PROXY": "*"}, Finding("proxy", "ok", "none")),
        (
            {"all_proxy": "socks://x", "HTTPS_PROXY": "http://user:hunter2@proxy"},
            Finding("proxy", "note", "none: HTTPS_PROXY, all_proxy of the environment is ignored"),
        ),
    ],
)
def test_a_proxy_of_the_environment_is_named_without_its_value(
    environment: dict[str, str], finding: Finding
) -> None:
    assert find_proxies(environment) == finding


# -- sockets


def listen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a socket at *path*, whose name may be too long to bind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


def texts(*roots: Path, most: int = 100) -> list[str]:
    """Return what is found below *roots* when *most* entries may be looked at."""
    limits = FileLimits(max_socket_search_entries=most)
    found = list(find_sockets(list(roots), Scope.root(), limits))
    assert {(one.subject, one.state) for one in found} <= {("socket", "note")}
    return [one.text for one in found]


def test_each_socket_below_what_is_shown_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(tmp_path / "shown" / "deep" / "agent", monkeypatch)
    listen(tmp_path / "single", monkeypatch)
    listen(tmp_path / "beside", monkeypatch)
    (tmp_path / "alias").symlink_to("shown")
    (tmp_path / "shown" / "way-out").symlink_to(tmp_path)
    found = texts(tmp_path / "alias", tmp_path / "shown" / "deep", tmp_path / "single", tmp_path / "absent")
    reached = "can be connected to from inside"
    assert found == [f"{tmp_path}/shown/deep/agent {reached}", f"{tmp_path}/single {reached}"]


def test_a_search_that_was_cut_short_says_so(workspace: Path) -> None:
    for number in range(3):
        (workspace / str(number)).mkdir()
    assert texts(workspace, most=3) == []
    cut = f"only the first 2 entries below {workspace} were looked at: there may be more"
    assert texts(workspace, most=2) == [cut]


def test_a_search_counts_directories_below_directories(workspace: Path) -> None:
    (workspace / "a" / "b" / "c" / "d").mkdir(parents=True)
    assert texts(workspace, most=4) == []
    assert len(texts(workspace, most=3)) == 1


def test_a_search_can_be_cancelled(workspace: Path) -> None:
    token = CancelToken()
    token.cancel("enough")
    with pytest.raises(Cancelled):
        list(find_sockets([workspace], Scope.root(token=token), FileLimits()))


# -- the network


def network(place: Place) -> dict[str, Finding]:
    """Probe the network of *place*'s sandbox."""
    scope, sandbox = Scope.root(30), place.sandbox
    bubblewrap = sandbox.ready(scope, wanted="the probe", network=False)
    found = probe_network(sandbox, bubblewrap, scope, workspace=place.workspace)
    return {one.subject: one for one in found}


def test_t23_a_shared_network_reaches_this_machine_and_a_closed_one_does_not(
    tmp_path: Path, sandbox: Path
) -> None:
    found = network(place_in(tmp_path))
    assert [one.state for one in found.values()] == ["ok", "ok"]
    assert (
        "reaches this machine's own services (seen: a listener on 127.0.0.1)" in found["shared network"].text
    )
    assert found["closed network"].text == "a child without it sees no service of this machine"


def test_t23_a_closed_network_that_is_open_fails(tmp_path: Path, sandbox: Path) -> None:
    wrong = altered_bwrap(
        tmp_path / "bin" / "bwrap", Path(os.path.realpath(sandbox)), ("--unshare-net",), ("--unshare-uts",)
    )
    found = network(place_in(tmp_path).with_settings(bwrap=wrong))
    assert (found["closed network"].state, found["closed network"].exit) == ("fail", 8)


@pytest.mark.parametrize(("where", "states"), [("workspace", ["note", "note"]), ("elsewhere", ["ok", "ok"])])
def test_the_workspace_that_is_named_is_the_one_whose_bubblewrap_is_not_used(
    tmp_path: Path, sandbox: Path, monkeypatch: pytest.MonkeyPatch, where: str, states: list[str]
) -> None:
    place = place_in(tmp_path)
    (place.home / "elsewhere").mkdir()
    directory = place.workspace if where == "workspace" else place.home / where
    monkeypatch.chdir(place.home / "elsewhere")
    own = executable(directory / "bwrap", f'#!/bin/sh\nexec {sandbox} "$@"\n')
    found = network(place.with_settings(bwrap=own))
    assert [one.state for one in found.values()] == states
    assert ("lies in the workspace" in found["shared network"].text) == (where == "workspace")


@pytest.mark.parametrize(
    ("does", "words", "cure"),
    [
        ("kill -SEGV $$", "bwrap died of signal 11", True),
        ("echo 'bwrap: execvp /bin/sh: Permission denied' >&2; exit 1", "cannot be executed", False),
    ],
)
def test_a_probe_of_the_network_that_does_not_start_is_a_note_with_a_cure_where_there_is_one(
    tmp_path: Path, sandbox: Path, does: str, words: str, cure: bool
) -> None:
    place = place_in(tmp_path)
    place = place.with_settings(bwrap=spoiling_bwrap(tmp_path / "bwrap", sandbox, does, good=2))
    place.sandbox.ready(Scope.root(30), wanted="the probe", network=True)
    found = network(place)["shared network"]
    assert found.state == "note" and words in found.text
    assert (found.hint is not None) == cure


def test_a_probe_of_the_network_that_cannot_look_quotes_what_was_said_as_one_line(
    tmp_path: Path, sandbox: Path
) -> None:
    does = f"echo noise; printf 'a\\nb\\n' >&2; exec {sandbox} \"$@\""
    bad = spoiling_bwrap(tmp_path / "bwrap", sandbox, does)
    found = network(place_in(tmp_path).with_settings(bwrap=bad))["closed network"]
    assert found == Finding(
        "closed network", "note", 'not tested: the probe of the network could not look: "a b"'
    )
