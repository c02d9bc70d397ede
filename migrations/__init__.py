"""The schema's history. HEAD is where db/migrate.py looks before it loads anything heavy."""

HEAD = "0040"
