"""The whole service in virtual time: replicas, agents, bus, database and cloud in one event loop,
driven by one seed. Nothing here decides what runs where: it builds the classes of the service and
makes life hard for them."""
