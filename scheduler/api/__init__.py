"""The REST API: raw routes over the ports, one table of endpoints that also makes the OpenAPI."""
