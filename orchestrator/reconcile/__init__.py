"""The parts of a cluster's manager: observe, record, apply, report."""
