"""The `zen` command."""
