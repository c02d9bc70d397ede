"""What every route stands on: endpoints, parameters, problems, OpenAPI."""
