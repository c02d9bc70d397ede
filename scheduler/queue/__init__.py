"""Who runs next: pure modules, composed by scheduler/cycle/plan.py."""
