"""The PostgreSQL that comes along when none is given."""
