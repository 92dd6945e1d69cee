"""The programs that a process runs: host, server, client."""
