"""Launch commands as people have them: found in text, split into flags, never run."""
