"""YAML and environment in, frozen Settings out, or one error that lists every fault."""
