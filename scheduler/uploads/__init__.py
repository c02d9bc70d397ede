"""Code that clients send for their jobs: taken in packs, checked, stored under the tenant."""
