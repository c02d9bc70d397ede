"""pipeline-zen's workers: their messages in our words."""
