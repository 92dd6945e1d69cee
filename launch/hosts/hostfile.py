"""`hosts.toml`: which machines take part in a run, how they are reached, and how pflsim is called there.

Every key and what it means is in the example, `launch/hosts.toml`.
"""

import json
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field

from launch.addresses import ANY_PORT, parsed
from launch.hosts.beginning import BEGINNING, NO_DIRECTORY, NO_PROGRAM
from pflsim.errors import DescriptionError
from pflsim.spec import Table, first_problem
from pflsim.values import plain

PYTHON = "python3"
QUIETLY = (
    *("-o", "BatchMode=yes"),  # nothing may ask for a password that nobody can give
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "RemoteCommand=none"),
    "-T",
)
"""Options of ssh with which it can neither ask nor hang."""

Word = Annotated[str, Field(min_length=1, max_length=1000)]
Command = Word | Annotated[tuple[Word, ...], Field(min_length=1)]
Variables = dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], str]


class Defaults(Table):
    """`[defaults]`: what holds for each host that does not say otherwise."""

    python: Word | None = None
    pflsim: Command | None = None
    directory: Word | None = None
    data: Word | None = None
    environment: Variables = Field(default_factory=dict)


class HostTable(Defaults):
    """`[[host]]`: one machine."""

    name: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][\w.-]*$")]
    address: Annotated[str, Field(pattern=r"^[^-\s]\S*$")] | None = None
    clients: Annotated[int, Field(gt=0)] | None = None

    @property
    def program(self) -> str:
        """What is started there, in words."""
        return self.python or (_words(self.pflsim)[0] if self.pflsim else PYTHON)

    def script(self, *arguments: str) -> str:
        """What the machine's shell is to do: run the command `pflsim` with these arguments, in its place."""
        lines = [f"cd {_place(self.directory)} || exit {NO_DIRECTORY}"] if self.directory else []
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        lines += [f"export PFLSIM_DATA={_place(self.data)}"] if self.data else []
        program = _place(self.program)
        lines.append(f"command -v {program} >/dev/null 2>&1 || exit {NO_PROGRAM}")
        rest = _words(self.pflsim)[1:] if self.pflsim else ["-P", "-c", BEGINNING]
        lines.append(f"exec {program} {shlex.join([*rest, *arguments])}")
        return f"exec sh -c {shlex.quote('; '.join(lines))}"


class HostFile(Table):
    """A whole file."""

    listen: str = ANY_PORT
    ssh: Command = "ssh"
    defaults: Defaults = Defaults()
    host: Annotated[tuple[HostTable, ...], Field(min_length=1)]

    @property
    def hosts(self) -> tuple[HostTable, ...]:
        """The machines, each with the defaults where it says nothing itself."""
        return tuple(_completed(one, self.defaults) for one in self.host)

    def command(self, host: HostTable, *arguments: str) -> list[str]:
        """What starts the command `pflsim` with these arguments on a machine; no secret may be among them."""
        return [*_words(self.ssh), *QUIETLY, "--", host.address or host.name, host.script(*arguments)]


def read_hosts(path: Path) -> HostFile:
    """The hosts that a file names. Raises DescriptionError."""
    try:
        tables = plain(tomllib.loads(path.read_text(encoding="utf-8")))
        file = HostFile.model_validate_json(json.dumps(tables), strict=True)
    except OSError as problem:
        raise DescriptionError("--hosts", str(path), f"cannot be read ({problem.strerror})") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise DescriptionError("--hosts", str(path), f"is not TOML: {problem}") from problem
    except pydantic.ValidationError as problem:
        found = first_problem(problem, HostFile)
        raise DescriptionError(_named_by_its_name(found.key, tables), found.value, found.expected) from None
    parsed(file.listen, "listen")
    twice = [name for name, count in Counter(one.name for one in file.host).items() if count > 1]
    if twice:
        raise DescriptionError("host.name", twice[0], "is the name of two hosts; `address` may be the same, names not")
    for one in (file.defaults, *file.host):
        if one.python and one.pflsim:
            at = f'host "{one.name}"' if isinstance(one, HostTable) else "defaults"
            raise DescriptionError(f"{at}.python, {at}.pflsim", (one.python, one.pflsim), "give one of the two")
    return file


def _completed(host: HostTable, defaults: Defaults) -> HostTable:
    """With the defaults; whoever says how pflsim is called says it whole."""
    given = {name: getattr(host, name) or getattr(defaults, name) for name in ("directory", "data")}
    if not host.python and not host.pflsim:
        given |= {"python": defaults.python, "pflsim": defaults.pflsim}
    return host.model_copy(update=given | {"environment": {**defaults.environment, **host.environment}})


def _named_by_its_name(key: str, tables: Any) -> str:
    """`host.1.pyton` as `host "lab2".pyton`."""
    first, *rest = key.split(".")
    if first == "host" and rest and rest[0].isdigit():
        one = tables["host"][int(rest[0])]
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            return ".".join([f'host "{one["name"]}"', *rest[1:]])
    return key


def _words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    return (command,) if isinstance(command, str) else command


def _place(path: str) -> str:
    """A path for the shell, in which ~/ is the home folder there."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)
