"""The way in for a job: checks, cluster selection, prices, tenants, Pub/Sub intake."""
