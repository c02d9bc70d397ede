"""All SQL and nothing but SQL, and the PostgreSQL that comes along when none is given."""
