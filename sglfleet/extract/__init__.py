"""Published wheels to knowledge. Nothing of a wheel is executed: static reading only."""
