"""Rolling a service over its hosts: plan, latch, a node's turn, lock, history."""
