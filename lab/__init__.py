"""Real systemd hosts on one Linux machine."""
