"""How an API key is written."""

from __future__ import annotations

import re

KEY = re.compile(r"zen_([a-z0-9]{12})_([0-9a-f]{64})\Z")
"""zen_<id>_<secret>."""
