"""The log of a process: one line per event, with the seconds since the run began, on standard error."""

import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from pflsim.timing.clock import NANOSECONDS, host_nanoseconds


def open_log(process: str, started_ns: int) -> Any:
    """The logger of this process, with methods such as `info(event, key=value)`."""

    def since_start(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"seconds": round((host_nanoseconds() - started_ns) / NANOSECONDS, 3), **event}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            since_start,
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    return structlog.get_logger().bind(process=process)
