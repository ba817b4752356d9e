"""Fetching a web page without reaching into the network around the executor.

Every address of every hop is checked, and the connection goes to the address that was checked, so that a name
cannot point elsewhere between the check and the connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit

from pydantic import Field

from turnwire.core.settings import SettingsGroup
from turnwire.executor.inline import ToolFailed
from turnwire.extend.tools import Mode, Tool, tool

__all__ = ["HttpSettings", "check_address", "http_tools"]

_REDIRECTS = {301, 302, 303, 307, 308}
_CHUNK_BYTES = 64 << 10
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")


class HttpSettings(SettingsGroup):
    """What http_fetch may do."""

    enabled: bool = Field(default=True, description="Offers the tool http_fetch.")
    allow_private: bool = Field(
        default=False, description="Lets it reach private, loopback and link-local addresses."
    )
    max_bytes: int = Field(default=2 << 20, ge=1_024, description="Most bytes of a body that are read.")
    timeout_seconds: float = Field(default=30.0, gt=0, description="Longest time for one fetch.")
    max_redirects: int = Field(default=5, ge=0, le=20, description="Redirects that are followed.")


def check_address(address: str) -> None:
    """Refuse an IP address that is not public. Raises ToolFailed."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    # Addresses that carry an IPv4 address inside reach what that one reaches.
    inner: ipaddress.IPv4Address | None = None
    foreign = False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or _nat64(ip)
        # Python counts many ranges as global that no public host has: the public ones are all in this one.
        foreign = ip.teredo is not None or (inner is None and ip not in _PUBLIC_V6)
    refused = [c for c in (ip, inner) if c is not None and (not c.is_global or c.is_multicast)]
    if foreign or refused:
        raise ToolFailed(f"Refused: {address} is not a public address.")


def _nat64(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


async def _resolve(host: str, port: int, allow_private: bool) -> list[str]:
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolFailed(f"The host {host} cannot be found.") from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
    if not allow_private:
        for address in addresses:
            check_address(address)
    return addresses


class _Pinned:
    """Resolver of one request: gives only the addresses that were checked for its host."""

    def __init__(self, host: str, addresses: list[str]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        if host != self._host:
            raise OSError(f"{host} was not checked")
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def http_tools(settings: HttpSettings) -> list[Tool[..., Any]]:
    """Make the fetching tool, or none where it is switched off."""
    if not settings.enabled:
        return []

    @tool(mode=Mode.PARALLEL, repeatable=True, timeout=settings.timeout_seconds + 5)
    async def http_fetch(
        url: Annotated[str, Field(description="An http or https address", max_length=4_096)],
    ) -> str:
        """Fetch a web page or document by GET and return its text."""
        try:
            async with asyncio.timeout(settings.timeout_seconds):
                return await _fetch(url, settings)
        except TimeoutError:
            raise ToolFailed(f"No whole answer within {settings.timeout_seconds:g} s.") from None

    return [http_fetch]


async def _fetch(url: str, settings: HttpSettings) -> str:
    import aiohttp  # Not loaded before the first fetch: it costs start time and memory.

    for _ in range(settings.max_redirects + 1):
        host, port = _target(url)
        addresses = await _resolve(host, port, settings.allow_private)
        connector = aiohttp.TCPConnector(resolver=_Pinned(host, addresses), force_close=True)  # type: ignore[arg-type]
        try:
            async with (
                aiohttp.ClientSession(connector=connector, trust_env=False) as session,
                session.get(url, allow_redirects=False, headers={"User-Agent": "turnwire"}) as answer,
            ):
                if answer.status in _REDIRECTS and "Location" in answer.headers:
                    url = urljoin(url, answer.headers["Location"])
                    continue
                return await _text(answer, settings.max_bytes)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ToolFailed(f"{host} could not be fetched: {type(error).__name__}") from None
    raise ToolFailed(f"More than {settings.max_redirects} redirects.")


def _target(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ToolFailed(f"{url[:200]} is not a web address.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ToolFailed("Only http and https addresses can be fetched.")
    if parts.username is not None or parts.password is not None:
        raise ToolFailed("Addresses with credentials are not fetched.")
    return host, port or (443 if parts.scheme == "https" else 80)


async def _text(answer: Any, max_bytes: int) -> str:
    data = bytearray()
    cut = False
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        data += chunk
        if len(data) > max_bytes:
            cut = True
            break
    charset = answer.charset or "utf-8"
    try:
        text = bytes(data[:max_bytes]).decode(charset, "replace")
    except LookupError:
        text = bytes(data[:max_bytes]).decode("utf-8", "replace")
    head = f"HTTP {answer.status} {answer.headers.get('Content-Type', '')}".strip()
    tail = f"\n[the body is longer than {max_bytes} bytes; the rest was not read]" if cut else ""
    return f"{head}\n\n{text}{tail}"
