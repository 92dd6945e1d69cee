"""How pflsim begins on a machine that may lack it, and what its exit codes say of why it did not."""

NO_DIRECTORY, NO_PROGRAM, NO_PFLSIM = 81, 82, 83
UNREACHABLE = 255
"""With which ssh ends when it is ssh that failed."""

BEGINNING = (
    "import os, sys; sys.path.append(os.getcwd()); "  # a copy of the source, if that is there; it hides no library
    'said = "it is Python %d.%d.%d, and pflsim needs 3.11" % sys.version_info[:3] '
    'if sys.version_info < (3, 11) else ""; '
    f"said and (print(said, flush=True), os._exit({NO_PFLSIM})); "
    r'exec("try:\n from launch.cli import main\nexcept ImportError as problem:\n'
    rf' print(problem, flush=True); os._exit({NO_PFLSIM})"); '
    "main()"
)
"""The command line of pflsim as one line of Python, without an import that must succeed."""


def why_it_ended(code: int, program: str, directory: str | None, last: str) -> str:
    """Why a command on another machine ended before it had done anything, from its exit code and its last line."""
    said = f": {last}" if last else ""
    if code == UNREACHABLE:
        return f"cannot be reached by ssh{said}"
    if code == NO_DIRECTORY:
        return f"has no directory {directory}{said}"
    if code == NO_PROGRAM:
        return f"has no {program}"
    if code == NO_PFLSIM:
        return f"cannot run pflsim with its {program}{said}"
    return f"ended before it had joined, with exit code {code}{said}"
