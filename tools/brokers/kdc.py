"""Run MIT's key distribution centre (Debian's krb5-kdc) on loopback, without root, for one test run.

Its database, keys and configuration files are in a temporary folder. A program uses it by the variable KRB5_CONFIG.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from brokers.configuration import HOST
from brokers.probe import free_ports, wait_for_port
from brokers.process import JavaProcess

REALM = "KWIRE.TEST"
SERVICE = "kafka"
_START_TIMEOUT_S = 30
# Debian has the server's programs where only root's PATH looks.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")


def missing_programs() -> list[str]:
    """Return the programs that this machine lacks: `tools/env kerberos` installs them."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]


def _clock(at: str) -> dict[str, str]:
    """Return the variables of a process whose clock shows another time, such as "-2d".

    The program faketime, which sets the same, fails if a killed one with its process id left a semaphore.
    """
    found = [one for place in ("lib/*", "lib*") for one in Path("/usr").glob(f"{place}/faketime/libfaketime.so.1")]
    if not found:
        raise RuntimeError("no libfaketime.so.1 in a folder faketime of /usr/lib: `tools/env kerberos` installs it")
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": at}


class Kdc:
    """Use it as a context manager. The brokers' principal is kafka/127.0.0.1, with its keys in `keytab`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kwire-kdc-"))
        self.keytab = self.directory / "kafka.keytab"
        self.service = f"{SERVICE}/{HOST}@{REALM}"
        self._processes: list[JavaProcess] = []

    @property
    def config(self) -> Path:
        """Return the krb5.conf of clients and brokers."""
        return self.directory / "krb5.conf"

    def __enter__(self) -> Self:
        try:
            port = free_ports(1)[0]
            self.write_config("krb5.conf", port)
            self._run(["kdb5_util", "create", "-s", "-W", "-r", REALM, "-P", "master"], self._write_profile(port))
            for host in (HOST, "localhost"):  # Java's clients ask for the name of an address
                self.add(f"{SERVICE}/{host}@{REALM}", self.keytab)
            self._start(port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.stop(graceful=True)  # else libfaketime leaves its semaphore in /dev/shm
        shutil.rmtree(self.directory, ignore_errors=True)

    def add(self, principal: str, keytab: Path, password: str | None = None) -> None:
        """Add a principal, or give it new keys, and put its keys into a keytab."""
        keys = "-randkey" if password is None else f"-pw {password}"
        verb = (
            "change_password" if (self.directory / f"has-{principal.replace('/', '-')}").exists() else "add_principal"
        )
        (self.directory / f"has-{principal.replace('/', '-')}").touch()
        self._admin(f"{verb} {keys} {principal}", f"ktadd -norandkey -k {keytab} {principal}")

    def kinit(self, principal: str, keytab: Path, cache: Path, *, config: Path | None = None, at: str = "+0d") -> None:
        """Put a ticket into a cache, at another time if `at` says so, such as "-2d"."""
        environment = {"KRB5_CONFIG": str(config or self.config), **_clock(at)}
        self._run(["kinit", "-l", "1h", "-c", str(cache), "-k", "-t", str(keytab), principal], environment)

    def start_elsewhen(self, at: str) -> Path:
        """Start another centre with the same keys whose clock is wrong; return the krb5.conf of its clients."""
        port = free_ports(1)[0]
        path = self.write_config(f"krb5{at}.conf", port)
        self._start(port, at)
        return path

    def write_config(self, name: str, port: int, settings: Mapping[str, str] | None = None) -> Path:
        """Write a krb5.conf for the centre at this port."""
        settings = {
            "default_realm": REALM,
            "dns_lookup_kdc": "false",
            "dns_lookup_realm": "false",
            "dns_canonicalize_hostname": "false",
            "rdns": "false",
            "udp_preference_limit": "1",
            **(settings or {}),
        }
        lines = [f"  {key} = {value}" for key, value in settings.items()]
        path = self.directory / name
        path.write_text("\n".join(["[libdefaults]", *lines, "[realms]", f"  {REALM} = {{", f"    kdc = {HOST}:{port}",
                                   "  }", ""]))  # fmt: skip
        return path

    def _write_profile(self, port: int) -> dict[str, str]:
        path = self.directory / f"kdc-{port}.conf"
        path.write_text(f"""[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = {HOST}:{port}
[realms]
  {REALM} = {{
    database_name = {self.directory}/principal
    key_stash_file = {self.directory}/stash
    max_life = 1d
    default_principal_flags = +preauth
  }}
[logging]
  kdc = FILE:{self.directory}/kdc.log
""")
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(path)}

    def _start(self, port: int, at: str | None = None) -> None:
        variables = self._write_profile(port) | (_clock(at) if at is not None else {})
        environment = [f"{name}={value}" for name, value in variables.items()]
        # It stays in the foreground, and so ends with this process.
        command = ["krb5kdc", "-n", "-r", REALM, "-P", str(self.directory / f"{port}.pid")]
        process = JavaProcess(["env", f"PATH={_PATH}", *environment, *command], self.directory / "out.log")
        self._processes.append(process)

        def check() -> None:
            if not process.is_running:
                raise RuntimeError(f"krb5kdc ended:\n{process.log_tail()}")

        wait_for_port(port, timeout_s=_START_TIMEOUT_S, check=check)

    def _admin(self, *queries: str) -> None:
        profile = next(self.directory.glob("kdc-*.conf"))
        environment = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}
        for query in queries:
            self._run(["kadmin.local", "-r", REALM, "-q", query], environment)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        done = subprocess.run(
            command, env={**os.environ, "PATH": _PATH, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
