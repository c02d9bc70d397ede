"""What runs on the GPU VM: takes control messages, runs the commands, says how they are."""
