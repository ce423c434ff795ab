"""Whom TLS trusts: the order of authorities, what is refused, and what a failed handshake says."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from latch.errors import ConfigError, MissingDependency
from latch.system.tls import Authorities, find_authorities, handshake_fault, tls_context
from tests.support.servers import CERTIFICATES

AUTHORITY = CERTIFICATES / "authority.pem"


def names_in(context: ssl.SSLContext) -> list[str]:
    return [dict(part[0] for part in known["subject"])["commonName"] for known in context.get_ca_certs()]


def bundle(folder: Path, name: str) -> Path:
    """Return a copy of the authority's certificate, so that each source has a file of its own."""
    return Path(shutil.copy(AUTHORITY, folder / name))


def test_certificates_and_names_are_always_checked_from_tls_1_2_on() -> None:
    context = tls_context(ca_bundle=AUTHORITY, environment={})
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert names_in(context) == ["Latch test authority"]


@pytest.mark.parametrize("named", ["ca_bundle", "LATCH_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_first_source_that_is_named_counts_and_must_be_usable(tmp_path: Path, named: str) -> None:
    order = ["LATCH_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]
    after = order[order.index(named) + 1 :] if named in order else order
    environment = {name: str(AUTHORITY) for name in after}
    absent = tmp_path / "absent.pem"
    if named in order:
        environment[named] = str(absent)
    with pytest.raises(ConfigError) as caught:
        tls_context(ca_bundle=absent if named == "ca_bundle" else None, environment=environment)
    assert str(caught.value).startswith(f"{absent}: the authorities of {named} cannot be used: No such file")
    assert caught.value.hint == "name the authority's certificate in ca_bundle or LATCH_CA_BUNDLE"


@pytest.mark.parametrize("named", ["LATCH_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_named_bundle_is_trusted_alone(named: str) -> None:
    context = tls_context(ca_bundle=None, environment={named: str(AUTHORITY)})
    assert names_in(context) == ["Latch test authority"]


def test_who_is_trusted_is_told_with_the_source_without_a_look_into_it(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    environment = {"SSL_CERT_FILE": "/absent"}
    for how, found in (
        ({"ca_bundle": Path("/absent"), "environment": environment}, Authorities("/absent", "ca_bundle")),
        ({"ca_bundle": None, "environment": environment}, Authorities("/absent", "SSL_CERT_FILE")),
        ({"ca_bundle": None, "environment": {}}, Authorities(str(empty), "the system's store")),
    ):
        assert find_authorities(**how, system_bundles=(str(empty),)) == found


def test_an_empty_variable_names_nothing(tmp_path: Path) -> None:
    context = tls_context(
        ca_bundle=None, environment={"LATCH_CA_BUNDLE": "", "SSL_CERT_FILE": str(AUTHORITY)}
    )
    assert names_in(context) == ["Latch test authority"]


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="it holds no certificate that can be read"):
        tls_context(ca_bundle=tmp_path / "bad.pem", environment={})


def test_a_directory_is_one_of_hashed_certificates(tmp_path: Path) -> None:
    context = tls_context(ca_bundle=tmp_path, environment={})
    # They are read when they are looked for.
    assert names_in(context) == []


def test_the_first_store_of_the_system_that_is_there_comes_after_all_that_is_named(tmp_path: Path) -> None:
    stores = (str(tmp_path / "absent"), str(bundle(tmp_path, "system.pem")), str(tmp_path / "never"))
    context = tls_context(ca_bundle=None, environment={}, system_bundles=stores)
    assert names_in(context) == ["Latch test authority"]


def test_without_a_store_the_bundle_of_requests_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    package, certs = ModuleType("requests"), ModuleType("requests.certs")
    certs.where = lambda: str(AUTHORITY)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "requests", package)
    monkeypatch.setitem(sys.modules, "requests.certs", certs)
    context = tls_context(ca_bundle=None, environment={}, system_bundles=())
    assert names_in(context) == ["Latch test authority"]


def test_without_a_store_and_without_requests_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    monkeypatch.setitem(sys.modules, "requests.certs", None)
    with pytest.raises(MissingDependency, match="requests is not installed, needed for https") as caught:
        tls_context(ca_bundle=None, environment={}, system_bundles=())
    assert (
        caught.value.hint
        == "install the distribution's ca-certificates, or install the Python package requests"
    )


def test_variables_of_the_process_have_no_effect(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from latch.system.tls import tls_context\n"
        "context = tls_context(ca_bundle=Path(sys.argv[1]), environment={})\n"
        "print(getattr(context, 'keylog_filename', None), len(context.get_ca_certs()))"
    )
    ambient = {"SSLKEYLOGFILE": str(tmp_path / "keys"), "SSL_CERT_FILE": str(tmp_path / "absent")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(AUTHORITY)],
        env={**os.environ, **ambient, "PYTHONPATH": str(CERTIFICATES.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("None 1", "")
    assert not (tmp_path / "keys").exists()


def ssl_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "words of a library")
    error.reason = reason  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("WRONG_VERSION_NUMBER", "it does not speak TLS on that port"),
        ("HTTP_REQUEST", "it does not speak TLS on that port"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "no TLS connection: tlsv1 alert protocol version"),
        (None, "no TLS connection: the connection was closed"),
    ],
)
def test_a_failed_handshake_is_told_in_words(reason: str | None, told: str) -> None:
    assert handshake_fault(ssl_error(reason)) == (told, None)


@pytest.mark.parametrize(
    ("code", "told", "has_hint"),
    [
        (10, "its certificate has expired", False),
        (9, "its certificate is not valid yet", True),
        (20, "its certificate is not signed by an authority known here", True),
        (62, "its certificate is for another host name", False),
        (99, "its certificate was refused: odd", True),
    ],
)
def test_a_refused_certificate_says_why(code: int, told: str, has_hint: bool) -> None:
    error = ssl.SSLCertVerificationError(1, "words of a library")
    error.verify_code, error.verify_message = code, "odd"
    reason, hint = handshake_fault(error)
    assert (reason, hint is not None) == (told, has_hint)
