"""Whom TLS trusts, and what a failed handshake means.

Certificates are always verified and host names always checked, from TLS 1.2 on; nothing turns that off.
Authorities come from the first of these that is there: the bundle that was configured, LATCH_CA_BUNDLE,
REQUESTS_CA_BUNDLE, SSL_CERT_FILE, the system's store, the bundle that requests brings. One that is named and
cannot be used is the operator's mistake, never a reason to go on to the next. Variables are read from the
mapping that is handed in; those of the process, SSLKEYLOGFILE and SSL_CERT_DIR among them, have no effect.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Mapping, NamedTuple

from ..errors import ConfigError, ConfigProblem, MissingDependency

__all__ = ["SYSTEM_BUNDLES", "Authorities", "find_authorities", "handshake_fault", "tls_context"]

# OpenSSL's SSL_OP_IGNORE_UNEXPECTED_EOF, which some interpreters set: a cut stream then ends like any other.
_QUIET_ENDS = 0x80

_VARIABLES = ("LATCH_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
# Where distributions keep the bundle: Debian, Fedora and its kin, openSUSE, Alpine. An interpreter that was
# built elsewhere looks elsewhere.
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_TRUST_HINT = "name the authority's certificate in ca_bundle or LATCH_CA_BUNDLE"
# OpenSSL's X509_V_ERR_*: what it found, and what may help.
_VERDICTS = {
    9: ("its certificate is not valid yet", "look at the clock of this machine"),
    10: ("its certificate has expired", None),
    18: ("its certificate is signed by itself", _TRUST_HINT),
    19: ("its certificate is not signed by an authority known here", _TRUST_HINT),
    20: ("its certificate is not signed by an authority known here", _TRUST_HINT),
    21: ("its certificate is not signed by an authority known here", _TRUST_HINT),
    62: ("its certificate is for another host name", None),
    64: ("its certificate is for another address", None),
}
# OpenSSL's reasons for bytes that are no TLS.
_NO_TLS = frozenset(
    ["HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"]
)


class Authorities(NamedTuple):
    """Whom TLS trusts: ``bundle``, a file or directory, and the ``source`` that named it."""

    bundle: str
    source: str


def find_authorities(
    *,
    ca_bundle: Path | None,
    environment: Mapping[str, str],
    system_bundles: tuple[str, ...] = SYSTEM_BUNDLES,
) -> Authorities:
    """Return the authorities of all connections of one client, as :func:`tls_context` takes them.

    Raises :class:`MissingDependency` when none are known at all; whether they can be used is not looked at.
    """
    if ca_bundle is not None:
        return Authorities(os.fspath(ca_bundle), "ca_bundle")
    for name in _VARIABLES:
        if environment.get(name):
            return Authorities(environment[name], name)
    for bundle in system_bundles:
        if os.path.exists(bundle):
            return Authorities(bundle, "the system's store")
    return Authorities(_bundle_of_requests(), "requests")


def tls_context(
    *,
    ca_bundle: Path | None,
    environment: Mapping[str, str],
    system_bundles: tuple[str, ...] = SYSTEM_BUNDLES,
) -> ssl.SSLContext:
    """Return the context for all connections of one client.

    *ca_bundle* is a file of certificates or a directory of hashed ones, *environment* where the variables
    are looked up; *system_bundles* is the seam for tests. Raises :class:`ConfigError` for a named bundle
    that cannot be used, :class:`MissingDependency` when no authorities are known at all.
    """
    authorities = find_authorities(
        ca_bundle=ca_bundle, environment=environment, system_bundles=system_bundles
    )
    # NOTE: not ssl.create_default_context, which writes the keys where SSLKEYLOGFILE says.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options &= ~_QUIET_ENDS
    _load(context, authorities)
    return context


def handshake_fault(error: ssl.SSLError) -> tuple[str, str | None]:
    """Return what a failed handshake says about the peer, as the end of a sentence, and a hint or None."""
    if isinstance(error, ssl.SSLCertVerificationError):
        known = _VERDICTS.get(error.verify_code)
        return known or (f"its certificate was refused: {error.verify_message}", _TRUST_HINT)
    reason = error.reason or ""
    if reason in _NO_TLS:
        return "it does not speak TLS on that port", None
    return f"no TLS connection: {reason.lower().replace('_', ' ') or 'the connection was closed'}", None


def _load(context: ssl.SSLContext, authorities: Authorities) -> None:
    bundle = authorities.bundle
    try:
        if os.path.isdir(bundle):
            context.load_verify_locations(capath=bundle)
        else:
            context.load_verify_locations(cafile=bundle)
    except ssl.SSLError:
        raise _unusable(authorities, "it holds no certificate that can be read") from None
    except OSError as error:
        raise _unusable(authorities, os.strerror(error.errno or 0)) from error


def _unusable(authorities: Authorities, reason: str) -> ConfigError:
    text = f"the authorities of {authorities.source} cannot be used: {reason}"
    return ConfigError([ConfigProblem(authorities.bundle, text)], hint=_TRUST_HINT)


def _bundle_of_requests() -> str:
    try:
        from requests.certs import where
    except ImportError:
        missing = MissingDependency("requests", needed_for="https: this machine has no store of authorities")
        missing.hint = f"install the distribution's ca-certificates, or {missing.hint}"
        raise missing from None
    return where()
