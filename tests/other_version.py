"""The command line of a pflsim that says it is of another version."""

from launch import cli, joining

mine = joining.versions()
joining.versions = lambda: mine | {"pflsim": "9.9.9"}

if __name__ == "__main__":
    cli.main()
