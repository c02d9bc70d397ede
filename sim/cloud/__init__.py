"""The pretend Google Cloud behind its real protocols."""
