"""A seeded virtual-time world around the production head, orchestrator, sessions, supervisor, cells and credits."""
