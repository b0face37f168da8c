"""The rules for the head of a request, where parsers that agree on the syntax may still read it in two ways.

A request that breaks one is refused and its connection closed: another server in between might have read another body.
"""

import re
from collections.abc import Sequence

VERSIONS = ("1.0", "1.1")
LENGTH = re.compile(rb"[0-9]{1,15}")
ABSOLUTE = re.compile(rb"https?://([^/?#]+)", re.IGNORECASE)


class Malformed(ValueError):
    """A head that breaks a rule."""


def check(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises Malformed for a head that breaks a rule of RFC 9112. Names of headers are in lower case."""
    if version not in VERSIONS:
        raise Malformed("The version must be HTTP/1.1 or HTTP/1.0.")
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise Malformed("A request needs exactly one header Host.")
    if target[:1] != b"/":
        absolute = ABSOLUTE.match(target)
        if absolute is None or [absolute[1].lower()] != [host.lower() for host in hosts]:
            raise Malformed("The target must be a path, or an address with the same host as the header Host.")
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise Malformed("A request may have one Content-Length or one Transfer-Encoding, and not both.")
    for value in lengths:
        length(value)
    if codings and (codings[0].lower() != b"chunked" or version == "1.0"):
        raise Malformed("The only Transfer-Encoding is chunked, in HTTP/1.1.")


def length(value: bytes) -> int:
    """Returns the number of a Content-Length (RFC 9110, 8.6). Raises Malformed."""
    if not LENGTH.fullmatch(value):
        raise Malformed("Content-Length must be a number of at most 15 digits.")
    return int(value)
