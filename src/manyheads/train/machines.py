"""Several machines in one run: ranks meet where the first listens, on the address given and no other."""

import os
import re
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address

from manyheads.errors import ConfigError

LOOPBACK = "lo"
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
GET_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR of Linux
RESOLVE_SECONDS = 300.0  # for the name of a machine that is starting
RESOLVE_WAIT = 1.0
HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
MAX_HOST_CHARACTERS = 253


@dataclass(frozen=True)
class Machines:
    """How many machines take part, which of them this one is, and the address of the first."""

    number: int
    index: int
    host: str
    port: int

    @classmethod
    def parse(cls, number: int | None, index: int | None, address: str | None) -> "Machines | None":
        """Return what the options say; None if there are none."""
        if number is None and index is None and address is None:
            return None
        if number is None or index is None or address is None:
            raise ConfigError("--machines, --machine and --address belong together: give all three")
        if index >= number:
            raise ConfigError(f"--machine is {index}, but must be less than --machines, which is {number}")
        host, _, port = address.rpartition(":")
        is_port = re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16
        if not is_host(host) or not is_port:
            raise ConfigError(
                f"--address is {address[:300]!r}, but must be HOST:PORT, such as 10.0.0.1:29500 or "
                f"node-1:29500"
            )
        return cls(number, index, host, int(port))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def listen(self) -> socket.socket | None:
        """Listen on the address, on the first machine."""
        if self.index:
            return None
        try:
            return socket.create_server((resolve(self.host), self.port))
        except OSError as error:
            raise ConfigError(
                f"--address {self.address}: {error.strerror}; give an address of machine 0 and a free port"
            ) from None

    def choose_interfaces(self) -> dict[str, str]:
        """Return the variables that bind gradients to the interface that leads to the first machine."""
        if all(name in os.environ for name in INTERFACE_VARIABLES):
            return {}
        interface = find_interface(find_own_address(resolve(self.host), self.port))
        return {name: os.environ.get(name, interface) for name in INTERFACE_VARIABLES}


def is_host(text: str) -> bool:
    """Return whether a text can be the name of a machine or an IPv4 address.

    No other text becomes the name of a machine, however long a run waits for it.
    """
    labels = text.removesuffix(".").split(".")
    if labels[-1].isdecimal():
        return len(labels) == 4 and all(label.isdecimal() and int(label) < 256 for label in labels)
    return len(text) <= MAX_HOST_CHARACTERS and all(map(HOST_LABEL.fullmatch, labels))


def resolve(host: str) -> str:
    """Return the IPv4 address of a machine, whose name may be known only when it has started."""
    deadline = time.monotonic() + RESOLVE_SECONDS
    while True:
        try:
            return socket.gethostbyname(host)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"--address: {host} has no IPv4 address ({error.strerror})") from None
        time.sleep(RESOLVE_WAIT)


def find_own_address(host: str, port: int) -> str:
    """Return the address from which this machine reaches another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))  # which sends nothing
        except OSError as error:
            raise ConfigError(f"--address: {host} cannot be reached ({error.strerror})") from None
        return str(probe.getsockname()[0])


def find_interface(address: str) -> str:
    names = [name for _, name in socket.if_nameindex()]
    if ip_address(address).is_loopback and LOOPBACK in names:
        return LOOPBACK
    for name in names:
        if read_interface_address(name) == address:
            return name
    raise ConfigError(
        f"no network interface has the address {address}: set {' and '.join(INTERFACE_VARIABLES)}"
    )


def read_interface_address(name: str) -> str | None:
    """Return the IPv4 address of a network interface, if it has one."""
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            packed = struct.pack("256s", name.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), GET_INTERFACE_ADDRESS, packed)[20:24])
    except (ImportError, OSError):  # not Linux, or without an address
        return None
