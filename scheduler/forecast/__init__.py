"""When waiting jobs will start: run times, queue simulation, estimates."""
