"""`python -m cli` is the `zen` command."""

from cli.main import main

main()
