"""Other systems' clients, unmodified: their routes and words, translated at the edge. Everything
underneath is the one service and the one job model."""
