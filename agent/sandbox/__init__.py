"""What keeps a job from its VM, its agent and its neighbours."""
