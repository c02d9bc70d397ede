"""Finds machines: a manager per cluster, a pure plan, and the fold of what the cloud said."""
