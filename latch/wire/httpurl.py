"""Addresses of HTTP services: which are accepted, and their parts.

``https`` to any host; ``http`` only to this machine, that is to 127.0.0.0/8, ``[::1]`` or exactly
``localhost``, which is those two and is never looked up (security.md T20, T22). No user information, no
fragment, nothing that would have to be encoded first. A refusal never quotes the address, whose query may
hold a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import WireError

__all__ = ["HttpUrl", "parse_url"]

# RFC 3986, appendix B, for what is written in printable ASCII.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?]*)(/[^?]*)?(\?.*)?")
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?")
_HOST = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?\.?"
)
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
# What the system's parser would take for an address in one of its old forms, such as 127.1 or 0x7f000001.
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class HttpUrl:
    """An accepted address. ``host`` is in lower case, an IPv6 address without its brackets; ``target`` is
    path and query as sent, at least ``/``; it is not shown."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)

    @property
    def authority(self) -> str:
        """Host and, where it is not the scheme's own, port: the ``Host`` field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_literal(self) -> bool:
        """Whether the host is an address and not a name."""
        return ":" in self.host or _IPV4.fullmatch(self.host) is not None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}"


def parse_url(text: str) -> HttpUrl:
    """Return the parts of *text*; :class:`WireError` with the reason when it is not accepted."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise WireError("a URL is printable ASCII without blanks; encode the rest as %XX")
    if "#" in text:
        raise WireError("a URL with a fragment cannot be asked for")
    found = _URL.fullmatch(text)
    if found is None:
        raise WireError("not a URL of the form https://host/path")
    scheme, authority = found[1].lower(), found[2].lower()
    if scheme not in _PORTS:
        raise WireError("the URL's scheme must be https, or http for this machine")
    if "@" in authority:
        raise WireError("a URL may hold no user information")
    host, port = _split_authority(authority)
    url = HttpUrl(scheme, host, port or _PORTS[scheme], (found[3] or "/") + (found[4] or ""))
    if scheme == "http" and not _is_this_machine(url):
        raise WireError("http is only for 127.0.0.0/8, [::1] and localhost; use https")
    return url


def _split_authority(authority: str) -> tuple[str, int]:
    """Return host and port, 0 for none."""
    found = _AUTHORITY.fullmatch(authority)
    host = found[1] if found else ""
    if host.startswith("["):
        host = host[1:-1]
        good = _is_ipv6(host)
    else:
        good = _HOST.fullmatch(host) is not None and len(host) <= 253
        good = good and (_IPV4.fullmatch(host) is not None or not _ENDS_IN_NUMBER.fullmatch(host))
    if found is None or not good:
        raise WireError("the URL's host or port is not one")
    port = int(found[2] or 0)
    if found[2] and not 0 < port < 65536:
        raise WireError("the URL's port is not between 1 and 65535")
    return host, port


def _is_this_machine(url: HttpUrl) -> bool:
    return url.host in ("localhost", "::1") or url.is_literal and url.host.startswith("127.")


def _is_ipv6(host: str) -> bool:
    # NOTE: here, because few addresses are of this form, and it takes time to load.
    from ipaddress import AddressValueError, IPv6Address

    try:
        return "%" not in host and IPv6Address(host) is not None
    except AddressValueError:
        return False
