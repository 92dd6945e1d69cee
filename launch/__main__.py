"""`pflsim`, and `python -m launch`: the command line, from its first moment on.

What it needs takes a while to import. Nothing runs yet then, so Ctrl-C ends it at once and says nothing.
"""

import os
import signal


def main() -> None:
    """The entry point `pflsim`."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from launch import cli

    cli.main()


if __name__ == "__main__":
    main()
