"""A real sshd for the tests, on this machine and at a port of its own, with keys and settings of its own."""

import getpass
import os
import shutil
import socket as sockets
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launching import MARK, happens

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {place}/host_key
AuthorizedKeysFile {place}/key.pub
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
AcceptEnv {mark}
MaxStartups 100
"""
CLIENT = """
Host lab*
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {place}/key
    IdentitiesOnly yes
    UserKnownHostsFile {place}/known_hosts
    SendEnv {mark}
Host asks
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile none
    IdentitiesOnly yes
    UserKnownHostsFile {place}/known_hosts
Host nobody
    HostName 127.0.0.1
    Port {closed}
"""


def secure_shell() -> Iterator[list[str]]:
    """What a fixture yields: the ssh command that reaches the sshd as any host whose name begins with lab."""
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd here (openssh-server)")
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        place, port, closed = Path(folder), _free_port(), _free_port()
        for name in ("host_key", "key"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
            subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
        values = {"port": port, "closed": closed, "place": place, "mark": MARK, "user": getpass.getuser()}
        (place / "sshd_config").write_text(SERVER.format(**values))
        (place / "ssh_config").write_text(CLIENT.format(**values))
        public = (place / "host_key.pub").read_text()
        (place / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd separates its privileges
        said = place / "sshd.log"
        process = subprocess.Popen(
            [server, "-D", "-E", str(said), "-f", str(place / "sshd_config")], start_new_session=True
        )
        try:
            if not happens(lambda: process.poll() is not None or _answers(port), 10) or process.poll() is not None:
                pytest.skip(f"sshd does not run here: {said.read_text()}")
            yield ["ssh", "-F", str(place / "ssh_config")]
            print(said.read_text())
        finally:
            process.terminate()
            process.wait(10)


def _free_port() -> int:
    with sockets.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with sockets.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
