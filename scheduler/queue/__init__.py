"""Who runs next: pure modules, composed by scheduler/plan.py."""
